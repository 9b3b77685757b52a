"""Which jobs are accepted, and as what: submits part by part, and edits. No I/O.

The owner is who the gateway authenticated. Attributes that tell what happened to a job are the schedd's own:
what a user puts there is overridden in a new job, and refused in an edit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from engine.queue.jobs import PARALLEL_UNIVERSE, PROTECTED, BadSubmit, Cluster, JobStatus, priority_of
from engine.queue.late_materialization import BadLimit, Factory, limits_of
from engine.queue.packed_jobs import may_be_packed
from engine.queue.parallel import GROUPS, count_of, group_ad, group_attribute, is_of_group, sizes_of
from engine.queue.submitters import USER_NAME, submitter_of
from services.schedd.core.job_launch_ad import wants_checkpoints
from services.schedd.core.policies import Hold
from services.schedd.core.rules import Rules
from shared.classad import UNDEFINED, ClassAd
from shared.classad.ad import is_private
from shared.classad.cells import PackedText
from shared.messages.queue import SubmitJobs

MAX_AD_BYTES: Final = 1 << 20
#: Characters of one expression. Whoever evaluates it reads it first, on a loop: 30 ms.
LONGEST_EXPRESSION: Final = 20_000
#: Attributes of a job's own ad, and of its cluster's: both together are fewer than a daemon's may have
#: (shared.daemon.ad_rows), and than can be read.
MAX_ATTRIBUTES: Final = 2000


#: Nobody may change these in a job that exists, though a submit may say them.
FIXED: Final = frozenset(("iwd", "cmd", "jobuniverse", "submitid"))

#: What every new job begins with.
_BEGINNING: Final[tuple[tuple[str, Any], ...]] = (
    ("CompletionDate", 0),
    ("NumJobStarts", 0),
    ("NumShadowStarts", 0),
    ("NumJobMatches", 0),
    ("NumHolds", 0),
    ("NumJobCompletions", 0),
    ("NumRestarts", 0),
    ("JobRunCount", 0),
    ("RemoteWallClockTime", 0.0),
    ("CumulativeSlotTime", 0.0),
    ("CumulativeSuspensionTime", 0),
    ("RemoteUserCpu", 0.0),
    ("RemoteSysCpu", 0.0),
    ("TotalSuspensions", 0),
    ("ExitBySignal", False),
    ("ExitStatus", 0),
    ("BytesSent", 0.0),
    ("BytesRecvd", 0.0),
)
#: What the submit language always writes; given here to ads that come otherwise.
_DEFAULTS: Final[tuple[tuple[str, Any], ...]] = (
    ("JobUniverse", 5),
    ("JobPrio", 0),
    ("Args", ""),
    ("Environment", ""),
    ("RequestCpus", 1),
    ("ImageSize", 0),
    ("DiskUsage", 0),
    ("Rank", 0.0),
)


@dataclass(frozen=True, slots=True)
class Accepted:
    """The common ad of a new cluster, as it will be stored."""

    ad: ClassAd
    status: JobStatus
    each: dict[str, Any]  # to be set in every proc: what must be able to vanish from it again


def checked(packed: bytes, what: str) -> ClassAd:
    """An ad from outside. Raises BadSubmit."""
    if len(packed) > MAX_AD_BYTES:
        raise BadSubmit(f"{what}: the ad has {len(packed)} bytes; at most {MAX_AD_BYTES} are taken")
    ad = ClassAd.unpack(packed)
    try:
        for name, cell in ad.table().values():
            if isinstance(cell, PackedText) and len(cell.data) > LONGEST_EXPRESSION:
                raise BadSubmit(
                    f"{what}: {name} is an expression of {len(cell.data)} characters; at most {LONGEST_EXPRESSION} are "
                    "taken: put a long list into a string, for stringListMember()"
                )
        ad.check()
    except (ValueError, RecursionError) as error:
        raise BadSubmit(f"{what}: {error}") from error
    if len(ad) > MAX_ATTRIBUTES:
        raise BadSubmit(f"{what}: the ad has {len(ad)} attributes; at most {MAX_ATTRIBUTES} are taken")
    return ad


def check_size(before: ClassAd, after: ClassAd) -> None:
    """What an edit makes of a job's own ad: many small edits must not make one that no message can carry, or nobody
    could list the queue any more. What makes it smaller is fine. Raises BadSubmit."""
    attributes, size = len(after.table()), len(after.pack())
    if attributes > MAX_ATTRIBUTES and attributes > len(before.table()):
        raise BadSubmit(f"edits: the job would have {attributes} attributes; at most {MAX_ATTRIBUTES} are taken")
    if size > MAX_AD_BYTES and size > len(before.pack()):
        raise BadSubmit(f"edits: the job's ad would have {size} bytes; at most {MAX_AD_BYTES} are taken")


def owner_of(user: str) -> str:
    """ "alice" of "alice@pool". Raises BadSubmit for what is no user: a bare name too, which anybody's domain might
    complete."""
    owner, _, domain = user.partition("@")
    if "@" in domain or not USER_NAME.fullmatch(owner) or not USER_NAME.fullmatch(domain):
        raise BadSubmit(f"{user[:100]!r} is no user; want NAME@DOMAIN")
    return owner


def accept_cluster(common: ClassAd, *, user: str, cluster: int, now: float, spool: bool) -> Accepted:
    """The common ad of a new cluster. Raises BadSubmit."""
    held = common.eval("JobStatus") == JobStatus.HELD
    reason = common.eval("HoldReason")
    table = {key: entry for key, entry in common.table().items() if key not in PROTECTED and not is_private(key)}
    ad = ClassAd.from_table(table)
    for name, value in _DEFAULTS:
        if name.lower() not in table and not (name == "Args" and "arguments" in table):
            ad[name] = value
    if "requirements" not in table:
        ad["Requirements"] = True
    priority_of(ad)
    if ad.eval("JobUniverse") == PARALLEL_UNIVERSE:
        _check_parallel(ad)
    owner = owner_of(user)
    stamp = int(now)
    status = JobStatus.HELD if held or spool else JobStatus.IDLE
    ad.update(_BEGINNING)
    ad.update(
        {
            "MyType": "Job",
            "TargetType": "Machine",
            "ClusterId": cluster,
            "Owner": owner,
            "User": user,
            "QDate": stamp,
            "JobStatus": int(status),
            "EnteredCurrentStatus": stamp,
        }
    )
    each: dict[str, Any] = {}
    if status == JobStatus.HELD:
        code = Hold.SPOOLING_INPUT if spool else Hold.SUBMITTED_ON_HOLD
        why = "its input files are awaited" if spool else "it was submitted on hold"
        each["HoldReasonCode"] = int(code)
        each["HoldReasonSubCode"] = 0
        each["HoldReason"] = reason if isinstance(reason, str) and reason and not spool else f"The job waits: {why}"
        if held and spool:
            each[HELD_ONCE_SPOOLED] = True
    return Accepted(ad, status, each)


def _check_parallel(ad: ClassAd) -> None:
    """Whether a parallel job asks for what there is. Raises BadSubmit."""
    count_of(ad)
    if wants_checkpoints(ad) or ad.eval("SuccessCheckpointExitCode") is not UNDEFINED:
        raise BadSubmit(
            "a parallel job keeps no checkpoints here: leave out checkpoint_exit_code and transfer_checkpoint_files, "
            "and say when_to_transfer_output = ON_EXIT"
        )


#: The job was submitted on hold besides: that is what it is once its files are there.
HELD_ONCE_SPOOLED: Final = "RoostHeldOnceSpooled"
#: How many machines a parallel job has.
_MACHINES: Final = frozenset(("minhosts", "maxhosts", "nodegroups"))
#: What machines of one spooled job have alike.
_SPOOLED: Final = frozenset(("in", "transferinput"))
_FORBIDDEN_IN_PROC: Final = PROTECTED | {"jobuniverse"}


def accept_proc(packed: bytes, what: str) -> tuple[bytes, frozenset[str]]:
    """A proc's own ad without protected attributes, packed, and the folded names it has. Raises BadSubmit.

    Called once a job: an ad that needs no change is not packed again, and expressions are looked at only for their
    syntax (equal texts are parsed once).
    """
    cells = checked(packed, what).table()
    names = frozenset(cells)
    bad = [key for key in names if key in _FORBIDDEN_IN_PROC or is_private(key)]
    if bad:
        ad = ClassAd.from_table({key: entry for key, entry in cells.items() if key not in bad})
        return ad.pack(), names.difference(bad)
    return packed, names


def check_edits(packed: bytes, *, admin: bool, immutable: frozenset[str] = frozenset()) -> ClassAd:
    """The attributes of an edit. Raises BadSubmit naming what may not be changed. `immutable`: folded names that the
    administrator lets nobody change (IMMUTABLE_JOB_ATTRS)."""
    ad = checked(packed, "edits")
    for key, (name, _) in ad.table().items():
        if key in PROTECTED or is_private(key):
            raise BadSubmit(f"{name}: the schedd keeps this attribute itself; it can not be edited")
        if key in immutable:
            raise BadSubmit(f"{name}: this pool lets nobody change it in a queued job (IMMUTABLE_JOB_ATTRS)")
        if key in _MACHINES:
            raise BadSubmit(f"{name}: a parallel job keeps its number of machines; remove the job and submit it anew")
        if key in FIXED and not admin:
            raise BadSubmit(f"{name}: can not be changed after submission; remove the job and submit it anew")
    if "JobPrio" in ad:
        priority_of(ad)
    try:
        limits_of(ad, least=0)
    except BadLimit as error:
        raise BadSubmit(str(error)) from error
    group = ad.eval("AccountingGroup")
    if isinstance(group, str) and group and not USER_NAME.fullmatch(group):
        raise BadSubmit(f"AccountingGroup: {group[:100]!r} may only have letters, digits and _.@+-")
    return ad


# Submits

#: Submits of one user that wait for further parts: each keeps its jobs here.
MAX_UNFINISHED: Final = 100
#: Parts that came without the last one are thrown away after this time, seconds.
UNFINISHED_S: Final = 3600
#: Attributes of a proc that decide its place in the queue.
_ORDERING: Final = frozenset(("jobprio", "accountinggroup", "niceuser"))
#: LeaveJobInQueue of spooled jobs whose user said nothing: ten days to fetch the output, as HTCondor gives.
UNTIL_FETCHED: Final = "JobStatus == 4 && (CompletionDate =?= 0 || time() - CompletionDate < 864000)"


class AcceptedJob(NamedTuple):
    """A job of a submit, as it is stored."""

    proc: int
    ad: bytes
    priority: int
    submitter: str
    status: JobStatus
    packed: bool = False  # it may stay so in the queue (engine.queue.packed_jobs)


@dataclass(slots=True)
class Draft:
    """A submit whose last part has not come yet: in the database, but not in the queue."""

    cluster: Cluster
    status: JobStatus
    each: dict[str, Any]
    at: float  # wall clock, of its last part
    before: ClassAd  # the common ad before the administrator's rules changed it
    checked: bool = False  # the common ad meets all requirements
    stored: bool = False  # the cluster has its row; a first part may well bring no job, to learn the number
    jobs: list[AcceptedJob] = field(default_factory=list)
    first: bytes = b""  # the packed ad of its first job
    packed: dict[int, bytes] = field(default_factory=dict)  # those that stay packed: what is their own, by proc
    names: set[str] = field(default_factory=set)  # folded names of attributes that these have of their own
    factory: Factory | None = None  # its jobs are stored for later, and `jobs` and `packed` stay empty
    warnings: list[str] = field(default_factory=list)  # of the administrator's rules, not logged yet


@dataclass(frozen=True, slots=True)
class SubmitLimits:
    """How many jobs may be submitted: MAX_JOBS_PER_SUBMISSION, MAX_JOBS_PER_OWNER, MAX_JOBS_SUBMITTED and, of jobs
    that wait to be materialized, ROOST_SCHEDD_LATE_JOBS_PER_OWNER."""

    per_submission: int
    per_owner: int
    of_all: int
    late_per_owner: int


def begin_draft(
    ad: ClassAd, asked: SubmitJobs, cluster: int, now: float, *, rules: Rules, nice_group: str, late: bool
) -> Draft:
    """A new cluster of what the first part of a submit says. ad: its common ad, checked. late: whether factories
    (late materialization) are allowed. Raises BadSubmit."""
    accepted = accept_cluster(ad, user=asked.user, cluster=cluster, now=now, spool=asked.spool)
    # The submit language writes false where its user said nothing.
    if asked.spool and (accepted.ad.text("LeaveJobInQueue") or "false").lower() == "false":
        accepted.ad.set_text("LeaveJobInQueue", UNTIL_FETCHED)
    before = accepted.ad.copy()
    rules.transform(accepted.ad, now)
    priority_of(accepted.ad)
    submitter = submitter_of(accepted.ad, asked.user, nice_group)
    factory = None
    if late:
        try:
            limits = limits_of(accepted.ad)
        except BadLimit as error:
            raise BadSubmit(str(error)) from error
        factory = None if limits is None else Factory(0, *limits)
    new = Cluster(
        id=cluster,
        owner=owner_of(asked.user),
        user=asked.user,
        submitter=submitter,
        qdate=int(now),
        ad=accepted.ad,
        spool=asked.spool,
        submit_id=asked.submit_id,
    )
    return Draft(new, accepted.status, accepted.each, now, before, factory=factory)


def check_limits(
    draft: Draft, coming: int, mine: Sequence[Draft], limits: SubmitLimits, *, queued: int, promised: int, total: int
) -> None:
    """Whether so many more jobs may come. mine: all unfinished submits of the user, this one too; queued, promised: the
    user's jobs in the queue, and those that are not materialized yet; total: all users' jobs in the queue. Raises
    BadSubmit."""
    user, late = draft.cluster.user, draft.factory is not None
    earlier = draft.cluster.next_proc
    wanted = (earlier + coming) * (count_of(draft.cluster.ad) if draft.cluster.parallel else 1)
    unfinished = sum(one.cluster.next_proc for one in mine if (one.factory is not None) == late) - earlier
    if len(mine) > MAX_UNFINISHED:
        raise BadSubmit(
            f"{len(mine) - 1} other submits of {user} have not had their last part; finish these first "
            f"(they are forgotten after {UNFINISHED_S // 60} minutes)"
        )
    where = "that wait to be materialized" if late else "in the queue"
    if late:
        # The other limits are kept by whoever makes jobs of these.
        bounds = [(limits.late_per_owner, promised + unfinished, "ROOST_SCHEDD_LATE_JOBS_PER_OWNER")]
    else:
        bounds = [
            (limits.per_submission, 0, "MAX_JOBS_PER_SUBMISSION"),
            (limits.per_owner, queued + unfinished, "MAX_JOBS_PER_OWNER"),
            (limits.of_all, total + unfinished, "MAX_JOBS_SUBMITTED"),
        ]
    for limit, have, name in bounds:
        if have + wanted > limit:
            raise BadSubmit(
                f"{wanted} jobs besides {have} {where} are more than {name} = {limit}; submit fewer, or "
                "have the limit raised"
            )


def priority_and_submitter(ad: ClassAd, proc: int, cluster: Cluster, nice_group: str) -> tuple[int, str]:
    """In which order a job comes, and whom it is charged to, by its own ad and its cluster's. Raises BadSubmit."""
    ad.chain(cluster.ad)
    try:
        priority = priority_of(ad)
    except BadSubmit as error:
        raise BadSubmit(f"job {proc}: {error}") from error
    submitter = submitter_of(ad, cluster.user, nice_group)
    ad.chain(None)
    return priority, submitter


def accept_job(
    draft: Draft, proc: int, packed: bytes, now: float, *, priority: int, rules: Rules, nice_group: str
) -> AcceptedJob:
    """One job of a submit, as the administrator's rules make it. priority: of jobs that say none. Raises BadSubmit."""
    cluster = draft.cluster
    ad_bytes, names = accept_proc(packed, f"job {proc}")
    if cluster.parallel and (proc or not names.isdisjoint(_MACHINES)):
        raise BadSubmit("a cluster of the parallel universe has one job, and MaxHosts stands in its common ad")
    if rules:
        ad_bytes, names = _ruled(draft, proc, ad_bytes, names, rules, now)
    if cluster.parallel and (cluster.ad.eval(GROUPS) is not UNDEFINED or any(map(is_of_group, names))):
        ad_bytes, names = _grouped(draft, ad_bytes, rules, now)
    if not draft.each and names.isdisjoint(_ORDERING):
        stays = draft.status == JobStatus.IDLE and may_be_packed(names)
        if stays:
            draft.names |= names
        return AcceptedJob(proc, ad_bytes, priority, cluster.submitter, draft.status, stays)
    ad = ClassAd.unpack(ad_bytes)
    priority, submitter = priority_and_submitter(ad, proc, cluster, nice_group)
    ad.update(draft.each)
    return AcceptedJob(proc, ad.pack(), priority, submitter, draft.status)


def _grouped(draft: Draft, ad_bytes: bytes, rules: Rules, now: float) -> tuple[bytes, frozenset[str]]:
    """A parallel job whose machines are in groups: what each asks for itself is checked, and ruled as a job's would be.
    Raises BadSubmit."""
    own = ClassAd.unpack(ad_bytes)
    whole = ClassAd.from_table({**draft.cluster.ad.table(), **own.table()})
    for group in range(1, len(sizes_of(whole, count_of(whole)))):
        ad = group_ad(whole, group)
        before = {key: str(cell) for key, (_, cell) in ad.table().items()}
        rules.transform(ad, now)
        draft.warnings += rules.check(ad, now)
        for name, cell in ad.cells():
            if before.get(name.lower()) != str(cell) and group_attribute(group, name) in whole:
                own[group_attribute(group, name)] = cell
    if draft.cluster.spool and any(name.partition("_")[2] in _SPOOLED for name in map(str.lower, whole)):
        raise BadSubmit("all machines of a parallel job that is spooled take the same files along")
    return own.pack(), frozenset(own.table())


def _ruled(
    draft: Draft, proc: int, ad_bytes: bytes, names: frozenset[str], rules: Rules, now: float
) -> tuple[bytes, frozenset[str]]:
    """A job as the administrator's rules make it, and the names it says itself then. Raises BadSubmit."""
    by_number = "procid" in rules.touched
    if names.isdisjoint(rules.touched) and not by_number:
        if not draft.checked:
            draft.warnings += rules.check(draft.cluster.ad, now)
            draft.checked = True
        return ad_bytes, names
    ad = ClassAd.unpack(ad_bytes)
    if by_number:
        ad["ProcId"] = proc
    try:
        draft.warnings += rules.rule(ad, draft.before, draft.cluster.ad, now)
    except BadSubmit as error:
        raise BadSubmit(f"job {proc}: {error}") from error
    if by_number:
        del ad["ProcId"]
    return ad.pack(), frozenset(ad.table())
