"""What a submitted or edited ad may say, and what the schedd says in its place. Pure.

The owner is who the gateway authenticated. Attributes that tell what happened to a job are the schedd's own:
what a user puts there is overridden in a new job, and refused in an edit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from services.schedd.factories import BadLimit, limits_of
from services.schedd.jobs import JobStatus
from services.schedd.policies import Hold
from shared.classad import ClassAd
from shared.classad.ad import is_private
from shared.errors import PermanentError

MAX_AD_BYTES: Final = 1 << 20
MAX_ATTRIBUTES: Final = 5000
MAX_PRIORITY: Final = 2**31 - 1

#: Nobody but the schedd writes these.
_NAMES: Final = """
    ClusterId ProcId GlobalJobId Owner User OsUser MyType TargetType ServerTime QDate JobStatus LastJobStatus
    EnteredCurrentStatus CompletionDate JobStartDate JobCurrentStartDate JobCurrentStartExecutingDate
    JobLastStartDate JobCurrentFinishTransferInputDate LastVacateTime NumJobStarts NumShadowStarts
    NumShadowExceptions NumJobMatches NumHolds NumHoldsByReason NumJobCompletions NumRestarts NumVacates
    NumSystemHolds NumJobReconnects JobRunCount RemoteHost RemoteSlotID LastRemoteHost StartdAddr StartdIpAddr
    RemoteWallClockTime CumulativeSlotTime CommittedTime CommittedSlotTime CumulativeSuspensionTime
    CommittedSuspensionTime TotalSuspensions LastSuspensionTime RemoteUserCpu RemoteSysCpu
    CumulativeRemoteUserCpu CumulativeRemoteSysCpu BytesSent BytesRecvd ExitCode ExitBySignal ExitSignal
    ExitStatus TerminationPending HoldReason HoldReasonCode HoldReasonSubCode ReleaseReason RemoveReason
    LastHoldReason LastHoldReasonCode LastHoldReasonSubCode VacateReason AutoClusterId AutoClusterAttrs
    ShadowBday StageInStart StageInFinish StageOutStart StageOutFinish SpooledOutputFiles
    JobCoolDownExpiration MATCH_EXP_Recorded LastMatchTime LastRejMatchTime LastRejMatchReason ScheddName
    SubmitterName RoostTrace JobMaterializeItemCount JobMaterializeNextProcId JobMaterializeNextRow
    JobMaterializePaused JobMaterializePauseReason JobMaterializeDigestFile JobMaterializeItemsFile
    RoostMaterializeEdited
"""
#: The same, folded.
PROTECTED: Final = frozenset(name.lower() for name in _NAMES.split())

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
    ("NiceUser", False),
    ("Args", ""),
    ("Environment", ""),
    ("RequestCpus", 1),
    ("ImageSize", 0),
    ("DiskUsage", 0),
    ("Rank", 0.0),
)

_NAME: Final = re.compile(r"[A-Za-z0-9_.@+-]{1,256}")


class BadSubmit(PermanentError):
    """An ad that can not be queued: the text names the attribute and the mend."""


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
    try:
        ad = ClassAd.unpack(packed).check()
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
    """ "alice" of "alice@pool". Raises BadSubmit for what is no user."""
    owner, at, domain = user.partition("@")
    if not _NAME.fullmatch(owner) or (at and not _NAME.fullmatch(domain)):
        raise BadSubmit(f"{user[:100]!r} is no user; want NAME@DOMAIN")
    return owner


def priority_of(ad: ClassAd) -> int:
    """JobPrio. Raises BadSubmit for what is no number of 32 bits, NaN and infinity too."""
    value = ad.eval("JobPrio")
    if not isinstance(value, int | float) or not -MAX_PRIORITY <= value <= MAX_PRIORITY:
        raise BadSubmit(
            f"JobPrio: {(ad.text('JobPrio') or '')[:100]} is no number from -{MAX_PRIORITY} to {MAX_PRIORITY}"
        )
    return int(value)


def submitter_of(ad: ClassAd, user: str, nice_group: str = "nice-user") -> str:
    """The name under which a job's use is charged: the user, or group.user@domain (GRP-25). Raises BadSubmit."""
    owner, _, domain = user.partition("@")
    group = ad.eval("AccountingGroup")
    if not isinstance(group, str) or not group:
        name = f"{nice_group}.{owner}" if ad.eval("NiceUser") is True else owner
    else:
        if not _NAME.fullmatch(group):
            raise BadSubmit(f"AccountingGroup: {group[:100]!r} may only have letters, digits and _.@+-")
        name = group
    return name if "@" in name or not domain else f"{name}@{domain}"


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


#: The job was submitted on hold besides: that is what it is once its files are there.
HELD_ONCE_SPOOLED: Final = "RoostHeldOnceSpooled"
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
        if key in FIXED and not admin:
            raise BadSubmit(f"{name}: can not be changed after submission; remove the job and submit it anew")
    if "JobPrio" in ad:
        priority_of(ad)
    try:
        limits_of(ad, least=0)
    except BadLimit as error:
        raise BadSubmit(str(error)) from error
    group = ad.eval("AccountingGroup")
    if isinstance(group, str) and group and not _NAME.fullmatch(group):
        raise BadSubmit(f"AccountingGroup: {group[:100]!r} may only have letters, digits and _.@+-")
    return ad
