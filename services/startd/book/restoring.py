"""Claims of an earlier life of the startd, put back into its book. Each answers why it can not be; empty: done."""

from __future__ import annotations

from collections.abc import Mapping

from services.startd.book.amounts import Amounts
from services.startd.book.partition import SlotKind
from services.startd.book.registry import Registry
from services.startd.book.slots import Claim, Slot, Waiting
from services.startd.book.transitions import State
from services.startd.book.waitlist import Waitlist
from shared.past_claims import Past


def claim(registry: Registry, claim: Claim, slot: Slot) -> str:
    """`slot` is as it was written down with the claim."""
    if slot.kind is SlotKind.DYNAMIC:
        parent = registry.slots.get(slot.parent)
        if parent is None or parent.kind is not SlotKind.PARTITIONABLE:
            return f"there is no partitionable slot {slot.parent} any more"
        if not parent.free.holds(slot.total):
            return f"{slot.parent} is too small now"
        parent.free = parent.free.minus(slot.total)
        parent.children = max(parent.children, slot.dynamic_id)
        registry.add(slot)
    else:
        known = registry.slots.get(slot.name)
        if known is None or known.kind is not SlotKind.STATIC or known.claim is not None:
            return f"there is no static slot {slot.name} any more"
        if not known.total.holds(slot.total):
            return f"{slot.name} is smaller now"
        known.condition = slot.condition
        known.state_since, known.activity_since = slot.state_since, slot.activity_since
        slot = known
    registry.occupy(slot, claim)
    if slot.state is State.PREEMPTING or claim.for_owner:
        slot.offer = ""
    return ""


def offer(registry: Registry, slot_name: str, offer: str, children: int) -> None:
    """A partitionable slot keeps its claim id across a restart."""
    slot = registry.slots.get(slot_name)
    if slot is not None and slot.kind is SlotKind.PARTITIONABLE:
        slot.offer = offer if slot.offer else ""
        slot.children = max(slot.children, children)


def past(slots: Mapping[str, Slot], slot_name: str, past: tuple[Past, ...]) -> None:
    """A slot goes on telling of claims that are over, until all can have heard of it."""
    if slot_name in slots:
        slots[slot_name].past = past


def waiting(registry: Registry, waitlist: Waitlist, waiting: Waiting, now: float) -> str:
    """After all claims were restored."""
    slots = registry.slots
    slot = slots.get(waiting.claim.slot)
    waiting.held = Amounts()
    waiting.victims = [n for n in waiting.victims if (s := slots.get(n)) and s.claim and not s.waiting]
    if slot is None or (waiting.wanted is None and not waiting.victims):
        return f"{waiting.claim.slot} is not what it was"
    waitlist.add(waiting)
    if waiting.wanted is not None:
        waitlist.collect(slot, now)
    return ""
