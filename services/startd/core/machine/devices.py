"""What slots' ads and jobs are told of devices (spec rows SLT-11, SLT-14, GPU-02, GPU-06)."""

from __future__ import annotations

import re
from collections.abc import Iterable
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


def device_environment(machine: ClassAd) -> dict[str, str]:
    """What a job's environment says of the devices of its slot, whose ad this is. Programs for GPUs go by these
    variables, so a job that has none is kept from those of others."""
    found = {}
    for name in resources(machine):
        assigned = machine.eval(f"Assigned{name}")
        if isinstance(assigned, str) and assigned:
            found[f"_CONDOR_Assigned{name}"] = assigned
    gpus = found.get(f"_CONDOR_Assigned{GPUS}")
    if gpus is None:
        return found | _gpu_variables(NO_DEVICE, NO_DEVICE, "none") | {f"_CONDOR_Assigned{GPUS}": NO_DEVICE}
    ids = gpus.split(",")
    return found | _gpu_variables(
        ",".join(re.sub("CUDA", "", one) for one in ids),
        ",".join(re.sub("CUDA|OCL", "", one) for one in ids),
        ",".join(_container_name(machine, one) for one in ids),
    )


def _gpu_variables(cuda: str, ordinal: str, containers: str) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": cuda, "GPU_DEVICE_ORDINAL": ordinal, "NVIDIA_VISIBLE_DEVICES": containers}


def _container_name(machine: ClassAd, device: str) -> str:
    """What a container runtime calls a GPU: unlike programs, it wants the whole UUID, or the number."""
    properties = machine.eval(device_attribute(GPUS, device))
    uuid = properties.eval("DeviceUuid") if isinstance(properties, ClassAd) else None
    if isinstance(uuid, str) and uuid:
        return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    return re.sub("CUDA", "", device)
