"""The libraries of the drivers, by ctypes: CUDA's driver API, NVML, OpenCL. A backend (`model.Backend`).

Used in a process of its own only (`python -m shared.gpus`): a broken driver may hang, or end whoever calls it. Nothing
is linked or installed for it; a machine without a library has nothing of its kind.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from shared.gpus.model import Dynamic, Found, Gpu, Load, OpenClDevice

_CUDA: Final = ("libcuda.so.1", "libcuda.so")
_NVML: Final = ("libnvidia-ml.so.1", "libnvidia-ml.so")
_OPENCL: Final = ("libOpenCL.so.1", "libOpenCL.so")
#: CUdevice_attribute.
_CLOCK_KHZ, _UNITS, _ECC = 13, 16, 32
_MOST = 256


class _Missing(Exception):
    """No such library, or function in it."""


class _Library:
    """One shared library. Every call gives what it wrote, or None where it fails or is not there."""

    def __init__(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                self._library = ctypes.CDLL(name)
                break
            except OSError:
                continue
        else:
            raise _Missing(names[0])

    def call(self, names: str | Sequence[str], *arguments: Any) -> bool:
        """Whether it succeeded (0). Of several names, newest first, the first that there is."""
        for name in (names,) if isinstance(names, str) else names:
            function = getattr(self._library, name, None)
            if function is not None:
                return bool(function(*arguments) == 0)
        return False

    def number(self, names: str | Sequence[str], *arguments: Any, kind: type[Any] = ctypes.c_int) -> int | None:
        """What a function writes to its first argument."""
        value = kind()
        return int(value.value) if self.call(names, ctypes.byref(value), *arguments) else None

    def last(self, names: str | Sequence[str], *arguments: Any, kind: type[Any] = ctypes.c_uint) -> int | None:
        """What a function writes to its last argument."""
        value = kind()
        return int(value.value) if self.call(names, *arguments, ctypes.byref(value)) else None


def _text(buffer: ctypes.Array[ctypes.c_char]) -> str:
    return buffer.value.decode("utf-8", "replace").strip()


class DriverLibraries:
    """The backend that asks the drivers' libraries."""

    def find(self, *, opencl: bool, dynamic: bool) -> Found:
        troubles: list[str] = []
        gpus: list[Gpu] = []
        now: dict[str, Dynamic] = {}
        try:
            gpus = list(_cuda_gpus(_Library(_CUDA)))
        except _Missing as error:
            troubles.append(f"{error}: not there, so no CUDA devices")
        if gpus:
            try:
                gpus, now = _with_nvml(gpus, dynamic=dynamic)
            except _Missing as error:
                troubles.append(f"{error}: not there, so neither instances (MIG) nor dynamic properties")
        devices: list[OpenClDevice] = []
        if opencl:
            try:
                devices = list(_opencl_devices(_Library(_OPENCL)))
            except _Missing as error:
                troubles.append(f"{error}: not there, so no OpenCL devices")
        return Found(gpus, devices, now, troubles)

    def loads(self) -> Sequence[Load]:
        try:
            nvml = _Library(_NVML)
        except _Missing:
            return ()
        if not nvml.call(("nvmlInit_v2", "nvmlInit")):
            return ()
        found = []
        for handle in _handles(nvml):
            for one in (handle, *_instances(nvml, handle)):
                used = (ctypes.c_ulonglong * 3)()
                if not nvml.call("nvmlDeviceGetMemoryInfo", one, ctypes.byref(used)):
                    continue
                rates = (ctypes.c_uint * 2)()
                known = nvml.call("nvmlDeviceGetUtilizationRates", one, ctypes.byref(rates))
                uuid = _uuid(nvml, one).removeprefix("GPU-")
                found.append(Load(uuid, min(rates[0], 100) / 100 if known else 0.0, int(used[2] >> 20)))
        return found


# ---------------------------------------------------------------- CUDA


def _cuda_gpus(cuda: _Library) -> Iterator[Gpu]:
    if not cuda.call("cuInit", 0):
        return
    driver = cuda.number("cuDriverGetVersion") or 0
    for index in range(min(cuda.number("cuDeviceGetCount") or 0, _MOST)):
        device = cuda.number("cuDeviceGet", index)
        if device is None:
            continue
        name, pci, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(64), (ctypes.c_ubyte * 16)()
        cuda.call("cuDeviceGetName", name, 256, device)
        cuda.call("cuDeviceGetPCIBusId", pci, 64, device)
        if not cuda.call(("cuDeviceGetUuid_v2", "cuDeviceGetUuid"), ctypes.byref(uuid), device):
            continue
        major, minor = ctypes.c_int(), ctypes.c_int()
        capable = cuda.call("cuDeviceComputeCapability", ctypes.byref(major), ctypes.byref(minor), device)
        digits = bytes(uuid).hex()
        yield Gpu(
            uuid="-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])),
            index=index,
            name=_text(name),
            capability=(major.value, minor.value) if capable else None,
            memory_bytes=cuda.number(("cuDeviceTotalMem_v2", "cuDeviceTotalMem"), device, kind=ctypes.c_size_t) or 0,
            pci=_text(pci),
            units=cuda.number("cuDeviceGetAttribute", _UNITS, device),
            clock_khz=cuda.number("cuDeviceGetAttribute", _CLOCK_KHZ, device) or 0,
            ecc=bool(cuda.number("cuDeviceGetAttribute", _ECC, device)),
            driver=driver,
        )


# ---------------------------------------------------------------- NVML


def _with_nvml(gpus: list[Gpu], *, dynamic: bool) -> tuple[list[Gpu], dict[str, Dynamic]]:
    """The GPUs, with instances in the place of those that are cut into such, and their dynamic properties."""
    nvml = _Library(_NVML)
    if not nvml.call(("nvmlInit_v2", "nvmlInit")):
        return gpus, {}
    known = {f"GPU-{gpu.uuid}": gpu for gpu in gpus}
    now: dict[str, Dynamic] = {}
    cut: set[str] = set()
    instances: list[Gpu] = []
    for handle in _handles(nvml):
        uuid = _uuid(nvml, handle)
        gpu = known.get(uuid)
        if gpu is None:
            continue
        for instance in _instances(nvml, handle):
            cut.add(gpu.uuid)
            instances.append(_instance(nvml, instance, gpu))
            if dynamic:
                now[instances[-1].uuid] = _dynamic(nvml, instance)
        if dynamic:
            now[gpu.uuid] = _dynamic(nvml, handle)
    return [gpu for gpu in gpus if gpu.uuid not in cut] + instances, now


def _handles(nvml: _Library) -> Iterator[ctypes.c_void_p]:
    for index in range(min(nvml.last(("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")) or 0, _MOST)):
        handle = ctypes.c_void_p()
        names = ("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
        if nvml.call(names, index, ctypes.byref(handle)):
            yield handle


def _instances(nvml: _Library, handle: ctypes.c_void_p) -> Iterator[ctypes.c_void_p]:
    for index in range(min(nvml.last("nvmlDeviceGetMaxMigDeviceCount", handle) or 0, _MOST)):
        instance = ctypes.c_void_p()
        if nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, index, ctypes.byref(instance)):
            yield instance


def _uuid(nvml: _Library, handle: ctypes.c_void_p) -> str:
    text = ctypes.create_string_buffer(96)
    return _text(text) if nvml.call("nvmlDeviceGetUUID", handle, text, 96) else ""


def _instance(nvml: _Library, handle: ctypes.c_void_p, whole: Gpu) -> Gpu:
    name = ctypes.create_string_buffer(256)
    used = (ctypes.c_ulonglong * 3)()
    nvml.call("nvmlDeviceGetName", handle, name, 256)
    nvml.call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(used))
    # nvmlDeviceAttributes_t: multiprocessors are its first number.
    attributes = (ctypes.c_uint * 16)()
    known = nvml.call(("nvmlDeviceGetAttributes_v2", "nvmlDeviceGetAttributes"), handle, ctypes.byref(attributes))
    return Gpu(
        uuid=_uuid(nvml, handle),
        name=_text(name),
        capability=whole.capability,
        memory_bytes=int(used[0]),
        pci=whole.pci,
        units=int(attributes[0]) if known else None,
        clock_khz=whole.clock_khz,
        ecc=whole.ecc,
        instance=True,
    )


def _dynamic(nvml: _Library, handle: ctypes.c_void_p) -> Dynamic:
    def errors(kind: int) -> int | None:
        # Volatile ones: since the driver was loaded.
        return nvml.last("nvmlDeviceGetTotalEccErrors", handle, kind, 0, kind=ctypes.c_ulonglong)

    return Dynamic(
        temperature_c=nvml.last("nvmlDeviceGetTemperature", handle, 0),
        fan_percent=nvml.last("nvmlDeviceGetFanSpeed", handle),
        power_mw=nvml.last("nvmlDeviceGetPowerUsage", handle),
        single_bit_errors=errors(0),
        double_bit_errors=errors(1),
    )


# ---------------------------------------------------------------- OpenCL

_GPU_DEVICES = 1 << 2
_NAME, _VERSION, _COMPUTE_UNITS, _CLOCK_MHZ, _MEMORY, _MEMORY_ECC = 0x102B, 0x102F, 0x1002, 0x100C, 0x101F, 0x1024


def _opencl_devices(opencl: _Library) -> Iterator[OpenClDevice]:
    index = 0
    for platform in _listed(lambda *rest: opencl.call("clGetPlatformIDs", *rest)):
        devices = _listed(
            lambda *rest, of=platform: opencl.call("clGetDeviceIDs", of, ctypes.c_ulong(_GPU_DEVICES), *rest)
        )
        for device in devices:
            version = re.search(r"\d+\.\d+", _info_text(opencl, device, _VERSION))
            yield OpenClDevice(
                index=index,
                name=_info_text(opencl, device, _NAME),
                version=version.group() if version else "0.0",
                memory_bytes=_info(opencl, device, _MEMORY, ctypes.c_ulonglong),
                units=_info(opencl, device, _COMPUTE_UNITS, ctypes.c_uint),
                clock_mhz=_info(opencl, device, _CLOCK_MHZ, ctypes.c_uint),
                ecc=bool(_info(opencl, device, _MEMORY_ECC, ctypes.c_uint)),
            )
            index += 1


def _listed(ask: Callable[..., bool]) -> list[ctypes.c_void_p]:
    """The handles that a function lists, which is asked for their number first."""
    count = ctypes.c_uint()
    if not ask(0, None, ctypes.byref(count)) or not count.value:
        return []
    handles = (ctypes.c_void_p * min(count.value, _MOST))()
    if not ask(len(handles), handles, None):
        return []
    return [ctypes.c_void_p(handle) for handle in handles]


def _info(opencl: _Library, device: ctypes.c_void_p, what: int, kind: type[Any]) -> int:
    value = kind()
    size = ctypes.c_size_t(ctypes.sizeof(value))
    return int(value.value) if opencl.call("clGetDeviceInfo", device, what, size, ctypes.byref(value), None) else 0


def _info_text(opencl: _Library, device: ctypes.c_void_p, what: int) -> str:
    text = ctypes.create_string_buffer(256)
    return _text(text) if opencl.call("clGetDeviceInfo", device, what, ctypes.c_size_t(256), text, None) else ""
