"""The jobs of a queue: a cluster holds what its procs share, a job holds what is its own, a shadow follows one run of
it.

Attributes that follow from others (ProcId, GlobalJobId, ServerTime) are not stored; `full_ad` adds them. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgpack

from engine.queue.bucket import Key, key_of
from engine.queue.late_materialization import Factory
from engine.queue.packed_jobs import JobMap, PackedJobs
from shared.classad import ClassAd
from shared.classad.expr import fold
from shared.errors import PermanentError

if TYPE_CHECKING:
    from shared.messages.claims import Usage


class JobId(NamedTuple):
    """ "cluster.proc"; proc -1 stands for the whole cluster. A run on a node of a parallel job goes by
    "cluster.proc.node"."""

    cluster: int
    proc: int
    node: int = -1

    def __str__(self) -> str:
        return f"{self.cluster}.{self.proc}" if self.node < 0 else f"{self.cluster}.{self.proc}.{self.node}"

    @classmethod
    def parse(cls, text: str) -> JobId:
        """ "12.3", or "12" with proc -1 for the whole cluster. Raises ValueError."""
        cluster, dot, proc = text.strip().partition(".")
        if not cluster.isascii() or not cluster.isdigit() or len(cluster) > 18:
            raise ValueError(f"{text[:40]!r} is no job id; want CLUSTER or CLUSTER.PROC, for instance 12.3")
        if not dot:
            return cls(int(cluster), -1)
        if not proc.isascii() or not proc.isdigit() or len(proc) > 18:
            raise ValueError(f"{text[:40]!r} is no job id; want CLUSTER or CLUSTER.PROC, for instance 12.3")
        return cls(int(cluster), int(proc))

    @classmethod
    def of_run(cls, text: str) -> JobId:
        """What a run goes by: "12.3", or "12.3.0" for one on a node of a parallel job. Raises ValueError."""
        job, _, node = text.rpartition(".")
        if "." not in job:
            return cls.parse(text)
        if not node.isascii() or not node.isdigit() or len(node) > 9:
            raise ValueError(f"{text[:40]!r} is no run; want CLUSTER.PROC or CLUSTER.PROC.NODE")
        cluster, proc, _ = cls.parse(job)
        return cls(cluster, proc, int(node))


class JobStatus(IntEnum):
    """HTCondor's numbers."""

    IDLE = 1
    RUNNING = 2
    REMOVED = 3
    COMPLETED = 4
    HELD = 5
    TRANSFERRING_OUTPUT = 6
    SUSPENDED = 7


#: The states in which a job counts for max_idle.
WAITING = frozenset((JobStatus.IDLE, JobStatus.HELD))
#: The states in which a job occupies a slot.
ACTIVE = frozenset((JobStatus.RUNNING, JobStatus.TRANSFERRING_OUTPUT, JobStatus.SUSPENDED))

STATUS_NAMES = {
    JobStatus.IDLE: "Idle",
    JobStatus.RUNNING: "Running",
    JobStatus.REMOVED: "Removed",
    JobStatus.COMPLETED: "Completed",
    JobStatus.HELD: "Held",
    JobStatus.TRANSFERRING_OUTPUT: "TransferringOutput",
    JobStatus.SUSPENDED: "Suspended",
}

#: Nobody but the schedd writes these.
_PROTECTED: Final = """
    ClusterId ProcId GlobalJobId Owner User OsUser MyType TargetType ServerTime QDate JobStatus LastJobStatus
    EnteredCurrentStatus CompletionDate JobStartDate JobCurrentStartDate JobCurrentStartExecutingDate
    JobLastStartDate JobCurrentStartTransferInputDate JobCurrentFinishTransferInputDate
    JobCurrentStartTransferOutputDate JobCurrentFinishTransferOutputDate CumulativeTransferTime
    TransferQueued TransferringInput TransferringOutput TransferInQueued TransferInStarted TransferInFinished
    TransferOutQueued TransferOutStarted TransferOutFinished TransferInputBytesDone TransferInputBytesTotal
    TransferInputBytesPerSecond TransferOutputBytesDone TransferOutputBytesTotal TransferOutputBytesPerSecond
    FirstJobMatchDate LastVacateTime NumJobStarts
    NumShadowStarts NumShadowExceptions NumJobMatches NumHolds NumHoldsByReason NumJobCompletions NumRestarts NumVacates
    NumVacatesByReason NumSystemHolds NumJobReconnects JobRunCount RemoteHost RemoteSlotID LastRemoteHost StartdAddr
    StartdIpAddr RemotePool LastRemotePool LastRemoteWallClockTime RemoteWallClockTime CumulativeSlotTime
    CommittedTime CommittedSlotTime CumulativeSuspensionTime CommittedSuspensionTime TotalSuspensions
    LastSuspensionTime RemoteUserCpu RemoteSysCpu CumulativeRemoteUserCpu CumulativeRemoteSysCpu BytesSent BytesRecvd
    ExitCode ExitBySignal ExitSignal
    ExitStatus TerminationPending HoldReason HoldReasonCode HoldReasonSubCode ReleaseReason RemoveReason
    LastHoldReason LastHoldReasonCode LastHoldReasonSubCode VacateReason AutoClusterId AutoClusterAttrs
    ShadowBday StageInStart StageInFinish StageOutStart StageOutFinish SpooledOutputFiles
    CheckpointNumber NumCkpts LastCkptTime
    JobCoolDownExpiration MATCH_EXP_Recorded LastMatchTime LastRejMatchTime LastRejMatchReason ScheddName
    SubmitterName RoostMatchedSlot RoostTrace JobMaterializeItemCount JobMaterializeNextProcId JobMaterializeNextRow
    JobMaterializePaused JobMaterializePauseReason JobMaterializeDigestFile JobMaterializeItemsFile
    RoostMaterializeEdited
"""
#: The same, folded.
PROTECTED: Final = frozenset(name.lower() for name in _PROTECTED.split())

#: A job with one of these (folded) is looked at before it is offered: services.schedd.core.start_rules.
START_RULES: Final = frozenset(
    [
        *("isnoopjob", "skipifdataflow", "deferraltime"),
        *("cronminute", "cronhour", "crondayofmonth", "cronmonth", "crondayofweek"),
    ]
)

#: Universes whose jobs the schedd itself runs, by JobUniverse.
HERE: Final[Mapping[int, Literal["scheduler", "local"]]] = {7: "scheduler", 12: "local"}
PARALLEL_UNIVERSE: Final = 11
MAX_PRIORITY: Final = 2**31 - 1
_NONE: Final[frozenset[str]] = frozenset()


class BadSubmit(PermanentError):
    """An ad that can not be queued: the text names the attribute and the mend."""


def _no_usage() -> Usage:
    # The messages are read where there are runs: a command that knows jobs by their ids alone would be twice as slow.
    from shared.messages.claims import Usage

    return Usage()


@dataclass(slots=True)
class Shadow:
    """One run of one job, HTCondor's shadow without a process: (job, attempt) names it everywhere."""

    job: JobId
    attempt: int
    token: str  # for file transfer; a secret
    transfer: bool  # whether files travel
    started: float  # wall clock, when the schedd gave the job away
    sequence: int = -1  # of the last report that counted; -1: nothing heard yet
    executing: float = 0.0  # wall clock, when its program started
    suspended: float = 0.0  # wall clock, since when
    stop: str = ""  # why it is being ended: remove, hold, vacate; empty: it is not
    how: str = "graceful"
    output: bool = False  # its output is in its place
    suspended_by_user: bool = False  # its user wants it to stand still
    suspension_due: bool = False  # the execution point does not know that yet
    # Not stored:
    claim: str = ""  # Claim.id
    stored_usage: Usage = field(default_factory=_no_usage)  # as last reported
    output_began: float = 0.0  # wall clock, when its output began to come, for its trace
    removed_by_policy: bool = False  # it is being ended, as a policy removed its job
    vacated_because: str = ""  # a policy's words, where one ends it
    input_told: bool = False  # the job's log tells that its files are on their way
    output_told: bool = False  # likewise its output
    public: frozenset[str] = frozenset()  # names of files that its machine was told of as public


@dataclass(slots=True)
class Cluster:
    """What one submit made."""

    id: int
    owner: str  # "alice"
    user: str  # "alice@pool"
    submitter: str  # of procs that do not say otherwise
    qdate: int
    ad: ClassAd
    spool: bool = False
    submit_id: str = ""
    next_proc: int = 0
    jobs: JobMap[Job] = field(default_factory=JobMap)
    names: frozenset[str] = frozenset()  # folded names of its attributes
    autocluster: tuple[int, int] = (-1, 0)  # (generation, id) of procs that differ in nothing that matters
    factory: Factory | None = None  # gives the jobs that are not in the queue yet (late materialization)
    waiting: int = 0  # jobs that are idle or held
    edits: int = 0  # how often what its later jobs will have was changed
    entering: bool = False  # its jobs are still coming into the table
    raw: dict[str, Any] | None = None  # the ad as msgpack reads it: merging packed ads needs no parsing
    here: Literal["", "scheduler", "local"] = ""  # the universe where the schedd itself runs its jobs, and no slot does
    parallel: bool = False  # of the parallel universe: each of its jobs has a slot for each of its nodes

    def __post_init__(self) -> None:
        universe = self.ad.eval("JobUniverse")
        self.here = HERE.get(universe, "") if isinstance(universe, int) else ""
        self.parallel = universe == PARALLEL_UNIVERSE

    @property
    def over(self) -> bool:
        """Whether it has no job, and never will again."""
        return not self.jobs and not self.entering and (self.factory is None or self.factory.over)

    def changed(self) -> None:
        """What is remembered of its ad counts no more."""
        self.raw = None
        self.autocluster = (-1, 0)
        self.edits += 1

    def packed_cells(self) -> dict[str, Any]:
        """The cluster's attributes in packed form, folded name to (name, packed cell); kept until the ad changes."""
        if self.raw is None:
            self.raw = raw_cells(self.ad.pack())
        return self.raw


@dataclass(slots=True)
class Job:
    """One proc. `ad` holds what differs from the cluster, and is chained to the cluster's.

    A job of the parallel universe has `nodes`. Each is a Job of its own where slots are concerned: it is offered, gets
    a claim and has a run as any other does. The job itself never is; it begins and ends with all of them
    (services.schedd.core.parallel_universe).
    """

    cluster: Cluster
    proc: int
    ad: ClassAd
    status: JobStatus
    priority: int
    submitter: str
    autocluster: int = 0
    generation: int = -1  # of the significant attributes that `autocluster` belongs to
    shadow: Shadow | None = None  # the run under way, also while it is being torn down
    idle_key: Key | None = None  # where it stands in the idle queue
    cooling: bool = False  # waits after a failure; not offered meanwhile
    due: bool = False  # it has one of START_RULES, and was looked at: it may be offered
    waits_for: str = ""  # Claim.id of a claim whose slot is being emptied for it; not offered meanwhile
    refusals: int = 0  # by execution points, in a row
    sorted_as: int = 0  # the autocluster that was told of it
    idle_from: float = 0.0  # when it became able to start; 0: before this daemon did, and its ad tells to the second
    nodes: Sequence[Job] = ()  # of a parallel job
    whole: Job | None = None  # of a node: the job that it is a part of
    node: int = -1  # of a node: its number, from 0

    @property
    def id(self) -> JobId:
        return JobId(self.cluster.id, self.proc, self.node)

    @property
    def size(self) -> int:
        """As how many jobs it counts where these are limited."""
        return len(self.nodes) or 1

    @property
    def queued_id(self) -> JobId:
        """What users know it by: of a node, the id of the whole job."""
        return JobId(self.cluster.id, self.proc)

    @property
    def has_start_rule(self) -> bool:
        """Whether more than a slot is needed for its start, or less."""
        own, shared = self.ad.table(), self.cluster.ad.table()
        return not (own.keys().isdisjoint(START_RULES) and shared.keys().isdisjoint(START_RULES))

    @property
    def startable(self) -> bool:
        """Whether it may be offered to claims and the negotiator or, of the scheduler universe, be started here."""
        free = self.status == JobStatus.IDLE and self.shadow is None and not self.cooling and not self.waits_for
        if self.whole is not None:
            return free and self.whole.startable
        return free and (self.due or not self.has_start_rule)

    def number(self, name: str, default: float = 0) -> float:
        """A numeric attribute; `default` where it is something else."""
        value = self.ad.eval(name)
        return value if isinstance(value, int | float) else default

    def count(self, name: str, by: int = 1) -> int:
        """Add to a counter attribute; gives the new value."""
        value = int(self.number(name)) + by
        self.ad[name] = value
        return value

    def idle_since(self) -> float:
        """When it last became able to start: when it was submitted, released or put back. QDate and LastVacateTime are
        whole seconds, too coarse for what waits milliseconds."""
        return self.idle_from or self.number("LastVacateTime") or self.number("QDate")

    def text(self, name: str) -> str:
        return self.ad.eval_string(name)

    def settle(self) -> None:
        """Keep the job small while it waits: its ad as bytes, if nothing was written to it since these were made."""
        if self.shadow is None and self.status in WAITING:
            self.ad.settle()

    def drop(self, *names: str) -> None:
        """Remove own attributes, those that are there."""
        for name in names:
            if fold(name) in self.ad.table():
                del self.ad[name]


def make_job(cluster: Cluster, proc: int, packed: bytes, status: JobStatus, priority: int, submitter: str) -> Job:
    """A job from what the database has of it."""
    ad = ClassAd.unpack(packed)
    ad.chain(cluster.ad)
    return Job(cluster, proc, ad, status, priority, submitter)


def unpacked(cluster: Cluster, packed: PackedJobs, proc: int, ad: bytes) -> Job:
    """A job that was packed."""
    job = make_job(cluster, proc, ad, JobStatus(packed.status), packed.priority, packed.submitter)
    job.autocluster, job.generation, job.sorted_as = packed.autocluster, packed.generation, packed.sorted_as
    job.idle_from = packed.idle_from
    if packed.offered:
        job.idle_key = key_of(packed.priority, cluster.id, proc)
    return job


def write_status(ad: ClassAd, old: JobStatus, status: JobStatus, now: float) -> None:
    """What a job's ad says of its state."""
    ad["LastJobStatus"] = int(old)
    ad["JobStatus"] = int(status)
    ad["EnteredCurrentStatus"] = int(now)


def priority_of(ad: ClassAd) -> int:
    """JobPrio. Raises BadSubmit for what is no number of 32 bits, NaN and infinity too."""
    value = ad.eval("JobPrio")
    if not isinstance(value, int | float) or not -MAX_PRIORITY <= value <= MAX_PRIORITY:
        raise BadSubmit(
            f"JobPrio: {(ad.text('JobPrio') or '')[:100]} is no number from -{MAX_PRIORITY} to {MAX_PRIORITY}"
        )
    return int(value)


def raw_cells(packed: bytes) -> dict[str, Any]:
    """A packed ad without parsing its expressions: folded name to (name, packed cell)."""
    body = msgpack.unpackb(packed, unicode_errors="surrogateescape")
    return {fold(name): (name, cell) for name, cell in body.items()}


def global_id(schedd: str, job: Job) -> str:
    return f"{schedd}#{job.cluster.id}.{job.proc}#{job.cluster.qdate}"


def full_packed(schedd: str, job: Job, now: float, hidden: frozenset[str] = _NONE) -> bytes:
    """The whole ad, packed: cluster and proc merged, derived attributes added. No expression is parsed for it. hidden:
    folded names that are left out."""
    cells = dict(job.cluster.packed_cells())
    cells.update(raw_cells(job.ad.pack()))
    for key in hidden:
        cells.pop(key, None)
    body = dict(cells.values())
    body["ProcId"] = job.proc
    body["GlobalJobId"] = global_id(schedd, job)
    body["ServerTime"] = int(now)
    if job.generation >= 0:
        body["AutoClusterId"] = job.autocluster
    packed: bytes = msgpack.packb(body, unicode_errors="surrogateescape")
    return packed


def full_ad(schedd: str, job: Job, now: float, hidden: frozenset[str] = _NONE) -> ClassAd:
    """The whole ad as one that is chained to nothing. hidden: folded names that are left out."""
    table = {**job.cluster.ad.table(), **job.ad.table()}
    for key in hidden:
        table.pop(key, None)
    ad = ClassAd.from_table(table)
    ad["ProcId"] = job.proc
    ad["GlobalJobId"] = global_id(schedd, job)
    ad["ServerTime"] = int(now)
    if job.generation >= 0:
        ad["AutoClusterId"] = job.autocluster
    return ad
