"""How slots go on by themselves: after every change a slot takes the transitions of `transitions.TABLE` whose guards
hold, and each brings something with it: a run is stopped, a claim ends, a claim that waited gets its slot.

Claims wait until their slot is empty, or until enough of a partitionable slot came back (PRE-10, PRE-17). They are part
of this, as a slot that empties goes to the claim that waits, and a slot for which nobody waits any more goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from engine.slots.amounts import Amounts
from engine.slots.carving import SlotKind
from services.startd.core.job_ads import job_ad
from services.startd.core.slots import retirement
from services.startd.core.slots.drain import Completion, DrainMode, all_drained, idle_cpus, urgency_of
from services.startd.core.slots.effects import ClaimEnd, Suspension
from services.startd.core.slots.guards import NO_ORDERS, Situation, SlotOrders, next_look, next_move
from services.startd.core.slots.model import Claim, Slot, Urgency, VacateReason, WaitingClaim
from services.startd.core.slots.slot_table import SlotTable
from services.startd.core.slots.transitions import Activity, Cause, State
from shared.classad import ClassAd, Expr, evaluate, is_true, parse_expr

#: A slot takes so many transitions at once. More is a circle, as of an IS_OWNER that asks for the State it decides: the
#: slot stays where it is until the next look.
_MAX_STEPS = 20
#: Transitions after which expressions are not looked at again before the next look: what was just decided by one
#: expression is not to be undone by another at the same moment, over and over.
_PAUSES = frozenset((Cause.SUSPEND, Cause.CONTINUE, Cause.BENCHMARK, Cause.BACKFILL))
_NEVER = parse_expr("false")
_BENCHMARKING = SlotOrders(benchmarking=True)


class SlotDriver:
    """Moves slots along the transition table. Timeouts are MATCH_TIMEOUT and KILLING_TIMEOUT."""

    def __init__(
        self,
        table: SlotTable,
        *,
        ad_of: Callable[[Slot], ClassAd],
        match_timeout_s: float,
        killing_timeout_s: float,
    ) -> None:
        self.table = table
        self.jobs = JobAds(table.claims)
        self.match_timeout_s = match_timeout_s
        self.killing_timeout_s = killing_timeout_s
        self._ad_of = ad_of
        self._left: tuple[float, int, float] | None = None  # now and count of changes; longest retirement left then
        self._idle: tuple[float, float] | None = None  # since when so many cores are nobody's because of draining

    # -- looking

    def ad(self, slot: Slot) -> ClassAd:
        """The slot's ad as it is now."""
        return self._ad_of(slot)

    def at(self, slot: Slot, now: float) -> Situation:
        return self._situation(slot, now, self._orders(slot, now))

    def _situation(self, slot: Slot, now: float, orders: SlotOrders) -> Situation:
        waiting = self.table.waiting.get(slot.waiting)
        return Situation(
            slot,
            self.table.policy(slot),
            self._ad_of,
            now,
            match_timeout_s=self.match_timeout_s,
            has_waiting_claim=waiting is not None and waiting.wanted is None,
            orders=orders,
            job_of=self.jobs.ad,
        )

    def next_look(self, now: float) -> float | None:
        """When the passing of time alone may move a slot (wall clock); None: it will not."""
        looks = (next_look(self.at(slot, now), self.killing_timeout_s) for slot in self.table.slots.values())
        return min((look for look in looks if look is not None), default=None)

    # -- orders for the whole machine

    def _orders(self, slot: Slot, now: float) -> SlotOrders:
        machine_orders = self.table.machine_orders
        if not machine_orders.emptying:
            return _BENCHMARKING if self.table.benchmarking else NO_ORDERS
        claim, drain = slot.claim, machine_orders.drain
        if claim is None or drain is None:  # who switched the machine off has told each claim
            return SlotOrders(emptied=True, drained=machine_orders.drained)
        urgency = urgency_of(drain.how)
        plain = SlotOrders(emptied=True, urgency=urgency)
        if drain.how is not DrainMode.GRACEFUL:
            return plain
        if drain.start and claim.while_draining:
            # DFR-08, DFR-09: they stay as long as an older job does, and have no retirement of their own.
            if self._older_jobs():
                return SlotOrders(emptied=True)
            return replace(plain, aligned_left_s=0.0)
        stays_longer = drain.aligned or (drain.start and self._would_start(slot, now, plain))
        if claim.run and stays_longer and claim.urgency is Urgency.STAY:  # nothing else wants it to leave
            return replace(plain, aligned_left_s=self._longest_left_s(now))
        return plain

    def _would_start(self, slot: Slot, now: float, orders: SlotOrders) -> bool:
        """Whether the job that is there would be taken while the machine drains."""
        at = self._situation(slot, now, orders)
        return self.table.start is not _NEVER and is_true(evaluate(at.plain.start, at.ad, at.job))

    def _older_jobs(self) -> bool:
        return any(claim.run and not claim.while_draining for claim in self.table.claims.values())

    def _longest_left_s(self, now: float) -> float:
        """Retirement left of the job, of those that were there before the drain, that has most of it."""
        version = self.table.version
        if self._left is None or self._left[:2] != (now, version):
            slots = (slot for slot in self.table.slots.values() if slot.claim is not None and slot.claim.run)
            older = (slot for slot in slots if slot.claim is not None and not slot.claim.while_draining)
            left = (self._situation(slot, now, NO_ORDERS).own_retirement_left_s for slot in older)
            self._left = now, version, max(left, default=0.0)
        return self._left[2]

    def apply_machine_orders(self) -> None:
        """Put START of all slots to what the orders for the machine mean now."""
        table, machine_orders = self.table, self.table.machine_orders
        start: Expr | None = None
        if machine_orders.emptying:
            drain = machine_orders.drain
            start = _NEVER
            if machine_orders.off is None and drain is not None and drain.start and self._older_jobs():
                known = table.start is not None and table.start is not _NEVER
                start = table.start if known else drain.start_expr
        if start is not table.start:
            table.replace_start(start)

    def check_all_drained(self, now: float) -> None:
        """See whether all slots are drained, after one more is or was freed, and go on to what follows."""
        table, machine_orders = self.table, self.table.machine_orders
        if not machine_orders.emptying or machine_orders.drained or not all_drained(table.slots.values()):
            return
        machine_orders.drained = True
        table.effects.machine_orders = True
        for slot in list(table.slots.values()):
            self.follow(slot, now)  # STM-33
        if machine_orders.drain is None or machine_orders.off is not None:
            return
        if machine_orders.drain.completion is Completion.RESUME:
            self.end_drain(now)
        elif machine_orders.drain.completion is not Completion.NOTHING:
            table.effects.completed = machine_orders.drain.completion

    def end_drain(self, now: float) -> None:
        """End the drain: it is over, or cancelled. Jobs that did not begin to leave stay (STM-34, STM-35)."""
        table, machine_orders = self.table, self.table.machine_orders
        self.count_unclaimed_time(now)
        machine_orders.drain, machine_orders.last_stop = None, now
        machine_orders.drained = machine_orders.drained and machine_orders.emptying
        table.effects.machine_orders = True
        for claim in table.claims.values():
            claim.while_draining = False
        self.apply_machine_orders()
        self.review(now)

    def count_unclaimed_time(self, now: float) -> None:
        """Count what draining costs in unclaimed core-seconds: called after every change while it goes on."""
        table, machine_orders = self.table, self.table.machine_orders
        if machine_orders.drain is None:
            self._idle = None
            return
        if self._idle is not None:
            since, cpus = self._idle
            machine_orders.unclaimed += cpus * max(0.0, now - since)
        self._idle = now, idle_cpus(table.slots.values())

    def clock_set(self, seconds: float) -> None:
        """The clock was set by so many seconds."""
        self._left = None
        if self._idle is not None:
            self._idle = self._idle[0] + seconds, self._idle[1]

    # -- moving

    def review(self, now: float) -> None:
        """Look at all guards again: time has passed, expressions or orders may have changed."""
        slots = self.table.slots
        for slot in list(slots.values()):
            if slots.get(slot.name) is slot:
                self.follow(slot, now)

    def follow(self, slot: Slot, now: float, *, broken: bool = True) -> None:
        """Let the slot take all transitions whose guards hold. broken: should its claim end by that, its schedd does
        not know of it."""
        for _ in range(_MAX_STEPS):
            if self.table.slots.get(slot.name) is not slot:
                return
            at = self.at(slot, now)
            if slot.activity is Activity.RETIRING and slot.claim is not None and at.owner_preempts:
                self._preempt(at)  # for good, where a better claim or a drain would have let it stay (STM-52)
                at = self.at(slot, now)
            move = next_move(at)
            if move is None:
                killed = slot.claim.killed_at if slot.activity is Activity.KILLING and slot.claim is not None else now
                if now - killed >= self.killing_timeout_s:
                    self.table.stop(slot, now)  # it resists
                return
            self._take(slot, move.cause, now, at, broken=broken)
            if move.cause in _PAUSES:
                return

    def _take(self, slot: Slot, cause: Cause, now: float, at: Situation, *, broken: bool) -> None:
        """Take one transition, with what it brings with it."""
        table = self.table
        if cause is Cause.CLAIMED_ANEW:
            self.give_to_waiting_claim(slot, now, broken=broken)
            return
        if cause is Cause.FREED:
            self._free(slot, now, broken=broken)
            return
        before = slot.state
        if cause is Cause.PREEMPT:
            self._preempt(at)
        if before is State.CLAIMED and cause in (Cause.VACATE, Cause.KILL):
            self._begin_leaving(slot, at)
        if before is State.CLAIMED:
            self._suspend_or_continue(slot, cause, now)
        table.move(slot, cause, now)
        if slot.state is State.PREEMPTING:
            slot.offer = ""  # STM-55
            if at.claim.run:
                table.stop(slot, now)
        elif slot.claim is None:
            self._offer(slot, before, now)
        if slot.state is State.DRAINED and cause is Cause.DRAIN:
            self.check_all_drained(now)

    def _offer(self, slot: Slot, before: State, now: float) -> None:
        """Offer a slot without a claim, whatever its State: START decides (STM-08, STM-29 to STM-32)."""
        waiting = self.table.waiting.get(slot.waiting)
        if slot.state is State.OWNER and waiting is not None:
            slot.waiting = ""
            self.slot_emptied(slot, waiting, now)
        if slot.state in (State.OWNER, State.MATCHED) and before is State.BACKFILL:
            slot.after_backfill = None
        if not slot.offer or (slot.state is State.OWNER and before is State.MATCHED):
            slot.offer = self.table.new_claim_id()

    def _preempt(self, at: Situation) -> None:
        """End the claim because PREEMPT is true, for good: its slot is the owner's then (STM-13, STM-16, STM-52)."""
        claim = at.claim
        claim.urgency, claim.for_owner = max(claim.urgency, Urgency.RETIRE), True
        claim.hold = retirement.hold(at.policy, at.ad, at.job)
        reason = "PREEMPT is true on the machine" if claim.hold is None else claim.hold[0]
        self.table.end_because(claim, reason, VacateReason.PREEMPT)
        at.slot.offer = ""
        self.table.touch(at.slot)

    def _begin_leaving(self, slot: Slot, at: Situation) -> None:
        table, claim = self.table, at.claim
        claim.vacate_s = at.vacate_s
        waiting = table.waiting.get(slot.waiting)
        drain = table.machine_orders.drain
        if waiting is not None:
            table.end_because(claim, waiting.reason, waiting.code)
        if drain is not None:
            why = f": {drain.reason}" if drain.reason else ""
            table.end_because(claim, f"the machine is being drained{why}", VacateReason.DRAINING)
        if claim.run:
            table.end_because(claim, "the claim is given up", VacateReason.UNSAID)
        else:
            table.end_because(claim, "the claim is older than CLAIM_WORKLIFE", VacateReason.UNSAID)

    def _suspend_or_continue(self, slot: Slot, cause: Cause, now: float) -> None:
        """Suspend the run, or continue it, if that is what this transition means (STM-14 to STM-17, STM-20)."""
        claim = slot.claim
        assert claim is not None
        if cause is Cause.SUSPEND:
            claim.suspend(now)
        elif slot.activity is Activity.SUSPENDED:
            claim.go_on(now)
        else:
            return
        stands = cause is Cause.SUSPEND
        self.table.effects.suspensions.append(Suspension(claim.run, stands, claim.suspensions))
        self.table.keep(claim)

    def suspend_for_user(self, slot: Slot, now: float) -> bool:
        """Suspend the run on a slot as its user wants, whatever the machine's policy. False: it is being ended."""
        claim = slot.claim
        assert claim is not None
        if slot.activity in (Activity.BUSY, Activity.RETIRING):
            self._take(slot, Cause.SUSPEND, now, self.at(slot, now), broken=True)
        elif slot.activity is not Activity.SUSPENDED:
            return False
        claim.by_user = True
        self.table.keep(claim)
        return True

    def continue_for_user(self, slot: Slot, now: float) -> None:
        """Let the run go on that its user suspended; the machine's policy may suspend it again."""
        at = self.at(slot, now)
        if slot.activity is Activity.SUSPENDED and at.claim.by_user:
            self._take(slot, Cause.CONTINUE if at.urgency is Urgency.STAY else Cause.RETIRE, now, at, broken=True)

    def _free(self, slot: Slot, now: float, *, broken: bool) -> None:
        """End the slot's claim, of which nothing is left, and free the slot."""
        table = self.table
        waiting = table.waiting.get(slot.waiting)
        slot.waiting = ""
        table.end_claim(slot, now, broken=broken)
        if waiting is not None:
            self.slot_emptied(slot, waiting, now)
        if slot.kind is SlotKind.DYNAMIC:
            parent = table.remove(slot)
            self.amounts_returned(parent, slot.total, waiting, now)
            self.check_all_drained(now)
        else:
            table.move(slot, Cause.FREED, now)
            slot.offer = table.new_claim_id()

    # -- claims that wait

    def await_slots(self, waiting: WaitingClaim) -> None:
        """Let a claim wait for its victims to empty."""
        table, claim = self.table, waiting.claim
        table.waiting[claim.claim_id] = waiting
        table.requests[claim.request_id] = claim.claim_id
        table.effects.waiting[claim.claim_id] = waiting
        for name in waiting.victims:
            table.slots[name].waiting = claim.claim_id
            table.touch(table.slots[name])

    def give_up(self, waiting: WaitingClaim, reason: str, now: float, *, broken: bool) -> None:
        """End a claim that waits: it gets nothing. What has not begun to leave for it may stay (STM-19)."""
        table, claim = self.table, waiting.claim
        leaving = [name for name in waiting.victims if table.slots[name].waiting == claim.claim_id]
        table.forget_waiting(waiting)
        table.requests.pop(claim.request_id, None)
        table.effects.ended.append(ClaimEnd(claim, reason, broken))
        for name in leaving:
            if name in table.slots:
                self.follow(table.slots[name], now)
        parent = table.slots.get(claim.slot)
        if parent is not None and waiting.wanted is not None:
            parent.free = parent.free.plus(waiting.reserved)
            table.touch(parent)
            self.reserve_free(parent, now)

    def give_up_all(self, reason: str, now: float) -> None:
        for waiting in list(self.table.waiting.values()):
            if waiting.claim.claim_id in self.table.waiting:
                self.give_up(waiting, reason, now, broken=True)

    def give_to_waiting_claim(self, slot: Slot, now: float, *, broken: bool) -> None:
        """Let the claim that waits take over the slot (STM-23, STM-24, STM-31)."""
        table = self.table
        waiting = table.waiting[slot.waiting]
        table.forget_waiting(waiting)
        if slot.claim is not None:
            table.end_claim(slot, now, broken=broken)
        claim = waiting.claim
        claim.made_at, claim.clock_set = now, 0.0
        table.move(slot, Cause.CLAIMED_ANEW, now)
        table.occupy(slot, claim)
        table.effects.ready.append(claim)

    def slot_emptied(self, slot: Slot, waiting: WaitingClaim, now: float) -> None:
        """Note for the claim that waits that this slot is empty, and not for it to take over."""
        if waiting.wanted is None:
            self.give_up(waiting, f"{slot.name} is its owner's", now, broken=True)
        else:
            waiting.victims.remove(slot.name)
            self.table.effects.waiting[waiting.claim.claim_id] = waiting

    def amounts_returned(self, parent: Slot, amounts: Amounts, waiting: WaitingClaim | None, now: float) -> None:
        """Give back to the partitionable slot: first to the claim that it was emptied for, whatever others lack."""
        if waiting is not None and waiting.wanted is not None:
            self._reserve(waiting, waiting.wanted, parent, amounts, now)
        self.reserve_free(parent, now)

    def reserve_free(self, parent: Slot, now: float) -> None:
        """Reserve what is free of a partitionable slot for the claims that wait for it, in their order."""
        for waiting in [w for w in self.table.waiting.values() if w.claim.slot == parent.name]:
            if waiting.wanted is not None and waiting.claim.claim_id in self.table.waiting:
                self._reserve(waiting, waiting.wanted, parent, parent.free, now)

    def _reserve(self, waiting: WaitingClaim, wanted: Amounts, parent: Slot, most: Amounts, now: float) -> None:
        """Reserve what the claim still lacks out of what is free, and no more than `most`."""
        there = waiting.reserved.plus(most)
        reserved = wanted if there.holds(wanted) else wanted.least(there)
        parent.free = parent.free.plus(waiting.reserved).minus(reserved)
        waiting.reserved = reserved
        self.table.touch(parent)
        if reserved is wanted:
            self._carve(waiting, wanted, parent, now)
        elif not waiting.victims:
            self.give_up(waiting, "what it was to get is not there any more", now, broken=True)

    def _carve(self, waiting: WaitingClaim, wanted: Amounts, parent: Slot, now: float) -> None:
        table, claim = self.table, waiting.claim
        table.forget_waiting(waiting)  # slots that are leaving for it go on leaving
        parent.free = parent.free.plus(waiting.reserved)
        slot = table.carve(parent, wanted, now)
        claim.slot, claim.made_at, claim.clock_set = slot.name, now, 0.0
        table.occupy(slot, claim)
        table.move(slot, Cause.CLAIMED, now)
        table.effects.ready.append(claim)


#: When so many more ads are kept than there are claims, those of claims that are gone go.
_SPARE = 64


class JobAds:
    """The ads of jobs on claims as policies see them: as submitted, with what is measured of the run and how it goes.
    claims: by id, all that there are."""

    def __init__(self, claims: Mapping[str, Claim]) -> None:
        self._claims = claims
        self._ads: dict[str, tuple[bytes, ClassAd]] = {}  # by claim id, with what it was made of
        self._measured: dict[str, tuple[str, dict[str, object]]] = {}  # by claim id: of which run, what

    def ad(self, claim: Claim) -> ClassAd:
        """The job that runs on a claim, or the last one that did. Belongs to this class: change nothing in it."""
        packed, ad = self._ads.get(claim.claim_id, (b"", None))
        if ad is None or packed is not claim.job_ad:
            ad = job_ad(claim.job_ad)
            if len(self._ads) > len(self._claims) + _SPARE:
                self._ads = {key: one for key, one in self._ads.items() if key in self._claims}
                self._measured = {key: one for key, one in self._measured.items() if key in self._claims}
            self._ads[claim.claim_id] = claim.job_ad, ad
            run, measured = self._measured.get(claim.claim_id, ("", {}))
            if run == claim.run:
                ad.update(measured)
        ad["JobState"] = "Suspended" if claim.suspended_at else "Running"
        if claim.run:
            ad["JobCurrentStartDate"] = int(claim.run_since)
        return ad

    def measured(self, claim: Claim, attributes: Mapping[str, object]) -> None:
        """What is measured of the run on a claim: attributes of its job."""
        self._measured[claim.claim_id] = claim.run, dict(attributes)
        self._ads.pop(claim.claim_id, None)
