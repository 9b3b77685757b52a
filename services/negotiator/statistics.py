"""What the last cycles were like, as attributes of the negotiator's ad (spec row NEG-41).

LastNegotiationCycle<what>0 is the newest cycle, 1 the one before, and so on. Durations are reals here: a cycle of
HTCondor's takes whole seconds, ours milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_PREFIX = "LastNegotiationCycle"
#: Names in one attribute: a pool of many users must not make the ad grow without bound.
MAX_NAMES = 100


@dataclass(frozen=True, slots=True)
class CycleStatistics:
    """One cycle. Times in seconds; `began` and `ended` since 1970."""

    began: float
    ended: float
    cpu_s: float = 0.0
    ads_s: float = 0.0  # phase 1: submitter and slot ads brought up to date
    prefetch_s: float = 0.0  # request lists of the schedds
    filter_s: float = 0.0  # phase 2: slots on offer, quotas
    sort_s: float = 0.0  # phase 3: submitters by priority
    match_s: float = 0.0  # phase 4: decisions, and telling the schedds
    idle_jobs: int = 0
    jobs_considered: int = 0
    schedulers: int = 0
    active_submitters: int = 0
    matches: int = 0
    rejections: int = 0
    total_slots: int = 0
    candidate_slots: int = 0
    trimmed_slots: int = 0  # claimed ones that were left out
    pies: int = 0  # groups, or one, that were negotiated for
    pie_spins: int = 0
    submitters_failed: Sequence[str] = ()  # their schedd did not answer
    submitters_out_of_time: Sequence[str] = ()
    submitters_share_limit: Sequence[str] = ()
    schedds_out_of_time: Sequence[str] = ()
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds, for metrics: see conduct.Phases


def attributes(newest_first: Sequence[CycleStatistics], length: int) -> dict[str, Any]:
    """Attributes of the last `length` cycles (NEGOTIATION_CYCLE_STATS_LENGTH; 0: none)."""
    found: dict[str, Any] = {}
    for number, cycle in enumerate(newest_first[:length]):
        before = newest_first[number + 1].ended if number + 1 < len(newest_first) else None
        for name, value in _of(cycle, before).items():
            found[f"{_PREFIX}{name}{number}"] = value
    return found


def _of(cycle: CycleStatistics, previous_end: float | None) -> dict[str, Any]:
    duration = max(0.0, cycle.ended - cycle.began)
    # From end to end, as the manual says; the first has only itself.
    period = duration if previous_end is None else max(0.0, cycle.ended - previous_end)
    return {
        "Time": int(cycle.began),
        "End": int(cycle.ended),
        "Duration": duration,
        "Period": period,
        "CpuTime": cycle.cpu_s,
        "Phase1Duration": cycle.ads_s,
        "PrefetchDuration": cycle.prefetch_s,
        "Phase2Duration": cycle.filter_s,
        "Phase3Duration": cycle.sort_s,
        "Phase4Duration": cycle.match_s,
        "Matches": cycle.matches,
        "MatchRate": cycle.matches / duration if duration > 0 else 0.0,
        "MatchRateSustained": cycle.matches / period if period > 0 else 0.0,
        "Rejections": cycle.rejections,
        "NumIdleJobs": cycle.idle_jobs,
        "NumJobsConsidered": cycle.jobs_considered,
        "NumSchedulers": cycle.schedulers,
        "ActiveSubmitterCount": cycle.active_submitters,
        "TotalSlots": cycle.total_slots,
        "CandidateSlots": cycle.candidate_slots,
        "TrimmedSlots": cycle.trimmed_slots,
        "Pies": cycle.pies,
        "PieSpins": cycle.pie_spins,
        "SubmittersFailed": _names(cycle.submitters_failed),
        "SubmittersOutOfTime": _names(cycle.submitters_out_of_time),
        "SubmittersShareLimit": _names(cycle.submitters_share_limit),
        "ScheddsOutOfTime": _names(cycle.schedds_out_of_time),
    }


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(list(names)[:MAX_NAMES])
    return f"{shown}, ..." if len(names) > MAX_NAMES else shown
