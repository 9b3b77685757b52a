"""Facts on roost.events for whoever wants them. The routing key is the type, e.g. `job.started`; every event names its
subject, and says nothing secret."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Self

from pydantic import ConfigDict, Field

from shared.messages.base import Message, Part, message
from shared.messages.wire import MOST_LARGE_BYTES, MOST_LARGE_ENTRIES, MOST_LARGE_VALUES

#: First and last proc; the same with the cluster before them. Lists, as they come: what is read is not converted.
ProcRange = Annotated[list[int], Field(min_length=2, max_length=2)]
JobRange = Annotated[list[int], Field(min_length=3, max_length=3)]


class Event(Message):
    """Base of all facts. `at` is seconds since 1970 by the clock of the daemon that saw it happen."""

    kept: ClassVar[bool] = True
    most_bytes: ClassVar[int] = MOST_LARGE_BYTES  # reasons that policies make have up to 4 MiB

    at: float


class LargeEvent(Event):
    """One that holds lists of jobs, slots or users of a whole pool."""

    most_entries: ClassVar[int] = MOST_LARGE_ENTRIES
    most_values: ClassVar[int] = MOST_LARGE_VALUES


class JobEvent(Event):
    schedd: str
    job_id: str  # "cluster.proc"
    owner: str
    submitter: str = ""  # whom the pool accounts it to: [group.]user@domain


@message
class JobsSubmitted(LargeEvent):
    """Jobs of one cluster were committed to the queue: all at once, or some of them (late materialization)."""

    type: ClassVar[str] = "job.submitted"
    schedd: str
    owner: str
    submitter: str
    cluster: int
    first_proc: int
    count: int
    held: list[ProcRange] = []  # ranges (first proc, last proc) of those that are on hold from the beginning
    hold_code: int = 0  # HoldReasonCode of the first of them
    hold_reason: str = ""


@message
class JobMatched(JobEvent):
    type: ClassVar[str] = "job.matched"
    slot: str
    negotiator: str
    cycle: int
    machines: int = 0  # of a parallel job: how many it has with this one, and
    of_machines: int = 0  # how many it starts with; 0: it is none


@message
class JobStarted(JobEvent):
    type: ClassVar[str] = "job.started"
    slot: str
    attempt: int
    waited_s: float  # since it became idle
    began: float = 0.0  # when its slot was asked to run it (s since 1970): from then on it was on its way


@message
class JobTransferring(JobEvent):
    """How far the files of a run are, of a transfer that takes long: after 10 s, and whenever it has taken twice as
    long as it had then."""

    type: ClassVar[str] = "job.transferring"
    attempt: int
    direction: str  # input or output
    bytes_done: int
    bytes_total: int  # 0: nobody knows
    bytes_per_s: int  # a moment ago


@message
class JobEnded(JobEvent):
    """The job left the machine by itself."""

    type: ClassVar[str] = "job.ended"
    slot: str
    attempt: int
    exit_code: int | None = None
    exit_signal: int | None = None
    failed: bool = False  # by a signal, or with another exit code than the job's success_exit_code (0)
    ran_s: float
    user_cpu_s: float = 0.0
    sys_cpu_s: float = 0.0
    memory_mib: int = 0


@message
class JobEvicted(JobEvent):
    """The run was ended from outside; the job is idle again."""

    type: ClassVar[str] = "job.evicted"
    slot: str
    attempt: int
    reason: str


class JobsOrdered(JobEvent):
    """What an order has done with a job; or with many of a cluster at once: then `jobs` has ranges (first proc, last
    proc) of all of them, and `job_id` is the first. Other jobs of the same cluster may come with another event."""

    most_entries: ClassVar[int] = MOST_LARGE_ENTRIES
    most_values: ClassVar[int] = MOST_LARGE_VALUES

    jobs: list[ProcRange] = []

    @property
    def job_count(self) -> int:
        return sum(last - first + 1 for first, last in self.jobs) or 1

    def each(self) -> Iterator[Self]:
        """The same as one event for each job."""
        if not self.jobs:
            yield self
            return
        cluster = self.job_id.partition(".")[0]
        for first, last in self.jobs:
            for proc in range(first, last + 1):
                yield self.model_copy(update={"job_id": f"{cluster}.{proc}", "jobs": []})


@message
class JobHeld(JobsOrdered):
    type: ClassVar[str] = "job.held"
    code: int
    subcode: int
    reason: str


@message
class JobReleased(JobsOrdered):
    type: ClassVar[str] = "job.released"
    reason: str


@message
class JobRemoved(JobsOrdered):
    type: ClassVar[str] = "job.removed"
    reason: str


@message
class JobUnmatched(JobEvent):
    """What a job was matched with came to nothing: it waits again."""

    type: ClassVar[str] = "job.unmatched"
    slot: str
    reason: str


class JobKind(Part):
    """Jobs that slots and policies can not tell apart (an autocluster). `jobs`: ranges (cluster, first proc, last proc)
    of those that came to it; a job that was told of another kind before is of this one now."""

    # As JSON, which has no bytes, the ad is base64: a packed ad is no text.
    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_bytes="base64", val_json_bytes="base64")

    autocluster: int  # AutoClusterId: this schedd's numbering, for as long as it runs
    submitter: str
    jobs: list[JobRange]
    ad: bytes = b""  # packed: what slots and policies look at; empty where it was told before


@message
class JobsSorted(LargeEvent):
    """Idle jobs have come to autoclusters: those for which the negotiator decides."""

    type: ClassVar[str] = "job.sorted"
    schedd: str
    kinds: list[JobKind]


@message
class ScheddLimited(Event):
    """A schedd that runs as many jobs as it may (MAX_JOBS_RUNNING) begins no further ones; or does again."""

    type: ClassVar[str] = "job.limit"
    schedd: str
    limited: bool
    limit: int


@message
class SlotChanged(Event):
    """A slot's state or activity changed."""

    type: ClassVar[str] = "slot.changed"
    startd: str
    slot: str
    state: str
    activity: str
    from_state: str = ""
    from_activity: str = ""
    owner: str = ""
    job_id: str = ""
    reason: str = ""  # why the machine takes no jobs, where its runs or its checks fail (MachineBrokenReason)


@message
class ClaimMade(Event):
    type: ClassVar[str] = "claim.made"
    startd: str
    slot: str
    schedd: str
    submitter: str


@message
class ClaimEnded(Event):
    type: ClassVar[str] = "claim.ended"
    startd: str
    slot: str
    schedd: str
    submitter: str
    reason: str


@message
class CycleDone(Event):
    """One negotiation cycle, summed up."""

    type: ClassVar[str] = "negotiation.cycle"
    negotiator: str
    epoch: int
    cycle: int
    trigger: str  # new-jobs, free-slots, periodic, requested
    duration_s: float
    slots: int
    submitters: int
    requests: int
    matches: int
    rejections: int


class Reason(Part):
    """Why the jobs of an autocluster got nothing, or less than they asked, from this cycle on until it is told
    otherwise. `code`: empty when that is over (they got what they asked, or ask no more). Else it is one of
    no-match, taken, share, ceiling, quota, limit, out-of-time. `counts`: slots by what kept them from the job."""

    schedd: str
    submitter: str
    autocluster: int
    code: str = ""
    text: str = ""
    left: int = 0  # jobs that got nothing
    counts: dict[str, int] = {}
    details: dict[str, int] = {}  # some of them again, by condition


@message
class ReasonsChanged(LargeEvent):
    """Why jobs wait, as far as that has changed since it was told last. `whole`: these are all reasons there are; what
    this negotiator told before is over."""

    type: ClassVar[str] = "negotiation.reasons"
    negotiator: str
    epoch: int
    cycle: int
    shard: str = ""  # NEGOTIATOR_NAME, where a pool has several
    whole: bool = False
    reasons: list[Reason]
    silent: list[str] = []  # schedds that did not answer in this cycle


class MatchGroup(Part):
    """Matches of one request, in columns of equal length: slots, jobs on each of them, weight charged for all of those
    together, the rank that the job gives the slot."""

    schedd: str
    submitter: str
    autocluster: int
    slots: list[str]
    counts: list[int]
    weights: list[float]
    ranks: list[float] = []  # empty: all 0


class Taken(Part):
    """A claim that ends for a match. why: rank-preemption, priority-preemption."""

    slot: str
    from_user: str
    by_user: str
    why: str


@message
class MatchesMade(LargeEvent):
    """What a cycle gave to whom. A large cycle tells it in several messages."""

    type: ClassVar[str] = "negotiation.matched"
    negotiator: str
    epoch: int
    cycle: int
    shard: str = ""
    groups: list[MatchGroup]
    preempted: list[Taken] = []


@message
class OfflineMatched(LargeEvent):
    """Jobs for which a cycle found no slot match these ones, whose machines sleep. Collectors write when that was into
    the slots' ads (MachineLastMatchTime), for whoever wakes machines."""

    type: ClassVar[str] = "negotiation.offline"
    negotiator: str
    epoch: int
    cycle: int
    shard: str = ""
    slots: list[str]


@message
class PolicyInForce(Event):
    """By which configuration this negotiator decides from now on: the knobs that a cycle goes by, with their values."""

    type: ClassVar[str] = "negotiation.policy"
    negotiator: str
    epoch: int
    shard: str = ""
    knobs: dict[str, str]


class SubmitterStanding(Part):
    """How a submitter stands after a cycle. Weights in slots' weight."""

    submitter: str
    group: str
    priority: float  # real priority (RUP)
    factor: float
    in_use: float  # weight in use
    slots: int  # number of slots in use
    share: float  # its part of the pie, 0 to 1
    limit: float  # weight that it was entitled to take besides, as its turn came
    given: float  # weight that the cycle gave it
    requested: float  # weight of what it runs and asks for
    floor: float = 0.0
    ceiling: float = -1.0  # below 0: none
    usage: float = 0.0  # accumulated, weight x seconds


class GroupStanding(Part):
    """How an accounting group stands after a cycle."""

    group: str
    quota: float
    allocated: float
    in_use: float
    requested: float


@message
class StandingsTold(LargeEvent):
    """How submitters and groups stand: those whose use, share or priority has changed since they were told last, and
    all of them now and then. `gone`: submitters that neither ask nor use anything any more."""

    type: ClassVar[str] = "accountant.standing"
    negotiator: str
    epoch: int
    cycle: int
    shard: str = ""
    pool: float  # weight of all slots that count
    half_life: float  # PRIORITY_HALFLIFE, seconds
    submitters: list[SubmitterStanding]
    groups: list[GroupStanding] = []
    gone: list[str] = []


@message
class PreemptionLoop(Event):
    """A slot goes to and fro between users: each of them took it from another and lost it again. The policy that lets
    them (PREEMPTION_REQUIREMENTS, RANK) wastes their work."""

    type: ClassVar[str] = "negotiation.preemption-loop"
    negotiator: str
    slot: str
    users: list[str]
    times: int  # preemptions
    window_s: float  # within this time


@message
class LeaderChanged(Event):
    """A negotiator became the active one, or ceased to be."""

    type: ClassVar[str] = "had.leader"
    had: str
    negotiator: str
    epoch: int
    state: str  # leader, passive
    shard: str = ""  # NEGOTIATOR_NAME, where a pool has several
    reason: str = ""  # why it ceased to be


@message
class BooksRestored(Event):
    """Redis came back without some of the accountant's books, and got what there was of them elsewhere."""

    type: ClassVar[str] = "had.books-restored"
    had: str
    epoch: int
    source: str  # snapshot: a copy on the HAD's disk; memory: its negotiator's; nothing newer: what Redis had
    restored: str  # version of the books that are in force again, epoch.count
    newest_known: str  # what lies between the two is lost
    shard: str = ""


@message
class SnapshotRefused(Event):
    """A HAD's copy of the books is damaged: it is set aside, and another one used."""

    type: ClassVar[str] = "had.snapshot-refused"
    had: str
    problem: str  # the file, and what is wrong with it
    shard: str = ""


@message
class PriorityChanged(Event):
    """An administrator changed something about a submitter, or the quota of a group (as in SetPriority)."""

    type: ClassVar[str] = "accountant.changed"
    submitter: str
    what: str
    value: float | None
    by: str
    until: float = 0.0  # the old value comes back then (s since 1970); 0: never


@message
class PriorityRestored(Event):
    """A change for a while is over: `value` is back."""

    type: ClassVar[str] = "accountant.restored"
    submitter: str
    what: str  # factor, floor, ceiling
    value: float


@message
class DefragRound(LargeEvent):
    """Defrag has looked at the pool, and given its orders."""

    type: ClassVar[str] = "defrag.round"
    defrag: str
    name: str = ""  # DEFRAG_NAME, where a pool has several policies
    machines: int  # with partitionable slots
    whole: int
    draining: int  # before this round's orders
    drained: list[str] = []  # machines that drain by order of this round
    cancelled: list[str] = []  # machines whose draining ended early
    failed: dict[str, str] = {}  # machine -> why it did not take its order, or did not answer
    why: str = ""  # what was decided, for people


@message
class RoosterRound(LargeEvent):
    """The rooster has woken machines that sleep, or tried to."""

    type: ClassVar[str] = "rooster.round"
    rooster: str
    woken: list[str] = []  # machines
    failed: dict[str, str] = {}  # machine -> why it could not be woken
    waiting: int = 0  # machines left for a later round, by ROOSTER_MAX_UNHIBERNATE


@message
class DaemonStarted(Event):
    type: ClassVar[str] = "daemon.started"
    daemon: str
    subsystem: str
    release: str  # Roost version


@message
class DaemonStopped(Event):
    type: ClassVar[str] = "daemon.stopped"
    daemon: str
    subsystem: str
    reason: str


@message
class DaemonReconnected(Event):
    """A daemon has a connection to the broker again, and could speak to nobody since `since`. What it said meanwhile
    has come before this, with its own times; some of it may have come twice."""

    type: ClassVar[str] = "daemon.reconnected"
    daemon: str
    since: float  # when it noticed (s since 1970)
    waiting: int = 0  # facts that it said meanwhile
    lost: int = 0  # facts for which there was no room, said between these two moments
    lost_from: float = 0.0
    lost_to: float = 0.0


@message
class DaemonGone(Event):
    """An execution point is not at the broker: its process or its machine has died, or it is cut off. The collector has
    taken out its ads; negotiators give its slots to nobody until it speaks again. Each collector tells it."""

    type: ClassVar[str] = "daemon.gone"
    collector: str
    daemon: str  # startd@node1
    since: float  # when it was missed first
    ads: int = 0  # that this collector took out


@message
class GatewayAudit(Event):
    """Somebody asked a gateway to change something, or was turned away. For administrators."""

    type: ClassVar[str] = "gateway.audit"
    gateway: str
    request_id: str  # also in the answer, as X-Request-Id
    user: str = ""  # empty: nobody with a valid token
    token: str = ""  # id of the token, never itself
    level: str = "NONE"
    address: str = ""
    method: str
    path: str
    operation: str = ""
    what: dict[str, Any] = {}  # in words of the request, cut where it is long
    status: int  # of the answer; 0: it broke off before one
    outcome: str  # done, refused, failed, broke off
    code: str = ""  # of the refusal, and its text
    message: str = ""
    took_s: float = 0.0
    untold: int = 0  # refusals before this one that are not told, as there were too many


@message
class TokensChanged(Event):
    """Tokens were made, changed or revoked: gateways ask the store anew. For administrators."""

    type: ClassVar[str] = "gateway.tokens-changed"
    gateway: str
    tokens: list[str]  # ids
    by: str = ""
