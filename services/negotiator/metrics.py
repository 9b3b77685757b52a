"""What a negotiator shows at /metrics. Submitters: the most demanding ones by name, all others as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from prometheus_client.core import Metric

from services.negotiator.pool import Rejected
from services.negotiator.statistics import CycleStatistics
from shared.daemon.measures import Source, counter, counters, gauge, gauges, histogram, histograms
from shared.tally import OTHER, CountsBy, Durations, DurationsBy

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class Metrics(Source):
    """epoch: 0 while it does not lead. in_use: weighted slots by submitter. behind: seconds since all of the books was
    in Redis; 0 while it does not lead. events: that wait to be published, and that never were."""

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
