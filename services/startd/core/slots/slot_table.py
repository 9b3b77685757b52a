"""What the slot manager holds: slots, claims, claims that wait, what administrators ordered, and the policies of slots.

It keeps the indexes in step with each other, notes what each change means for the world (`effects`), and decides
nothing. Others read it; only the slot manager and its driver change it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.slots.amounts import CPUS, Amounts
from services.startd.core.slots.drain import MachineOrders
from services.startd.core.slots.effects import ClaimEnd, SlotEffects, StopRun
from services.startd.core.slots.model import Claim, Slot, VacateReason, WaitingClaim
from services.startd.core.slots.policy import Policy
from services.startd.core.slots.transitions import Activity, Cause, step
from shared.classad import Expr
from shared.past_claims import Past

#: How long, and how many of a slot, claims that are over are remembered for the negotiator. A broker that is away for
#: longer takes the lead from whoever charges.
PAST_S, MOST_PAST = 120.0, 16
#: Claims that are over whose requests are known again, should they come a second time: by number, as clocks are set.
MOST_OVER = 10_000


class SlotTable:
    """All slots and claims, with their indexes. policy_of: the policy of a slot type as configured now. Claim ids are
    "<startd>#<start time>#<n>#<secret>" (LEA-08)."""

    def __init__(
        self, startd: str, start_time: int, *, policy_of: Callable[[int], Policy], new_secret: Callable[[], str]
    ) -> None:
        self.startd = startd
        self.start_time = start_time
        self.slots: dict[str, Slot] = {}
        self.claims: dict[str, Claim] = {}
        self.waiting: dict[str, WaitingClaim] = {}  # by claim id, in the order in which they were accepted
        self.requests: dict[str, str] = {}  # request id -> claim id
        self._over: dict[str, None] = {}  # request ids of claims that ended, oldest first
        self.machine_orders = MachineOrders()
        self.asleep = False  # the machine is, or is about to be: nothing is lent
        self.effects = SlotEffects()  # of the operation that goes on
        self.version = 0  # counts changes of anything that ads show
        self.benchmarking = 0  # slots that run benchmarks
        self.start: Expr | None = None  # START of all slots while the machine is emptied; None: as configured
        self.broken = ""  # why the machine takes no job, whatever START says (core.machine.health); empty: it does
        self._policy_of = policy_of
        self._emptied: dict[int, tuple[Policy, Policy]] = {}  # by slot type: as configured, and with `start`
        self._dynamic: dict[str, dict[str, Slot]] = {}  # by the slot they were carved from, by name
        self._new_secret = new_secret
        self._ids = 0

    def take_effects(self) -> SlotEffects:
        """The effects of the operation that is over."""
        effects, self.effects = self.effects, SlotEffects()
        return effects

    # -- reading

    def policy(self, slot: Slot) -> Policy:
        """The slot's policy as it is now: while the machine is emptied, or broken, with another START (DFR-07)."""
        configured = self._policy_of(slot.type_id)
        if self.start is None and not self.broken:
            return configured
        known = self._emptied.get(slot.type_id)
        if known is None or known[0] is not configured:
            known = self._emptied[slot.type_id] = configured, self._emptying(configured)
        return known[1]

    def _emptying(self, configured: Policy) -> Policy:
        if self.broken or self.start is None:
            return configured.closed()
        return configured.starting(self.start)

    def dynamic_slots(self, parent: str) -> list[Slot]:
        return list(self._dynamic.get(parent, {}).values())

    # -- changing

    def replace_start(self, start: Expr | None) -> None:
        """START of all slots is this from now on; None: as configured."""
        self.start = start
        self._emptied.clear()
        for slot in self.slots.values():
            self.touch(slot)

    def set_broken(self, reason: str) -> None:
        """Let no slot take a job from now on; empty: as START has it."""
        self.broken = reason
        self._emptied.clear()
        for slot in self.slots.values():
            self.touch(slot)

    def new_claim_id(self) -> str:
        self._ids += 1
        return f"<{self.startd}>#{self.start_time}#{self._ids}#{self._new_secret()}"

    def touch(self, slot: Slot) -> None:
        """Note that the ads of the slot, and of the slot it was carved from, show something else now."""
        for one in (slot, self.slots.get(slot.parent)):
            if one is not None:
                self.version += 1
                one.version += 1
                self.effects.slots.add(one.name)

    def keep(self, claim: Claim) -> None:
        """Have the claim written down."""
        self.effects.claims[claim.claim_id] = claim

    def move(self, slot: Slot, cause: Cause, now: float) -> None:
        """Take one arrow. Raises InvalidTransition."""
        after = step(slot.condition, cause)
        slot.times[slot.condition] = slot.times.get(slot.condition, 0.0) + max(0.0, now - slot.activity_since)
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
        """Make a dynamic slot of this size."""
        parent.free = parent.free.minus(amounts)
        parent.children += 1
        slot = Slot.carved(parent, amounts, now)
        self.add(slot)
        return slot

    def remove(self, slot: Slot) -> Slot:
        """Remove a dynamic slot and give its amounts back to its parent (STM-56)."""
        del self.slots[slot.name]
        del self._dynamic[slot.parent][slot.name]
        self.effects.slots.discard(slot.name)
        self.effects.gone.add(slot.name)
        parent = self.slots[slot.parent]
        parent.free = parent.free.plus(slot.total)
        self.touch(parent)
        return parent

    def occupy(self, slot: Slot, claim: Claim) -> None:
        """Give the slot to the claim, and offer it to better ones by another id."""
        slot.claim, slot.after_backfill = claim, None
        slot.offer = self.new_claim_id()
        self.claims[claim.claim_id] = claim
        self.requests[claim.request_id] = claim.claim_id
        self.touch(slot)
        self.keep(claim)

    def end_claim(self, slot: Slot, now: float, *, broken: bool) -> None:
        """End the slot's claim. broken: its schedd does not know of that."""
        claim = slot.claim
        assert claim is not None
        slot.claim = None
        self._remember(slot, claim, now)
        del self.claims[claim.claim_id]
        self.requests.pop(claim.request_id, None)
        self._over[claim.request_id] = None
        if len(self._over) > MOST_OVER:
            del self._over[next(iter(self._over))]
        self.effects.claims[claim.claim_id] = None
        broken = broken and claim.vacate_code != VacateReason.RELEASED
        self.effects.ended.append(ClaimEnd(claim, claim.end_reason, broken))

    def is_over(self, request_id: str) -> bool:
        """Whether this request was granted in this life of the startd, and its claim is among the MOST_OVER last to
        end."""
        return request_id in self._over

    def _remember(self, slot: Slot, claim: Claim, now: float) -> None:
        keeper = self.slots[slot.parent] if slot.parent else slot
        user = claim.accounting_group or claim.submitter
        past = Past(slot.name, claim.made_at, now - claim.clock_set, float(slot.total[CPUS]), user, claim.clock_set)
        recent = [one for one in keeper.past if abs(now - one.ended - one.clock_set) < PAST_S]
        keeper.past = (*recent[1 - MOST_PAST :], past)
        self.touch(keeper)

    def clock_set(self, seconds: float) -> None:
        """The clock was set by so many seconds: what was noted goes on by it."""
        for slot in self.slots.values():
            slot.state_since += seconds
            slot.activity_since += seconds
            slot.past = tuple(replace(one, clock_set=one.clock_set + seconds) for one in slot.past)
            self.touch(slot)
        for claim in self.claims.values():
            claim.set_clock(seconds)
            self.keep(claim)
        self.machine_orders.clock_set(seconds)
        self.effects.machine_orders = self.effects.clock_set = True

    def end_because(self, claim: Claim, reason: str, code: int) -> None:
        """Say why a claim ends; the first reason counts."""
        if not claim.end_reason:
            claim.end_reason, claim.vacate_code = reason, int(code)
        self.keep(claim)

    def stop(self, slot: Slot, now: float) -> None:
        """Have the slot's run stopped, as gently as its Activity says."""
        claim = slot.claim
        assert claim is not None
        assert claim.run
        fast = slot.activity is Activity.KILLING
        if fast:
            claim.killed_at = now
            self.keep(claim)
        self.effects.stops.append(StopRun(claim.run, claim.end_reason, claim.vacate_code, fast, claim.hold))

    def forget_waiting(self, waiting: WaitingClaim) -> None:
        """Remove a claim from those that wait."""
        claim_id = waiting.claim.claim_id
        del self.waiting[claim_id]
        self.effects.waiting[claim_id] = None
        for name in waiting.victims:
            slot = self.slots[name]
            if slot.waiting == claim_id:
                slot.waiting = ""
                self.touch(slot)
