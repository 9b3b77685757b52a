"""What a schedd shows at /metrics. No names of users or jobs: the number of series does not grow with the queue."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric

from services.schedd.io.job_updates import JobUpdates
from shared.daemon.metrics import MetricSource, counter, counters, gauge, gauges, histogram
from shared.transfer.counts import TransferCounts


class Metrics(MetricSource):
    def __init__(self, updates: JobUpdates, files: TransferCounts) -> None:
        self._updates, self._files = updates, files

    def collect(self) -> Iterable[Metric]:
        updates = self._updates
        claims = updates.claims.claims
        table, queue = updates.table, updates.queue
        statuses: dict[tuple[str, ...], float] = {(name,): float(count) for name, count in table.totals().items()}
        yield gauges("roost_schedd_jobs", "Jobs in the queue", ["status"], statuses)
        late = "Jobs of factories that are not in the queue yet (late materialization)"
        yield gauge("roost_schedd_jobs_unmaterialized", late, table.promised())
        running = sum(claim.shadow is not None for claim in claims.values())
        yield gauge("roost_schedd_shadows", "Jobs that are followed on their slots", running)
        yield gauge("roost_schedd_claims", "Claims that are held", len(claims))
        yield counter("roost_schedd_jobs_submitted", "Jobs taken into the queue", updates.submitted)
        yield counters("roost_schedd_events", "Facts told, by type", ["type"], updates.published.by_name)
        yield counters(
            "roost_schedd_jobs_held", "Jobs put on hold, by whom (user, or system)", ["by"], updates.held.by_name
        )
        yield histogram("roost_schedd_job_wait_seconds", "From idle to the start of a run", updates.waits)
        yield histogram("roost_schedd_job_run_seconds", "Runs of jobs that ended by themselves", updates.ran)
        text = "From asking for a slot until it is granted; a further job on a claim asks for none"
        yield histogram("roost_schedd_claim_duration_seconds", text, updates.grants)
        text = "From having a slot until the job's program is said to run, its input files with it"
        yield histogram("roost_schedd_job_launch_seconds", text, updates.launches)
        yield histogram("roost_schedd_commit_duration_seconds", "Transactions of the queue's database", queue.durations)
        yield gauge("roost_schedd_spool_full", "1 while the queue's disk has no room", bool(queue.full))
        yield gauge("roost_schedd_events_waiting", "Facts that are not published yet", updates.events_waiting)
        yield counter("roost_schedd_events_lost", "Facts that never were published", updates.events_lost)
        yield gauge("roost_schedd_log_events_waiting", "Events that are not in users' logs yet", updates.log.waiting)
        yield from self._files.metrics("schedd")
