"""Slots, claims and the runs on them: what becomes of them by requests, orders and facts, without any I/O.

Every public operation changes the slots and returns what that means for the world as SlotEffects: slots whose ads
changed or that are gone, claims to be written down, runs to be stopped or suspended, claims that ended. An operation
that answers something returns (answer, effects). Whoever calls must have the effects carried out
(services.startd.effects). After every operation `check_invariants` is called, if it is time to
(shared.daemon.invariants).

Every request may come again (a lost answer, a redelivery) and is then answered as before. Claim ids are secrets
(LEA-08): they are made of the ids passed in, "<startd>#<start time>#<n>#<secret>". Wall-clock `now` in seconds.

Who asks for a slot brings the claim id it is offered by. A slot without a claim is given at once; a claimed one, which
is offered by another id than its claim's, is emptied first, and the claim waits (`model.WaitingClaim`). After every
change the slot takes the transitions of `transitions.TABLE` whose guards hold (`slot_driver`).

Longer than most modules: whatever a request or an order may find a slot in is answered here, in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from engine.slots.amounts import CPUS, DISK, Amounts
from engine.slots.carving import Carving, PlannedSlot, Refusal, SlotKind, carve
from services.startd.core.slots import preemption
from services.startd.core.slots.drain import (
    Completion,
    Drain,
    DrainMode,
    ExpectedDrain,
    MachineOrders,
    OffMode,
    expected_drain,
    more_urgent,
    urgency_of,
)
from services.startd.core.slots.effects import SlotEffects
from services.startd.core.slots.invariants import violations
from services.startd.core.slots.model import UNCLAIMED_IDLE, Claim, Slot, Urgency, VacateReason, WaitingClaim
from services.startd.core.slots.policy import rank_of, refusal, requirements, start_is_false, worklife_over
from services.startd.core.slots.requests import Accepted, ClaimRequest, Granted, Refused
from services.startd.core.slots.retirement import retirement_s, vacate_time_s
from services.startd.core.slots.slot_driver import SlotDriver
from services.startd.core.slots.slot_table import SlotTable
from services.startd.core.slots.transitions import Activity, Cause, Condition, State
from shared.classad import ClassAd, ParseError, evaluate, is_true, parse_expr
from shared.past_claims import Past

#: Who asks for a slot that is in such a condition takes it along these arrows first: they are no obstacle.
_ON_THE_WAY = {
    Condition(State.DRAINED, Activity.IDLE): Cause.DRAINING_OVER,
    Condition(State.DRAINED, Activity.RETIRING): Cause.DRAINING_OVER,
    Condition(State.OWNER, Activity.IDLE): Cause.AVAILABLE,
    Condition(State.UNCLAIMED, Activity.BENCHMARKING): Cause.BENCHMARKED,
}


def _no_check(find: Callable[[], Sequence[str]]) -> None:
    pass


class SlotManager:
    """Every change of slots. `ad_of` gives the ad of a slot as it is now; timeouts are MATCH_TIMEOUT and
    KILLING_TIMEOUT; `check` is called with `check_invariants` after every operation."""

    def __init__(
        self,
        table: SlotTable,
        *,
        ad_of: Callable[[Slot], ClassAd],
        carving: Carving,
        match_timeout_s: float = 120.0,
        killing_timeout_s: float = 30.0,
        check: Callable[[Callable[[], Sequence[str]]], None] = _no_check,
    ) -> None:
        self.epochs: dict[str, int] = {}  # by shard: the highest seen
        self.slots = table.slots
        self.claims = table.claims
        self.waiting = table.waiting  # by claim id, in the order in which they were accepted
        self._table = table
        self._driver = SlotDriver(
            table, ad_of=ad_of, match_timeout_s=match_timeout_s, killing_timeout_s=killing_timeout_s
        )
        self._ad_of = ad_of
        self._carving = carving
        self._check_invariants = check

    def check_invariants(self) -> list[str]:
        """What contradicts itself in the slots, claims and indexes, in words; none if all is well. Time in proportion
        to the number of slots and claims."""
        return violations(self._table)

    def _done(self) -> SlotEffects:
        """The effects of the operation that ends here."""
        self._check_invariants(self.check_invariants)
        return self._table.take_effects()

    # -- reading

    @property
    def machine_orders(self) -> MachineOrders:
        """What is ordered for the whole machine."""
        return self._table.machine_orders

    @property
    def broken(self) -> str:
        """Why the machine takes no job; empty: it does."""
        return self._table.broken

    @property
    def in_use(self) -> bool:
        """A slot runs something, or is about to: the policy is to be looked at often (STM-42)."""
        return bool(self.claims) or any(slot.state is State.BACKFILL for slot in self.slots.values())

    def offers(self) -> dict[str, str]:
        """Claim ids by which slots can be claimed now, those in use by preemption, by slot name."""
        return {slot.name: slot.offer for slot in self.slots.values() if slot.offer}

    def next_look(self, now: float) -> float | None:
        """When the passing of time alone may move a slot (wall clock); None: it will not. Then call `review`."""
        return self._driver.next_look(now)

    def expected(self, now: float) -> ExpectedDrain:
        """What draining would come to if it began now."""
        return expected_drain(self.slots.values(), now)

    def empty_within_s(self, waiting: WaitingClaim, now: float) -> float:
        """How long a claim waits at most, as far as is known now: until the last of its slots must be empty."""
        ends = [0.0]
        for name in waiting.victims:
            slot = self.slots[name]
            if slot.claim is not None and slot.claim.run:
                at = self._driver.at(slot, now)
                left = slot.activity_since + slot.claim.vacate_s - now
                if slot.state is State.CLAIMED:
                    left = max(at.retirement_left_s, at.vacate_s)
                ends.append(left)
        return max(ends)

    def adopt(self, *, carving: Carving, match_timeout_s: float, killing_timeout_s: float) -> None:
        """Go by these from now on."""
        self._carving = carving
        self._driver.match_timeout_s = match_timeout_s
        self._driver.killing_timeout_s = killing_timeout_s

    # -- making slots

    def add_slots(self, plans: Iterable[PlannedSlot], now: float) -> SlotEffects:
        for plan in plans:
            slot = Slot.planned(plan, self._table.startd, now)
            slot.offer = self._table.new_claim_id()
            self._table.add(slot)
            self._driver.follow(slot, now)
        return self._done()

    def review(self, now: float) -> SlotEffects:
        """Look at all guards again: time has passed, expressions may have changed."""
        self._driver.review(now)
        self._driver.count_unclaimed_time(now)
        return self._done()

    # -- orders of administrators (TLS-06, TLS-07, TLS-09), and sleep (PWR-02). What is refused changes nothing.

    def drain(
        self,
        request_id: str,
        *,
        now: float,
        how: DrainMode = DrainMode.GRACEFUL,
        reason: str = "",
        completion: Completion = Completion.NOTHING,
        check: str = "",
        start: str = "",
        aligned: bool = False,
    ) -> tuple[Refused | None, SlotEffects]:
        """Empty all slots. check: an expression that must be true in every slot's ad, or nothing is drained. start:
        START for jobs that may still come while older ones run (graceful only). aligned: jobs stay until the one that
        may stay longest must leave (graceful only). Refused with the codes "draining", "check", "expression"."""
        machine_orders = self._table.machine_orders
        if machine_orders.drain is not None:
            if machine_orders.drain.request_id == request_id:
                return None, self._done()  # the answer was lost
            under_way = f"drain {machine_orders.drain.request_id} is under way: cancel it first"
            return Refused("draining", under_way), self._done()
        for name, text in (("check", check), ("start", start)):
            try:
                if text:
                    parse_expr(text)
            except ParseError as error:
                return Refused("expression", f"{name} = {text}: no ClassAd expression: {error}"), self._done()
        refusal = self._check(check)
        if refusal is not None:
            return refusal, self._done()
        machine_orders.drain = Drain(request_id, how, reason, completion, start, now, aligned)
        machine_orders.last_start = now
        self._empty(now)
        return None, self._done()

    def _check(self, check: str) -> Refused | None:
        if not check:
            return None
        expr = parse_expr(check)
        for slot in self._table.slots.values():
            if not is_true(evaluate(expr, self._driver.ad(slot))):
                return Refused("check", f"{check} is not true for {slot.name}")
        return None

    def cancel_drain(self, request_id: str, now: float) -> tuple[Refused | None, SlotEffects]:
        """End the drain; of an empty id, whichever there is. Jobs that did not begin to leave stay. Where nothing is
        drained there is nothing to cancel, and nothing is wrong."""
        drain = self._table.machine_orders.drain
        if request_id and (drain is None or request_id != drain.request_id):
            other = f", but {drain.request_id}" if drain is not None else ""
            return Refused("unknown-request", f"no drain {request_id} is under way{other}"), self._done()
        if drain is not None:
            self._driver.end_drain(now)
        return None, self._done()

    def off(self, how: OffMode, now: float) -> SlotEffects:
        """Switch the machine off: no slot takes a job until `on`, and what runs is ended as `how` says (STM-51). Asked
        again it may only hurry."""
        machine_orders = self._table.machine_orders
        machine_orders.off = more_urgent(machine_orders.off, how)
        how = machine_orders.off
        for claim in self._table.claims.values():
            claim.urgency = max(claim.urgency, urgency_of(how))  # for good: there is no unretirement (STM-52)
            claim.peaceful = how is OffMode.PEACEFUL
            self._table.end_because(claim, "the machine is switched off", VacateReason.SHUTDOWN)
        self._empty(now)
        return self._done()

    def on(self, now: float) -> SlotEffects:
        """Switch the machine on. Jobs that were to end because it was off go on doing so."""
        machine_orders = self._table.machine_orders
        if machine_orders.off is None:
            return self._done()
        machine_orders.off = None
        machine_orders.drained = machine_orders.drained and machine_orders.emptying
        self._table.effects.machine_orders = True
        self._driver.apply_machine_orders()
        self._driver.review(now)
        return self._done()

    def vacate_slot(self, name: str, *, graceful: bool, now: float) -> tuple[Refused | None, SlotEffects]:
        """End what is on a slot (its claim, its match, its backfill), on a partitionable one what is on all its dynamic
        slots; of an empty name, on all slots. Its jobs go back to the queue: gracefully when their retirement is over,
        as HTCondor has it, or else at once."""
        slots = list(self._table.slots.values())
        if name:
            slots = [slot for slot in slots if name in (slot.name, slot.parent)]
        if not slots:
            return Refused("unknown-slot", f"there is no slot {name}"), self._done()
        for slot in slots:
            self._vacate(slot, graceful=graceful, now=now)
        return None, self._done()

    def set_broken(self, reason: str, now: float) -> SlotEffects:
        """Take no job from now on, as any would fail here; empty: take jobs again. What runs goes on."""
        self._table.set_broken(reason)
        self._driver.review(now)
        return self._done()

    def sleep(self, now: float) -> SlotEffects:
        """Lend nothing from now on, and end what is on the slots: the machine goes to sleep."""
        self._table.asleep = True
        self._driver.give_up_all("the machine goes to sleep", now)
        for slot in list(self._table.slots.values()):
            self._vacate(slot, graceful=False, now=now, why=("the machine goes to sleep", VacateReason.HIBERNATE))
        return self._done()

    def wake(self, now: float) -> SlotEffects:
        """The machine is awake. Idle slots begin their state anew: a policy that counts how long they are idle counts
        from now on, else it would send the machine back to sleep before anybody found it."""
        table = self._table
        table.asleep = False
        for slot in table.slots.values():
            if slot.condition == UNCLAIMED_IDLE:
                slot.state_since = slot.activity_since = now
            table.touch(slot)
        self._driver.review(now)
        return self._done()

    def _vacate(
        self,
        slot: Slot,
        *,
        graceful: bool,
        now: float,
        why: tuple[str, VacateReason] = ("vacated by the administrator", VacateReason.COMMAND),
    ) -> None:
        table = self._table
        waiting = table.waiting.get(slot.waiting)
        if waiting is not None and waiting.wanted is None:
            self._driver.give_up(waiting, why[0], now, broken=True)
        if table.slots.get(slot.name) is not slot:
            return
        if slot.claim is not None:
            slot.claim.urgency = max(slot.claim.urgency, Urgency.RETIRE if graceful else Urgency.KILL)  # for good
            table.end_because(slot.claim, *why)
        elif slot.state is State.MATCHED:
            table.move(slot, Cause.MATCH_EXPIRED, now)
            slot.offer = table.new_claim_id()
        elif slot.state is State.BACKFILL:
            slot.after_backfill = State.OWNER
        self._driver.follow(slot, now)

    def _empty(self, now: float) -> None:
        machine_orders = self._table.machine_orders
        machine_orders.drained = False
        self._table.effects.machine_orders = True
        self._driver.apply_machine_orders()
        self._driver.give_up_all("the machine takes no jobs now", now)
        self._driver.review(now)
        self._driver.check_all_drained(now)
        self._driver.count_unclaimed_time(now)

    # -- benchmarks and backfill: what a slot in Unclaimed/Benchmarking or Backfill is told by who runs them

    def clock_set(self, seconds: float) -> SlotEffects:
        """The clock was set by so many seconds: nothing is older or younger for that, nobody has to leave earlier or
        may stay longer."""
        self._table.clock_set(seconds)
        self._driver.clock_set(seconds)
        return self._done()

    def benchmarked(self, slot_name: str, now: float) -> SlotEffects:
        """The benchmarks of this slot are over (STM-04). It is not asked at once whether they are due again."""
        slot = self.slots.get(slot_name)
        if slot is not None and slot.activity is Activity.BENCHMARKING:
            self._table.move(slot, Cause.BENCHMARKED, now)
        return self._done()

    def backfilled(self, slot_name: str, now: float) -> tuple[bool, SlotEffects]:
        """The backfill client of this slot runs (STM-26). False: it is not wanted (any more), and must be ended."""
        slot = self.slots.get(slot_name)
        if slot is None or slot.state is not State.BACKFILL or slot.activity is Activity.KILLING:
            return False, self._done()
        if slot.activity is Activity.IDLE:
            self._table.move(slot, Cause.BACKFILLED, now)
            self._driver.follow(slot, now)
        return True, self._done()

    def backfill_gone(self, slot_name: str, now: float) -> SlotEffects:
        """The backfill client of this slot has ended, with all its processes (STM-27, STM-29)."""
        slot = self.slots.get(slot_name)
        if slot is None or slot.state is not State.BACKFILL or slot.activity is Activity.IDLE:
            return self._done()
        self._evicted_for_policy(slot)
        self._table.move(slot, Cause.BACKFILL_GONE, now)
        self._driver.follow(slot, now)
        return self._done()

    def _evicted_for_policy(self, slot: Slot) -> None:
        """EVICT_BACKFILL may be false again when the client is gone at last: the slot is its owner's all the same."""
        if slot.activity is Activity.KILLING and slot.after_backfill is None and not slot.waiting:
            slot.after_backfill = State.OWNER

    # -- matches and claims

    def matched(self, slot_name: str, claim_id: str, epoch: int, shard: str, now: float) -> tuple[str, SlotEffects]:
        """The negotiator says that it matched a slot (STM-06). Why that changes nothing; empty: it is Matched, or will
        be once its backfill client is gone."""
        if epoch < self.epochs.get(shard, 0):
            return f"epoch {epoch} is over", self._done()
        slot = self.slots.get(slot_name)
        if slot is None or not slot.offer or slot.offer != claim_id:
            return f"this claim id does not open {slot_name} (any more)", self._done()
        self.epochs[shard] = epoch
        if slot.kind is not SlotKind.STATIC or slot.claim is not None or slot.waiting or slot.state is State.MATCHED:
            return f"{slot_name} is {slot.condition}", self._done()
        if slot.state is State.BACKFILL:
            slot.after_backfill = slot.after_backfill or State.MATCHED
            self._driver.follow(slot, now)
            return "", self._done()
        if self.machine_orders.emptying or self._table.asleep:
            why = "is being drained" if self.machine_orders.emptying else "goes to sleep"
            return f"{slot_name} {why}", self._done()
        self._make_ready(slot, now)
        self._table.move(slot, Cause.MATCHED, now)
        return "", self._done()

    def granted_to(self, claim_id: str) -> str:
        """The access point that a claim was granted to, or waits for; empty: there is no such claim."""
        claim = self.claims.get(claim_id)
        if claim is None and (waiting := self.waiting.get(claim_id)) is not None:
            claim = waiting.claim
        return claim.schedd if claim is not None else ""

    def knows(self, request_id: str) -> bool:
        """Whether this request was answered with a claim that is still there."""
        return request_id in self._table.requests

    def request(
        self, request: ClaimRequest, job: ClassAd, now: float
    ) -> tuple[Granted | Accepted | Refused, SlotEffects]:
        """Give the slot, or a dynamic slot carved from it, to a schedd (STM-05): at once, or when what has it now is
        gone (PRE-10, PRE-17)."""
        known = self._table.requests.get(request.request_id, "")
        if self.granted_to(known) not in ("", request.schedd):
            return Refused("unknown-claim", f"request {request.request_id} is another access point's"), self._done()
        if known in self.waiting:
            return Accepted(self.waiting[known], again=True), self._done()
        if known in self.claims:
            return self._granted(self.claims[known], again=True), self._done()
        if self._table.is_over(request.request_id):
            # A copy of a message that came before: its job would begin again, though it has ended.
            return Refused("unknown-claim", f"the claim of request {request.request_id} is over"), self._done()
        highest = self.epochs.get(request.shard, 0)
        if request.epoch < highest:
            return Refused("stale-epoch", f"the match is of epoch {request.epoch}, {highest} was seen"), self._done()
        found = self.slots.get(request.slot)
        if found is None or not found.offer or found.offer != request.claim_id:
            code = "busy" if found is not None and found.claim is not None else "unknown-claim"
            return Refused(code, f"this claim id does not open {request.slot} (any more)"), self._done()
        self.epochs[request.shard] = request.epoch
        found.asked += 1
        self._table.touch(found)
        answer = self._answer(found, request, job, now)
        if isinstance(answer, Refused) and found.state is State.MATCHED:
            self._table.move(found, Cause.MATCH_EXPIRED, now)  # STM-08: the match came to nothing
            found.offer = self._table.new_claim_id()
            self._driver.follow(found, now)
        self._driver.count_unclaimed_time(now)
        return answer, self._done()

    def _answer(self, found: Slot, request: ClaimRequest, job: ClassAd, now: float) -> Granted | Accepted | Refused:
        if self._table.asleep:
            return Refused("draining", "the machine goes to sleep")
        if self._table.broken:
            return Refused("requirements", f"this machine takes no job: {self._table.broken}")
        ad = self._ad_of(found)
        emptying = self.machine_orders.emptying
        if emptying and (found.claim is not None or request.preempts):
            return Refused("draining", "the machine is being drained: nothing is preempted there")
        if start_is_false(self._table.policy(found), ad):
            why = "the machine takes no jobs now: it is drained, or switched off"
            return Refused("draining", why) if emptying else Refused("requirements", "START is false")
        if found.kind is SlotKind.PARTITIONABLE:
            return self._answer_partitionable(found, ad, request, job, now)
        if found.state is State.MATCHED:  # whose ad refuses everybody but the one it is matched with
            ad = ad.copy()
            ad["Requirements"] = requirements(ad)
        why = refusal(ad, job)
        if why:
            return Refused("requirements", why)
        claim = request.claim(found.name, found.offer, now)
        claim.describe(job, rank_of(self._table.policy(found), ad, job))
        if found.claim is not None:
            return self._preempt(found, found.claim, claim, now)
        if found.state is State.BACKFILL and found.activity is not Activity.IDLE:
            return self._displace(found, claim, now)
        claim.while_draining = emptying
        self._make_ready(found, now)
        self._table.move(found, Cause.CLAIMED, now)
        self._table.occupy(found, claim)
        return self._granted(claim)

    def _make_ready(self, slot: Slot, now: float) -> None:
        while (cause := _ON_THE_WAY.get(slot.condition)) is not None:
            self._table.move(slot, cause, now)

    def _displace(self, slot: Slot, claim: Claim, now: float) -> Accepted | Refused:
        """The claim gets the slot as soon as its backfill client is gone (STM-28, STM-31)."""
        waits = self.waiting.get(slot.waiting)
        if waits is not None and waits.claim.rank >= claim.rank:
            return Refused("requirements", f"a job that RANK likes as well waits for {slot.name} already")
        if waits is not None:
            slot.waiting = ""
            self._driver.give_up(waits, f"a better claim of {claim.submitter} came", now, broken=True)
        waiting = WaitingClaim(claim, [slot.name], VacateReason.UNSAID)
        self._driver.await_slots(waiting)
        slot.offer = self._table.new_claim_id()
        self._driver.follow(slot, now)
        return Accepted(waiting)

    def _answer_partitionable(
        self, found: Slot, ad: ClassAd, request: ClaimRequest, job: ClassAd, now: float
    ) -> Granted | Accepted | Refused:
        carved = carve(job, ad, found.free, self._carving)
        if isinstance(carved, Refusal):
            if request.preempts:
                return self._preempt_parts(found, ad, request, job, now)
            return Refused("resources", carved.reason)
        why = refusal(ad, job)
        if why:
            return Refused("requirements", why)
        slot = self._table.carve(found, carved, now)
        claim = request.claim(slot.name, self._table.new_claim_id(), now)
        claim.describe(job, rank_of(self._table.policy(found), ad, job))
        claim.while_draining = self.machine_orders.emptying
        self._table.occupy(slot, claim)
        self._table.move(slot, Cause.CLAIMED, now)
        if found.state is State.BACKFILL:
            self._driver.follow(found, now)  # what is carved must not be filled
        return self._granted(claim)

    def _preempt(self, slot: Slot, current: Claim, claim: Claim, now: float) -> Granted | Accepted | Refused:
        """The claim takes the slot over as soon as it is empty (PRE-10)."""
        waits = self.waiting.get(slot.waiting)
        why = preemption.objection(current, claim.rank, claim.submitter, waits.claim if waits is not None else None)
        if why:
            return Refused("requirements", why)
        if waits is not None:
            slot.waiting = ""
            self._driver.give_up(waits, f"a better claim of {claim.submitter} came", now, broken=True)
        self._driver.await_slots(WaitingClaim(claim, [slot.name], preemption.reason_code(claim.rank, current)))
        slot.offer = self._table.new_claim_id()
        self._driver.follow(slot, now)
        return self._outcome(claim)

    def _preempt_parts(
        self, parent: Slot, ad: ClassAd, request: ClaimRequest, job: ClassAd, now: float
    ) -> Granted | Accepted | Refused:
        """Empty dynamic slots, and carve the claim's own from what comes back (PRE-11 to PRE-17)."""
        policy = self._table.policy(parent)
        victims = [
            preemption.Victim(slot, rank_of(policy, self._ad_of(slot), job), self._has_retired(slot, now))
            for slot in preemption.slots_to_preempt(parent, request.preempts, self.slots.get)
        ]
        room = preemption.make_room(
            parent.free, victims, request.submitter, ad, lambda roomy, free: carve(job, roomy, free, self._carving)
        )
        if isinstance(room, Refusal):
            return Refused("resources", room.reason)
        why = refusal(room.ad, job)
        if why:
            return Refused("requirements", why)
        claim = request.claim(parent.name, self._table.new_claim_id(), now)
        claim.describe(job, rank_of(policy, ad, job))
        self._driver.await_slots(WaitingClaim(claim, [slot.name for slot in room.victims], room.code, room.wanted))
        self._driver.reserve_free(parent, now)
        for slot in room.victims:
            self._driver.follow(slot, now)
        return self._outcome(claim)

    def _has_retired(self, slot: Slot, now: float) -> bool:
        return slot.claim is None or not slot.claim.run or self._driver.at(slot, now).retirement_left_s <= 0

    def _outcome(self, claim: Claim) -> Granted | Accepted:
        waiting = self.waiting.get(claim.claim_id)
        if waiting is not None:
            return Accepted(waiting)
        self._table.effects.ready.remove(claim)  # which the answer says
        return self._granted(claim)

    def _granted(self, claim: Claim, *, again: bool = False) -> Granted:
        slot = self.slots[claim.slot]
        parent = self.slots.get(slot.parent)
        left = parent if parent is not None and parent.offer and parent.free[CPUS] > 0 else None
        return Granted(slot, claim, left, again)

    def activate(
        self, claim_id: str, run: str, job_ad: bytes, job: ClassAd, now: float
    ) -> tuple[Claim | Refused, SlotEffects]:
        """A run begins on a claim (STM-11). Asked again for the same run it answers the same."""
        claim = self.claims.get(claim_id)
        if claim is None:
            return Refused("unknown-claim", "no such claim here (any more)"), self._done()
        if claim.run == run:
            return claim, self._done()
        slot = self.slots[claim.slot]
        if claim.end_reason:
            return Refused("busy", f"the claim is being given up: {claim.end_reason}"), self._done()
        if claim.run:
            return Refused("busy", f"run {claim.run} is still there"), self._done()
        ad = self._ad_of(slot)
        policy = self._table.policy(slot)
        if claim.jobs and worklife_over(policy, ad, job, claim.age(now)):
            return Refused("worklife", "the claim is older than CLAIM_WORKLIFE"), self._done()
        lacking = self._unfit(slot, ad, job)
        if lacking:
            return Refused("requirements", lacking), self._done()
        claim.begin(run, job_ad, now)
        claim.describe(job, rank_of(policy, ad, job))
        claim.retirement_s = retirement_s(policy.of(job), ad, job)
        claim.leave_s = vacate_time_s(policy.of(job), ad, job)
        self._table.move(slot, Cause.ACTIVATED, now)
        self._table.keep(claim)
        self._driver.follow(slot, now)
        return claim, self._done()

    def suspend(self, claim_id: str, run: str, *, suspended: bool, now: float) -> tuple[Refused | None, SlotEffects]:
        """Have the run on a claim stand still, or go on, as its user wants (STM-59)."""
        claim = self.claims.get(claim_id)
        if claim is None or not run or claim.run != run:
            return Refused("unknown-run", "there is no such run on the claim"), self._done()
        slot = self.slots[claim.slot]
        if not suspended:
            self._driver.continue_for_user(slot, now)
        elif not self._driver.suspend_for_user(slot, now):
            return Refused("leaving", "the run is being ended"), self._done()
        return None, self._done()

    def vacate(self, claim_id: str, reason: str, *, graceful: bool, now: float) -> tuple[bool, SlotEffects]:
        """The claim is to end, without retirement (release, lease), and its schedd knows. One without a run is free at
        once, else its run is stopped first. False when there is no such claim."""
        waiting = self.waiting.get(claim_id)
        if waiting is not None:
            self._driver.give_up(waiting, reason, now, broken=False)
            return True, self._done()
        claim = self.claims.get(claim_id)
        if claim is None:
            return False, self._done()
        claim.urgency = max(claim.urgency, Urgency.VACATE if graceful else Urgency.KILL)
        self._table.end_because(claim, reason, VacateReason.RELEASED)
        self._driver.follow(self.slots[claim.slot], now, broken=False)
        return True, self._done()

    def run_gone(self, claim_id: str, run: str, now: float) -> SlotEffects:
        """A run has ended, one way or the other: its claim is idle again, or free if it was to end (STM-12, STM-18,
        STM-22 to STM-25)."""
        claim = self.claims.get(claim_id)
        if claim is None or claim.run != run:
            return self._done()
        slot, machine_orders = self.slots[claim.slot], self.machine_orders
        if slot.state is State.PREEMPTING and claim.vacate_code == VacateReason.DRAINING:
            machine_orders.badput += float(slot.total[CPUS]) * claim.run_time(now)
        claim.end(now)
        if slot.state is State.CLAIMED:
            self._table.move(slot, Cause.JOB_GONE, now)
        self._table.keep(claim)
        self._driver.follow(slot, now, broken=True)
        if machine_orders.drain is not None and machine_orders.drain.start:
            self._driver.apply_machine_orders()  # perhaps it was the last of the older jobs (DFR-09, DFR-10)
            self._driver.review(now)
        self._driver.count_unclaimed_time(now)
        return self._done()

    def measured(self, claim_id: str, run: str, attributes: Mapping[str, object]) -> None:
        """What a run uses, as attributes of its job: policies may go by it (MemoryUsage, DiskUsage, ...)."""
        claim = self.claims.get(claim_id)
        if claim is not None and claim.run == run:
            self._driver.jobs.measured(claim, attributes)

    # -- recovery

    def restore(self, claim: Claim, slot: Slot, now: float) -> tuple[str, SlotEffects]:
        """Put a claim of an earlier life back; `slot` is as it was written down with it. Returns why that is not
        possible (the configuration changed); empty: it is done.

        Compared is what its job holds: cores, memory, devices. A slot's Disk is what was free when it was made, which
        is another number each time (SLT-08); what the job has used of it is its own already."""
        self.epochs[claim.shard] = max(self.epochs.get(claim.shard, 0), claim.epoch)
        return self._restore(claim, slot), self._done()

    def _restore(self, claim: Claim, slot: Slot) -> str:
        if slot.kind is SlotKind.DYNAMIC:
            parent = self.slots.get(slot.parent)
            if parent is None or parent.kind is not SlotKind.PARTITIONABLE:
                return f"there is no partitionable slot {slot.parent} any more"
            lacking = parent.free.lacking(slot.total.without(DISK))
            if lacking:
                return _too_small(slot.parent, lacking, parent.free, slot.total)
            parent.free = parent.free.minus(slot.total)
            parent.children = max(parent.children, slot.dynamic_id)
            self._table.add(slot)
        else:
            known = self.slots.get(slot.name)
            if known is None or known.kind is not SlotKind.STATIC or known.claim is not None:
                return f"there is no static slot {slot.name} any more"
            lacking = known.total.lacking(slot.total.without(DISK))
            if lacking:
                return _too_small(slot.name, lacking, known.total, slot.total)
            if known.activity is Activity.BENCHMARKING:  # they began before the claim was there again
                self._table.move(known, Cause.BENCHMARKED, slot.activity_since)
            known.condition = slot.condition
            known.state_since, known.activity_since = slot.state_since, slot.activity_since
            slot = known
        self._table.occupy(slot, claim)
        if slot.state is State.PREEMPTING or claim.for_owner:
            slot.offer = ""
        return ""

    def restore_children(self, slot_name: str, children: int) -> SlotEffects:
        """Let a partitionable slot number its dynamic slots on from there. The claim id it is offered by is a new one,
        as that of every other slot: this life does not know which requests the former ones have answered."""
        slot = self.slots.get(slot_name)
        if slot is not None and slot.kind is SlotKind.PARTITIONABLE:
            slot.children = max(slot.children, children)
        return self._done()

    def restore_past(self, slot_name: str, past: tuple[Past, ...]) -> SlotEffects:
        """Let a slot go on telling of claims that are over, until all can have heard of it."""
        if slot_name in self.slots:
            self.slots[slot_name].past = past
        return self._done()

    def restore_waiting(self, waiting: WaitingClaim, now: float) -> tuple[str, SlotEffects]:
        """Let a claim of an earlier life wait on, after all claims were restored. Returns why it can not."""
        shard = waiting.claim.shard
        self.epochs[shard] = max(self.epochs.get(shard, 0), waiting.claim.epoch)
        slot = self.slots.get(waiting.claim.slot)
        waiting.reserved = Amounts()
        waiting.victims = [n for n in waiting.victims if (s := self.slots.get(n)) and s.claim and not s.waiting]
        if slot is None or (waiting.wanted is None and not waiting.victims):
            return f"{waiting.claim.slot} is not what it was", self._done()
        self._driver.await_slots(waiting)
        if waiting.wanted is not None:
            self._driver.reserve_free(slot, now)
        return "", self._done()

    def restore_machine_orders(self, machine_orders: MachineOrders) -> SlotEffects:
        """The machine is drained or switched off as it was: before any claim is restored. A drain that was to end
        the daemon has done so."""
        ended = (Completion.EXIT, Completion.RESTART)
        if machine_orders.drained and machine_orders.drain is not None and machine_orders.drain.completion in ended:
            machine_orders.drain = None
        self._table.machine_orders = machine_orders
        self._driver.apply_machine_orders()
        return self._done()

    def resume(self, now: float) -> SlotEffects:
        """After a restart: what was being ended is ended once more, and all slots go on from where they are. From the
        first start on the costs of draining are counted."""
        if not self.machine_orders.since:
            self.machine_orders.since = now
            self._table.effects.machine_orders = True
        for slot in list(self.slots.values()):
            if slot.state is State.PREEMPTING and slot.claim is not None and slot.claim.run:
                self._table.stop(slot, now)
        self._driver.apply_machine_orders()
        self._driver.review(now)
        self._driver.count_unclaimed_time(now)
        return self._done()

    # -- inside

    def _unfit(self, slot: Slot, ad: ClassAd, job: ClassAd) -> str:
        """Why a further job does not fit the slot of its claim (SLT-20)."""
        if slot.kind is SlotKind.DYNAMIC:
            carved = carve(job, ad, slot.total, Carving({}))
            if isinstance(carved, Refusal):
                return carved.reason
        return refusal(ad, job)


def _too_small(name: str, lacking: Sequence[str], there: Amounts, held: Amounts) -> str:
    """Why a claim of an earlier life has no place in this slot any more, with the amounts."""
    which = ", ".join(
        f"{resource} {there[resource]:g} of {held[resource]:g}"
        if there[resource] < held[resource]
        else f"other {resource}"
        for resource in lacking
    )
    return f"{name} is too small now, after a restart with other resources: it has {which}"
