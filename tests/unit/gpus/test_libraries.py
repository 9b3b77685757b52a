"""The drivers' libraries, with libraries of Python in their place: what is asked of them, and what becomes of it."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from shared.gpus import libraries
from shared.gpus.discovery import render
from shared.gpus.libraries import DriverLibraries
from shared.gpus.monitor import monitor
from shared.gpus.options import parse
from tests.spec import spec
from tests.unit.gpus.machines import Machine

UUIDS = ("1a2b3c4d00112233445566778899aabb", "5e6f7a8b11223344556677889900aabb")


class Cuda:
    """Two GPUs, as libcuda tells of them."""

    def cuInit(self, flags: int) -> int:
        return flags

    def cuDriverGetVersion(self, value: Any) -> int:
        value._obj.value = 12020
        return 0

    def cuDeviceGetCount(self, value: Any) -> int:
        value._obj.value = 2
        return 0

    def cuDeviceGet(self, value: Any, index: int) -> int:
        value._obj.value = index
        return 0

    def cuDeviceGetName(self, buffer: Any, size: int, device: int) -> int:
        buffer.value = (b"Tesla T4", b"A100")[device]
        return 0

    def cuDeviceGetPCIBusId(self, buffer: Any, size: int, device: int) -> int:
        buffer.value = (b"0000:3B:00.0", b"0000:86:00.0")[device]
        return 0

    def cuDeviceGetUuid(self, value: Any, device: int) -> int:
        ctypes.memmove(value._obj, bytes.fromhex(UUIDS[device]), 16)
        return 0

    def cuDeviceComputeCapability(self, major: Any, minor: Any, device: int) -> int:
        major._obj.value, minor._obj.value = ((7, 5), (8, 0))[device]
        return 0

    def cuDeviceTotalMem_v2(self, value: Any, device: int) -> int:
        value._obj.value = (15843721216, 42505273344)[device]
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> int:
        value._obj.value = {13: (1_590_000, 1_410_000), 16: (40, 108), 32: (1, 1)}[attribute][device]
        return 0


class Nvml:
    """The same two; the second is cut into one instance (handle 3)."""

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetCount_v2(self, value: Any) -> int:
        value._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle._obj.value = index + 1
        return 0

    def nvmlDeviceGetUUID(self, handle: Any, buffer: Any, size: int) -> int:
        digits = (*UUIDS, "a1a1a1a1112233445566778899001122")[handle.value - 1]
        parts = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        buffer.value = f"{'MIG' if handle.value == 3 else 'GPU'}-{parts}".encode()
        return 0

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any, value: Any) -> int:
        value._obj.value = 2 if handle.value == 2 else 0
        return 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int, found: Any) -> int:
        found._obj.value = 3
        return 0 if index == 0 else 6

    def nvmlDeviceGetName(self, handle: Any, buffer: Any, size: int) -> int:
        buffer.value = b"A100 MIG 1g.5gb"
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        memory._obj[0], memory._obj[2] = 5100273664, 300 << 20
        return 0

    def nvmlDeviceGetAttributes_v2(self, handle: Any, attributes: Any) -> int:
        attributes._obj[0] = 14
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        rates._obj[0] = 80
        return 3 if handle.value == 3 else 0  # instances have no rate of their own

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int, value: Any) -> int:
        value._obj.value = 43
        return 0

    def nvmlDeviceGetFanSpeed(self, handle: Any, value: Any) -> int:
        return 3

    def nvmlDeviceGetPowerUsage(self, handle: Any, value: Any) -> int:
        value._obj.value = 26350
        return 0

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: int, counter: int, value: Any) -> int:
        value._obj.value = kind
        return 0


class OpenCl:
    def clGetPlatformIDs(self, count: int, platforms: Any, number: Any) -> int:
        if platforms is None:
            number._obj.value = 1
        else:
            platforms[0] = 7
        return 0

    def clGetDeviceIDs(self, platform: Any, kind: Any, count: int, devices: Any, number: Any) -> int:
        assert (platform.value, kind.value) == (7, 4)
        if devices is None:
            number._obj.value = 1
        else:
            devices[0] = 9
        return 0

    def clGetDeviceInfo(self, device: Any, what: int, size: Any, value: Any, _: Any) -> int:
        texts = {0x102B: b"gfx906", 0x102F: b"OpenCL 2.0 AMD-APP (3180.7)"}
        if what in texts:
            value.value = texts[what]
        else:
            value._obj.value = {0x1002: 60, 0x100C: 1801, 0x101F: 17163091968, 0x1024: 0}[what]
        return 0


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Libraries by the beginning of their file's name."""
    found: dict[str, Any] = {}

    def load(name: str) -> Any:
        for start, library in found.items():
            if name.startswith(start):
                return library
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(libraries.ctypes, "CDLL", load)
    return found


def test_a_machine_without_libraries_has_nothing_and_says_why(there: dict[str, Any]) -> None:
    found = DriverLibraries().find(opencl=True, dynamic=True)
    assert (found.gpus, found.opencl) == ([], [])
    assert ["libcuda" in one or "libOpenCL" in one for one in found.troubles] == [True, True]
    assert DriverLibraries().loads() == ()


def test_cuda_alone(there: dict[str, Any]) -> None:
    there["libcuda"] = Cuda()
    found = DriverLibraries().find(opencl=False, dynamic=True)
    assert [(gpu.name, gpu.capability, gpu.units) for gpu in found.gpus] == [
        ("Tesla T4", (7, 5), 40),
        ("A100", (8, 0), 108),
    ]
    assert found.gpus[0].uuid == "1a2b3c4d-0011-2233-4455-66778899aabb"
    assert "libnvidia-ml" in found.troubles[0]
    assert "DriverVersion=12.20" in render(found, parse(["-properties"]))


def test_instances_stand_in_for_the_gpu_that_is_cut(there: dict[str, Any]) -> None:
    there |= {"libcuda": Cuda(), "libnvidia-ml": Nvml()}
    found = DriverLibraries().find(opencl=False, dynamic=True)
    assert [gpu.uuid[:12] for gpu in found.gpus] == ["1a2b3c4d-001", "MIG-a1a1a1a1"]
    instance = found.gpus[1]
    assert (instance.units, instance.memory_bytes, instance.capability) == (14, 5100273664, (8, 0))
    now = found.dynamic["1a2b3c4d-0011-2233-4455-66778899aabb"]
    assert (now.temperature_c, now.fan_percent, now.power_mw, now.double_bit_errors) == (43, None, 26350, 1)


def test_opencl_devices(there: dict[str, Any]) -> None:
    there["libOpenCL"] = OpenCl()
    (device,) = DriverLibraries().find(opencl=True, dynamic=False).opencl
    assert (device.name, device.version, device.units, device.clock_mhz) == ("gfx906", "2.0", 60, 1801)
    assert not DriverLibraries().find(opencl=False, dynamic=False).opencl


def test_loads_of_gpus_and_of_instances(there: dict[str, Any]) -> None:
    there["libnvidia-ml"] = Nvml()
    found = {load.uuid[:8]: (load.busy, load.memory_mib) for load in DriverLibraries().loads()}
    assert found == {"1a2b3c4d": (0.8, 300), "5e6f7a8b": (0.8, 300), "MIG-a1a1": (0.0, 300)}


@spec("GPU-05")
def test_the_monitor_adds_up_what_gpus_did() -> None:
    """Seconds of work since the last line, and the most memory."""
    machine = Machine("driver|0", busy={"gpu-a": (0.5, 100), "gpu-b": (0.0, 7)})
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        machine.busy["gpu-b"] = (0.0, int(clock[0] * 2))

    lines: list[str] = []
    assert monitor(["5"], out=lines.append, backend=machine, now=lambda: clock[0], sleep=sleep, rounds=2) == 0
    assert lines == ["gpu-a 2.500 100\ngpu-b 0.000 10\n-\n", "gpu-a 2.500 100\ngpu-b 0.000 20\n-\n"]
