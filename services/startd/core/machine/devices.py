"""What slots' ads and jobs are told of devices (spec rows SLT-11, SLT-14, GPU-02, GPU-06)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.slots.carving import available, device_attribute
from services.startd.core.machine.resources import Resource, Stock
from services.startd.core.slots.model import Slot
from shared.classad import ClassAd, unparse
from shared.consumption import resources

GPUS: Final = "GPUs"
DISK_TOTAL: Final = "TotalDisk"
#: What a job without a GPU is told to use: no machine has a GPU of this number, so it finds none.
NO_DEVICE: Final = "10000"


def machine_attributes(stock: Stock) -> dict[str, Any]:
    """What all slots show of custom resources."""
    found: dict[str, Any] = {}
    for name, resource in stock.resources.items():
        found |= resource.attributes
        found[f"Detected{name}"] = resource.detected
        if resource.offline:
            found[f"Offline{name}"] = ",".join(resource.offline)
    return found


def slot_attributes(slot: Slot, stock: Stock, disk_kib: int | None = None) -> dict[str, Any]:
    """What one slot shows of its devices: which they are, which are free, and what is known of them: each one's own
    properties as an ad, and those that all have alike for themselves. disk_kib: what its partition has, if known."""
    found: dict[str, Any] = {} if disk_kib is None else {DISK_TOTAL: disk_kib}
    for name, free in slot.free.ids.items():
        ids = slot.total.ids.get(name, ())
        if ids:
            found[f"Assigned{name}"] = ",".join(ids)
        found[f"Available{name}"] = available(name, free)
        resource = stock.resources.get(name)
        if resource is not None and resource.properties:
            found |= _properties(resource, ids)
    return found


def _properties(resource: Resource, ids: Iterable[str]) -> dict[str, Any]:
    ads = {one: resource.properties[one] for one in ids if one in resource.properties}
    found: dict[str, Any] = {}
    first = next(iter(ads.values()), ClassAd())
    for attribute, expr in first.exprs():
        if attribute != "Id" and all(_text(ad, attribute) == unparse(expr) for ad in ads.values()):
            found[f"{resource.name}_{attribute}"] = expr
    return found | {device_attribute(resource.name, one): ad for one, ad in ads.items()}


def _text(ad: ClassAd, attribute: str) -> str | None:
    expr = ad.lookup(attribute)
    return None if expr is None else unparse(expr)


@dataclass(frozen=True, slots=True)
class DeviceVariable:
    """A variable of jobs with the devices of their slot. pattern, replacement: what becomes of each device's name."""

    name: str
    pattern: re.Pattern[str] | None = None
    replacement: str = ""


@dataclass(frozen=True, slots=True)
class DeviceVariables:
    """Those of one kind of device. unassigned: what they are where the slot has none; None: they are not set."""

    named: tuple[DeviceVariable, ...]
    unassigned: str | None = None


def read_device_variables(text: str) -> tuple[DeviceVariable, ...]:
    """ENVIRONMENT_FOR_Assigned<name>: names, each with =/pattern/replacement/ after it or without; any character may
    stand for the slashes. Raises ValueError with the reason."""
    found, at = [], 0
    while rest := text[at:].lstrip(" \t,"):
        at = len(text) - len(rest)
        matched = _VARIABLE.match(rest)
        if matched is None:
            raise ValueError(f"{rest.split()[0]} is neither a variable nor one with =/pattern/replacement/")
        name, _, pattern, replacement = matched.groups()
        try:
            compiled = re.compile(pattern) if pattern is not None else None
        except re.error as error:
            raise ValueError(f"{pattern} is no regular expression: {error}") from error
        # Perl's $1 is \g<1> here, and nothing else is special.
        text_of = "" if replacement is None else re.sub(r"\$([0-9])", r"\\g<\1>", replacement.replace("\\", "\\\\"))
        found.append(DeviceVariable(name, compiled, text_of))
        at += matched.end()
    return tuple(found)


_VARIABLE: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:=([^\sA-Za-z0-9])(.*?)\2(.*?)\2)?(?=[\s,]|$)")


def device_environment(machine: ClassAd, wanted: Mapping[str, DeviceVariables] = {}) -> dict[str, str]:
    """What a job's environment says of the devices of its slot, whose ad this is. Programs for GPUs go by these
    variables, so a job that has none is kept from those of others. wanted: what the administrator says of some kinds of
    devices, by name in lower case."""
    found = {}
    for name in resources(machine):
        assigned = machine.eval(f"Assigned{name}")
        if isinstance(assigned, str) and assigned:
            found[f"_CONDOR_Assigned{name}"] = assigned
        if (variables := wanted.get(name.lower())) is not None:
            found |= _wanted(machine, name, found.get(f"_CONDOR_Assigned{name}"), variables)
    gpus = found.get(f"_CONDOR_Assigned{GPUS}")
    told = {} if gpus is not None else {f"_CONDOR_Assigned{GPUS}": NO_DEVICE}
    if (variables := wanted.get(GPUS.lower())) is not None:
        return found | told | ({} if gpus is not None else _wanted(machine, GPUS, None, variables))
    if gpus is None:
        return found | _gpu_variables(NO_DEVICE, NO_DEVICE, "none") | told
    ids = gpus.split(",")
    return found | _gpu_variables(
        ",".join(_for_cuda(one) for one in ids),
        ",".join(re.sub("CUDA|OCL", "", one) for one in ids),
        ",".join(_container_name(machine, one) for one in ids),
    )


def _wanted(machine: ClassAd, kind: str, assigned: str | None, variables: DeviceVariables) -> dict[str, str]:
    """assigned: the slot's devices of this kind; None: it has none."""
    if assigned is None:
        none = NO_DEVICE if kind.lower() == GPUS.lower() else None
        value = none if variables.unassigned is None else variables.unassigned
        return {} if value is None else {variable.name: value for variable in variables.named}
    found = {}
    for variable in variables.named:
        ids = [one.strip() for one in assigned.split(",")]
        if variable.pattern is not None:
            pattern, replacement = variable.pattern, variable.replacement
            ids = [pattern.sub(replacement, one, count=1) for one in ids]
        elif variable.name == "CUDA_VISIBLE_DEVICES":
            ids = [_for_cuda(one) for one in ids]
        elif variable.name == "NVIDIA_VISIBLE_DEVICES":
            ids = [_container_name(machine, one) for one in ids]
        found[variable.name] = ",".join(ids)
    return found


def gpus_to_hide(machine: ClassAd, devices: Mapping[str, str]) -> list[str]:
    """The GPUs of a machine that a job must not use: all but those of its slot, whose ad this is. devices: UUID of each
    GPU (GPU-1234...), by its path. Where a GPU of the slot is none of them (a part of one, MIG; one by number whose
    UUID is not known), nobody can say which is which, and none is to be hidden."""
    assigned = machine.eval(f"Assigned{GPUS}")
    names = [one.strip() for one in assigned.split(",")] if isinstance(assigned, str) else []
    uuids = [_container_name(machine, one).lower() for one in names if one]
    own = {path for path, uuid in devices.items() for one in uuids if len(one) > 4 and uuid.lower().startswith(one)}
    return [] if len(own) < len(uuids) else sorted(devices.keys() - own)


def _for_cuda(device: str) -> str:
    return re.sub("CUDA", "", device)


def _gpu_variables(cuda: str, ordinal: str, containers: str) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": cuda, "GPU_DEVICE_ORDINAL": ordinal, "NVIDIA_VISIBLE_DEVICES": containers}


def _container_name(machine: ClassAd, device: str) -> str:
    """What a container runtime calls a GPU: unlike programs, it wants the whole UUID, or the number."""
    properties = machine.eval(device_attribute(GPUS, device))
    uuid = properties.eval("DeviceUuid") if isinstance(properties, ClassAd) else None
    if isinstance(uuid, str) and uuid:
        return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    return re.sub("CUDA", "", device)
