"""Claims that wait until their slot is empty, or until enough of a partitionable slot came back (PRE-10, PRE-17)."""

from __future__ import annotations

from collections.abc import Callable

from services.startd.book.amounts import Amounts
from services.startd.book.answers import Ended
from services.startd.book.registry import Registry
from services.startd.book.slots import Slot, Waiting
from services.startd.book.transitions import Cause


class Waitlist:
    """See the module. `follow(slot, now)` lets a slot go on, after somebody has ceased to wait for it."""

    def __init__(self, registry: Registry, follow: Callable[[Slot, float], None]) -> None:
        self._registry = registry
        self._follow = follow

    def add(self, waiting: Waiting) -> None:
        registry, claim = self._registry, waiting.claim
        registry.waiting[claim.claim_id] = waiting
        registry.requests[claim.request_id] = claim.claim_id
        registry.changes.waiting[claim.claim_id] = waiting
        for name in waiting.victims:
            registry.slots[name].waiting = claim.claim_id
            registry.touch(registry.slots[name])

    def forsake(self, waiting: Waiting, reason: str, now: float, *, broken: bool) -> None:
        """A claim waits no more, and gets nothing. What has not begun to leave for it may stay (STM-19)."""
        registry, claim = self._registry, waiting.claim
        leaving = [name for name in waiting.victims if registry.slots[name].waiting == claim.claim_id]
        registry.forget_waiting(waiting)
        registry.requests.pop(claim.request_id, None)
        registry.changes.ended.append(Ended(claim, reason, broken))
        for name in leaving:
            if name in registry.slots:
                self._follow(registry.slots[name], now)
        parent = registry.slots.get(claim.slot)
        if parent is not None and waiting.wanted is not None:
            parent.free = parent.free.plus(waiting.held)
            registry.touch(parent)
            self.collect(parent, now)

    def forsake_all(self, reason: str, now: float) -> None:
        for waiting in list(self._registry.waiting.values()):
            if waiting.claim.claim_id in self._registry.waiting:
                self.forsake(waiting, reason, now, broken=True)

    def hand_over(self, slot: Slot, now: float, *, broken: bool) -> None:
        """The claim that waits takes the slot (STM-23, STM-24, STM-31)."""
        registry = self._registry
        waiting = registry.waiting[slot.waiting]
        registry.forget_waiting(waiting)
        if slot.claim is not None:
            registry.end_claim(slot, now, broken=broken)
        claim = waiting.claim
        claim.made_at = now
        registry.move(slot, Cause.CLAIMED_ANEW, now)
        registry.occupy(slot, claim)
        registry.changes.ready.append(claim)

    def emptied(self, slot: Slot, waiting: Waiting, now: float) -> None:
        """The slot that this claim waits for is empty, and not for it to take over."""
        if waiting.wanted is None:
            self.forsake(waiting, f"{slot.name} is its owner's", now, broken=True)
        else:
            waiting.victims.remove(slot.name)
            self._registry.changes.waiting[waiting.claim.claim_id] = waiting

    def returned(self, parent: Slot, amounts: Amounts, waiting: Waiting | None, now: float) -> None:
        """So much came back: first for the claim that it was emptied for, whatever others lack."""
        if waiting is not None and waiting.wanted is not None:
            self._hold(waiting, waiting.wanted, parent, amounts, now)
        self.collect(parent, now)

    def collect(self, parent: Slot, now: float) -> None:
        """What is free of a partitionable slot goes to the claims that wait for it first, in their order."""
        for waiting in [w for w in self._registry.waiting.values() if w.claim.slot == parent.name]:
            if waiting.wanted is not None and waiting.claim.claim_id in self._registry.waiting:
                self._hold(waiting, waiting.wanted, parent, parent.free, now)

    def _hold(self, waiting: Waiting, wanted: Amounts, parent: Slot, most: Amounts, now: float) -> None:
        """Keep what the claim still lacks back for it, out of what is free, and no more than `most`."""
        there = waiting.held.plus(most)
        held = wanted if there.holds(wanted) else wanted.least(there)
        parent.free = parent.free.plus(waiting.held).minus(held)
        waiting.held = held
        self._registry.touch(parent)
        if held is wanted:
            self._carve(waiting, wanted, parent, now)
        elif not waiting.victims:
            self.forsake(waiting, "what it was to get is not there any more", now, broken=True)

    def _carve(self, waiting: Waiting, wanted: Amounts, parent: Slot, now: float) -> None:
        registry, claim = self._registry, waiting.claim
        registry.forget_waiting(waiting)  # slots that are leaving for it go on leaving
        parent.free = parent.free.plus(waiting.held)
        slot = registry.carve(parent, wanted, now)
        claim.slot, claim.made_at = slot.name, now
        registry.occupy(slot, claim)
        registry.move(slot, Cause.CLAIMED, now)
        registry.changes.ready.append(claim)
