"""What discovery prints of the GPUs that were found: in HTCondor's words, order and numbers (spec rows GPU-01, GPU-02,
TLS-13).

Where HTCondor's tool is wrong we are not: properties that all GPUs share are divided too by -divide, and two GPUs whose
UUIDs begin alike get whole UUIDs as ids, not one id together.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from shared.gpus.model import Dynamic, Found, Gpu, OpenClDevice
from shared.gpus.options import Options

_MIB = 1 << 20
#: CUDA cores of a multiprocessor, by capability; of newer ones as of the last. Told by minor version first.
_CORES = {(2, 0): 32, (2, 1): 48, (6, 0): 64, (8, 0): 64, 1: 8, 3: 192, 5: 128, 6: 128, 7: 64}
_CORES_SINCE = 128
#: What each GPU tells for itself, also where all say the same.
_OF_EACH = frozenset(
    ("DieTempC", "FanSpeedPct", "PowerUsage_mw", "EccErrorsSingleBit", "EccErrorsDoubleBit", "DeviceMemoryMb")
)


def render(found: Found, options: Options, visible: Sequence[str] = ()) -> str:
    """The text to print. visible: numbers, or beginnings of UUIDs, that the environment leaves to us; empty: all."""
    wanted = [*options.devices, *visible]
    devices = _chosen(found, options)
    ids = _ids(devices, options)
    kept = [(one, name) for one, name in zip(devices, ids, strict=True) if not wanted or _named(one, wanted)]
    lines = []
    if options.form != "cron":
        lines += _detected([name for _, name in kept], options, there=bool(devices))
    if options.properties and kept:
        prefix = options.prefix or ("OCL" if isinstance(kept[0][0], OpenClDevice) else "CUDA")
        lines += _properties({name: _of(one, found, options) for one, name in kept}, prefix, options)
    return "".join(line + "\n" for line in lines)


def _chosen(found: Found, options: Options) -> list[Gpu | OpenClDevice]:
    if options.kind == "opencl" and found.opencl:
        return list(found.opencl)
    if found.gpus or options.kind == "cuda":
        return list(found.gpus)
    return list(found.opencl)


def _ids(devices: Sequence[Gpu | OpenClDevice], options: Options) -> list[str]:
    short = Counter(one.uuid[:8] for one in devices if isinstance(one, Gpu) and not one.instance)
    ids = []
    for one in devices:
        if isinstance(one, OpenClDevice):
            ids.append(f"{options.prefix or 'OCL'}{one.index}")
        elif one.instance:
            ids.append(one.uuid)
        elif options.ids == "index":
            ids.append(f"{options.prefix or 'CUDA'}{one.index}")
        else:
            whole = options.ids == "uuid" or short[one.uuid[:8]] > 1
            ids.append(f"GPU-{one.uuid if whole else one.uuid[:8]}")
    return ids


def _named(device: Gpu | OpenClDevice, wanted: Sequence[str]) -> bool:
    uuid = "" if isinstance(device, OpenClDevice) else device.uuid if device.instance else f"GPU-{device.uuid}"
    return any(str(device.index) == one or (len(one) > 4 and uuid.startswith(one)) for one in wanted)


def _detected(ids: Sequence[str], options: Options, *, there: bool) -> list[str]:
    if options.packed:
        listed = [one for one in ids for _ in range(options.copies)]
    else:
        listed = list(ids) * options.copies
    if not there:
        lines = [f"Detected{options.tag}=0"]
    elif options.form == "config":
        lines = [f"Detected{options.tag}={', '.join(listed)}"]
    else:
        lines = [f'Detected{options.tag}="{", ".join(listed)}"']
    if options.form == "config":
        lines.append(f"NUM_DETECTED_{options.tag}={len(ids)}")
    return lines


def _properties(of: Mapping[str, Mapping[str, str]], prefix: str, options: Options) -> list[str]:
    common: dict[str, str] = {}
    if not options.mixed:
        first = next(iter(of.values()))
        common = {
            name: text
            for name, text in first.items()
            if name not in _OF_EACH and all(one.get(name) == text for one in of.values())
        }
    lines = []
    if common and options.nested:
        lines.append(f"Common=[ {_joined(common)}]")
    elif common:
        lines += [f"{prefix}{name}={text}" for name, text in sorted(common.items())]
    for name, properties in sorted(of.items()):
        own = {one: text for one, text in properties.items() if one not in common}
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        if options.nested:
            lines.append(f'{plain}=[ id="{name}"; {_joined(own)}]')
        else:
            lines += [f"{plain}{one}={text}" for one, text in sorted(own.items())]
    return lines


def _joined(properties: Mapping[str, str]) -> str:
    return "".join(f"{name}={text}; " for name, text in sorted(properties.items()))


def _of(device: Gpu | OpenClDevice, found: Found, options: Options) -> dict[str, str]:
    if isinstance(device, OpenClDevice):
        properties = {
            "DeviceName": _quoted(device.name),
            "ECCEnabled": _truth(device.ecc),
            "OpenCLVersion": device.version,
        }
        if options.extra:
            properties |= {"ClockMhz": str(device.clock_mhz), "ComputeUnits": str(device.units)}
    else:
        properties = _of_gpu(device, options)
        if options.dynamic:
            properties |= _of_dynamic(found.dynamic.get(device.uuid, Dynamic()))
    if device.memory_bytes:
        memory = round(device.memory_bytes / _MIB)
        properties["GlobalMemoryMb"] = str(memory)
        if options.divide and options.copies > 1:
            properties["GlobalMemoryMb"] = str(memory // options.copies)
            properties["DeviceMemoryMb"] = str(memory)
    return properties


def _of_gpu(gpu: Gpu, options: Options) -> dict[str, str]:
    properties = {"DeviceUuid": _quoted(gpu.uuid), "ECCEnabled": _truth(gpu.ecc)}
    if gpu.name:
        properties["DeviceName"] = _quoted(gpu.name)
    if gpu.pci:
        properties["DevicePciBusId"] = _quoted(gpu.pci)
    if gpu.capability is not None:
        properties["Capability"] = "{}.{}".format(*gpu.capability)
    if gpu.driver:
        properties["DriverVersion"] = f"{gpu.driver // 1000}.{gpu.driver % 100}"
        properties["MaxSupportedVersion"] = str(gpu.driver)
    if options.extra:
        if gpu.clock_khz:
            properties["ClockMhz"] = f"{gpu.clock_khz / 1000:.2f}"
        if gpu.units is not None:
            properties["ComputeUnits"] = str(gpu.units)
        if gpu.capability is not None:
            properties["CoresPerCU"] = str(_cores(gpu.capability))
    return properties


def _cores(capability: tuple[int, int]) -> int:
    return _CORES.get(capability) or _CORES.get(capability[0]) or _CORES_SINCE


def _of_dynamic(now: Dynamic) -> dict[str, str]:
    said = {
        "DieTempC": now.temperature_c,
        "FanSpeedPct": now.fan_percent,
        "PowerUsage_mw": now.power_mw,
        "EccErrorsSingleBit": now.single_bit_errors,
        "EccErrorsDoubleBit": now.double_bit_errors,
    }
    return {name: str(value) for name, value in said.items() if value is not None}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{"".join(one for one in escaped if one.isprintable())}"'


def _truth(value: bool) -> str:
    return "true" if value else "false"
