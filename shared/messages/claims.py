"""Between a schedd and a startd: the claim protocol and the reports on a running job.

The claim id is a capability: whoever knows it may use the claim (spec row LEA-08). It never rides on roost.ads or
roost.events and is never logged; `public_claim_id` gives the part that may be shown.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from shared.messages.base import Large, Message, Part, message


def public_claim_id(claim_id: str) -> str:
    """The part of a claim id that names the claim without giving the right to use it."""
    return claim_id.rpartition("#")[0] + "#..."


def job_of(run: str) -> str:
    """The job of a run, as users know it: "12.0" of "12.0/1@schedd"; also of "12.0.3/1@schedd", a node of a parallel
    job."""
    return ".".join(run.partition("/")[0].split(".")[:2])


class Activation(Part):
    """One run of one job. (job_id, attempt) names the run everywhere: outputs, reports and events of an older
    attempt are refused, which keeps a job from being counted twice."""

    job_id: str  # "cluster.proc", of a node of a parallel job "cluster.proc.node"
    attempt: int  # NumShadowStarts of the job, counting from 1
    job_ad: bytes  # packed, $$() already expanded
    transfer_url: str = ""  # base of the schedd's transfer endpoint for this run; empty: nothing to transfer
    transfer_token: str = ""  # capability for exactly this run
    chirp_url: str = ""  # the same endpoint, for what the job asks while it runs; empty: it asks for nothing


class Leftover(Part):
    """What remains of a partitionable slot after a dynamic slot was carved. Its claim id stays the same, so that
    several matches of one cycle, also of several schedds, can be carved one after the other."""

    slot: str
    claim_id: str
    slot_ad: bytes


@message
class RequestClaim(Large):
    """Schedd asks for the slot it was given (inbox of the startd). Asking again with the same `request_id` gives the
    same answer: a lost reply costs nothing."""

    type: ClassVar[str] = "claim.request"
    request_id: str
    claim_id: str
    slot: str
    schedd: str  # name of the schedd; its inbox is "schedd.<name>"
    submitter: str
    job_ad: bytes  # representative: what the slot must fit
    lease_s: int  # JobLeaseDuration, or 0 for none
    alive_interval_s: int
    epoch: int  # of the negotiator that made the match
    shard: str = ""  # NEGOTIATOR_NAME: whose epoch that is
    preempts: list[str] = []  # names of slots that must empty first: the slot itself, or dynamic ones of this slot
    preempt_claims: list[str] = []  # their claim ids, in the same order: the proof that the negotiator chose them
    concurrency_limits: str = ""  # as matched: the slot shows it while it is claimed (LIM-12)
    activation: Activation | None = None  # first job, so that claim and start cost one round trip
    # With an activation: the lease is no longer until the schedd has shown that it knows of the claim, by its first
    # keep-alive or by its answer to the report that the job runs; 0: it is.
    first_lease_s: float = 0.0


@message
class ClaimGranted(Large):
    type: ClassVar[str] = "claim.granted"
    claim_id: str  # of the slot that runs the job: a new one when a dynamic slot was carved
    slot: str
    slot_ad: bytes
    leftover: Leftover | None = None
    activated: bool = False
    refusal: str = ""  # why the first job was not activated


@message
class ClaimWaiting(Message):
    """The claim is accepted, and what runs on its slot is asked to leave. The schedd keeps the claim by asking again
    with the same `request_id`, at least once in its lease, and gives it up with ReleaseClaim. ClaimReady tells that
    asking again will get the slot."""

    type: ClassVar[str] = "claim.waiting"
    claim_id: str  # how the claim is named from now on
    slot: str  # that it waits for
    within_s: float = 0.0  # the slot empties in this time at the latest, as far as is known now


@message
class ClaimReady(Message):
    """Startd tells a schedd that the slot it waits for is its own now. A hint: lost ones cost the time until the schedd
    asks again."""

    type: ClassVar[str] = "claim.ready"
    startd: str
    slot: str
    claim_id: str


@message
class ClaimRefused(Message):
    type: ClassVar[str] = "claim.refused"
    reason: str
    code: Literal["unknown-claim", "requirements", "resources", "draining", "stale-epoch", "busy"]


@message
class ActivateClaim(Large):
    """Run this job on the claim. Asking again for the same (job_id, attempt) is answered alike."""

    type: ClassVar[str] = "claim.activate"
    claim_id: str
    activation: Activation


@message
class Activated(Message):
    type: ClassVar[str] = "claim.activated"
    job_id: str
    attempt: int


@message
class DeactivateClaim(Message):
    """Stop the job, keep the claim (remove, hold, vacate of one job). Graceful sends the job's KillSig first and
    hard-kills after its vacate time; fast kills at once."""

    type: ClassVar[str] = "claim.deactivate"
    claim_id: str
    job_id: str
    attempt: int
    how: Literal["graceful", "fast"] = "graceful"
    why: Literal["remove", "hold", "vacate", "evict"] = "remove"
    want_output: bool = False


@message
class SuspendClaim(Message):
    """Have the job of this run stand still, or go on (condor_suspend, condor_continue). The machine's CONTINUE does not
    let it go on then. What is so already stays so: an order may come again."""

    type: ClassVar[str] = "claim.suspend"
    claim_id: str
    job_id: str
    attempt: int
    suspended: bool


@message
class ReleaseClaim(Message):
    """Give the claim back; a job still running on it is ended first."""

    type: ClassVar[str] = "claim.release"
    claim_id: str
    how: Literal["graceful", "fast"] = "graceful"


@message
class Alive(Large):
    """Keeps the leases of these claims (spec rows LEA-02, LEA-07); one message for all claims on one startd.

    only_asked: claims of which a keep-alive was not answered: they are asked for, and not kept. So the schedd knows
    that their leases end by that keep-alive, whether it arrived or not (LEA-09)."""

    type: ClassVar[str] = "claim.alive"
    schedd: str
    sequence: int
    claim_ids: list[str]
    only_asked: list[str] = []


@message
class AliveReply(Large):
    """Which of the claims the startd does not know (any more): their jobs must go elsewhere."""

    type: ClassVar[str] = "claim.alive-reply"
    unknown: list[str] = []


class JobExit(Part):
    """How a run ended. Exactly one of exit_code and exit_signal is set for `exited`."""

    reason: Literal["exited", "killed", "evicted", "hold", "failed"]
    # exited: the job ended by itself. killed: ended by DeactivateClaim. evicted: policy, drain or lease; run it again.
    # hold: put it on hold (hold_code, hold_subcode, message). failed: could not be started here; run it elsewhere.
    exit_code: int | None = None
    exit_signal: int | None = None
    core_dumped: bool = False
    message: str = ""
    hold_code: int = 0
    hold_subcode: int = 0
    output_committed: bool = False  # the schedd has the complete output of this run
    vacate_code: int = 0  # why it was evicted: HTCondor's VacateReasonCode, 0 where that has no number


class Usage(Part):
    """What the run used so far. Bytes and KiB as HTCondor's job attributes have them."""

    user_cpu_s: float = 0.0
    sys_cpu_s: float = 0.0
    image_size_kib: int = 0
    resident_set_kib: int = 0
    memory_mib: int = 0
    disk_kib: int = 0
    bytes_sent: int = 0  # output, job to schedd
    bytes_received: int = 0  # input
    procs: int = 0


@message
class JobReport(Large):
    """Startd tells the schedd how a run goes. The final one (phase `ended`) is repeated until it is acknowledged, also
    after a restart of either side; `sequence` orders the reports of one run."""

    type: ClassVar[str] = "job.report"
    durable: ClassVar[bool] = True
    startd: str
    slot: str
    claim_id: str
    job_id: str
    attempt: int
    sequence: int
    phase: Literal["transferring-input", "running", "suspended", "transferring-output", "ended"]
    at: float  # when, the startd's clock; of an end that is told again: when it was
    started_at: float = 0.0
    # Of an end, in seconds of a clock that nobody sets: how long the startd had the run, how long its program ran, and
    # how long that has been over. None: it is of a release that does not say.
    had_s: float | None = None
    ran_s: float | None = None
    over_s: float | None = None
    pid: int = 0
    usage: Usage = Usage()
    exit: JobExit | None = None
    claim_over: bool = False  # the claim ends with this run: there is no use in handing over a next job
    renew: bool = False  # the claim is in its first lease, and the answer is to end that (JobReportAck.renewed)
    updates: bytes = b""  # packed ad of further job attributes (e.g. ProvisionedResources, DockerContainer...)
    scratch: str = ""  # of running and ended: the run's directory on its machine; empty: not told


@message
class JobReportAck(Large):
    """The report is committed. For an ended run the schedd may hand over the next job of the claim at once (one round
    trip a job), or give the claim back."""

    type: ClassVar[str] = "job.report-ack"
    known: bool = True  # False: the schedd has no such run; drop it
    next: Activation | None = None
    release: bool = False
    # The schedd knows of the claim, and so will its next life: the whole lease begins with the sending of this report,
    # which is before the moment that the schedd counts from (LEA-09).
    renewed: bool = False
    takes_batches: bool = False  # the schedd takes several reports in one message (JobReports); False: an older release


@message
class JobReports(Large):
    """Ends of several runs that a startd tells a schedd at about the same time. Each is a report as it would be alone,
    and answered for itself."""

    type: ClassVar[str] = "job.reports"
    durable: ClassVar[bool] = True
    most_entries: ClassVar[int] = 100
    startd: str  # of all reports
    reports: list[JobReport]


class ReportAnswer(Part):
    """The answer to one of several reports: its acknowledgement, or why there is none, as in a `failure`."""

    ack: JobReportAck | None = None
    code: str = ""
    reason: str = ""
    retryable: bool = False


@message
class JobReportsAck(Large):
    """What the reports say is committed, in one transaction. Answers in the order of the reports."""

    type: ClassVar[str] = "job.reports-ack"
    answers: list[ReportAnswer]


@message
class ClaimLost(Message):
    """Startd breaks a claim (preemption, drain, shutdown, lease) and tells the schedd before the slot goes on
    (spec row STM-57)."""

    type: ClassVar[str] = "claim.lost"
    durable: ClassVar[bool] = True
    startd: str
    slot: str
    claim_id: str
    reason: str
