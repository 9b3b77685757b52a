"""What the ad of a job factory says (late materialization): see engine/queue/late_materialization.py for its
attributes."""

from __future__ import annotations

from typing import Final

from shared.classad import ClassAd

_HELD: Final = 1
_ERROR: Final = -1
_UNLIMITED: Final = (1 << 31) - 1


def unfinished(ad: ClassAd) -> int:
    """Jobs that this cluster's factory has not given yet; 0 for the ad of a job, and for a factory that is over."""
    if "ProcId" in ad or _number(ad, "JobMaterializePaused") > _HELD:
        return 0
    return max(0, _number(ad, "JobMaterializeItemCount") - _number(ad, "JobMaterializeNextProcId"))


def goes_on(ad: ClassAd) -> bool:
    """Whether a factory gives further jobs by itself: it is neither over nor paused."""
    return unfinished(ad) > 0 and _number(ad, "JobMaterializePaused") == 0


def is_given(ad: ClassAd, proc: str) -> bool:
    """Whether this job of a factory's cluster, or all of them (empty), is or was in the queue."""
    return not unfinished(ad) or bool(proc and int(proc) < _number(ad, "JobMaterializeNextProcId"))


def story(ad: ClassAd) -> str:
    """How many jobs of a cluster are not materialized yet, and what they wait for. Empty: all are."""
    left = unfinished(ad)
    if not left:
        return ""
    total = _number(ad, "JobMaterializeItemCount")
    return f"Cluster {_number(ad, 'ClusterId')}: not materialized yet: {left:,} of {total:,} jobs. {_why(ad)}"


def _why(ad: ClassAd) -> str:
    present, paused = _number(ad, "JobsPresent"), _number(ad, "JobMaterializePaused")
    waiting = _number(ad, "JobsIdle") + _number(ad, "JobsHeld")
    limit = _number(ad, "JobMaterializeLimit", _UNLIMITED)
    idle = _number(ad, "JobMaterializeMaxIdle", _UNLIMITED)
    reason = ad.eval_string("JobMaterializePauseReason")
    if paused == _HELD:
        return f"The cluster is on hold: {reason}. Release it: roost release {_number(ad, 'ClusterId')}"
    if paused == _ERROR:
        return f"They can not be materialized: {reason}"
    if present >= limit:
        return f"{present:,} are in the queue, as many as JobMaterializeLimit (max_materialize) = {limit:,} allows"
    if waiting >= idle:
        return f"{waiting:,} are idle or held, as many as JobMaterializeMaxIdle (max_idle) = {idle:,} allows"
    return (
        f"{present:,} are in the queue; more come as far as MAX_JOBS_PER_SUBMISSION and MAX_JOBS_PER_OWNER of the "
        "schedd allow"
    )


def _number(ad: ClassAd, name: str, missing: int = 0) -> int:
    value = ad.eval(name)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else missing
