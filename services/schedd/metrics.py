"""What a schedd shows at /metrics, and the same numbers in its ad, by HTCondor's names. No names of users or jobs: the
number of series does not grow with the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import Metric

from engine.queue.jobs import Shadow
from services.schedd.core.flocking import pool_of
from services.schedd.io.file_server import FileServer
from services.schedd.io.job_updates import JobUpdates
from shared.daemon.context import Context
from shared.daemon.metrics import MetricSource, counter, counters, gauge, gauges, histogram
from shared.daemon.statistics import Averages, Statistics
from shared.transfer.counts import TransferCounts

#: All runs are looked at no more often than this, seconds, and so many for one ad.
LOOK_S: Final = 60.0
MOST_LOOKED: Final = 5_000
MIB: Final = 1 << 20
#: Kinds of transfers (shared.transfer.counts) whose bytes leave the schedd, and those that come to it.
_UPLOADS, _DOWNLOADS = ("input", "download"), ("output", "upload")


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
        kept = "Of them those that are kept without a job (KeepClaimIdle)"
        yield gauge("roost_schedd_claims_kept_idle", kept, len(updates.claims.idle))
        yield counter("roost_schedd_jobs_submitted", "Jobs taken into the queue", updates.submitted)
        yield counters("roost_schedd_events", "Facts told, by type", ["type"], updates.published.by_name)
        yield counters(
            "roost_schedd_jobs_held", "Jobs put on hold, by whom (user, or system)", ["by"], updates.held.by_name
        )
        text = "Jobs that ran to their end, by outcome (succeeded, failed: by a signal or its exit code)"
        yield counters("roost_schedd_jobs_ended", text, ["outcome"], updates.ended.by_name)
        text = "Runs that are over, by how (completed, killed, removed, requeued, held, failed, lost)"
        yield counters("roost_schedd_runs_ended", text, ["how"], updates.runs.ended.by_name)
        yield counter("roost_schedd_runs_begun", "Runs that were given to a slot", updates.runs.begun)
        yield counter(
            "roost_schedd_runs_not_started", "Of them those whose slot was not to be had", updates.runs.not_started
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


class ScheddStatistics:
    """The statistics in the ad. window_s: STATISTICS_WINDOW_SECONDS. delayed: how many starts wait for their time
    (JOB_START_DELAY)."""

    def __init__(
        self, context: Context, updates: JobUpdates, files: FileServer, window_s: float, delayed: Callable[[], int]
    ) -> None:
        self._updates, self._files, self._clock = updates, files, context.clock
        self._delayed = delayed
        self._base = Statistics(context, window_s, self._counted)
        now = context.clock.monotonic()
        self._uploads, self._downloads = Averages(now), Averages(now)
        self._waits = {name: Averages(now) for name in self._waited()}
        self._looked = float("-inf")
        self._unseen: list[Shadow] = []  # of those that are looked at now
        self._seen: list[tuple[float, float]] = []

    def attributes(self) -> dict[str, object]:
        updates, now = self._updates, self._clock.monotonic()
        running = sum(claim.shadow is not None for claim in updates.claims.claims.values())
        pending = sum(not claim.granted for claim in updates.claims.claims.values())
        self._look_at_runs(now)
        told = self._base.attributes()
        told |= updates.runs.running(running)
        told |= updates.runs.histograms()
        told["TotalFlockedJobs"] = sum(
            claim.shadow is not None and bool(pool_of(claim.startd)) for claim in updates.claims.claims.values()
        )
        told["NumJobStartsDelayed"] = self._delayed()
        told |= {"Autoclusters": updates.table.autoclusters.known, "NumPendingClaims": pending}
        if full := updates.queue.full:
            told["RoostSpoolProblem"] = f"its spool is full: {full}"
        for name, averages in (("Upload", self._uploads), ("Download", self._downloads)):
            total = float(str(told[f"FileTransfer{name}Bytes"]))
            for span, rate in averages.look(total, now).items():
                told[f"FileTransfer{name}BytesPerSecond_{span}"] = rate
        for name, seconds in self._waited().items():
            for span, load in self._waits[name].look(seconds, now).items():
                told[f"FileTransfer{name}Load_{span}"] = load
        for name, what, most in (
            ("Upload", "input", updates.settings.max_uploads),
            ("Download", "output", updates.settings.max_downloads),
        ):
            queue = self._files.turns.tickets.queues[what]
            told[f"TransferQueueNum{name}ing"] = queue.going
            told[f"TransferQueueNumWaitingTo{name}"] = queue.waiting
            told[f"TransferQueueMax{name}ing"] = most
            told[f"TransferQueueMBWaitingTo{name}"] = round(self._files.turns.tickets.waiting_bytes[what] / MIB, 3)
        return told

    def _look_at_runs(self, now: float) -> None:
        """How long each has run and how large its image is, every LOOK_S; so many at a time that nobody waits long."""
        updates = self._updates
        if not self._unseen:
            if now - self._looked < LOOK_S:
                return
            self._looked, self._seen = now, []
            self._unseen = [claim.shadow for claim in updates.claims.claims.values() if claim.shadow is not None]
        at = updates.now()
        for run in self._unseen[-MOST_LOOKED:]:
            if (job := updates.table.get(run.job)) is not None and job.shadow is run:
                self._seen.append((at - run.started, float(job.number("ImageSize"))))
        del self._unseen[-MOST_LOOKED:]
        if not self._unseen:
            updates.runs.look(self._seen)

    def _waited(self) -> dict[str, float]:
        """Seconds that transfers waited, by what for, in HTCondor's words."""
        counts = self._files.counts
        return {
            "FileRead": counts.file_read_s,
            "FileWrite": counts.file_write_s,
            "NetRead": counts.net_read_s,
            "NetWrite": counts.net_write_s,
        }

    def _counted(self) -> dict[str, float]:
        updates = self._updates
        events = updates.published.by_name
        sizes = self._files.counts.bytes.by_name
        return {
            "JobsSubmitted": updates.submitted,
            "JobsStarted": updates.waits.count,
            "JobsFailed": updates.ended.by_name.get(("failed",), 0),
            "JobsCompleted": events.get(("job.ended",), 0),
            "JobsAccumTimeToStart": int(updates.waits.sum_s),
            **updates.runs.counted(),
            "FileTransferUploadBytes": sum(sizes.get((kind,), 0) for kind in _UPLOADS),
            "FileTransferDownloadBytes": sum(sizes.get((kind,), 0) for kind in _DOWNLOADS),
            **{f"FileTransfer{name}Seconds": seconds for name, seconds in self._waited().items()},
        }
