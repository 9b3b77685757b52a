"""Slots, claims and the runs on them: the startd's book, changed by requests and facts, without any I/O.

Every request may come again (a lost answer, a redelivery) and is then answered as before. Claim ids are secrets
(LEA-08): they are made of the ids passed in, "<startd>#<start time>#<n>#<secret>". Wall-clock `now` in seconds.

Who asks for a slot brings the claim id it is offered by. A slot without a claim is given at once; a claimed one, which
is offered by another id than its claim's, is emptied first, and the claim waits (`slots.Waiting`). After every change
the slot follows the arrows of `transitions.TABLE` whose guards hold (`motion`).

What a change means for the world is collected until the shell takes it with `take_changes`: slots whose ads changed or
that are gone, claims to be written down, runs to be stopped or suspended, claims that ended.

Longer than most modules: whatever a request may find a slot in is answered here, in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from services.startd.book import preemption, restoring
from services.startd.book.amounts import CPUS
from services.startd.book.answers import Accepted, Changes, ClaimRequest, Granted, Refused
from services.startd.book.draining import Completion, Expected, How, Off, Steering, expected
from services.startd.book.helm import Helm
from services.startd.book.leaving import retirement_s, vacate_time_s
from services.startd.book.motion import Motion
from services.startd.book.partition import Carving, PlannedSlot, Refusal, SlotKind, carve
from services.startd.book.policy import REQUIREMENTS, Policy, rank_of, refusal, start_is_false, worklife_over
from services.startd.book.registry import Registry
from services.startd.book.slots import Claim, Haste, Slot, Vacated, Waiting
from services.startd.book.transitions import Activity, Cause, Condition, State
from shared.classad import ClassAd

#: Who asks for a slot that is in such a condition takes it along these arrows first: they are no obstacle.
_ON_THE_WAY = {
    Condition(State.DRAINED, Activity.IDLE): Cause.DRAINING_OVER,
    Condition(State.DRAINED, Activity.RETIRING): Cause.DRAINING_OVER,
    Condition(State.OWNER, Activity.IDLE): Cause.AVAILABLE,
    Condition(State.UNCLAIMED, Activity.BENCHMARKING): Cause.BENCHMARKED,
}


class Book:
    """See the module. `ad_of` gives the ad of a slot as it is now; `policy_of` the policy of a slot type. Timeouts
    are MATCH_TIMEOUT and KILLING_TIMEOUT."""

    def __init__(
        self,
        startd: str,
        start_time: int,
        *,
        ad_of: Callable[[Slot], ClassAd],
        policy_of: Callable[[int], Policy],
        carving: Carving,
        new_secret: Callable[[], str],
        match_timeout_s: float = 120.0,
        killing_timeout_s: float = 30.0,
    ) -> None:
        self.startd = startd
        self.epochs: dict[str, int] = {}  # by shard: the highest seen
        self._registry = Registry(startd, start_time, new_secret)
        self.slots = self._registry.slots
        self.claims = self._registry.claims
        self.waiting = self._registry.waiting  # by claim id, in the order in which they were accepted
        self._motion = Motion(
            self._registry,
            ad_of=ad_of,
            policy_of=policy_of,
            match_timeout_s=match_timeout_s,
            killing_timeout_s=killing_timeout_s,
        )
        self.helm = Helm(self._motion)
        self._ad_of = ad_of
        self._carving = carving

    # -- reading

    def take_changes(self) -> Changes:
        """What has changed since this was asked last."""
        return self._registry.take_changes()

    @property
    def changes(self) -> int:
        """Of anything that ads show, so far."""
        return self._registry.count

    @property
    def steering(self) -> Steering:
        """What is ordered for the whole machine."""
        return self._registry.steering

    @property
    def in_use(self) -> bool:
        """A slot runs something, or is about to: the policy is to be looked at often (STM-42)."""
        return bool(self.claims) or any(slot.state is State.BACKFILL for slot in self.slots.values())

    def policy(self, slot: Slot) -> Policy:
        """The policy of a slot as it is now: a machine that is drained has another START."""
        return self._motion.policy(slot)

    def dynamic_slots(self, parent: str) -> list[Slot]:
        return self._registry.dynamic_slots(parent)

    def offers(self) -> dict[str, str]:
        """Claim ids by which slots can be claimed now, those in use by preemption, by slot name."""
        return {slot.name: slot.offer for slot in self.slots.values() if slot.offer}

    def next_look(self, now: float) -> float | None:
        """When the passing of time alone may move a slot (wall clock); None: it will not. Then call `review`."""
        return self._motion.next_look(now)

    def expected(self, now: float) -> Expected:
        """What draining would come to if it began now."""
        return expected(self.slots.values(), now)

    def empty_within_s(self, waiting: Waiting, now: float) -> float:
        """How long a claim waits at most, as far as is known now: until the last of its slots must be empty."""
        ends = [0.0]
        for name in waiting.victims:
            slot = self.slots[name]
            if slot.claim is not None and slot.claim.run:
                at = self._motion.at(slot, now)
                left = slot.activity_since + slot.claim.vacate_s - now
                if slot.state is State.CLAIMED:
                    left = max(at.retirement_left_s, at.vacate_s)
                ends.append(left)
        return max(ends)

    def adopt(self, *, carving: Carving, match_timeout_s: float, killing_timeout_s: float) -> None:
        """Go by these from now on."""
        self._carving = carving
        self._motion.match_timeout_s = match_timeout_s
        self._motion.killing_timeout_s = killing_timeout_s

    # -- making slots

    def add_slots(self, plans: Iterable[PlannedSlot], now: float) -> None:
        for plan in plans:
            slot = Slot.planned(plan, self.startd, now)
            slot.offer = self._registry.new_claim_id()
            self._registry.add(slot)
            self._motion.follow(slot, now)

    def review(self, now: float) -> None:
        """Look at all guards again: time has passed, expressions may have changed."""
        self._motion.review(now)
        self._motion.tally(now)

    # -- orders of administrators

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
        """Empty all slots (`helm.Helm.drain`)."""
        return self.helm.drain(
            request_id, now=now, how=how, reason=reason, completion=completion, check=check, start=start
        )

    def cancel_drain(self, request_id: str, now: float) -> Refused | None:
        """End the drain; of an empty id, whichever there is."""
        return self.helm.cancel_drain(request_id, now)

    def vacate_slot(self, name: str, *, graceful: bool, now: float) -> Refused | None:
        """End what is on a slot; of an empty name, on all slots."""
        return self.helm.vacate_slot(name, graceful=graceful, now=now)

    def off(self, how: Off, now: float) -> None:
        """Take no jobs until `on`, and end what runs."""
        self.helm.off(how, now)

    def on(self, now: float) -> None:
        self.helm.on(now)

    # -- benchmarks and backfill: what a slot in Unclaimed/Benchmarking or Backfill is told by who runs them

    def benchmarked(self, slot_name: str, now: float) -> None:
        """The benchmarks of this slot are over (STM-04). It is not asked at once whether they are due again."""
        slot = self.slots.get(slot_name)
        if slot is not None and slot.activity is Activity.BENCHMARKING:
            self._registry.move(slot, Cause.BENCHMARKED, now)

    def backfilled(self, slot_name: str, now: float) -> bool:
        """The backfill client of this slot runs (STM-26). False: it is not wanted (any more), and must be ended."""
        slot = self.slots.get(slot_name)
        if slot is None or slot.state is not State.BACKFILL or slot.activity is Activity.KILLING:
            return False
        if slot.activity is Activity.IDLE:
            self._registry.move(slot, Cause.BACKFILLED, now)
            self._motion.follow(slot, now)
        return True

    def backfill_gone(self, slot_name: str, now: float) -> None:
        """The backfill client of this slot has ended, with all its processes (STM-27, STM-29)."""
        slot = self.slots.get(slot_name)
        if slot is None or slot.state is not State.BACKFILL or slot.activity is Activity.IDLE:
            return
        self._evicted_for_policy(slot)
        self._registry.move(slot, Cause.BACKFILL_GONE, now)
        self._motion.follow(slot, now)

    def _evicted_for_policy(self, slot: Slot) -> None:
        """EVICT_BACKFILL may be false again when the client is gone at last: the slot is its owner's all the same."""
        if slot.activity is Activity.KILLING and slot.errand is None and not slot.waiting:
            slot.errand = State.OWNER

    # -- matches and claims

    def matched(self, slot_name: str, claim_id: str, epoch: int, shard: str, now: float) -> str:
        """The negotiator says that it matched a slot (STM-06). Why that changes nothing; empty: it is Matched, or will
        be once its backfill client is gone."""
        if epoch < self.epochs.get(shard, 0):
            return f"epoch {epoch} is over"
        slot = self.slots.get(slot_name)
        if slot is None or not slot.offer or slot.offer != claim_id:
            return f"this claim id does not open {slot_name} (any more)"
        self.epochs[shard] = epoch
        if slot.kind is not SlotKind.STATIC or slot.claim is not None or slot.waiting or slot.state is State.MATCHED:
            return f"{slot_name} is {slot.condition}"
        if slot.state is State.BACKFILL:
            slot.errand = slot.errand or State.MATCHED
            self._motion.follow(slot, now)
            return ""
        if self.steering.emptying or self._registry.asleep:
            return f"{slot_name} is being drained" if self.steering.emptying else f"{slot_name} goes to sleep"
        self._make_ready(slot, now)
        self._registry.move(slot, Cause.MATCHED, now)
        return ""

    def knows(self, request_id: str) -> bool:
        """Whether this request was answered with a claim that is still there."""
        return request_id in self._registry.requests

    def request(self, request: ClaimRequest, job: ClassAd, now: float) -> Granted | Accepted | Refused:
        """Give the slot, or a dynamic slot carved from it, to a schedd (STM-05): at once, or when what has it now is
        gone (PRE-10, PRE-17)."""
        known = self._registry.requests.get(request.request_id, "")
        if known in self.waiting:
            return Accepted(self.waiting[known], again=True)
        if known in self.claims:
            return self._granted(self.claims[known], again=True)
        highest = self.epochs.get(request.shard, 0)
        if request.epoch < highest:
            return Refused("stale-epoch", f"the match is of epoch {request.epoch}, {highest} was seen")
        found = self.slots.get(request.slot)
        if found is None or not found.offer or found.offer != request.claim_id:
            code = "busy" if found is not None and found.claim is not None else "unknown-claim"
            return Refused(code, f"this claim id does not open {request.slot} (any more)")
        self.epochs[request.shard] = request.epoch
        found.asked += 1
        self._registry.touch(found)
        answer = self._answer(found, request, job, now)
        if isinstance(answer, Refused) and found.state is State.MATCHED:
            self._registry.move(found, Cause.MATCH_EXPIRED, now)  # STM-08: the match came to nothing
            found.offer = self._registry.new_claim_id()
            self._motion.follow(found, now)
        self._motion.tally(now)
        return answer

    def _answer(self, found: Slot, request: ClaimRequest, job: ClassAd, now: float) -> Granted | Accepted | Refused:
        if self._registry.asleep:
            return Refused("draining", "the machine goes to sleep")
        ad = self._ad_of(found)
        emptying = self.steering.emptying
        if emptying and (found.claim is not None or request.preempts):
            return Refused("draining", "the machine is being drained: nothing is preempted there")
        if start_is_false(self.policy(found), ad):
            why = "the machine takes no jobs now: it is drained, or switched off"
            return Refused("draining", why) if emptying else Refused("requirements", "START is false")
        if found.kind is SlotKind.PARTITIONABLE:
            return self._answer_partitionable(found, ad, request, job, now)
        if found.state is State.MATCHED:  # whose ad refuses everybody but the one it is matched with
            ad = ad.copy()
            ad["Requirements"] = REQUIREMENTS
        why = refusal(ad, job)
        if why:
            return Refused("requirements", why)
        claim = request.claim(found.name, found.offer, now)
        claim.describe(job, rank_of(self.policy(found), ad, job))
        if found.claim is not None:
            return self._preempt(found, found.claim, claim, now)
        if found.state is State.BACKFILL and found.activity is not Activity.IDLE:
            return self._displace(found, claim, now)
        claim.while_draining = emptying
        self._make_ready(found, now)
        self._registry.move(found, Cause.CLAIMED, now)
        self._registry.occupy(found, claim)
        return self._granted(claim)

    def _make_ready(self, slot: Slot, now: float) -> None:
        while (cause := _ON_THE_WAY.get(slot.condition)) is not None:
            self._registry.move(slot, cause, now)

    def _displace(self, slot: Slot, claim: Claim, now: float) -> Accepted | Refused:
        """The claim gets the slot as soon as its backfill client is gone (STM-28, STM-31)."""
        waits = self.waiting.get(slot.waiting)
        if waits is not None and waits.claim.rank >= claim.rank:
            return Refused("requirements", f"a job that RANK likes as well waits for {slot.name} already")
        if waits is not None:
            slot.waiting = ""
            self._motion.waitlist.forsake(waits, f"a better claim of {claim.submitter} came", now, broken=True)
        waiting = Waiting(claim, [slot.name], Vacated.UNSAID)
        self._motion.waitlist.add(waiting)
        slot.offer = self._registry.new_claim_id()
        self._motion.follow(slot, now)
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
        slot = self._registry.carve(found, carved, now)
        claim = request.claim(slot.name, self._registry.new_claim_id(), now)
        claim.describe(job, rank_of(self.policy(found), ad, job))
        claim.while_draining = self.steering.emptying
        self._registry.occupy(slot, claim)
        self._registry.move(slot, Cause.CLAIMED, now)
        if found.state is State.BACKFILL:
            self._motion.follow(found, now)  # what is carved must not be filled
        return self._granted(claim)

    def _preempt(self, slot: Slot, current: Claim, claim: Claim, now: float) -> Granted | Accepted | Refused:
        """The claim takes the slot over as soon as it is empty (PRE-10)."""
        waits = self.waiting.get(slot.waiting)
        why = preemption.objection(current, claim.rank, claim.submitter, waits.claim if waits is not None else None)
        if why:
            return Refused("requirements", why)
        if waits is not None:
            slot.waiting = ""
            self._motion.waitlist.forsake(waits, f"a better claim of {claim.submitter} came", now, broken=True)
        self._motion.waitlist.add(Waiting(claim, [slot.name], preemption.why(claim.rank, current)))
        slot.offer = self._registry.new_claim_id()
        self._motion.follow(slot, now)
        return self._outcome(claim)

    def _preempt_parts(
        self, parent: Slot, ad: ClassAd, request: ClaimRequest, job: ClassAd, now: float
    ) -> Granted | Accepted | Refused:
        """Empty dynamic slots, and carve the claim's own from what comes back (PRE-11 to PRE-17)."""
        policy = self.policy(parent)
        victims = [
            preemption.Victim(slot, rank_of(policy, self._ad_of(slot), job), self._has_retired(slot, now))
            for slot in preemption.named(parent, request.preempts, self.slots.get)
        ]
        room = preemption.make_room(
            parent.free, victims, request.submitter, ad, lambda roomy, free: carve(job, roomy, free, self._carving)
        )
        if isinstance(room, Refusal):
            return Refused("resources", room.reason)
        why = refusal(room.ad, job)
        if why:
            return Refused("requirements", why)
        claim = request.claim(parent.name, self._registry.new_claim_id(), now)
        claim.describe(job, rank_of(policy, ad, job))
        self._motion.waitlist.add(Waiting(claim, [slot.name for slot in room.victims], room.code, room.wanted))
        self._motion.waitlist.collect(parent, now)
        for slot in room.victims:
            self._motion.follow(slot, now)
        return self._outcome(claim)

    def _has_retired(self, slot: Slot, now: float) -> bool:
        return slot.claim is None or not slot.claim.run or self._motion.at(slot, now).retirement_left_s <= 0

    def _outcome(self, claim: Claim) -> Granted | Accepted:
        waiting = self.waiting.get(claim.claim_id)
        if waiting is not None:
            return Accepted(waiting)
        self._registry.changes.ready.remove(claim)  # which the answer says
        return self._granted(claim)

    def _granted(self, claim: Claim, *, again: bool = False) -> Granted:
        slot = self.slots[claim.slot]
        parent = self.slots.get(slot.parent)
        left = parent if parent is not None and parent.offer and parent.free[CPUS] > 0 else None
        return Granted(slot, claim, left, again)

    def activate(self, claim_id: str, run: str, job_ad: bytes, job: ClassAd, now: float) -> Claim | Refused:
        """A run begins on a claim (STM-11). Asked again for the same run it answers the same."""
        claim = self.claims.get(claim_id)
        if claim is None:
            return Refused("unknown-claim", "no such claim here (any more)")
        if claim.run == run:
            return claim
        slot = self.slots[claim.slot]
        if claim.ending:
            return Refused("busy", f"the claim is being given up: {claim.ending}")
        if claim.run:
            return Refused("busy", f"run {claim.run} is still there")
        ad = self._ad_of(slot)
        policy = self.policy(slot)
        if claim.jobs and worklife_over(policy, ad, job, now - claim.made_at):
            return Refused("worklife", "the claim is older than CLAIM_WORKLIFE")
        lacking = self._unfit(slot, ad, job)
        if lacking:
            return Refused("requirements", lacking)
        claim.begin(run, job_ad, now)
        claim.describe(job, rank_of(policy, ad, job))
        claim.retirement_s = retirement_s(policy.of(job), ad, job)
        claim.leave_s = vacate_time_s(policy.of(job), ad, job)
        self._registry.move(slot, Cause.ACTIVATED, now)
        self._registry.keep(claim)
        self._motion.follow(slot, now)
        return claim

    def vacate(self, claim_id: str, reason: str, *, graceful: bool, now: float) -> bool:
        """The claim is to end, without retirement (release, lease), and its schedd knows. One without a run is free at
        once, else its run is stopped first. False when there is no such claim."""
        waiting = self.waiting.get(claim_id)
        if waiting is not None:
            self._motion.waitlist.forsake(waiting, reason, now, broken=False)
            return True
        claim = self.claims.get(claim_id)
        if claim is None:
            return False
        claim.haste = max(claim.haste, Haste.VACATE if graceful else Haste.KILL)
        self._registry.doom(claim, reason, Vacated.RELEASED)
        self._motion.follow(self.slots[claim.slot], now, broken=False)
        return True

    def run_gone(self, claim_id: str, run: str, now: float) -> None:
        """A run has ended, one way or the other: its claim is idle again, or free if it was to end (STM-12, STM-18,
        STM-22 to STM-25)."""
        claim = self.claims.get(claim_id)
        if claim is None or claim.run != run:
            return
        slot, steering = self.slots[claim.slot], self.steering
        if slot.state is State.PREEMPTING and claim.vacate_code == Vacated.DRAINING:
            steering.badput += float(slot.total[CPUS]) * claim.run_time(now)
        claim.end(now)
        if slot.state is State.CLAIMED:
            self._registry.move(slot, Cause.JOB_GONE, now)
        self._registry.keep(claim)
        self._motion.follow(slot, now, broken=True)
        if steering.drain is not None and steering.drain.start:
            self._motion.steer()  # perhaps it was the last of the older jobs (DFR-09, DFR-10)
            self._motion.review(now)
        self._motion.tally(now)

    def measured(self, claim_id: str, run: str, attributes: Mapping[str, object]) -> None:
        """What a run uses, as attributes of its job: policies may go by it (MemoryUsage, DiskUsage, ...)."""
        claim = self.claims.get(claim_id)
        if claim is not None and claim.run == run:
            self._motion.jobs.measured(claim, attributes)

    # -- recovery

    def restore(self, claim: Claim, slot: Slot, now: float) -> str:
        """Put a claim of an earlier life back. Returns why that is not possible: the configuration changed."""
        self.epochs[claim.shard] = max(self.epochs.get(claim.shard, 0), claim.epoch)
        return restoring.claim(self._registry, claim, slot)

    def restore_offer(self, slot_name: str, offer: str, children: int) -> None:
        """A partitionable slot keeps its claim id across a restart."""
        restoring.offer(self._registry, slot_name, offer, children)

    def restore_waiting(self, waiting: Waiting, now: float) -> str:
        """Let a claim of an earlier life wait on, after all claims were restored. Returns why it can not."""
        shard = waiting.claim.shard
        self.epochs[shard] = max(self.epochs.get(shard, 0), waiting.claim.epoch)
        return restoring.waiting(self._registry, self._motion.waitlist, waiting, now)

    def restore_steering(self, steering: Steering) -> None:
        """The machine is drained or switched off as it was: before any claim is restored. A drain that was to end
        the daemon has done so."""
        ended = (Completion.EXIT, Completion.RESTART)
        if steering.drained and steering.drain is not None and steering.drain.completion in ended:
            steering.drain = None
        self._registry.steering = steering
        self._motion.steer()

    def resume(self, now: float) -> None:
        """After a restart: what was being ended is ended once more, and all slots go on from where they are. From the
        first start on the costs of draining are counted."""
        if not self.steering.since:
            self.steering.since = now
            self._registry.changes.steering = True
        for slot in list(self.slots.values()):
            if slot.state is State.PREEMPTING and slot.claim is not None and slot.claim.run:
                self._registry.stop(slot, now)
        self._motion.steer()
        self.review(now)

    # -- inside

    def _unfit(self, slot: Slot, ad: ClassAd, job: ClassAd) -> str:
        """Why a further job does not fit the slot of its claim (SLT-20)."""
        carved = carve(job, ad, slot.total, Carving({}))
        if isinstance(carved, Refusal):
            return carved.reason
        return refusal(ad, job)
