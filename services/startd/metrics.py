"""What a startd shows at /metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client.core import Metric

from shared.daemon.measures import Source, counter, counters, gauge, gauges
from shared.tally import CountsBy

if TYPE_CHECKING:
    from services.startd.book.claims import Book


class RunCounts:
    """What became of runs, since this startd began."""

    def __init__(self) -> None:
        self.started = 0
        self.ended = CountsBy(most=100)  # (reason, hold code)


class Metrics(Source):
    """book: None before the slots are set up."""

    def __init__(self, book: Callable[[], Book | None], runs: RunCounts) -> None:
        self._book, self._runs = book, runs

    def collect(self) -> Iterable[Metric]:
        book = self._book()
        slots = list(book.slots.values()) if book is not None else []
        states: Counter[tuple[str, ...]] = Counter((slot.state.value, slot.activity.value) for slot in slots)
        yield gauges("roost_startd_slots", "Slots", ["state", "activity"], states)
        yield gauge("roost_startd_claims", "Claims on its slots", len(book.claims) if book is not None else 0)
        draining = book is not None and book.steering.drain is not None
        yield gauge("roost_startd_draining", "1 while the machine is drained", draining)
        yield counter("roost_startd_runs_started", "Runs of jobs begun", self._runs.started)
        yield counters(
            "roost_startd_runs_ended",
            "Runs that ended, by how (`failed`: not this machine's to run), and the hold code of `hold`",
            ["reason", "hold_code"],
            self._runs.ended.by_name,
        )
