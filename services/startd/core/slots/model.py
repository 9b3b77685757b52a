"""Slots, the claims on them, and the claims that wait for them.

Times are wall-clock seconds since 1970, durations seconds. Only the slot manager changes these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from engine.slots.amounts import CPUS, Amounts
from engine.slots.carving import PlannedSlot, SlotKind
from services.startd.core.slots.transitions import Activity, Condition, State
from shared.classad import ClassAd
from shared.past_claims import Past

OWNER_IDLE = Condition(State.OWNER, Activity.IDLE)
UNCLAIMED_IDLE = Condition(State.UNCLAIMED, Activity.IDLE)


class Urgency(IntEnum):
    """How soon the run on a claim must leave."""

    STAY = 0
    RETIRE = 1  # when the retirement time it was promised is over
    VACATE = 2  # now, with time to end by itself
    KILL = 3  # now


class VacateReason(IntEnum):
    """HTCondor's VacateReasonCode, as far as a startd has reasons of its own."""

    UNSAID = 0
    COMMAND = 1010
    PREEMPT = 1011
    SHUTDOWN = 1013
    DRAINING = 1014
    HIBERNATE = 1016
    RELEASED = 1017
    RANK = 1018
    PRIORITY = 1019


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
    made_at: float  # also that by which negotiators know it: never moved when the clock is set, as all other times are
    epoch: int
    shard: str = ""  # of the negotiator whose epoch that is
    concurrency_limits: str = ""  # as matched; what the slot's ad shows of it (LIM-12)
    rank: float = 0.0  # RANK of `job_ad`: the slot's CurrentRank
    owner: str = ""  # its User
    accounting_group: str = ""
    run: str = ""  # "job_id/attempt" of the run that occupies it; empty: idle
    jobs: int = 0  # runs begun on it
    run_since: float = 0.0  # when the run began
    suspended_s: float = 0.0  # of that time it was suspended, until it last went on
    suspended_at: float = 0.0  # when it was suspended; 0: it is not
    suspensions: int = 0  # of this run
    by_user: bool = False  # its user suspended it: no CONTINUE of the machine lets it go on
    earlier_s: float = 0.0  # runs before this one took so long together
    retirement_s: float = 0.0  # promised to the run when it began: for the ads; decisions look again
    leave_s: float = 0.0  # it would get so much for leaving by itself: likewise
    urgency: Urgency = Urgency.STAY
    end_reason: str = ""  # why it is given up as soon as its run is gone; empty: it goes on
    vacate_code: int = VacateReason.UNSAID  # the same as a number
    for_owner: bool = False  # PREEMPT ended it: the slot is the owner's then, not a better claim's
    hold: tuple[str, int] | None = None  # reason and subcode: the job is to be held instead of going back (WANT_HOLD)
    peaceful: bool = False  # the machine is switched off peacefully: its retirement has no end (STM-51)
    while_draining: bool = False  # it was accepted while the machine was being drained (DFR-09)
    vacate_s: float = 0.0  # granted to the run for leaving by itself, once the slot is Preempting
    killed_at: float = 0.0  # when its run was last told to end at once
    clock_set: float = 0.0  # by so many seconds the clock was set since `made_at`

    def describe(self, job: ClassAd, rank: float) -> None:
        """Note of its job what ads and decisions ask for often."""
        user, group = job.eval("User"), job.eval("AccountingGroup")
        self.owner = user if isinstance(user, str) else ""
        self.accounting_group = self._charged(group if isinstance(group, str) else "")
        self.rank = rank

    def _charged(self, group: str) -> str:
        """Whom the slot is charged to, where that is not its user: in full, as the accountant knows submitters, whereas
        the job names its group without the domain."""
        if self.submitter != self.owner:
            return self.submitter if group or self.owner else ""
        domain = self.owner.partition("@")[2]
        return f"{group}@{domain}" if group and domain and "@" not in group else group

    def run_time(self, now: float) -> float:
        """How long the run has run, without the time it was suspended (STM-49)."""
        if not self.run:
            return 0.0
        until = min(now, self.suspended_at) if self.suspended_at else now
        return max(0.0, until - self.run_since - self.suspended_s)

    def begin(self, run: str, job_ad: bytes, now: float) -> None:
        """A run begins."""
        self.run, self.jobs, self.job_ad = run, self.jobs + 1, job_ad
        self.run_since, self.suspended_s, self.suspended_at, self.suspensions = now, 0.0, 0.0, 0

    def age(self, now: float) -> float:
        """For how long it has been there."""
        return now - self.made_at - self.clock_set

    def set_clock(self, seconds: float) -> None:
        """The clock was set by so many seconds: go on by it."""
        self.clock_set += seconds
        self.run_since = _moved(self.run_since, seconds)
        self.suspended_at = _moved(self.suspended_at, seconds)
        self.killed_at = _moved(self.killed_at, seconds)

    def end(self, now: float) -> None:
        """Its run is gone."""
        self.earlier_s += self.run_time(now)
        self.run, self.suspended_at, self.hold, self.by_user = "", 0.0, None, False

    def suspend(self, now: float) -> None:
        self.suspended_at, self.suspensions = now, self.suspensions + 1

    def go_on(self, now: float) -> None:
        self.suspended_s += max(0.0, now - self.suspended_at)
        self.suspended_at, self.by_user = 0.0, False


def _moved(moment: float, seconds: float) -> float:
    """A moment by a clock that was set by so many seconds; 0 is none."""
    return moment + seconds if moment else 0.0


@dataclass(slots=True)
class WaitingClaim:
    """A claim that was accepted before its slot is empty: HTCondor's preempting claim.

    It takes over the one slot it waits for; or, with `wanted`, a dynamic slot of that size is carved for it from the
    partitionable slot `claim.slot`, when enough has come back from the dynamic slots it waits for (PRE-17).
    """

    claim: Claim
    victims: list[str]  # names of the slots that are still to be emptied
    code: int  # Vacated.RANK or Vacated.PRIORITY: why it may
    wanted: Amounts | None = None
    reserved: Amounts = field(default_factory=Amounts)  # of `wanted`: nobody else gets it any more

    @property
    def reason(self) -> str:
        """For the user whose job must leave."""
        if self.code == VacateReason.PRIORITY:
            return f"preempted: {self.claim.submitter} has the better priority"
        return f"preempted: RANK of the machine prefers a job of {self.claim.submitter}"


@dataclass(slots=True)
class Slot:
    name: str
    slot_id: int
    dynamic_id: int  # 0: not dynamic
    kind: SlotKind
    type_id: int
    total: Amounts
    free: Amounts  # of a partitionable slot: what is neither carved away nor held for a claim that waits
    condition: Condition
    state_since: float
    activity_since: float
    parent: str = ""
    offer: str = ""  # claim id by which it can be claimed now, if need be from the claim that has it
    children: int = 0  # dynamic slots ever carved
    asked: int = 0  # requests made with its claim ids, granted or not
    claim: Claim | None = None
    waiting: str = ""  # claim id of the claim that waits for this slot to empty
    disk_share: float = 1.0  # of the disk of its partition; of a dynamic slot nothing: it keeps what it was given
    swap_share: float = 0.0  # of the machine's virtual memory
    partition: str = ""  # which of several file systems its EXECUTE is on
    after_backfill: State | None = None  # where it goes when its backfill client is gone, if no claim waits
    past: tuple[Past, ...] = ()  # the last claims of this slot, or of dynamic slots carved from it
    times: dict[Condition, float] = field(default_factory=dict)  # seconds that it was in each, without this one
    version: int = 0  # counts changes: what was derived from an older one is stale

    @classmethod
    def planned(cls, plan: PlannedSlot, startd: str, now: float) -> Slot:
        """A slot of the configuration. It begins in Owner (STM-40)."""
        return cls(
            name=f"{plan.prefix}{plan.slot_id}@{startd}",
            slot_id=plan.slot_id,
            dynamic_id=0,
            kind=plan.kind,
            type_id=plan.type_id,
            total=plan.amounts,
            free=plan.amounts,
            condition=OWNER_IDLE,
            state_since=now,
            activity_since=now,
            disk_share=plan.disk_share,
            swap_share=plan.swap_share,
            partition=plan.partition,
        )

    @classmethod
    def carved(cls, parent: Slot, amounts: Amounts, now: float) -> Slot:
        """The newest dynamic slot of a partitionable one (SLT-17)."""
        head, at, host = parent.name.partition("@")
        return cls(
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
            disk_share=0.0,
            swap_share=parent.swap_share * float(amounts[CPUS]) / float(parent.total[CPUS] or 1),
            partition=parent.partition,
        )

    @property
    def state(self) -> State:
        return self.condition.state

    @property
    def activity(self) -> Activity:
        return self.condition.activity
