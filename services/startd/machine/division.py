"""How a machine is divided into slots (spec rows SLT-01 to SLT-14).

Explicit shares are taken first, in the order of the slots; what is `auto` shares evenly what they leave. HTCondor's
rounding is kept, because files were tuned to it: a share of 1.6 cores makes a slot of 1 core and costs 2, memory is
rounded down, disk up; of a custom resource a share of 1.6 makes a slot of 1 and costs 1.6, and what is left over goes
to the first of the slots with `auto`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from services.startd.book.amounts import CPUS, DISK, MEMORY, STANDARD, Amounts, Number
from services.startd.book.partition import LEAST, PlannedSlot, SlotKind
from services.startd.machine.refusal import ImpossiblePartition
from services.startd.machine.shares import SWAP, Share, SlotType

#: Of cores, so much less than a whole one still counts as one.
_CORE_SLACK = 0.1
#: Rounding errors of sums of fractions.
_SLACK = 1e-9

#: (resource, constraint, free ids in order, how many) -> which of them. Raises ImpossiblePartition.
Pick = Callable[[str, str, Sequence[str], int], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Partition:
    """A file system that slots have their EXECUTE on."""

    key: str
    total_kib: int


def first(resource: str, constraint: str, free: Sequence[str], count: int) -> tuple[str, ...]:
    """The Pick of resources without properties."""
    if constraint and count:
        raise ImpossiblePartition(f"{resource} has no properties that {constraint!r} could ask for")
    return tuple(free[:count])


def divide(
    machine: Amounts,
    types: Sequence[SlotType],
    *,
    partition_of: Callable[[int], Partition] | None = None,
    pick: Pick = first,
) -> list[PlannedSlot]:
    """The slots of this machine, numbered from 1. `partition_of` tells where a slot's EXECUTE is; by default all have
    the machine's Disk together. Raises ImpossiblePartition when there is not enough (SLT-09)."""
    slots = [slot_type for slot_type in types for _ in range(slot_type.count)]
    where = partition_of or (lambda _: Partition("", int(machine[DISK])))
    partitions = [where(number) for number in range(1, len(slots) + 1)]
    counts: dict[str, list[Number]] = {
        resource: _divide_one(resource, machine[resource], [slot.share(resource) for slot in slots], slots)
        for resource in machine
        if resource != DISK
    }
    disks = _fractions(DISK, [slot.share(DISK) for slot in slots], [one.key for one in partitions], slots)
    swaps = _fractions(SWAP, [slot.share(SWAP) for slot in slots], [""] * len(slots), slots)
    ids = _bind(machine, counts, slots, pick)
    planned = []
    for index, slot_type in enumerate(slots):
        of = {name: counts[name][index] if name != DISK else 0 for name in machine}
        if DISK in machine:
            of[DISK] = share_of_disk(disks[index], partitions[index].total_kib)
        planned.append(
            PlannedSlot(
                slot_id=index + 1,
                type_id=slot_type.number,
                kind=SlotKind.PARTITIONABLE if slot_type.partitionable else SlotKind.STATIC,
                amounts=Amounts(of, ids[index]),
                disk_share=disks[index],
                swap_share=swaps[index],
                partition=partitions[index].key,
            )
        )
    return planned


def share_of_disk(share: float, total_kib: Number) -> int:
    """A slot's Disk, KiB."""
    return math.ceil(share * max(0, total_kib))


def _divide_one(resource: str, total: Number, shares: Sequence[Share], slots: Sequence[SlotType]) -> list[Number]:
    least = LEAST.get(resource, 0)
    given: list[Number | None] = []
    left: Number = total
    for share, slot in zip(shares, slots, strict=True):
        asked = share.of(total)
        if asked is None:
            given.append(None)
            continue
        asked = max(float(least), asked)
        if resource == MEMORY:
            asked = int(asked)
        rest = int(left - asked) if resource in STANDARD else left - asked
        if rest < -_SLACK:
            raise _too_much(resource, total, slot, f"{asked:g}", left)
        left = rest
        given.append(max(least, int(asked + (_CORE_SLACK if resource == CPUS else _SLACK))))
    autos = given.count(None)
    if not autos:
        return [amount or 0 for amount in given]
    whole = math.ceil(left - _SLACK) if left >= 1 else 0
    each = whole // autos
    if each < least:
        slot = next(slot for slot, amount in zip(slots, given, strict=True) if amount is None)
        raise _too_much(resource, total, slot, f"{least or 'a share'} for each of {autos}", left)
    # The rest of cores and memory stays unused, that of custom resources goes to the first slots.
    spare = whole - each * autos if resource not in STANDARD else 0
    result: list[Number] = []
    for amount in given:
        if amount is None:
            result.append(each + (1 if spare > 0 else 0))
            spare -= 1
        else:
            result.append(amount)
    return result


def _too_much(resource: str, total: Number, slot: SlotType, asked: str, left: Number) -> ImpossiblePartition:
    knobs = f"SLOT_TYPE_{slot.number} or NUM_SLOTS_TYPE_{slot.number}" if slot.number else "NUM_SLOTS"
    return ImpossiblePartition(
        f"the slots want more {resource} than the machine's {total}: a slot of type {slot.number} wants {asked}, "
        f"{left} left. Lower {knobs}"
    )


def _fractions(resource: str, shares: Sequence[Share], keys: Sequence[str], slots: Sequence[SlotType]) -> list[float]:
    """Disk and swap: of each partition, every slot's fraction (SLT-08)."""
    left = dict.fromkeys(keys, 1.0)
    autos = dict.fromkeys(keys, 0)
    for share, key, slot in zip(shares, keys, slots, strict=True):
        if share.fraction is not None:
            left[key] -= share.fraction
            if left[key] < -_SLACK:
                raise ImpossiblePartition(
                    f"the slots want more than 100% of the {resource.lower()}{' of ' + key if key else ''}. Lower the "
                    f"shares of SLOT_TYPE_{slot.number} or NUM_SLOTS_TYPE_{slot.number}"
                )
        elif share.amount is None:
            autos[key] += 1
    for key, slot, share in zip(keys, slots, shares, strict=True):
        if share.fraction is None and share.amount is None and left[key] <= _SLACK:
            raise ImpossiblePartition(
                f"nothing is left of the {resource.lower()}{' of ' + key if key else ''} for a slot of type "
                f"{slot.number}. Lower the shares of the other slots"
            )
    result = []
    for share, key in zip(shares, keys, strict=True):
        if share.fraction is not None:
            result.append(share.fraction)
        else:
            result.append(0.0 if share.amount is not None else left[key] / autos[key])
    return result


def _bind(
    machine: Amounts, counts: Mapping[str, Sequence[Number]], slots: Sequence[SlotType], pick: Pick
) -> list[dict[str, tuple[str, ...]]]:
    """Which devices each slot gets: slot after slot, the first that suit (SLT-14)."""
    bound: list[dict[str, tuple[str, ...]]] = [{} for _ in slots]
    for resource, ids in machine.ids.items():
        free = list(ids)
        for index, slot in enumerate(slots):
            chosen = pick(resource, slot.share(resource).constraint, free, int(counts[resource][index]))
            free = [one for one in free if one not in chosen]
            bound[index][resource] = chosen
    return bound
