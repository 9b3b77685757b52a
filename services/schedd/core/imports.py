"""Jobs of another access point's queue (`roost import queue`): what such a job brings along of what happened to it
there. No I/O.

Rules of the administrator for new jobs do not look at them, as HTCondor does not look again when it starts: they were
accepted once. What it takes to keep the queue in order is asked of them as of any job.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from engine.queue.jobs import PROTECTED, BadSubmit, Cluster, JobStatus
from engine.queue.submitters import submitter_of
from services.schedd.core.acceptance import (
    HELD_ONCE_SPOOLED,
    UNTIL_FETCHED,
    AcceptedJob,
    accept_cluster,
    checked,
    owner_of,
    priority_and_submitter,
)
from services.schedd.core.policies import Hold
from shared.classad import ClassAd
from shared.classad.ad import is_private
from shared.classad.expr import fold
from shared.messages.queue import ImportJobs

#: Says of a job which cluster of which access point it was.
ORIGIN: Final = "RoostImportedFrom"
#: Why a job is on hold once its files are here.
HELD_AS: Final = ("RoostHoldReasonOnceSpooled", "RoostHoldCodeOnceSpooled", "RoostHoldSubCodeOnceSpooled")
HIGHEST_CLUSTER: Final = 2**31 - 1
LONGEST_ORIGIN: Final = 500
#: Of what the schedd keeps itself, what such a job brings along.
_BROUGHT: Final = """
    QDate EnteredCurrentStatus NumJobStarts NumShadowStarts NumShadowExceptions NumJobMatches NumHolds
    NumJobCompletions NumRestarts NumVacates NumSystemHolds NumJobReconnects JobRunCount LastRemoteHost
    RemoteWallClockTime CumulativeSlotTime CommittedTime CommittedSlotTime CumulativeSuspensionTime
    CommittedSuspensionTime TotalSuspensions LastSuspensionTime RemoteUserCpu RemoteSysCpu CumulativeRemoteUserCpu
    CumulativeRemoteSysCpu BytesSent BytesRecvd JobStartDate JobLastStartDate LastVacateTime LastMatchTime
    LastRejMatchTime LastRejMatchReason HoldReason HoldReasonCode HoldReasonSubCode LastHoldReason LastHoldReasonCode
    LastHoldReasonSubCode ReleaseReason VacateReason
"""
_HISTORY: Final = frozenset(map(fold, _BROUGHT.split()))
_HOLD: Final = ("HoldReason", "HoldReasonCode", "HoldReasonSubCode")
#: Times that a clock of ours has not seen are taken for now.
_TIMES: Final = ("QDate", "EnteredCurrentStatus")


@dataclass(frozen=True, slots=True)
class Held:
    """Why a job goes on hold."""

    reason: str
    code: int
    subcode: int


def check_import(asked: ImportJobs) -> None:
    """Whether a message makes sense. Raises BadSubmit."""
    owner_of(asked.user)
    if not asked.origin.isprintable() or not 0 < len(asked.origin) <= LONGEST_ORIGIN:
        raise BadSubmit(f"origin: want a printable text of up to {LONGEST_ORIGIN} characters")
    if not 0 < asked.cluster <= HIGHEST_CLUSTER:
        raise BadSubmit(f"cluster {asked.cluster}: want a number from 1 to {HIGHEST_CLUSTER}")
    if len(asked.numbers) != len(asked.procs) or not asked.procs:
        raise BadSubmit(f"{len(asked.numbers)} numbers for {len(asked.procs)} jobs: each job has one")
    if any(not 0 <= one <= HIGHEST_CLUSTER for one in asked.numbers) or any(
        one >= following for one, following in zip(asked.numbers, asked.numbers[1:], strict=False)
    ):
        raise BadSubmit("numbers: want ProcIds, each above the one before")


def make_cluster(asked: ImportJobs, number: int, now: float, nice_group: str) -> Cluster:
    """The cluster of jobs that come from elsewhere. Raises BadSubmit."""
    common = checked(asked.cluster_ad, "cluster ad")
    if "JobStatus" in common:
        del common["JobStatus"]
    history = _history(common, now)
    ad = accept_cluster(common, user=asked.user, cluster=number, now=now, spool=False).ad
    ad.update(history)
    ad[ORIGIN] = asked.origin
    if asked.spool and (ad.text("LeaveJobInQueue") or "false").lower() == "false":
        ad.set_text("LeaveJobInQueue", UNTIL_FETCHED)
    qdate = ad.eval("QDate")
    return Cluster(
        id=number,
        owner=owner_of(asked.user),
        user=asked.user,
        submitter=submitter_of(ad, asked.user, nice_group),
        qdate=int(qdate) if isinstance(qdate, int | float) else int(now),
        ad=ad,
        spool=asked.spool,
        submit_id=f"import {asked.origin}",
    )


def accept_imported(cluster: Cluster, proc: int, packed: bytes, now: float, nice_group: str) -> AcceptedJob:
    """One job as it will be stored. One that was on hold stays so, for the same reason; where its files are awaited
    that comes first. Raises BadSubmit."""
    brought = checked(packed, f"job {proc}")
    held = brought.eval("JobStatus") == JobStatus.HELD
    ad = ClassAd.from_table(
        {
            key: entry
            for key, entry in brought.table().items()
            if key not in PROTECTED and key != "jobuniverse" and not is_private(key)
        }
    )
    ad.update(_history(brought, now))
    priority, submitter = priority_and_submitter(ad, proc, cluster, nice_group)
    why = _why(ad)
    for name in _HOLD:
        if name in ad:
            del ad[name]
    if held:
        ad.update(zip(_HOLD, (why.reason, why.code, why.subcode), strict=True))
    if cluster.spool:
        if held:
            ad[HELD_ONCE_SPOOLED] = True
            ad.update(zip(HELD_AS, (why.reason, why.code, why.subcode), strict=True))
        ad.update(zip(_HOLD, ("The job waits: its input files are awaited", int(Hold.SPOOLING_INPUT), 0), strict=True))
    status = JobStatus.HELD if held or cluster.spool else JobStatus.IDLE
    ad["JobStatus"] = int(status)
    if "EnteredCurrentStatus" not in ad or not held or cluster.spool:
        ad["EnteredCurrentStatus"] = int(now)
    return AcceptedJob(proc, ad.pack(), priority, submitter, status)


def held_once_spooled(ad: ClassAd) -> Held | None:
    """Why a job whose files have come goes on hold again; None: it does not."""
    if ad.eval(HELD_ONCE_SPOOLED) is not True:
        return None
    reason, code, subcode = (ad.eval(name) for name in HELD_AS)
    if not isinstance(reason, str) or not isinstance(code, int):
        return Held("It was submitted on hold", int(Hold.SUBMITTED_ON_HOLD), 0)
    return Held(reason, code, subcode if isinstance(subcode, int) else 0)


def _why(ad: ClassAd) -> Held:
    reason, code, subcode = (ad.eval(name) for name in _HOLD)
    usable = isinstance(code, int) and not isinstance(code, bool) and code != Hold.SPOOLING_INPUT
    return Held(
        reason if isinstance(reason, str) and reason else "It was on hold",
        int(code) if usable and isinstance(code, int) else int(Hold.SUBMITTED_ON_HOLD),
        subcode if isinstance(subcode, int) and not isinstance(subcode, bool) else 0,
    )


def _history(ad: ClassAd, now: float) -> dict[str, Any]:
    """What of an ad's history can be kept: numbers and texts, not formulas."""
    found: dict[str, Any] = {}
    for key, (name, _) in ad.table().items():
        if key not in _HISTORY:
            continue
        value = ad[name]
        if isinstance(value, str) or (isinstance(value, int | float) and math.isfinite(value)):
            found[name] = value
    for name in _TIMES:
        given = {fold(one): one for one in found}.get(fold(name))
        if given is not None:
            time = found[given]
            seen = isinstance(time, int | float) and not isinstance(time, bool) and 0 < time <= now
            found[given] = int(time) if seen else int(now)
    return found
