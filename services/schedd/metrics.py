"""What a schedd shows at /metrics. No names of users or jobs: the number of series does not grow with the queue."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric

from services.schedd.keeper import Keeper
from services.schedd.runs import Runs
from shared.daemon.measures import Source, counter, counters, gauge, gauges, histogram


class Metrics(Source):
    def __init__(self, keeper: Keeper, runs: Runs) -> None:
        self._keeper, self._runs = keeper, runs

    def collect(self) -> Iterable[Metric]:
        keeper, runs = self._keeper, self._runs
        table, queue = keeper.table, keeper.queue
        statuses: dict[tuple[str, ...], float] = {(name,): float(count) for name, count in table.totals().items()}
        yield gauges("roost_schedd_jobs", "Jobs in the queue", ["status"], statuses)
        running = sum(claim.shadow is not None for claim in runs.claims.values())
        yield gauge("roost_schedd_shadows", "Jobs that are followed on their slots", running)
        yield gauge("roost_schedd_claims", "Claims that are held", len(runs.claims))
        yield counter("roost_schedd_jobs_submitted", "Jobs taken into the queue", keeper.submitted)
        yield counters("roost_schedd_events", "Facts told, by type", ["type"], keeper.told.by_name)
        yield counters(
            "roost_schedd_jobs_held", "Jobs put on hold, by whom (user, or system)", ["by"], keeper.held.by_name
        )
        yield histogram("roost_schedd_job_wait_seconds", "From idle to the start of a run", keeper.waits)
        yield histogram("roost_schedd_job_run_seconds", "Runs of jobs that ended by themselves", keeper.ran)
        yield histogram("roost_schedd_commit_duration_seconds", "Transactions of the queue's database", queue.durations)
        yield gauge("roost_schedd_spool_full", "1 while the queue's disk has no room", bool(queue.full))
