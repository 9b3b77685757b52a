"""What a negotiator tells of its cycles: attributes of its ad (spec row NEG-41), and what it shows at /metrics.

LastNegotiationCycle<what>0 is the newest cycle, 1 the one before, and so on. Durations are reals here: a cycle of
HTCondor's takes whole seconds, ours milliseconds. At /metrics the most demanding submitters have series of their own,
all others have one together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Any, Final

from prometheus_client.core import Metric

from engine.match.model import Rejected
from shared.counters import OTHER, CountsBy, Durations, DurationsBy
from shared.daemon.metrics import MetricSource, counter, counters, gauge, gauges, histogram, histograms

#: Submitters that have a series of their own.
MOST_SUBMITTERS: Final = 20


class CycleCounts:
    """What all cycles of this negotiator came to; rejections by code."""

    def __init__(self) -> None:
        self.durations = Durations()
        self.phases = DurationsBy()
        self.matches = 0
        self.rejections = CountsBy(most=50)
        self.failed = 0
        self.last: CycleStatistics | None = None

    def add(self, cycle: CycleStatistics, rejections: Sequence[Rejected]) -> None:
        self.durations.add(cycle.ended - cycle.began)
        for phase, seconds in cycle.phases.items():
            self.phases.add(phase, seconds)
        self.matches += cycle.matches
        for rejected in rejections:
            self.rejections.add(rejected.code)
        self.last = cycle


class Metrics(MetricSource):
    """epoch: 0 while it does not lead. in_use: weighted slots by submitter. behind: seconds since all of the
    accounting records was in Redis; 0 while it does not lead. events: that wait to be published, and that never
    were."""

    def __init__(
        self,
        cycles: CycleCounts,
        epoch: Callable[[], int],
        in_use: Callable[[], Mapping[str, tuple[float, int]]],
        behind: Callable[[], float],
        events: Callable[[], tuple[int, int]],
    ) -> None:
        self._cycles, self._epoch, self._in_use = cycles, epoch, in_use
        self._behind, self._events = behind, events

    def collect(self) -> Iterable[Metric]:
        cycles, last = self._cycles, self._cycles.last or CycleStatistics(0.0, 0.0)
        yield gauge("roost_negotiator_epoch", "Epoch under which it leads; 0: it does not", self._epoch())
        yield histogram("roost_negotiator_cycle_duration_seconds", "Cycles", cycles.durations)
        text = "Parts of cycles: `trigger` (until it began), `requests`, `snapshot`, `decide`, `charge`, `tell`"
        yield histograms("roost_negotiator_phase_duration_seconds", text, "phase", cycles.phases.by_name)
        text = "Since all of the books was in Redis: what is not there is younger; 0: it does not lead"
        yield gauge("roost_negotiator_books_behind_seconds", text, self._behind())
        waiting, lost = self._events()
        yield gauge("roost_negotiator_events_waiting", "Facts that are not published yet", waiting)
        yield counter("roost_negotiator_events_lost", "Facts that never were published", lost)
        yield counter("roost_negotiator_cycles_failed", "Cycles that broke off with an error", cycles.failed)
        yield counter("roost_negotiator_matches", "Matches made", cycles.matches)
        yield counters(
            "roost_negotiator_rejections",
            "Requests turned down, once a cycle, by code",
            ["code"],
            cycles.rejections.by_name,
        )
        yield gauge("roost_negotiator_last_cycle_end_seconds", "When the last cycle ended, since 1970", last.ended)
        yield gauge("roost_negotiator_idle_jobs", "Idle jobs that the last cycle was asked for", last.idle_jobs)
        yield gauge("roost_negotiator_slots", "Slots that the last cycle saw", last.total_slots)
        text = "Slots that the last cycle could give away"
        yield gauge("roost_negotiator_candidate_slots", text, last.candidate_slots)
        text = "Submitters that the last cycle negotiated for"
        yield gauge("roost_negotiator_active_submitters", text, last.active_submitters)
        yield gauges(
            "roost_negotiator_weighted_in_use",
            f"Weighted slots in use; the first {MOST_SUBMITTERS} submitters, all others as `{OTHER}`",
            ["submitter"],
            most_demanding({name: weight for name, (weight, _) in self._in_use().items()}),
        )


def most_demanding(use: Mapping[str, float], most: int = MOST_SUBMITTERS) -> dict[tuple[str, ...], float]:
    """The greatest of these, and the sum of all others under OTHER if there are any."""
    first = nlargest(most, use.items(), key=lambda item: (item[1], item[0]))
    found: dict[tuple[str, ...], float] = {(name,): weight for name, weight in first}
    if len(use) > len(first):
        found[OTHER,] = found.get((OTHER,), 0.0) + sum(use.values()) - sum(weight for _, weight in first)
    return found


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
