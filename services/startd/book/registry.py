"""What the book holds: slots, claims, claims that wait, and what has changed since the shell asked last.

Small change only: it keeps the parts in step with each other and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from services.startd.book.amounts import CPUS, Amounts
from services.startd.book.answers import Changes, Ended, StopRun
from services.startd.book.draining import Steering
from services.startd.book.slots import Claim, Slot, Vacated, Waiting
from services.startd.book.transitions import Activity, Cause, step
from shared.past_claims import Past

#: How long, and how many of a slot, claims that are over are remembered for the negotiator. A broker that is away for
#: longer takes the lead from whoever charges.
PAST_S, MOST_PAST = 120.0, 16


class Registry:
    """See the module. Claim ids are "<startd>#<start time>#<n>#<secret>" (LEA-08)."""

    def __init__(self, startd: str, start_time: int, new_secret: Callable[[], str]) -> None:
        self.startd = startd
        self.start_time = start_time
        self.slots: dict[str, Slot] = {}
        self.claims: dict[str, Claim] = {}
        self.waiting: dict[str, Waiting] = {}  # by claim id, in the order in which they were accepted
        self.requests: dict[str, str] = {}  # request id -> claim id
        self.steering = Steering()
        self.asleep = False  # the machine is, or is about to be: nothing is lent
        self.changes = Changes()
        self.count = 0  # of changes of anything that ads show, so far
        self.benchmarking = 0  # slots that run benchmarks
        self._dynamic: dict[str, dict[str, Slot]] = {}  # by the slot they were carved from, by name
        self._new_secret = new_secret
        self._ids = 0

    def take_changes(self) -> Changes:
        changes, self.changes = self.changes, Changes()
        return changes

    def dynamic_slots(self, parent: str) -> list[Slot]:
        return list(self._dynamic.get(parent, {}).values())

    def new_claim_id(self) -> str:
        self._ids += 1
        return f"<{self.startd}>#{self.start_time}#{self._ids}#{self._new_secret()}"

    def touch(self, slot: Slot) -> None:
        """Something that ads show has changed: of the slot, and of what its parent shows of its dynamic slots."""
        for one in (slot, self.slots.get(slot.parent)):
            if one is not None:
                self.count += 1
                one.version += 1
                self.changes.slots.add(one.name)

    def keep(self, claim: Claim) -> None:
        """The claim is to be written down."""
        self.changes.claims[claim.claim_id] = claim

    def move(self, slot: Slot, cause: Cause, now: float) -> None:
        """Take one arrow. Raises InvalidTransition."""
        after = step(slot.condition, cause)
        if after.state is not slot.condition.state:
            slot.state_since = now
        slot.activity_since = now
        benchmarking = (slot.activity is Activity.BENCHMARKING, after.activity is Activity.BENCHMARKING)
        self.benchmarking += benchmarking[1] - benchmarking[0]
        slot.condition = after
        self.touch(slot)

    def add(self, slot: Slot) -> None:
        self.slots[slot.name] = slot
        if slot.parent:
            self._dynamic.setdefault(slot.parent, {})[slot.name] = slot
        self.touch(slot)

    def carve(self, parent: Slot, amounts: Amounts, now: float) -> Slot:
        """A dynamic slot of this size."""
        parent.free = parent.free.minus(amounts)
        parent.children += 1
        slot = Slot.carved(parent, amounts, now)
        self.add(slot)
        return slot

    def remove(self, slot: Slot) -> Slot:
        """A dynamic slot is no more: its parent has what it had (STM-56)."""
        del self.slots[slot.name]
        del self._dynamic[slot.parent][slot.name]
        self.changes.slots.discard(slot.name)
        self.changes.gone.add(slot.name)
        parent = self.slots[slot.parent]
        parent.free = parent.free.plus(slot.total)
        self.touch(parent)
        return parent

    def occupy(self, slot: Slot, claim: Claim) -> None:
        """The slot is this claim's, and offered by another id to better ones."""
        slot.claim, slot.errand = claim, None
        slot.offer = self.new_claim_id()
        self.claims[claim.claim_id] = claim
        self.requests[claim.request_id] = claim.claim_id
        self.touch(slot)
        self.keep(claim)

    def end_claim(self, slot: Slot, now: float, *, broken: bool) -> None:
        """The slot's claim is over. broken: its schedd does not know of it."""
        claim = slot.claim
        assert claim is not None
        slot.claim = None
        self._remember(slot, claim, now)
        del self.claims[claim.claim_id]
        self.requests.pop(claim.request_id, None)
        self.changes.claims[claim.claim_id] = None
        broken = broken and claim.vacate_code != Vacated.RELEASED
        self.changes.ended.append(Ended(claim, claim.ending, broken))

    def _remember(self, slot: Slot, claim: Claim, now: float) -> None:
        keeper = self.slots[slot.parent] if slot.parent else slot
        user = claim.accounting_group or claim.submitter
        past = Past(slot.name, claim.made_at, now, float(slot.total[CPUS]), user)
        recent = [one for one in keeper.past if abs(now - one.ended) < PAST_S]
        keeper.past = (*recent[1 - MOST_PAST :], past)
        self.touch(keeper)

    def doom(self, claim: Claim, reason: str, code: int) -> None:
        """Say why a claim ends; the first reason counts."""
        if not claim.ending:
            claim.ending, claim.vacate_code = reason, int(code)
        self.keep(claim)

    def stop(self, slot: Slot, now: float) -> None:
        """Its run is to leave, as the slot's Activity says."""
        claim = slot.claim
        assert claim is not None
        assert claim.run
        fast = slot.activity is Activity.KILLING
        if fast:
            claim.killed_at = now
            self.keep(claim)
        self.changes.stops.append(StopRun(claim.run, claim.ending, claim.vacate_code, fast, claim.hold))

    def forget_waiting(self, waiting: Waiting) -> None:
        """It is no claim that waits any more."""
        claim_id = waiting.claim.claim_id
        del self.waiting[claim_id]
        self.changes.waiting[claim_id] = None
        for name in waiting.victims:
            slot = self.slots[name]
            if slot.waiting == claim_id:
                slot.waiting = ""
                self.touch(slot)
