"""Contradictions in a slot table, found by comparing everything in it with everything else.

A violation is a mistake of ours. Time in proportion to the number of slots and claims.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from engine.slots.amounts import Amounts
from engine.slots.carving import SlotKind
from services.startd.core.slots.model import Slot, WaitingClaim
from services.startd.core.slots.slot_table import SlotTable
from services.startd.core.slots.transitions import Activity, State

#: Sums of amounts may differ by so much: they are fractions that were added and taken away in another order.
_ROUNDING = 1e-6
#: States in which a slot has a claim, and only in these.
_CLAIM_STATES = frozenset((State.CLAIMED, State.PREEMPTING))
#: Activities of a claimed slot in which a run is there.
_RUNNING = frozenset((Activity.BUSY, Activity.SUSPENDED, Activity.RETIRING))


def violations(table: SlotTable) -> list[str]:
    """Every contradiction in one sentence; empty: there is none."""
    return [
        *_slots(table),
        *_claims(table),
        *_waiting(table),
        *_amounts(table),
        *_indexes(table),
    ]


def _slots(table: SlotTable) -> Iterator[str]:
    """State and activity agree with the claim and its run."""
    for name, slot in table.slots.items():
        claim = slot.claim
        if slot.name != name:
            yield f"slot {slot.name} is listed as {name}"
        if (claim is not None) != (slot.state in _CLAIM_STATES):
            yield f"{name} is {slot.condition} with {'a' if claim is not None else 'no'} claim"
        if claim is not None and table.claims.get(claim.claim_id) is not claim:
            yield f"{name} has a claim that is not among the claims"
        if claim is not None and slot.state is State.CLAIMED and bool(claim.run) != (slot.activity in _RUNNING):
            yield f"{name} is {slot.condition} {'with' if claim.run else 'without'} a run"
        if claim is not None and slot.activity is Activity.SUSPENDED and not claim.suspended_at:
            yield f"{name} is {slot.condition}, and its run is not suspended"
        if slot.offer and slot.state is State.PREEMPTING:
            yield f"{name} is {slot.condition} and is offered"
        if slot.waiting and slot.waiting not in table.waiting:
            yield f"{name} is waited for by a claim that does not wait"
        if slot.after_backfill is not None and slot.state is not State.BACKFILL:
            yield f"{name} is {slot.condition}, and goes to {slot.after_backfill} when its backfill client is gone"
        if slot.kind is SlotKind.PARTITIONABLE and slot.claim is not None:
            yield f"{name} is partitionable and has a claim itself"


def _claims(table: SlotTable) -> Iterator[str]:
    """Every claim's slot holds it."""
    for claim_id, claim in table.claims.items():
        slot = table.slots.get(claim.slot)
        if claim.claim_id != claim_id:
            yield f"a claim of {claim.slot} is listed by the id of another"
        if slot is None:
            yield f"a claim is on {claim.slot}, which does not exist"
        elif slot.claim is not claim:
            yield f"a claim is on {claim.slot}, which does not hold it"
        if claim_id in table.waiting:
            yield f"a claim has {claim.slot} and waits for it"
        if claim.suspended_at and not claim.run:
            yield f"the claim of {claim.slot} is suspended without a run"


def _waiting(table: SlotTable) -> Iterator[str]:
    """Claims that wait and their victims agree."""
    for claim_id, waiting in table.waiting.items():
        place = waiting.claim.slot
        if waiting.claim.claim_id != claim_id:
            yield f"a claim that waits for {place} is listed by the id of another"
        if place not in table.slots:
            yield f"a claim waits for {place}, which does not exist"
        if waiting.wanted is None and len(waiting.victims) != 1:
            yield f"a claim waits for {place} to empty, and for {len(waiting.victims)} slots"
        for name in waiting.victims:
            victim = table.slots.get(name)
            if victim is None:
                yield f"a claim waits for {name}, which does not exist"
            elif victim.waiting != claim_id:
                yield f"a claim waits for {name}, which does not know of it"
        yield from _reserved(waiting)
    for name, slot in table.slots.items():
        known = table.waiting.get(slot.waiting)
        if known is not None and name not in known.victims:
            yield f"{name} is to be emptied for a claim that does not wait for it"


def _reserved(waiting: WaitingClaim) -> Iterator[str]:
    place = waiting.claim.slot
    if waiting.wanted is None:
        if any(waiting.reserved.values()):
            yield f"a claim that waits for {place} as it is has amounts reserved"
    elif waiting.reserved.holds(waiting.wanted):
        yield f"a claim waits for {place}, and all it wants is reserved"
    elif lacking := waiting.wanted.lacking(waiting.reserved):
        yield f"a claim that waits for {place} has more {', '.join(lacking)} reserved than it wants"


def _amounts(table: SlotTable) -> Iterator[str]:
    """What is carved, reserved and free of a partitionable slot is its total. Its disk may have shrunk below what was
    given away (services.startd.core.machine.disks): then less than nothing is free."""
    for name, slot in table.slots.items():
        for resource, amount in slot.total.items():
            if amount < 0:
                yield f"{name} has {resource} {amount}"
        if slot.kind is not SlotKind.PARTITIONABLE:
            continue
        used = Amounts()
        for child in table.dynamic_slots(name):
            used = used.plus(child.total)
        for waiting in table.waiting.values():
            if waiting.claim.slot == name and waiting.wanted is not None:
                used = used.plus(waiting.reserved)
        together = used.plus(slot.free)
        yield from _sum(slot, together)


def _sum(slot: Slot, together: Amounts) -> Iterator[str]:
    for resource in {**slot.total.of, **together.of}:
        total, found = slot.total[resource], together[resource]
        if abs(total - found) > _ROUNDING * max(1.0, abs(total)):
            yield f"{slot.name} has {resource} {total}, but {found} free, reserved and in dynamic slots"
        if slot.free[resource] < -_ROUNDING and resource != "Disk":
            yield f"{slot.name} has {resource} {slot.free[resource]} free"
    for resource, devices in slot.total.ids.items():
        if sorted(devices) != sorted(together.ids.get(resource, ())):
            yield f"{slot.name} has {resource} {devices}, but others free, reserved and in dynamic slots"


def _indexes(table: SlotTable) -> Iterator[str]:
    """Claim ids open one slot each, and the indexes are those of what they index."""
    offers = Counter(slot.offer for slot in table.slots.values() if slot.offer)
    for offer, count in offers.items():
        if count > 1:
            names = ", ".join(name for name, slot in table.slots.items() if slot.offer == offer)
            yield f"one claim id offers several slots: {names}"
        if offer in table.waiting:
            yield f"the claim id of a claim that waits for {table.waiting[offer].claim.slot} is offered"
    answered = {claim.request_id: claim.claim_id for claim in table.claims.values()}
    answered |= {waiting.claim.request_id: claim_id for claim_id, waiting in table.waiting.items()}
    if answered != table.requests:
        odd = sorted(answered.keys() ^ table.requests.keys())
        yield f"answered requests are not those of claims: {', '.join(odd) or 'other claims'}"
    dynamic = {name: slot.parent for name, slot in table.slots.items() if slot.parent}
    listed = {one.name: parent for parent in _partitionable(table) for one in table.dynamic_slots(parent)}
    if dynamic != listed:
        yield f"dynamic slots are listed wrongly by parent: {', '.join(sorted(dynamic.keys() ^ listed.keys()))}"
    for name, parent in dynamic.items():
        owner = table.slots.get(parent)
        if owner is None or owner.kind is not SlotKind.PARTITIONABLE:
            yield f"{name} is carved from {parent}, which is no partitionable slot"
        elif table.slots[name].dynamic_id > owner.children:
            yield f"{name} has a number that {parent} has still to give"
    benchmarking = sum(slot.activity is Activity.BENCHMARKING for slot in table.slots.values())
    if benchmarking != table.benchmarking:
        yield f"{benchmarking} slots run benchmarks, {table.benchmarking} are counted"


def _partitionable(table: SlotTable) -> Iterator[str]:
    """Slots that dynamic slots may have been carved from."""
    yield from (name for name, slot in table.slots.items() if slot.kind is SlotKind.PARTITIONABLE)
