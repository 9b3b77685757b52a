"""How a partitionable slot is carved (spec rows SLT-16 to SLT-23, GPU-04). How slots come to be: `machine/division`.

Of a resource that consists of devices, the job's Require<resource> chooses: the first free devices for whose properties
it is true, in the order in which the machine names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from engine.slots.amounts import CPUS, DISK, MEMORY, STANDARD, Amounts, Number
from shared.classad import ClassAd, Expr, evaluate, parse_expr
from shared.consumption import Shortage, consumption, has_policy

#: What a dynamic slot's Disk has more than the rounded request, KiB (as the reference does).
DISK_EXTRA_KIB = 1024
#: No slot has less (SLT-10), a dynamic one neither: what asks for no core, or no memory, gets the least there is.
LEAST = {CPUS: 1, MEMORY: 1}


class SlotKind(StrEnum):
    PARTITIONABLE = "Partitionable"
    DYNAMIC = "Dynamic"
    STATIC = "Static"


@dataclass(frozen=True, slots=True)
class PlannedSlot:
    slot_id: int
    type_id: int
    kind: SlotKind
    amounts: Amounts
    disk_share: float = 1.0  # of its partition's disk
    swap_share: float = 1.0  # of the machine's virtual memory
    partition: str = ""  # which file system its EXECUTE is on, if there are several
    prefix: str = "slot"  # of its name, before its number


# ---------------------------------------------------------------- carving


@dataclass(frozen=True, slots=True)
class Carving:
    """MODIFY_REQUEST_EXPR_REQUEST<resource> by resource name, and MUST_MODIFY_REQUEST_EXPRS."""

    modify: Mapping[str, Expr]
    must_modify: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    reason: str


def requested(job: ClassAd, slot: ClassAd, resources: Sequence[str]) -> Amounts:
    """What a job asks of each resource, at least what every slot has (SLT-10). A job that does not say, or whose
    expression is no number, needs 1 core and what it is known to use."""
    amounts: dict[str, Number] = {}
    for resource in resources:
        amount = _number(job.eval(f"Request{resource}", slot))
        if amount is None and resource == CPUS:
            amount = 1
        elif amount is None and resource == MEMORY:
            amount = -(-(_number(job.eval("ImageSize", slot)) or 0) // 1024) or 1
        elif amount is None and resource == DISK:
            amount = _number(job.eval("DiskUsage", slot)) or 1
        amount = max(LEAST.get(resource, 0), amount or 0)
        if amount:
            amounts[resource] = amount
    return Amounts(amounts)


def rounded(plain: Amounts, job: ClassAd, slot: ClassAd, modify: Mapping[str, Expr]) -> Amounts:
    """The request after MODIFY_REQUEST_EXPR_*; a request without a value there stays as it is."""
    ad = ClassAd()
    for resource, amount in plain.items():
        ad[f"Request{resource}"] = amount
    ad.chain(job)
    amounts = dict(plain.of)
    for resource, expr in modify.items():
        if resource in amounts:
            value = _number(evaluate(expr, ad, slot))
            if value is not None and value >= 0:
                amounts[resource] = value
    return Amounts(amounts)


def carve(job: ClassAd, slot: ClassAd, free: Amounts, carving: Carving) -> Amounts | Refusal:
    """What a dynamic slot for this job gets out of a partitionable slot, or why it can not have it (SLT-18, SLT-19).

    Where the slot has a consumption policy, that alone decides (CON-02, CON-05): what the negotiator foresaw.
    """
    if has_policy(slot):
        consumed = consumption(job, slot)
        if isinstance(consumed, Shortage):
            return Refusal(consumed.reason)
        amounts = Amounts(consumed)
        if not free.holds(amounts):
            return Refusal("not enough is left of the slot")
        return with_devices(job, slot, free, amounts)
    names = (*STANDARD, *(name for name in free if name not in STANDARD))
    plain = requested(job, slot, names)
    wanted = rounded(plain, job, slot, carving.modify)
    if not free.holds(wanted):
        if carving.must_modify or not free.holds(plain):
            lacking = free.lacking(wanted if carving.must_modify else plain)
            asked = ", ".join(f"{name} {wanted[name]} of {free[name]} left" for name in lacking)
            return Refusal(f"not enough is left of the slot: {asked}")
        wanted = plain
    short = wanted.lacking(plain)
    if short:
        return Refusal(f"MODIFY_REQUEST_EXPR gives less than the job asks for: {', '.join(short)}")
    disk = min(wanted[DISK] + DISK_EXTRA_KIB, free[DISK])
    return with_devices(job, slot, free, Amounts({name: wanted[name] for name in names} | {DISK: disk}))


# ---------------------------------------------------------------- devices


def device_attribute(resource: str, device: str) -> str:
    """The name of the attribute that has the properties of a device: GPUs_GPU_1a2b3c4d."""
    return f"{resource}_{re.sub(r'[^A-Za-z0-9_]', '_', device)}"


def with_devices(job: ClassAd, slot: ClassAd, free: Amounts, amounts: Amounts) -> Amounts | Refusal:
    """The amounts, and which of the free devices they are."""
    ids = {}
    for resource, there in free.ids.items():
        wanted = int(amounts[resource])
        suit = suitable(job, slot, resource, there) if wanted else ()
        if len(suit) < wanted:
            return Refusal(
                f"the job wants {wanted} {resource}, and its Require{resource} is true of {len(suit)} of {len(there)} "
                f"that are free"
            )
        ids[resource] = tuple(suit[:wanted])
    return Amounts(amounts.of, ids) if ids else amounts


def suitable(job: ClassAd, slot: ClassAd, resource: str, ids: Sequence[str]) -> Sequence[str]:
    """The devices that the job's Require<resource> accepts, all if it has none. `slot` has their properties."""
    if job.lookup(f"Require{resource}") is None:
        return ids
    offered = ClassAd({"Devices": [_properties(slot, resource, one) for one in ids]})
    values = evaluate(_each_device(resource), job, offered)
    if not isinstance(values, list) or len(values) != len(ids):
        return ()
    return [one for one, value in zip(ids, values, strict=True) if value is True or _number(value) not in (None, 0)]


@lru_cache(maxsize=64)
def _each_device(resource: str) -> Expr:
    """The same function that matches the job elsewhere, so that what was matched is what is carved."""
    return parse_expr(f"evalInEachContext(MY.Require{resource}, TARGET.Devices)")


def _properties(slot: ClassAd, resource: str, device: str) -> ClassAd:
    found = slot.eval(device_attribute(resource, device))
    return found if isinstance(found, ClassAd) else ClassAd()


def show_free(ad: ClassAd, free: Amounts) -> None:
    """Let an ad tell of these amounts as what is free."""
    for name in free:
        ad[name] = free[name]
    for resource, ids in free.ids.items():
        ad[f"Available{resource}"] = available(resource, ids)


def available(resource: str, ids: Iterable[str]) -> Expr:
    """The list of the properties of these devices, by name: what countMatches(RequireGPUs, AvailableGPUs) looks at."""
    return parse_expr("{" + ", ".join(device_attribute(resource, one) for one in ids) + "}")


def _number(value: object) -> Number | None:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value if value == value else None
    return value if isinstance(value, int) else None
