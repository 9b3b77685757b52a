"""What a startd shows at /metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client.core import Metric

from services.startd.core.slots.slot_manager import SlotManager
from shared.counters import WORK_S, CountsBy, DurationsBy, Probe
from shared.daemon.metrics import MetricSource, counter, counters, gauge, gauges, histograms
from shared.transfer.counts import TransferCounts


class RunCounts:
    """What became of runs, since this startd began."""

    def __init__(self) -> None:
        self.started = 0
        self.ended = CountsBy(most=100)  # (reason, hold code)
        self.launches = DurationsBy(bounds=WORK_S)  # by launcher
        self.files = TransferCounts()
        self.claims_asked, self.asked = 0, 0  # requests for claims, and to begin a run, granted or not
        self.preempted = CountsBy()  # runs that had to leave for another job or the machine's policy, by why
        self.had, self.ran = Probe(), Probe()  # how long the machine had runs, and how long their programs ran, seconds

    def over(self, had_s: float, ran_s: float) -> None:
        """A run has ended."""
        self.had.add(had_s)
        self.ran.add(ran_s)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is still to be done."""

    unwritten: int = 0  # records that are not on the disk
    full: bool = False  # because there is no room
    untold: int = 0  # ends of runs that no schedd has acknowledged


class Metrics(MetricSource):
    """slot_manager: None before the slots are set up."""

    def __init__(
        self, slot_manager: Callable[[], SlotManager | None], runs: RunCounts, backlog: Callable[[], Backlog]
    ) -> None:
        self._slot_manager, self._runs, self._backlog = slot_manager, runs, backlog

    def collect(self) -> Iterable[Metric]:
        manager = self._slot_manager()
        slots = list(manager.slots.values()) if manager is not None else []
        states: Counter[tuple[str, ...]] = Counter((slot.state.value, slot.activity.value) for slot in slots)
        yield gauges("roost_startd_slots", "Slots", ["state", "activity"], states)
        yield gauge("roost_startd_claims", "Claims on its slots", len(manager.claims) if manager is not None else 0)
        draining = manager is not None and manager.machine_orders.drain is not None
        yield gauge("roost_startd_draining", "1 while the machine is drained", draining)
        broken = manager is not None and bool(manager.broken)
        yield gauge("roost_startd_broken", "1 while the machine takes no jobs, as they fail here", broken)
        yield counter("roost_startd_runs_started", "Runs of jobs begun", self._runs.started)
        yield counters(
            "roost_startd_runs_ended",
            "Runs that ended, by how (`failed`: not this machine's to run), and the hold code of `hold`",
            ["reason", "hold_code"],
            self._runs.ended.by_name,
        )
        text = "Runs that had to leave, by why (policy, rank, priority)"
        yield counters("roost_startd_runs_preempted", text, ["why"], self._runs.preempted.by_name)
        yield counter("roost_startd_claim_requests", "Requests for slots", self._runs.claims_asked)
        yield counter("roost_startd_activation_requests", "Requests to begin a run", self._runs.asked)
        text = "From taking a job until its program runs, its input files with it, by launcher"
        yield histograms("roost_startd_launch_duration_seconds", text, "launcher", self._runs.launches.by_name)
        yield from self._runs.files.metrics("startd")
        backlog = self._backlog()
        text = "Ends of runs that no schedd has acknowledged"
        yield gauge("roost_startd_ends_untold", text, backlog.untold)
        yield gauge("roost_startd_unwritten_records", "Records that are not on its disk yet", backlog.unwritten)
        yield gauge("roost_startd_spool_full", "1 while its disk has no room for them", backlog.full)
