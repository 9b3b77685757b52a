"""Makes jobs of what factories have stored (late materialization) when there is room for them in the queue.

A job is made, taken out of the store and written into its user's log in one transaction, so a schedd that is killed at
any moment makes none twice and leaves none out; ids go on where they stopped. `factories` decides how many.
"""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from engine.queue import late_materialization
from engine.queue.jobs import BadSubmit, Cluster, Job, JobId, JobStatus, make_job, priority_of
from engine.queue.late_materialization import Bounds, Factory, Item, Mode
from engine.queue.submitters import submitter_of
from services.schedd.core.acceptance import HELD_ONCE_SPOOLED
from services.schedd.core.job_changes import PublishEvent, WriteLogs, submit_log_event, submitted_event
from services.schedd.core.policies import Hold
from services.schedd.io import spool
from services.schedd.io.job_updates import JobUpdates
from shared.cooperative import Yielder

#: Factories whose next piece is kept in memory.
PIECES: Final = 64

#: What users' logs are told: (path, text).
Entries = list[tuple[str, bytes]]

_HOLD: Final = ("HoldReason", "HoldReasonCode", "HoldReasonSubCode", HELD_ONCE_SPOOLED)


class LateMaterialization:
    """Gives jobs of factories into the queue."""

    def __init__(self, updates: JobUpdates) -> None:
        self.updates = updates
        self._pieces: OrderedDict[int, tuple[int, list[Item]]] = OrderedDict()  # cluster -> (first proc, its jobs)
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        """Until cancelled: give jobs wherever there is room for them."""
        table = self.updates.table
        while True:
            await self.updates.factories_due.wait()
            self.updates.factories_due.clear()
            while table.due:
                cluster = table.clusters.get(table.due.pop())
                if cluster is not None:
                    await self.materialize(cluster)

    async def materialize(self, cluster: Cluster) -> None:
        """Give as many jobs of a cluster as there is room for. On disk when it returns."""
        async with self._lock:
            while await self._some(cluster):
                await self.updates.commit()

    def _room(self, cluster: Cluster, factory: Factory) -> int:
        table, settings = self.updates.table, self.updates.settings
        queued = table.per_user.get(cluster.user, 0)
        number = late_materialization.room(
            factory,
            Bounds(settings.max_jobs_per_submission, settings.max_jobs_per_owner),
            next_proc=cluster.next_proc,
            present=len(cluster.jobs),
            waiting=cluster.waiting,
            queued=queued,
        )
        if not number and queued >= settings.max_jobs_per_owner:
            table.crowded.setdefault(cluster.user, set()).add(cluster.id)
        return number

    async def _some(self, cluster: Cluster) -> bool:
        """Give one batch. False if there is no room for any."""
        factory = cluster.factory
        if factory is None or not self._room(cluster, factory) or self.updates.queue.full:
            return False
        try:
            first, items = await self._piece(cluster)
        except ValueError as error:
            self.updates.pause_factory(cluster, Mode.ERROR, f"{error}; remove the cluster and submit it anew")
            self.updates.context.log.error("factory_paused", cluster=cluster.id, reason=str(error))
            return True  # to be committed
        offset = cluster.next_proc - first
        edits = cluster.edits
        made = await self._made(cluster, factory, items[offset : offset + self._room(cluster, factory)])
        # From here to the commit nothing may come between: the jobs are there, and gone from the store, or neither.
        if self.updates.table.clusters.get(cluster.id) is not cluster:
            return False
        if cluster.edits != edits:
            return True  # they were made of what the cluster was before
        del made[self._room(cluster, factory) :]
        if not made:
            return False
        self._enter(cluster, factory, made)
        if offset + len(made) == len(items):
            self._pieces.pop(cluster.id, None)
            self.updates.queue.drop_items(cluster.id, first)
        return True

    async def _made(self, cluster: Cluster, factory: Factory, items: Sequence[Item]) -> list[tuple[Job, Entries]]:
        """The next jobs, with what users' logs say of them. Others get their turn: what users write may take long to
        evaluate."""
        updates, now, yielder = self.updates, self.updates.now(), Yielder()
        if cluster.spool:
            procs = range(cluster.next_proc, cluster.next_proc + len(items))
            folders = [spool.output_dir(updates.spool, JobId(cluster.id, proc)) for proc in procs]
            await asyncio.to_thread(spool.make_folders, folders)
        made = []
        host = socket.gethostname()
        for proc, item in enumerate(items, cluster.next_proc):
            job = self._job(cluster, factory, proc, item)
            job.idle_from = now
            made.append((job, updates.entries.of_job(job, lambda job=job: submit_log_event(job, host, now))))  # type: ignore[misc]
            await yielder.yield_if_due()
        return made

    def _enter(self, cluster: Cluster, factory: Factory, made: Sequence[tuple[Job, Entries]]) -> None:
        """Put these jobs into the queue."""
        updates, now = self.updates, self.updates.now()
        jobs = [job for job, _ in made]
        cluster.next_proc += len(jobs)
        if cluster.next_proc >= factory.total:
            factory.mode, factory.reason = Mode.DONE, ""
        updates.save_factory(cluster)
        updates.queue.put_new_jobs(
            [(cluster.id, job.proc, int(job.status), job.priority, job.submitter, job.ad.pack()) for job in jobs]
        )
        entries = [entry for _, entries in made for entry in entries]
        updates.carry_out([WriteLogs(entries), PublishEvent(submitted_event(updates.name, jobs, now))])
        updates.table.add(cluster, jobs)
        updates.claims.offer_jobs()
        updates.counts_changed.set()

    def _job(self, cluster: Cluster, factory: Factory, proc: int, item: Item) -> Job:
        """The job that an item makes, after what happened to its cluster since it was submitted."""
        status = JobStatus.HELD if cluster.ad.eval("JobStatus") == JobStatus.HELD else JobStatus.IDLE
        job = make_job(cluster, proc, item.ad, status, item.priority, item.submitter)
        if factory.edited:
            late_materialization.without(job.ad, factory.edited)
            self._resort(job)
        if cluster.spool and "StageInFinish" in cluster.ad:
            held = job.ad.eval(HELD_ONCE_SPOOLED) is True
            job.drop(*_HOLD)
            job.status = JobStatus.HELD if held else JobStatus.IDLE
            job.ad["JobStatus"] = int(job.status)
            if held:
                code = int(Hold.SUBMITTED_ON_HOLD)
                job.ad.update(
                    {"HoldReason": "It was submitted on hold", "HoldReasonCode": code, "HoldReasonSubCode": 0}
                )
        return job

    def _resort(self, job: Job) -> None:
        """What an edit of the cluster may have changed. The edit was checked; where only this job makes it wrong, the
        job keeps what it had."""
        try:
            job.priority = priority_of(job.ad)
            job.submitter = submitter_of(job.ad, job.cluster.user, self.updates.settings.nice_group)
        except BadSubmit as error:
            self.updates.context.log.warning("edit_not_for_job", job_id=str(job.id), reason=str(error))

    async def _piece(self, cluster: Cluster) -> tuple[int, list[Item]]:
        """(number of the first, jobs) of the stored piece that has the next job of a cluster in it. Raises ValueError
        when it can not be read."""
        known = self._pieces.get(cluster.id)
        if known is not None and 0 <= cluster.next_proc - known[0] < len(known[1]):
            self._pieces.move_to_end(cluster.id)
            return known

        def read(database: sqlite3.Connection) -> tuple[int, int, bytes] | None:
            found: tuple[int, int, bytes] | None = database.execute(
                "SELECT first_proc, count, body FROM items WHERE cluster = ? AND first_proc <= ? "
                "ORDER BY first_proc DESC LIMIT 1",
                (cluster.id, cluster.next_proc),
            ).fetchone()
            return found

        row = await self.updates.queue.read(read)
        if row is None:
            raise ValueError(f"job {cluster.id}.{cluster.next_proc} is not in the store")
        first, count, body = row
        items = late_materialization.unpack_items(body, cluster.submitter)
        if len(items) != count or not first <= cluster.next_proc < first + count:
            raise ValueError(f"job {cluster.id}.{cluster.next_proc} is not in the store")
        self._pieces[cluster.id] = (first, items)
        while len(self._pieces) > PIECES:
            self._pieces.popitem(last=False)
        return first, items
