"""Slots, claims and the runs on them: the startd's book, changed by requests and facts, without any I/O.

Every request may come again (a lost answer, a redelivery) and is then answered as before. Claim ids are secrets
(LEA-08): they are made of the ids passed in, "<startd>#<start time>#<n>#<secret>". Wall-clock `now` in seconds.

What a change means for the world is collected until the shell takes it with `drain`: slots whose ads changed or that
are gone, claims to be written down, claims that ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from services.startd.amounts import CPUS, Amounts
from services.startd.partition import Carving, PlannedSlot, Refusal, SlotKind, carve
from services.startd.policy import Policy, owner_wants, refusal, start_is_false, worklife_over
from services.startd.transitions import Activity, Cause, Condition, State, step
from shared.classad import ClassAd

OWNER_IDLE = Condition(State.OWNER, Activity.IDLE)
UNCLAIMED_IDLE = Condition(State.UNCLAIMED, Activity.IDLE)


@dataclass(slots=True)
class Claim:
    claim_id: str
    slot: str
    schedd: str
    submitter: str
    request_id: str
    lease_s: float
    alive_interval_s: int
    job_ad: bytes  # the request's ad, then the running job's
    made_at: float
    epoch: int
    shard: str = ""  # of the negotiator whose epoch that is
    concurrency_limits: str = ""  # as matched; what the slot's ad shows of it (LIM-12)
    run: str = ""  # "job_id/attempt" of the run that occupies it; empty: idle
    jobs: int = 0  # runs begun on it
    ending: str = ""  # why it is given up as soon as its run is gone; empty: it goes on


@dataclass(slots=True)
class Slot:
    name: str
    slot_id: int
    dynamic_id: int  # 0: not dynamic
    kind: SlotKind
    type_id: int
    total: Amounts
    free: Amounts  # of a partitionable slot: what is not carved away
    condition: Condition
    state_since: float
    activity_since: float
    parent: str = ""
    offer: str = ""  # claim id by which it can be claimed now
    children: int = 0  # dynamic slots ever carved
    asked: int = 0  # requests made with its claim id, granted or not
    claim: Claim | None = None

    @property
    def state(self) -> State:
        return self.condition.state

    @property
    def activity(self) -> Activity:
        return self.condition.activity


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    request_id: str
    claim_id: str
    slot: str
    schedd: str
    submitter: str
    job_ad: bytes
    lease_s: float
    alive_interval_s: int
    epoch: int
    shard: str = ""
    concurrency_limits: str = ""


@dataclass(frozen=True, slots=True)
class Granted:
    slot: Slot
    claim: Claim
    leftover: Slot | None = None
    again: bool = False  # granted earlier, asked again


@dataclass(frozen=True, slots=True)
class Refused:
    code: str  # as in ClaimRefused, or "unknown-claim", "busy", "worklife" for activations
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A claim that is over."""

    claim: Claim
    reason: str


@dataclass(slots=True)
class Changes:
    slots: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    claims: dict[str, Claim | None] = field(default_factory=dict)  # to be kept, or (None) forgotten
    ended: list[Ended] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.slots or self.gone or self.claims or self.ended)


class Book:
    """See the module. `ad_of` gives the ad of a slot as it is now; `policy_of` the policy of a slot type."""

    def __init__(
        self,
        startd: str,
        start_time: int,
        *,
        ad_of: Callable[[Slot], ClassAd],
        policy_of: Callable[[int], Policy],
        carving: Carving,
        new_secret: Callable[[], str],
    ) -> None:
        self.startd = startd
        self.start_time = start_time
        self.slots: dict[str, Slot] = {}
        self.claims: dict[str, Claim] = {}
        self.epochs: dict[str, int] = {}  # by shard: the highest seen
        self._ad_of = ad_of
        self._policy_of = policy_of
        self._carving = carving
        self._new_secret = new_secret
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
        """Claim ids by which slots can be claimed now, by slot name."""
        return {slot.name: slot.offer for slot in self.slots.values() if slot.offer}

    # -- making slots

    def add_slots(self, plans: Iterable[PlannedSlot], now: float) -> None:
        for plan in plans:
            name = f"slot{plan.slot_id}@{self.startd}"
            slot = Slot(
                name=name,
                slot_id=plan.slot_id,
                dynamic_id=0,
                kind=plan.kind,
                type_id=plan.type_id,
                total=plan.amounts,
                free=plan.amounts,
                condition=OWNER_IDLE,
                state_since=now,
                activity_since=now,
            )
            self.slots[name] = slot
            self._changes.slots.add(name)
            self._settle(slot, now)

    def review(self, now: float) -> None:
        """Look at IS_OWNER of all slots that nobody claims (STM-01, STM-02)."""
        for slot in list(self.slots.values()):
            if slot.claim is None:
                self._settle(slot, now)

    def _settle(self, slot: Slot, now: float) -> None:
        wanted = owner_wants(self._policy_of(slot.type_id), self._ad_of(slot))
        if slot.condition == OWNER_IDLE and not wanted:
            self._move(slot, Cause.AVAILABLE, now)
            slot.offer = slot.offer or self._new_claim_id()
        elif slot.condition == UNCLAIMED_IDLE and wanted:
            self._move(slot, Cause.OWNER_CAME, now)
            slot.offer = ""

    # -- claims

    def request(self, request: ClaimRequest, job: ClassAd, now: float) -> Granted | Refused:
        """Give the slot, or a dynamic slot carved from it, to a schedd (STM-05)."""
        known = self._requests.get(request.request_id)
        if known is not None and known in self.claims:
            claim = self.claims[known]
            slot = self.slots[claim.slot]
            return Granted(slot, claim, self._leftover(slot), again=True)
        highest = self.epochs.get(request.shard, 0)
        if request.epoch < highest:
            return Refused("stale-epoch", f"the match is of epoch {request.epoch}, {highest} was seen")
        found = self.slots.get(request.slot)
        if found is None or not found.offer or found.offer != request.claim_id:
            code = "busy" if found is not None and found.claim is not None else "unknown-claim"
            return Refused(code, f"this claim id does not open {request.slot} (any more)")
        self.epochs[request.shard] = request.epoch  # only who knows a claim id gets here: there are few shards
        found.asked += 1
        self._changes.slots.add(found.name)
        slot_ad = self._ad_of(found)
        if start_is_false(self._policy_of(found.type_id), slot_ad):
            return Refused("requirements", "START is false")
        given: Amounts | None = None
        if found.kind is SlotKind.PARTITIONABLE:
            carved = carve(job, slot_ad, found.free, self._carving)
            if isinstance(carved, Refusal):
                return Refused("resources", carved.reason)
            given = carved
        why = refusal(slot_ad, job)
        if why:
            return Refused("requirements", why)
        slot = found if given is None else self._carve(found, given, now)
        claim = Claim(
            claim_id=self._new_claim_id() if given is not None else found.offer,
            slot=slot.name,
            schedd=request.schedd,
            submitter=request.submitter,
            request_id=request.request_id,
            lease_s=request.lease_s,
            alive_interval_s=request.alive_interval_s,
            job_ad=request.job_ad,
            made_at=now,
            epoch=request.epoch,
            shard=request.shard,
            concurrency_limits=request.concurrency_limits,
        )
        if given is None:
            found.offer = ""
        self._occupy(slot, claim)
        self._move(slot, Cause.CLAIMED, now)
        return Granted(slot, claim, self._leftover(slot))

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
        claim.run = run
        claim.jobs += 1
        claim.job_ad = job_ad
        self._move(slot, Cause.ACTIVATED, now)
        self._keep(claim)
        return claim

    def vacate(self, claim_id: str, reason: str, *, graceful: bool, now: float) -> Claim | None:
        """The claim is to end (release, lease, policy). A claim without a run is free at once; else the shell ends
        the run and calls `run_gone`. None when there is no such claim."""
        claim = self.claims.get(claim_id)
        if claim is None:
            return None
        slot = self.slots[claim.slot]
        claim.ending = claim.ending or reason
        if slot.condition.state is State.CLAIMED:
            if graceful and slot.activity is Activity.BUSY:
                self._move(slot, Cause.RETIRE, now)
            self._move(slot, Cause.VACATE if graceful else Cause.KILL, now)
        elif not graceful and slot.activity is Activity.VACATING:
            self._move(slot, Cause.KILL, now)
        if not claim.run:
            self._free(claim, now)
        else:
            self._keep(claim)
        return claim

    def run_gone(self, claim_id: str, run: str, now: float) -> None:
        """A run has ended, one way or the other: its claim is idle again, or free if it was to end (STM-12, STM-22,
        STM-25)."""
        claim = self.claims.get(claim_id)
        if claim is None or claim.run != run:
            return
        claim.run = ""
        if claim.ending:
            self._free(claim, now)
        else:
            self._move(self.slots[claim.slot], Cause.JOB_GONE, now)
            self._keep(claim)

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
            self._changes.slots.add(parent.name)
            self.slots[slot.name] = slot
        else:
            known = self.slots.get(slot.name)
            if known is None or known.kind is not SlotKind.STATIC or known.claim is not None:
                return f"there is no static slot {slot.name} any more"
            if not known.total.holds(slot.total):
                return f"{slot.name} is smaller now"
            known.condition, known.offer = slot.condition, ""
            known.state_since, known.activity_since = slot.state_since, slot.activity_since
            slot = known
        self._occupy(slot, claim)
        self.epochs[claim.shard] = max(self.epochs.get(claim.shard, 0), claim.epoch)
        return ""

    def restore_offer(self, slot_name: str, offer: str, children: int) -> None:
        """A partitionable slot keeps its claim id across a restart."""
        slot = self.slots.get(slot_name)
        if slot is not None and slot.kind is SlotKind.PARTITIONABLE:
            slot.offer = offer if slot.offer else ""
            slot.children = max(slot.children, children)

    # -- inside

    def _carve(self, parent: Slot, amounts: Amounts, now: float) -> Slot:
        parent.free = parent.free.minus(amounts)
        parent.children += 1
        head, at, host = parent.name.partition("@")
        slot = Slot(
            name=f"{head}_{parent.children}{at}{host}",
            slot_id=parent.slot_id,
            dynamic_id=parent.children,
            kind=SlotKind.DYNAMIC,
            type_id=parent.type_id,
            total=amounts,
            free=amounts,
            condition=UNCLAIMED_IDLE,
            state_since=now,
            activity_since=now,
            parent=parent.name,
        )
        self.slots[slot.name] = slot
        self._changes.slots.update((slot.name, parent.name))
        return slot

    def _leftover(self, slot: Slot) -> Slot | None:
        parent = self.slots.get(slot.parent)
        return parent if parent is not None and parent.offer and parent.free[CPUS] > 0 else None

    def _unfit(self, slot: Slot, ad: ClassAd, job: ClassAd) -> str:
        """Why a further job does not fit the slot of its claim (SLT-20)."""
        carved = carve(job, ad, slot.total, Carving({}))
        if isinstance(carved, Refusal):
            return carved.reason
        return refusal(ad, job)

    def _occupy(self, slot: Slot, claim: Claim) -> None:
        slot.claim = claim
        self.claims[claim.claim_id] = claim
        self._requests[claim.request_id] = claim.claim_id
        self._changes.slots.add(slot.name)
        self._keep(claim)

    def _free(self, claim: Claim, now: float) -> None:
        slot = self.slots[claim.slot]
        del self.claims[claim.claim_id]
        self._requests.pop(claim.request_id, None)
        self._changes.claims[claim.claim_id] = None
        self._changes.ended.append(Ended(claim, claim.ending))
        slot.claim = None
        if slot.kind is SlotKind.DYNAMIC:
            del self.slots[slot.name]
            self._changes.slots.discard(slot.name)
            self._changes.gone.add(slot.name)
            parent = self.slots.get(slot.parent)
            if parent is not None:
                parent.free = parent.free.plus(slot.total)
                self._changes.slots.add(parent.name)
        else:
            self._move(slot, Cause.FREED, now)
            self._settle(slot, now)

    def _keep(self, claim: Claim) -> None:
        self._changes.claims[claim.claim_id] = claim

    def _move(self, slot: Slot, cause: Cause, now: float) -> None:
        after = step(slot.condition, cause)
        if after.state is not slot.condition.state:
            slot.state_since = now
        slot.activity_since = now
        slot.condition = after
        self._changes.slots.add(slot.name)

    def _new_claim_id(self) -> str:
        self._count += 1
        return f"<{self.startd}>#{self.start_time}#{self._count}#{self._new_secret()}"
