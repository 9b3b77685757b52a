"""Changes jobs and all that hangs on a change: the database, the user's log, the events, the idle queue, the history.

Every decision (`job_states`, `policies`) comes through here to be carried out, so that none of these is forgotten.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from services.schedd import trail
from services.schedd.job_log import JobLog
from services.schedd.job_states import Change, Effect, JobEvent, Verdict, transition
from services.schedd.jobs import Cluster, Job, JobId, JobStatus, full_ad, full_packed, projected
from services.schedd.policies import stays_in_queue
from services.schedd.queue import Queue, QueueDamaged
from services.schedd.table import JobTable
from shared import job_log
from shared.bus.api import BusUnavailable, Exchange, Outgoing
from shared.daemon.clock import set_or_over
from shared.daemon.context import Context
from shared.history_file import as_text
from shared.messages.events import (
    Event,
    JobEnded,
    JobHeld,
    JobReleased,
    JobRemoved,
    JobsSorted,
    JobsSubmitted,
    JobStarted,
)
from shared.tally import LONG_S, WORK_S, CountsBy, Durations

#: While the bus is slow to take them (it keeps its own for a broker that is away), so many events wait here; of more
#: the oldest are dropped, as events repair nothing.
MAX_EVENTS = 10_000
#: Seconds between two times of telling of which autoclusters all jobs are, and jobs in one go.
RESTATE_S = 3600.0
RESTATED = 2000
#: Hold codes that a user, or his own job's policy, brings about: by request, by policy, submitted on hold, input files.
USERS_HOLDS = frozenset({1, 3, 15, 16})


class Keeper:
    """The schedd's hands on its jobs."""

    def __init__(self, context: Context, queue: Queue, table: JobTable, spool: Path) -> None:
        self.context = context
        self.queue = queue
        self.table = table
        self.spool = spool
        self.name = context.name
        self.log = JobLog(self._log_written, self._log_failed, self.now)
        self.next_log = 1
        self.broken = asyncio.Event()  # the database can not be written
        self.demand_grew = asyncio.Event()  # tell the negotiator at once
        self.counts_changed = asyncio.Event()  # tell it soon
        self.stop_run: Callable[[Job, str, str], None] = _nobody
        self.abandon_run: Callable[[Job], None] = _no_one
        self.wait_no_more: Callable[[Job], None] = _no_one
        self.told = CountsBy()  # facts by type
        self.held = CountsBy()  # by "user" or "system"
        self.submitted = 0
        self.waits, self.ran = Durations(LONG_S), Durations(LONG_S)
        self.grants = Durations(WORK_S)  # from asking for a slot until it is ours
        self.launches = Durations(WORK_S)  # from having it until the job's program runs
        self.events_lost = 0
        self._log_pending: list[tuple[int, str, bytes]] = []
        self._events: list[Outgoing] = []
        self._publisher: asyncio.Task[None] | None = None
        self._gap = asyncio.Event()  # there was no broker for a while
        context.bus.on_gap(self._on_gap)
        self._cleaners: set[asyncio.Task[None]] = set()

    async def _on_gap(self) -> None:
        self._gap.set()

    def now(self) -> float:
        return self.context.clock.now()

    # Writing

    def commit(self) -> asyncio.Future[None]:
        """All changes so far, on disk when the future is done; users' logs and events follow by themselves."""
        pending, self._log_pending = self._log_pending, []
        done = self.queue.commit()

        def after(future: asyncio.Future[None]) -> None:
            if future.cancelled():
                return
            if future.exception() is not None:
                self.broken.set()
            else:
                self.log.write(pending)

        done.add_done_callback(after)
        self.tell_sorted()
        return done

    @property
    def events_waiting(self) -> int:
        """Facts that are not published yet."""
        return len(self._events)

    def save(self, job: Job) -> None:
        self.queue.put(job)

    def tell(self, event: Event) -> None:
        """Publish a fact, after the next commit was asked for."""
        self._count(event)
        self._events.append(Outgoing(Exchange.EVENTS, event.type, event))
        if len(self._events) > MAX_EVENTS:
            self.events_lost += MAX_EVENTS // 2
            del self._events[: MAX_EVENTS // 2]

    def _count(self, event: Event) -> None:
        self.told.add(event.type)
        if isinstance(event, JobsSubmitted):
            self.submitted += event.count
        elif isinstance(event, JobStarted):
            self.waits.add(event.waited_s)
        elif isinstance(event, JobEnded):
            self.ran.add(event.ran_s)
        elif isinstance(event, JobHeld):
            self.held.add("user" if event.code in USERS_HOLDS else "system")

    def about(self, job: Job, now: float) -> dict[str, Any]:
        """What every event about a job says (shared.messages.events.JobEvent)."""
        return {
            "at": now,
            "schedd": self.name,
            "job_id": str(job.id),
            "owner": job.cluster.owner,
            "submitter": job.submitter,
        }

    def record(self, job: Job, text: Callable[[], bytes]) -> None:
        """An event for the user's log, if the job has one, and for that of all jobs, if there is one."""
        paths = self.log_paths(job)
        if paths:
            said = text()
            self.record_all([(path, said) for path in paths])

    def record_all(self, entries: Sequence[tuple[str, bytes]]) -> None:
        """Events for users' logs: (path, text)."""
        for path, text in entries:
            number = self.next_log
            self.next_log += 1
            # As bytes: a path need not be UTF-8, and SQLite takes no other text.
            row = (number, path.encode("utf-8", "surrogateescape"), text)
            self.queue.do("INSERT INTO log_events (seq, path, text) VALUES (?, ?, ?)", row)
            self._log_pending.append((number, path, text))

    def log_paths(self, job: Job) -> list[str]:
        """Everywhere that the job's events are logged."""
        return [path for path in (self.log_path(job), self.log.of_all.path) if path]

    def log_path(self, job: Job) -> str:
        """Where the job's events are logged; empty: nowhere."""
        path = job.text("UserLog")
        if not path or path == "/dev/null":
            return ""
        if job.cluster.spool:
            return str(self.spool / str(job.cluster.id) / f"proc{job.proc}" / "out" / Path(path).name)
        return str(Path(job.text("Iwd") or "/") / path)

    def cluster_log_paths(self, cluster: Cluster) -> list[str]:
        """Everywhere that events of the cluster as a whole are logged."""
        return [path for path in (self.cluster_log_path(cluster), self.log.of_all.path) if path]

    def cluster_log_path(self, cluster: Cluster) -> str:
        """Where events of a whole cluster are logged; empty: nowhere. Spooled jobs have a log each, clusters none."""
        path = cluster.ad.eval_string("UserLog")
        if not path or path == "/dev/null" or cluster.spool:
            return ""
        return str(Path(cluster.ad.eval_string("Iwd") or "/") / path)

    # Changing jobs

    def happen(
        self, job: Job, event: JobEvent, *, reason: str = "", code: int = 0, subcode: int = 0, how: str = "graceful"
    ) -> Change:
        """An event befalls a job: its new state and all consequences. The caller commits."""
        old = job.status
        change = transition(old, event, has_run=job.shadow is not None)
        if change.verdict is not Verdict.DONE:
            return change
        now = self.now()
        self.table.set_status(job, change.status, now)
        trail.on_status(self.name, job, old, now)
        if job.waits_for and change.status != JobStatus.IDLE:
            self.wait_no_more(job)
        if event == JobEvent.HOLD:
            self._on_hold(job, reason, code, subcode, now)
        elif event == JobEvent.RELEASE:
            self._on_release(job, reason, now)
        elif event in (JobEvent.REMOVE, JobEvent.FORCE) and old != JobStatus.REMOVED:
            job.ad["RemoveReason"] = reason
            self.record(job, lambda: job_log.aborted(job.id, now, reason))
            self.tell(JobRemoved(**self.about(job, now), reason=reason))
        self.save(job)
        for effect in change.effects:
            if effect == Effect.STOP_RUN:
                self.stop_run(job, {JobEvent.HOLD: "hold", JobEvent.VACATE: "vacate"}.get(event, "remove"), how)
            elif effect == Effect.ABANDON_RUN:
                self.abandon_run(job)
            elif effect == Effect.LEAVE:
                self.leave(job, forced=event == JobEvent.FORCE)
            elif effect == Effect.OFFER:
                self.table.refresh(job)
        if change.status == JobStatus.IDLE:
            self.demand_grew.set()
        self.counts_changed.set()
        return change

    def _on_hold(self, job: Job, reason: str, code: int, subcode: int, now: float) -> None:
        job.ad.update({"HoldReason": reason, "HoldReasonCode": code, "HoldReasonSubCode": subcode})
        job.count("NumHolds")
        self.record(job, lambda: job_log.held(job.id, now, reason, code, subcode))
        self.tell(JobHeld(**self.about(job, now), code=code, subcode=subcode, reason=reason))

    def _on_release(self, job: Job, reason: str, now: float) -> None:
        for name in ("HoldReason", "HoldReasonCode", "HoldReasonSubCode"):
            cell = job.ad.find(name.lower())
            if cell is not None:
                job.ad[f"Last{name}"] = cell
            job.drop(name)
        job.ad["ReleaseReason"] = reason
        self.record(job, lambda: job_log.released(job.id, now, reason))
        self.tell(JobReleased(**self.about(job, now), reason=reason))

    def leave(self, job: Job, *, forced: bool = False) -> None:
        """Into the history, unless LeaveJobInQueue keeps the job."""
        now = self.now()
        if not forced and stays_in_queue(full_ad(self.name, job, now), now):
            return
        self.queue.leave(job, full_packed(self.name, job, now), now)
        if path := self.log.history.path:
            record = as_text(full_ad(self.name, job, now)).encode(errors="surrogateescape")
            self.record_all([(path, record)])
        cluster = job.cluster
        last = self.table.forget(job)
        if last:
            self._drop(cluster)
        elif cluster.spool:
            self._clean(self.spool / str(cluster.id) / f"proc{job.proc}")
        self.counts_changed.set()

    def drop_empty(self, cluster: Cluster) -> None:
        """A cluster whose factory gives no more is gone if it has no jobs either."""
        if cluster.over and self.table.clusters.pop(cluster.id, None) is not None:
            self._drop(cluster)

    def _drop(self, cluster: Cluster) -> None:
        factory = cluster.factory
        if factory is not None:
            told = job_log.cluster_removed(cluster.id, self.now(), cluster.next_proc, factory.total, factory.reason)
            self.record_all([(path, told) for path in self.cluster_log_paths(cluster)])
        self.queue.do("DELETE FROM clusters WHERE id = ?", (cluster.id,))
        if cluster.spool:
            self._clean(self.spool / str(cluster.id))

    def _clean(self, folder: Path) -> None:
        async def clean() -> None:
            await self.queue.commit()  # the job must be gone before its files are
            await asyncio.to_thread(shutil.rmtree, folder, True)

        task = asyncio.get_running_loop().create_task(clean(), name="schedd:clean")
        self._cleaners.add(task)
        task.add_done_callback(self._cleaners.discard)

    async def close(self) -> None:
        """Finish what is under way."""
        await asyncio.gather(*self._cleaners, return_exceptions=True)
        if not self.broken.is_set():
            try:
                await self.commit()
            except QueueDamaged as error:
                self.context.log.error("queue_not_written", reason=str(error))
        await self.log.close()
        while self._publisher is not None:
            await self._publisher

    # Inside

    def tell_sorted(self) -> None:
        """Say which jobs have come to which autocluster."""
        now = self.now()
        for kinds in self.table.sorting.take(lambda job, names: projected(self.name, job, now, names)):
            self.tell(JobsSorted(at=now, schedd=self.name, kinds=kinds))
        self._publish_soon()

    async def repeat_sorted(self) -> None:
        """Say it of all jobs again, until cancelled: once in a while, for a history that was begun later than the
        jobs; and with what autoclusters look like after a time without a broker, as then something may be lost."""
        while True:
            await set_or_over(self._gap, self.context.clock, RESTATE_S)
            if self._gap.is_set():
                self._gap.clear()
                self.table.sorting.forget_ads()
            some: list[Job] = []
            for job in self.table.jobs():
                some.append(job)
                if len(some) >= RESTATED:
                    self._repeat(some)
                    some = []
                    await asyncio.sleep(0)  # a large queue holds up nobody
            self._repeat(some)

    def _repeat(self, jobs: list[Job]) -> None:
        self.table.sorting.repeat(jobs)
        self.tell_sorted()

    def _publish_soon(self) -> None:
        if self._events and self._publisher is None:
            self._publisher = asyncio.get_running_loop().create_task(self._publish(), name="schedd:events")

    async def _publish(self) -> None:
        try:
            while self._events:
                batch, self._events = self._events, []
                try:
                    await self.context.bus.publish_many(batch)
                except BusUnavailable as error:
                    self.events_lost += len(batch)
                    self.context.log.warning("events_not_sent", count=len(batch), reason=str(error))
        finally:
            self._publisher = None

    def _log_written(self, last: int) -> None:
        # Rides on the next transaction: until then a restart finds the events at the end of their logs.
        self.queue.do("DELETE FROM log_events WHERE seq <= ?", (last,))

    def _log_failed(self, path: str, reason: str) -> None:
        self.context.log.warning("job_log_not_written", path=path, reason=reason)


def _nobody(job: Job, why: str, how: str) -> None:
    raise AssertionError("no runs yet")


def _no_one(job: Job) -> None:
    raise AssertionError("no runs yet")


def job_of(table: JobTable, text: str) -> Job | None:
    """The job an id names; None for what is no id or no job."""
    try:
        return table.get(JobId.parse(text))
    except ValueError:
        return None


__all__ = ["Keeper", "QueueDamaged", "job_of"]
