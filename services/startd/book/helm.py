"""What administrators order: drain the machine, switch it off and on, vacate slots (TLS-06, TLS-07, TLS-09); and what
a machine that goes to sleep does (PWR-02)."""

from __future__ import annotations

from services.startd.book.answers import Refused
from services.startd.book.draining import Completion, Drain, How, Off, haste_of, more_haste
from services.startd.book.motion import Motion
from services.startd.book.slots import UNCLAIMED_IDLE, Haste, Slot, Vacated
from services.startd.book.transitions import Cause, State
from shared.classad import ParseError, evaluate, is_true, parse_expr


class Helm:
    """See the module. What is refused changes nothing."""

    def __init__(self, motion: Motion) -> None:
        self._motion = motion
        self._registry = motion.registry

    def drain(
        self,
        request_id: str,
        *,
        now: float,
        how: How = How.GRACEFUL,
        reason: str = "",
        completion: Completion = Completion.NOTHING,
        check: str = "",
        start: str = "",
    ) -> Refused | None:
        """Empty all slots. check: an expression that must be true in every slot's ad, or nothing is drained. start:
        START for jobs that may still come while older ones run (graceful only). Refused with the codes "draining",
        "check", "expression"."""
        steering = self._registry.steering
        if steering.drain is not None:
            if steering.drain.request_id == request_id:
                return None  # the answer was lost
            return Refused("draining", f"drain {steering.drain.request_id} is under way: cancel it first")
        for name, text in (("check", check), ("start", start)):
            try:
                if text:
                    parse_expr(text)
            except ParseError as error:
                return Refused("expression", f"{name} = {text}: no ClassAd expression: {error}")
        refusal = self._check(check)
        if refusal is not None:
            return refusal
        steering.drain = Drain(request_id, how, reason, completion, start, now)
        steering.last_start = now
        self._empty(now)
        return None

    def _check(self, check: str) -> Refused | None:
        if not check:
            return None
        expr = parse_expr(check)
        for slot in self._registry.slots.values():
            if not is_true(evaluate(expr, self._motion.ad(slot))):
                return Refused("check", f"{check} is not true for {slot.name}")
        return None

    def cancel_drain(self, request_id: str, now: float) -> Refused | None:
        """End the drain; of an empty id, whichever there is. Jobs that did not begin to leave stay. Where nothing is
        drained there is nothing to cancel, and nothing is wrong."""
        drain = self._registry.steering.drain
        if request_id and (drain is None or request_id != drain.request_id):
            other = f", but {drain.request_id}" if drain is not None else ""
            return Refused("unknown-request", f"no drain {request_id} is under way{other}")
        if drain is not None:
            self._motion.end_drain(now)
        return None

    def off(self, how: Off, now: float) -> None:
        """Switch the machine off: no slot takes a job until `on`, and what runs is ended as `how` says (STM-51). Asked
        again it may only hurry."""
        steering = self._registry.steering
        steering.off = more_haste(steering.off, how)
        how = steering.off
        for claim in self._registry.claims.values():
            claim.haste = max(claim.haste, haste_of(how))  # for good: there is no unretirement (STM-52)
            claim.unhurried = how is Off.PEACEFUL
            self._registry.doom(claim, "the machine is switched off", Vacated.SHUTDOWN)
        self._empty(now)

    def on(self, now: float) -> None:
        """Switch the machine on. Jobs that were to end because it was off go on doing so."""
        steering = self._registry.steering
        if steering.off is None:
            return
        steering.off = None
        steering.drained = steering.drained and steering.emptying
        self._registry.changes.steering = True
        self._motion.steer()
        self._motion.review(now)

    def vacate_slot(self, name: str, *, graceful: bool, now: float) -> Refused | None:
        """End what is on a slot (its claim, its match, its backfill), on a partitionable one what is on all its dynamic
        slots; of an empty name, on all slots. Its jobs go back to the queue: gracefully when their retirement is over,
        as HTCondor has it, or else at once."""
        slots = list(self._registry.slots.values())
        if name:
            slots = [slot for slot in slots if name in (slot.name, slot.parent)]
        if not slots:
            return Refused("unknown-slot", f"there is no slot {name}")
        for slot in slots:
            self._vacate(slot, graceful=graceful, now=now)
        return None

    def lie_down(self, now: float) -> None:
        """Lend nothing from now on, and end what is on the slots: the machine goes to sleep."""
        self._registry.asleep = True
        self._motion.waitlist.forsake_all("the machine goes to sleep", now)
        for slot in list(self._registry.slots.values()):
            self._vacate(slot, graceful=False, now=now, why=("the machine goes to sleep", Vacated.HIBERNATE))

    def rise(self, now: float) -> None:
        """The machine is awake. Idle slots begin their state anew: a policy that counts how long they are idle counts
        from now on, else it would send the machine back to sleep before anybody found it."""
        registry = self._registry
        registry.asleep = False
        for slot in registry.slots.values():
            if slot.condition == UNCLAIMED_IDLE:
                slot.state_since = slot.activity_since = now
            registry.touch(slot)
        self._motion.review(now)

    def _vacate(
        self,
        slot: Slot,
        *,
        graceful: bool,
        now: float,
        why: tuple[str, Vacated] = ("vacated by the administrator", Vacated.COMMAND),
    ) -> None:
        registry = self._registry
        waiting = registry.waiting.get(slot.waiting)
        if waiting is not None and waiting.wanted is None:
            self._motion.waitlist.forsake(waiting, why[0], now, broken=True)
        if registry.slots.get(slot.name) is not slot:
            return
        if slot.claim is not None:
            slot.claim.haste = max(slot.claim.haste, Haste.RETIRE if graceful else Haste.KILL)  # for good
            registry.doom(slot.claim, *why)
        elif slot.state is State.MATCHED:
            registry.move(slot, Cause.MATCH_EXPIRED, now)
            slot.offer = registry.new_claim_id()
        elif slot.state is State.BACKFILL:
            slot.errand = State.OWNER
        self._motion.follow(slot, now)

    def _empty(self, now: float) -> None:
        steering = self._registry.steering
        steering.drained = False
        self._registry.changes.steering = True
        self._motion.steer()
        self._motion.waitlist.forsake_all("the machine takes no jobs now", now)
        self._motion.review(now)
        self._motion.settle(now)
        self._motion.tally(now)
