"""How slots go on by themselves: after every change a slot follows the arrows of `transitions.TABLE` whose guards hold,
and each arrow brings something with it: a run is stopped, a claim ends, a claim that waited gets its slot."""

from __future__ import annotations

from collections.abc import Callable

from services.startd.book import draining, leaving
from services.startd.book.answers import Suspension
from services.startd.book.jobs import Jobs
from services.startd.book.lifecycle import NO_ORDERS, Orders, Situation, next_look, next_move
from services.startd.book.partition import SlotKind
from services.startd.book.policy import Policy
from services.startd.book.registry import Registry
from services.startd.book.slots import Haste, Slot, Vacated
from services.startd.book.transitions import Activity, Cause, State
from services.startd.book.waitlist import Waitlist
from shared.classad import ClassAd, Expr, evaluate, is_true, parse_expr

#: A slot takes so many arrows at once. More is a circle, as of an IS_OWNER that asks for the State it decides: the slot
#: stays where it is until the next look.
_MAX_STEPS = 20
#: Arrows after which expressions are not looked at again before the next look: what was just decided by one expression
#: is not to be undone by another at the same moment, over and over.
_PAUSES = frozenset((Cause.SUSPEND, Cause.CONTINUE, Cause.BENCHMARK, Cause.BACKFILL))
_NEVER = parse_expr("false")
_BENCHMARKING = Orders(benchmarking=True)


class Motion:
    """See the module. Timeouts are MATCH_TIMEOUT and KILLING_TIMEOUT."""

    def __init__(
        self,
        registry: Registry,
        *,
        ad_of: Callable[[Slot], ClassAd],
        policy_of: Callable[[int], Policy],
        match_timeout_s: float,
        killing_timeout_s: float,
    ) -> None:
        self.registry = registry
        self.waitlist = Waitlist(registry, self.follow)
        self.jobs = Jobs(registry.claims)
        self.match_timeout_s = match_timeout_s
        self.killing_timeout_s = killing_timeout_s
        self._ad_of = ad_of
        self._policy_of = policy_of
        self._steered: dict[int, tuple[Policy, Policy]] = {}  # by slot type: as configured, and as it is while emptying
        self._start: Expr | None = None  # START for all slots while the machine is emptied
        self._left: tuple[float, int, float] | None = None  # now and count of changes; longest retirement left then
        self._idle: tuple[float, float] | None = None  # since when so many cores are nobody's because of draining

    # -- looking

    def policy(self, slot: Slot) -> Policy:
        """The slot's policy as it is now: while the machine is emptied, with another START (DFR-07)."""
        plain = self._policy_of(slot.type_id)
        if self._start is None:
            return plain
        known = self._steered.get(slot.type_id)
        if known is None or known[0] is not plain:
            known = self._steered[slot.type_id] = plain, plain.starting(self._start)
        return known[1]

    def ad(self, slot: Slot) -> ClassAd:
        """The slot's ad as it is now."""
        return self._ad_of(slot)

    def at(self, slot: Slot, now: float) -> Situation:
        return self._situation(slot, now, self._orders(slot, now))

    def _situation(self, slot: Slot, now: float, orders: Orders) -> Situation:
        waiting = self.registry.waiting.get(slot.waiting)
        return Situation(
            slot,
            self.policy(slot),
            self._ad_of,
            now,
            match_timeout_s=self.match_timeout_s,
            has_heir=waiting is not None and waiting.wanted is None,
            orders=orders,
            job_of=self.jobs.ad,
        )

    def next_look(self, now: float) -> float | None:
        """When the passing of time alone may move a slot (wall clock); None: it will not."""
        looks = (next_look(self.at(slot, now), self.killing_timeout_s) for slot in self.registry.slots.values())
        return min((look for look in looks if look is not None), default=None)

    # -- orders for the whole machine

    def _orders(self, slot: Slot, now: float) -> Orders:
        steering = self.registry.steering
        if not steering.emptying:
            return _BENCHMARKING if self.registry.benchmarking else NO_ORDERS
        claim, drain = slot.claim, steering.drain
        if claim is None or drain is None:  # who switched the machine off has told each claim
            return Orders(emptied=True, drained=steering.drained)
        haste = draining.haste_of(drain.how)
        if drain.how is not draining.How.GRACEFUL or not drain.start:
            return Orders(emptied=True, haste=haste)
        if claim.while_draining:
            # DFR-08, DFR-09: they stay as long as an older job does, and have no retirement of their own.
            if self._older_jobs():
                return Orders(emptied=True)
            return Orders(emptied=True, haste=haste, aligned_left_s=0.0)
        plain = self._situation(slot, now, Orders(emptied=True, haste=haste))
        if claim.run and self._start is not _NEVER and is_true(evaluate(plain.plain.start, plain.ad, plain.job)):
            return Orders(emptied=True, haste=haste, aligned_left_s=self._longest_left_s(now))
        return plain.orders

    def _older_jobs(self) -> bool:
        return any(claim.run and not claim.while_draining for claim in self.registry.claims.values())

    def _longest_left_s(self, now: float) -> float:
        """Retirement left of the job, of those that were there before the drain, that has most of it."""
        count = self.registry.count
        if self._left is None or self._left[:2] != (now, count):
            slots = (slot for slot in self.registry.slots.values() if slot.claim is not None and slot.claim.run)
            older = (slot for slot in slots if slot.claim is not None and not slot.claim.while_draining)
            left = (self._situation(slot, now, NO_ORDERS).own_retirement_left_s for slot in older)
            self._left = now, count, max(left, default=0.0)
        return self._left[2]

    def steer(self) -> None:
        """Go by what is ordered for the machine now."""
        steering = self.registry.steering
        start: Expr | None = None
        if steering.emptying:
            drain = steering.drain
            start = _NEVER
            if steering.off is None and drain is not None and drain.start and self._older_jobs():
                known = self._start is not None and self._start is not _NEVER
                start = self._start if known else drain.start_expr
        if start is not self._start:
            self._start = start
            self._steered.clear()
            for slot in self.registry.slots.values():
                self.registry.touch(slot)

    def settle(self, now: float) -> None:
        """A slot has got drained, or was freed: perhaps it was the last one."""
        registry, steering = self.registry, self.registry.steering
        if not steering.emptying or steering.drained or not draining.all_drained(registry.slots.values()):
            return
        steering.drained = True
        registry.changes.steering = True
        for slot in list(registry.slots.values()):
            self.follow(slot, now)  # STM-33
        if steering.drain is None or steering.off is not None:
            return
        if steering.drain.completion is draining.Completion.RESUME:
            self.end_drain(now)
        elif steering.drain.completion is not draining.Completion.NOTHING:
            registry.changes.completed = steering.drain.completion

    def end_drain(self, now: float) -> None:
        """It is over, or cancelled. Jobs that did not begin to leave stay (STM-34, STM-35)."""
        registry, steering = self.registry, self.registry.steering
        self.tally(now)
        steering.drain, steering.last_stop = None, now
        steering.drained = steering.drained and steering.emptying
        registry.changes.steering = True
        for claim in registry.claims.values():
            claim.while_draining = False
        self.steer()
        self.review(now)

    def tally(self, now: float) -> None:
        """Count what draining costs: call it after every change while it goes on."""
        registry, steering = self.registry, self.registry.steering
        if steering.drain is None:
            self._idle = None
            return
        if self._idle is not None:
            since, cpus = self._idle
            steering.unclaimed += cpus * max(0.0, now - since)
        self._idle = now, draining.idle_cpus(registry.slots.values())

    # -- moving

    def review(self, now: float) -> None:
        """Look at all guards again: time has passed, expressions or orders may have changed."""
        slots = self.registry.slots
        for slot in list(slots.values()):
            if slots.get(slot.name) is slot:
                self.follow(slot, now)

    def follow(self, slot: Slot, now: float, *, broken: bool = True) -> None:
        """Let the slot take all arrows whose guards hold. broken: should its claim end by that, its schedd does not
        know of it."""
        for _ in range(_MAX_STEPS):
            if self.registry.slots.get(slot.name) is not slot:
                return
            at = self.at(slot, now)
            if slot.activity is Activity.RETIRING and slot.claim is not None and at.owner_preempts:
                self._preempt(at)  # for good, where a better claim or a drain would have let it stay (STM-52)
                at = self.at(slot, now)
            move = next_move(at)
            if move is None:
                killed = slot.claim.killed_at if slot.activity is Activity.KILLING and slot.claim is not None else now
                if now - killed >= self.killing_timeout_s:
                    self.registry.stop(slot, now)  # it resists
                return
            self._take(slot, move.cause, now, at, broken=broken)
            if move.cause in _PAUSES:
                return

    def _take(self, slot: Slot, cause: Cause, now: float, at: Situation, *, broken: bool) -> None:
        """One arrow, and what it brings with it."""
        registry = self.registry
        if cause is Cause.CLAIMED_ANEW:
            self.waitlist.hand_over(slot, now, broken=broken)
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
            self._let_go_on(slot, cause, now)
        registry.move(slot, cause, now)
        if slot.state is State.PREEMPTING:
            slot.offer = ""  # STM-55
            if at.claim.run:
                registry.stop(slot, now)
        elif slot.claim is None:
            self._offer(slot, before, now)
        if slot.state is State.DRAINED and cause is Cause.DRAIN:
            self.settle(now)

    def _offer(self, slot: Slot, before: State, now: float) -> None:
        """A slot without a claim is offered, whatever its State: START decides (STM-08, STM-29 to STM-32)."""
        waiting = self.registry.waiting.get(slot.waiting)
        if slot.state is State.OWNER and waiting is not None:
            slot.waiting = ""
            self.waitlist.emptied(slot, waiting, now)
        if slot.state in (State.OWNER, State.MATCHED) and before is State.BACKFILL:
            slot.errand = None
        if not slot.offer or (slot.state is State.OWNER and before is State.MATCHED):
            slot.offer = self.registry.new_claim_id()

    def _preempt(self, at: Situation) -> None:
        """PREEMPT: the claim ends for good, and its slot is the owner's then (STM-13, STM-16, STM-52)."""
        claim = at.claim
        claim.haste, claim.for_owner = max(claim.haste, Haste.RETIRE), True
        claim.hold = leaving.hold(at.policy, at.ad, at.job)
        reason = "PREEMPT is true on the machine" if claim.hold is None else claim.hold[0]
        self.registry.doom(claim, reason, Vacated.PREEMPT)
        at.slot.offer = ""
        self.registry.touch(at.slot)

    def _begin_leaving(self, slot: Slot, at: Situation) -> None:
        registry, claim = self.registry, at.claim
        claim.vacate_s = at.vacate_s
        waiting = registry.waiting.get(slot.waiting)
        drain = registry.steering.drain
        if waiting is not None:
            registry.doom(claim, waiting.reason, waiting.code)
        if drain is not None:
            why = f": {drain.reason}" if drain.reason else ""
            registry.doom(claim, f"the machine is being drained{why}", Vacated.DRAINING)
        if claim.run:
            registry.doom(claim, "the claim is given up", Vacated.UNSAID)
        else:
            registry.doom(claim, "the claim is older than CLAIM_WORKLIFE", Vacated.UNSAID)

    def _let_go_on(self, slot: Slot, cause: Cause, now: float) -> None:
        """Suspend the run, or let it go on, if that is what this arrow means (STM-14 to STM-17, STM-20)."""
        claim = slot.claim
        assert claim is not None
        if cause is Cause.SUSPEND:
            claim.suspend(now)
        elif slot.activity is Activity.SUSPENDED:
            claim.go_on(now)
        else:
            return
        stands = cause is Cause.SUSPEND
        self.registry.changes.suspensions.append(Suspension(claim.run, stands, claim.suspensions))
        self.registry.keep(claim)

    def _free(self, slot: Slot, now: float, *, broken: bool) -> None:
        """Nothing is left of the slot's claim."""
        registry = self.registry
        waiting = registry.waiting.get(slot.waiting)
        slot.waiting = ""
        registry.end_claim(slot, now, broken=broken)
        if waiting is not None:
            self.waitlist.emptied(slot, waiting, now)
        if slot.kind is SlotKind.DYNAMIC:
            parent = registry.remove(slot)
            self.waitlist.returned(parent, slot.total, waiting, now)
            self.settle(now)
        else:
            registry.move(slot, Cause.FREED, now)
            slot.offer = registry.new_claim_id()
