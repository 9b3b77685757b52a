"""Slots, claims and the runs on them: the startd's book, changed by requests and facts, without any I/O.

Every request may come again (a lost answer, a redelivery) and is then answered as before. Claim ids are secrets
(LEA-08): they are made of the ids passed in, "<startd>#<start time>#<n>#<secret>". Wall-clock `now` in seconds.

Who asks for a slot brings the claim id it is offered by. An unclaimed slot is given at once; a claimed one, which is
offered by another id than its claim's, is emptied first, and the claim waits (`slots.Waiting`). After every change the
slot follows the arrows of `transitions.TABLE` whose guards hold.

What a change means for the world is collected until the shell takes it with `drain`: slots whose ads changed or that
are gone, claims to be written down, runs to be stopped, claims that ended.

Longer than most modules: whatever changes a slot, a claim or a claim that waits must keep all three in step, and only
here are they touched. What can be decided without touching them is elsewhere (`preemption`, `lifecycle`, `leaving`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from services.startd.book import preemption
from services.startd.book.amounts import CPUS, Amounts
from services.startd.book.answers import Accepted, Changes, ClaimRequest, Ended, Granted, Refused, StopRun
from services.startd.book.leaving import retirement_s
from services.startd.book.lifecycle import Situation, next_look, next_move
from services.startd.book.partition import Carving, PlannedSlot, Refusal, SlotKind, carve
from services.startd.book.policy import REQUIREMENTS, Policy, rank_of, refusal, start_is_false, worklife_over
from services.startd.book.slots import UNCLAIMED_IDLE, Claim, Haste, Slot, Vacated, Waiting
from services.startd.book.transitions import Activity, Cause, State, step
from shared.classad import ClassAd

#: A slot takes so many arrows at once. More is a circle, as of an IS_OWNER that asks for the State it decides: the slot
#: stays where it is until the next look.
_MAX_STEPS = 20


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
        self.start_time = start_time
        self.slots: dict[str, Slot] = {}
        self.claims: dict[str, Claim] = {}
        self.waiting: dict[str, Waiting] = {}  # by claim id, in the order in which they were accepted
        self.epochs: dict[str, int] = {}  # by shard: the highest seen
        self.changes = 0  # of anything that ads show, so far
        self._ad_of = ad_of
        self._policy_of = policy_of
        self._carving = carving
        self._new_secret = new_secret
        self._match_timeout_s = match_timeout_s
        self._killing_timeout_s = killing_timeout_s
        self._requests: dict[str, str] = {}  # request id -> claim id
        self._count = 0
        self._changes = Changes()

    # -- reading

    def drain(self) -> Changes:
        changes, self._changes = self._changes, Changes()
        return changes

    def dynamic_slots(self, parent: str) -> list[Slot]:
        return [slot for slot in self.slots.values() if slot.parent == parent]

    def offers(self) -> dict[str, str]:
        """Claim ids by which slots can be claimed now, those in use by preemption, by slot name."""
        return {slot.name: slot.offer for slot in self.slots.values() if slot.offer}

    def next_look(self, now: float) -> float | None:
        """When the passing of time alone may move a slot (wall clock); None: it will not. Then call `review`."""
        looks = (next_look(self._at(slot, now), self._killing_timeout_s) for slot in self.slots.values())
        return min((look for look in looks if look is not None), default=None)

    def empty_within_s(self, waiting: Waiting, now: float) -> float:
        """How long a claim waits at most, as far as is known now: until the last of its slots must be empty."""
        ends = [0.0]
        for name in waiting.victims:
            slot = self.slots[name]
            if slot.claim is not None and slot.claim.run:
                at = self._at(slot, now)
                left = slot.activity_since + slot.claim.vacate_s - now
                if slot.state is State.CLAIMED:
                    left = max(at.retirement_left_s, at.vacate_s)
                ends.append(left)
        return max(ends)

    def adopt(self, *, carving: Carving, match_timeout_s: float, killing_timeout_s: float) -> None:
        """Go by these from now on."""
        self._carving = carving
        self._match_timeout_s = match_timeout_s
        self._killing_timeout_s = killing_timeout_s

    # -- making slots

    def add_slots(self, plans: Iterable[PlannedSlot], now: float) -> None:
        for plan in plans:
            slot = Slot.planned(plan, self.startd, now)
            self.slots[slot.name] = slot
            self._touch(slot)
            self._follow(slot, now)

    def review(self, now: float) -> None:
        """Look at all guards again: time has passed, expressions may have changed."""
        for slot in list(self.slots.values()):
            if self.slots.get(slot.name) is slot:
                self._follow(slot, now)

    # -- matches and claims

    def matched(self, slot_name: str, claim_id: str, epoch: int, shard: str, now: float) -> str:
        """The negotiator says that it matched a slot (STM-06). Why that changes nothing; empty: it is Matched."""
        if epoch < self.epochs.get(shard, 0):
            return f"epoch {epoch} is over"
        slot = self.slots.get(slot_name)
        if slot is None or not slot.offer or slot.offer != claim_id:
            return f"this claim id does not open {slot_name} (any more)"
        self.epochs[shard] = epoch
        if slot.kind is SlotKind.PARTITIONABLE or slot.condition != UNCLAIMED_IDLE:
            return f"{slot_name} is {slot.condition}"
        self._move(slot, Cause.MATCHED, now)
        return ""

    def knows(self, request_id: str) -> bool:
        """Whether this request was answered with a claim that is still there."""
        return request_id in self._requests

    def request(self, request: ClaimRequest, job: ClassAd, now: float) -> Granted | Accepted | Refused:
        """Give the slot, or a dynamic slot carved from it, to a schedd (STM-05): at once, or when what has it now is
        gone (PRE-10, PRE-17)."""
        known = self._requests.get(request.request_id, "")
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
        self._touch(found)
        answer = self._answer(found, request, job, now)
        if isinstance(answer, Refused) and found.state is State.MATCHED:
            found.offer = ""
            self._move(found, Cause.MATCH_EXPIRED, now)  # STM-08: the match came to nothing
            self._follow(found, now)
        return answer

    def _answer(self, found: Slot, request: ClaimRequest, job: ClassAd, now: float) -> Granted | Accepted | Refused:
        ad = self._ad_of(found)
        if start_is_false(self._policy_of(found.type_id), ad):
            return Refused("requirements", "START is false")
        if found.kind is SlotKind.PARTITIONABLE:
            return self._answer_partitionable(found, ad, request, job, now)
        if found.state is State.MATCHED:  # whose ad refuses everybody but the one it is matched with
            ad = ad.copy()
            ad["Requirements"] = REQUIREMENTS
        why = refusal(ad, job)
        if why:
            return Refused("requirements", why)
        claim = request.claim(found.name, found.offer, now)
        claim.describe(job, rank_of(self._policy_of(found.type_id), ad, job))
        if found.claim is not None:
            return self._preempt(found, found.claim, claim, now)
        self._occupy(found, claim)
        self._move(found, Cause.CLAIMED, now)
        return self._granted(claim)

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
        slot = self._carve(found, carved, now)
        claim = request.claim(slot.name, self._new_claim_id(), now)
        claim.describe(job, rank_of(self._policy_of(found.type_id), ad, job))
        self._occupy(slot, claim)
        self._move(slot, Cause.CLAIMED, now)
        return self._granted(claim)

    def _preempt(self, slot: Slot, current: Claim, claim: Claim, now: float) -> Granted | Accepted | Refused:
        """The claim takes the slot over as soon as it is empty (PRE-10)."""
        waits = self.waiting.get(slot.waiting)
        why = preemption.objection(current, claim.rank, claim.submitter, waits.claim if waits is not None else None)
        if why:
            return Refused("requirements", why)
        if waits is not None:
            slot.waiting = ""
            self._forsake(waits, f"a better claim of {claim.submitter} came", now, broken=True)
        self._wait(Waiting(claim, [slot.name], preemption.why(claim.rank, current)))
        slot.offer = self._new_claim_id()
        self._follow(slot, now)
        return self._outcome(claim)

    def _preempt_parts(
        self, parent: Slot, ad: ClassAd, request: ClaimRequest, job: ClassAd, now: float
    ) -> Granted | Accepted | Refused:
        """Empty dynamic slots, and carve the claim's own from what comes back (PRE-11 to PRE-17)."""
        policy = self._policy_of(parent.type_id)
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
        claim = request.claim(parent.name, self._new_claim_id(), now)
        claim.describe(job, rank_of(policy, ad, job))
        self._wait(Waiting(claim, [slot.name for slot in room.victims], room.code, room.wanted))
        self._collect(parent, now)
        for slot in room.victims:
            self._follow(slot, now)
        return self._outcome(claim)

    def _has_retired(self, slot: Slot, now: float) -> bool:
        return slot.claim is None or not slot.claim.run or self._at(slot, now).retirement_left_s <= 0

    def _outcome(self, claim: Claim) -> Granted | Accepted:
        waiting = self.waiting.get(claim.claim_id)
        if waiting is not None:
            return Accepted(waiting)
        self._changes.ready.remove(claim)  # which the answer says
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
        policy = self._policy_of(slot.type_id)
        if claim.jobs and worklife_over(policy, ad, job, now - claim.made_at):
            return Refused("worklife", "the claim is older than CLAIM_WORKLIFE")
        lacking = self._unfit(slot, ad, job)
        if lacking:
            return Refused("requirements", lacking)
        claim.run, claim.jobs = run, claim.jobs + 1
        claim.run_since, claim.suspended_s = now, 0.0
        claim.job_ad = job_ad
        claim.describe(job, rank_of(policy, ad, job))
        claim.retirement_s = retirement_s(policy, ad, job)
        self._move(slot, Cause.ACTIVATED, now)
        self._keep(claim)
        self._follow(slot, now)
        return claim

    def vacate(self, claim_id: str, reason: str, *, graceful: bool, now: float) -> bool:
        """The claim is to end, without retirement (release, lease), and its schedd knows. One without a run is free at
        once, else its run is stopped first. False when there is no such claim."""
        waiting = self.waiting.get(claim_id)
        if waiting is not None:
            self._forsake(waiting, reason, now, broken=False)
            return True
        claim = self.claims.get(claim_id)
        if claim is None:
            return False
        claim.haste = max(claim.haste, Haste.VACATE if graceful else Haste.KILL)
        self._doom(claim, reason, Vacated.RELEASED)
        self._follow(self.slots[claim.slot], now, broken=False)
        return True

    def run_gone(self, claim_id: str, run: str, now: float) -> None:
        """A run has ended, one way or the other: its claim is idle again, or free if it was to end (STM-12, STM-18,
        STM-22 to STM-25)."""
        claim = self.claims.get(claim_id)
        if claim is None or claim.run != run:
            return
        claim.earlier_s += claim.run_time(now)
        claim.run = ""
        slot = self.slots[claim.slot]
        if slot.state is State.CLAIMED:
            self._move(slot, Cause.JOB_GONE, now)
        self._keep(claim)
        self._follow(slot, now, broken=True)

    # -- recovery

    def restore(self, claim: Claim, slot: Slot, now: float) -> str:
        """Put a claim of an earlier life back. Returns why that is not possible: the configuration changed."""
        if slot.kind is SlotKind.DYNAMIC:
            parent = self.slots.get(slot.parent)
            if parent is None or parent.kind is not SlotKind.PARTITIONABLE:
                return f"there is no partitionable slot {slot.parent} any more"
            if not parent.free.holds(slot.total):
                return f"{slot.parent} is too small now"
            parent.free = parent.free.minus(slot.total)
            parent.children = max(parent.children, slot.dynamic_id)
            self._touch(parent)
            self.slots[slot.name] = slot
        else:
            known = self.slots.get(slot.name)
            if known is None or known.kind is not SlotKind.STATIC or known.claim is not None:
                return f"there is no static slot {slot.name} any more"
            if not known.total.holds(slot.total):
                return f"{slot.name} is smaller now"
            known.condition = slot.condition
            known.state_since, known.activity_since = slot.state_since, slot.activity_since
            slot = known
        self._occupy(slot, claim)
        if slot.state is State.PREEMPTING or claim.for_owner:
            slot.offer = ""
        self.epochs[claim.shard] = max(self.epochs.get(claim.shard, 0), claim.epoch)
        return ""

    def restore_offer(self, slot_name: str, offer: str, children: int) -> None:
        """A partitionable slot keeps its claim id across a restart."""
        slot = self.slots.get(slot_name)
        if slot is not None and slot.kind is SlotKind.PARTITIONABLE:
            slot.offer = offer if slot.offer else ""
            slot.children = max(slot.children, children)

    def restore_waiting(self, waiting: Waiting, now: float) -> str:
        """Let a claim of an earlier life wait on, after all claims were restored. Returns why it can not."""
        slot = self.slots.get(waiting.claim.slot)
        waiting.held = Amounts()
        waiting.victims = [n for n in waiting.victims if (s := self.slots.get(n)) and s.claim and not s.waiting]
        self.epochs[waiting.claim.shard] = max(self.epochs.get(waiting.claim.shard, 0), waiting.claim.epoch)
        if slot is None or (waiting.wanted is None and not waiting.victims):
            return f"{waiting.claim.slot} is not what it was"
        self._wait(waiting)
        if waiting.wanted is not None:
            self._collect(slot, now)
        return ""

    def resume(self, now: float) -> None:
        """After a restart: what was being ended is ended once more, and all slots go on from where they are."""
        for slot in list(self.slots.values()):
            if slot.state is State.PREEMPTING and slot.claim is not None and slot.claim.run:
                self._stop(slot, now)
        self.review(now)

    # -- inside

    def _at(self, slot: Slot, now: float) -> Situation:
        waiting = self.waiting.get(slot.waiting)
        return Situation(
            slot,
            self._policy_of(slot.type_id),
            self._ad_of,
            now,
            match_timeout_s=self._match_timeout_s,
            has_heir=waiting is not None and waiting.wanted is None,
        )

    def _follow(self, slot: Slot, now: float, *, broken: bool = True) -> None:
        """Let the slot take all arrows whose guards hold. broken: should its claim end by that, its schedd does not
        know of it."""
        for _ in range(_MAX_STEPS):
            if self.slots.get(slot.name) is not slot:
                return
            at = self._at(slot, now)
            if slot.state is State.CLAIMED and at.claim.haste is Haste.STAY and at.owner_preempts:
                at.claim.haste, at.claim.for_owner = Haste.RETIRE, True  # for good (STM-52)
                self._doom(at.claim, "PREEMPT is true on the machine", Vacated.PREEMPT)
                slot.offer = ""
                self._touch(slot)
            move = next_move(at)
            if move is None:
                killed = slot.claim.killed_at if slot.activity is Activity.KILLING and slot.claim is not None else now
                if now - killed >= self._killing_timeout_s:
                    self._stop(slot, now)  # it resists
                return
            self._take(slot, move.cause, now, at, broken=broken)

    def _take(self, slot: Slot, cause: Cause, now: float, at: Situation, *, broken: bool) -> None:
        """One arrow, and what it brings with it."""
        if cause is Cause.CLAIMED_ANEW:
            self._hand_over(slot, now, broken=broken)
            return
        if cause is Cause.FREED:
            self._free(slot, now, broken=broken)
            return
        if slot.state is State.CLAIMED and cause in (Cause.VACATE, Cause.KILL):
            at.claim.vacate_s = at.vacate_s
            waiting = self.waiting.get(slot.waiting)
            if waiting is not None:
                self._doom(at.claim, waiting.reason, waiting.code)
            self._doom(at.claim, "the claim is older than CLAIM_WORKLIFE", Vacated.UNSAID)
        self._move(slot, cause, now)
        if slot.state is State.PREEMPTING:
            slot.offer = ""  # STM-55
            if at.claim.run:
                self._stop(slot, now)
        elif slot.state in (State.OWNER, State.UNCLAIMED):
            slot.offer = "" if slot.state is State.OWNER else slot.offer or self._new_claim_id()

    def _doom(self, claim: Claim, reason: str, code: int) -> None:
        """Say why a claim ends; the first reason counts."""
        if not claim.ending:
            claim.ending, claim.vacate_code = reason, int(code)
        self._keep(claim)

    def _stop(self, slot: Slot, now: float) -> None:
        claim = slot.claim
        assert claim is not None
        fast = slot.activity is Activity.KILLING
        if fast:
            claim.killed_at = now
            self._keep(claim)
        self._changes.stops.append(StopRun(claim.run, claim.ending, claim.vacate_code, fast))

    def _hand_over(self, slot: Slot, now: float, *, broken: bool) -> None:
        """The claim that waits takes the slot (STM-23, STM-24)."""
        waiting = self.waiting.pop(slot.waiting)
        self._changes.waiting[slot.waiting] = None
        slot.waiting = ""
        self._end(slot, broken=broken)
        claim = waiting.claim
        claim.made_at = now
        self._move(slot, Cause.CLAIMED_ANEW, now)
        self._occupy(slot, claim)
        self._changes.ready.append(claim)

    def _free(self, slot: Slot, now: float, *, broken: bool) -> None:
        waiting = self.waiting.get(slot.waiting)
        slot.waiting = ""
        self._end(slot, broken=broken)
        if waiting is not None and waiting.wanted is None:
            self._forsake(waiting, f"{slot.name} is its owner's", now, broken=True)
        elif waiting is not None:
            waiting.victims.remove(slot.name)
            self._changes.waiting[waiting.claim.claim_id] = waiting
        if slot.kind is SlotKind.DYNAMIC:
            del self.slots[slot.name]
            self._changes.slots.discard(slot.name)
            self._changes.gone.add(slot.name)
            parent = self.slots[slot.parent]
            parent.free = parent.free.plus(slot.total)
            self._touch(parent)
            if waiting is not None and waiting.wanted is not None:
                # First to the claim that it was emptied for, whatever others lack.
                self._hold(waiting, waiting.wanted, parent, slot.total, now)
            self._collect(parent, now)
        else:
            self._move(slot, Cause.FREED, now)

    def _end(self, slot: Slot, *, broken: bool) -> None:
        """The slot's claim is over."""
        claim = slot.claim
        assert claim is not None
        slot.claim = None
        del self.claims[claim.claim_id]
        self._requests.pop(claim.request_id, None)
        self._changes.claims[claim.claim_id] = None
        broken = broken and claim.vacate_code != Vacated.RELEASED
        self._changes.ended.append(Ended(claim, claim.ending, broken))

    # -- claims that wait

    def _wait(self, waiting: Waiting) -> None:
        claim = waiting.claim
        self.waiting[claim.claim_id] = waiting
        self._requests[claim.request_id] = claim.claim_id
        self._changes.waiting[claim.claim_id] = waiting
        for name in waiting.victims:
            self.slots[name].waiting = claim.claim_id
            self._touch(self.slots[name])

    def _forsake(self, waiting: Waiting, reason: str, now: float, *, broken: bool) -> None:
        """A claim waits no more. What has not begun to leave for it may stay (STM-19)."""
        claim = waiting.claim
        del self.waiting[claim.claim_id]
        self._requests.pop(claim.request_id, None)
        self._changes.waiting[claim.claim_id] = None
        self._changes.ended.append(Ended(claim, reason, broken))
        for name in waiting.victims:
            slot = self.slots[name]
            if slot.waiting == claim.claim_id:
                slot.waiting = ""
                self._touch(slot)
                self._follow(slot, now)
        parent = self.slots.get(claim.slot)
        if parent is not None and waiting.wanted is not None:
            parent.free = parent.free.plus(waiting.held)
            self._touch(parent)
            self._collect(parent, now)

    def _collect(self, parent: Slot, now: float) -> None:
        """What is free of a partitionable slot goes to the claims that wait for it first, in their order."""
        for waiting in [w for w in self.waiting.values() if w.claim.slot == parent.name]:
            if waiting.wanted is not None and waiting.claim.claim_id in self.waiting:
                self._hold(waiting, waiting.wanted, parent, parent.free, now)

    def _hold(self, waiting: Waiting, wanted: Amounts, parent: Slot, most: Amounts, now: float) -> None:
        """Keep what the claim still lacks back for it, out of what is free, and no more than `most`."""
        there = waiting.held.plus(most)
        held = wanted if there.holds(wanted) else wanted.least(there)
        parent.free = parent.free.plus(waiting.held).minus(held)
        waiting.held = held
        self._touch(parent)
        if held is wanted:
            self._carve_for(waiting, parent, now)
        elif not waiting.victims:
            self._forsake(waiting, "what it was to get is not there any more", now, broken=True)

    def _carve_for(self, waiting: Waiting, parent: Slot, now: float) -> None:
        claim = waiting.claim
        assert waiting.wanted is not None
        del self.waiting[claim.claim_id]
        self._changes.waiting[claim.claim_id] = None
        for name in waiting.victims:  # they are leaving already, and their room is not needed for it any more
            self.slots[name].waiting = ""
            self._touch(self.slots[name])
        parent.free = parent.free.plus(waiting.held)
        slot = self._carve(parent, waiting.wanted, now)
        claim.slot, claim.made_at = slot.name, now
        self._occupy(slot, claim)
        self._move(slot, Cause.CLAIMED, now)
        self._changes.ready.append(claim)

    # -- small change

    def _carve(self, parent: Slot, amounts: Amounts, now: float) -> Slot:
        parent.free = parent.free.minus(amounts)
        parent.children += 1
        slot = Slot.carved(parent, amounts, now)
        self.slots[slot.name] = slot
        self._touch(slot)
        return slot

    def _unfit(self, slot: Slot, ad: ClassAd, job: ClassAd) -> str:
        """Why a further job does not fit the slot of its claim (SLT-20)."""
        carved = carve(job, ad, slot.total, Carving({}))
        if isinstance(carved, Refusal):
            return carved.reason
        return refusal(ad, job)

    def _occupy(self, slot: Slot, claim: Claim) -> None:
        slot.claim = claim
        slot.offer = self._new_claim_id()
        self.claims[claim.claim_id] = claim
        self._requests[claim.request_id] = claim.claim_id
        self._touch(slot)
        self._keep(claim)

    def _keep(self, claim: Claim) -> None:
        self._changes.claims[claim.claim_id] = claim

    def _move(self, slot: Slot, cause: Cause, now: float) -> None:
        after = step(slot.condition, cause)
        if after.state is not slot.condition.state:
            slot.state_since = now
        slot.activity_since = now
        slot.condition = after
        self._touch(slot)

    def _touch(self, slot: Slot) -> None:
        """Something that ads show has changed: of the slot, and of what its parent shows of its dynamic slots."""
        for one in (slot, self.slots.get(slot.parent)):
            if one is not None:
                self.changes += 1
                one.version += 1
                self._changes.slots.add(one.name)

    def _new_claim_id(self) -> str:
        self._count += 1
        return f"<{self.startd}>#{self.start_time}#{self._count}#{self._new_secret()}"
