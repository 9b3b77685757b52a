"""Makes jobs of what factories have stored (late materialization), as there is room for them in the queue.

A job is made, taken out of the store and written into its user's log in one transaction, so a schedd that is killed at
any moment makes none twice and leaves none out; ids go on where they stopped. `factories` decides how many.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from services.schedd import factories, sandbox
from services.schedd.acceptance import HELD_ONCE_SPOOLED, BadSubmit, priority_of, submitter_of
from services.schedd.factories import Bounds, Factory, Item, Mode
from services.schedd.jobs import Cluster, Job, JobId, JobStatus, make_job
from services.schedd.keeper import Keeper
from services.schedd.policies import Hold
from services.schedd.settings import Settings
from services.schedd.submission import held_of, logged
from shared.messages.events import JobsSubmitted
from shared.turns import Turns

#: Factories whose next piece is kept in memory.
PIECES: Final = 64

#: What users' logs are told: (path, text).
Entries = list[tuple[str, bytes]]

_HOLD: Final = ("HoldReason", "HoldReasonCode", "HoldReasonSubCode", HELD_ONCE_SPOOLED)


class Materializer:
    """The schedd's hands on its factories."""

    def __init__(self, keeper: Keeper, settings: Settings) -> None:
        self.keeper = keeper
        self.settings = settings
        self._due = asyncio.Event()
        self._pieces: OrderedDict[int, tuple[int, list[Item]]] = OrderedDict()  # cluster -> (first proc, its jobs)
        self._lock = asyncio.Lock()
        keeper.table.on_due = self._due.set

    async def run(self) -> None:
        """Until cancelled: give jobs wherever there is room for them."""
        table = self.keeper.table
        while True:
            await self._due.wait()
            self._due.clear()
            while table.due:
                cluster = table.clusters.get(table.due.pop())
                if cluster is not None:
                    await self.materialize(cluster)

    async def materialize(self, cluster: Cluster) -> None:
        """Give as many jobs of a cluster as there is room for. On disk when it returns."""
        async with self._lock:
            while await self._some(cluster):
                await self.keeper.commit()

    def _room(self, cluster: Cluster, factory: Factory) -> int:
        table, settings = self.keeper.table, self.settings
        queued = table.per_user.get(cluster.user, 0)
        number = factories.room(
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
        if factory is None or not self._room(cluster, factory) or self.keeper.queue.full:
            return False
        try:
            first, items = await self._piece(cluster)
        except ValueError as error:
            pause(self.keeper, cluster, Mode.ERROR, f"{error}; remove the cluster and submit it anew")
            self.keeper.context.log.error("factory_paused", cluster=cluster.id, reason=str(error))
            return True  # to be committed
        offset = cluster.next_proc - first
        edits = cluster.edits
        made = await self._made(cluster, factory, items[offset : offset + self._room(cluster, factory)])
        # From here to the commit nothing may come between: the jobs are there, and gone from the store, or neither.
        if self.keeper.table.clusters.get(cluster.id) is not cluster:
            return False
        if cluster.edits != edits:
            return True  # they were made of what the cluster was before
        del made[self._room(cluster, factory) :]
        if not made:
            return False
        self._enter(cluster, factory, made)
        if offset + len(made) == len(items):
            self._pieces.pop(cluster.id, None)
            self.keeper.queue.do("DELETE FROM items WHERE cluster = ? AND first_proc = ?", (cluster.id, first))
        return True

    async def _made(self, cluster: Cluster, factory: Factory, items: Sequence[Item]) -> list[tuple[Job, Entries]]:
        """The next jobs, with what users' logs say of them. Others get their turn: what users write may take long to
        evaluate."""
        keeper, now, turns = self.keeper, self.keeper.now(), Turns()
        if cluster.spool:
            procs = range(cluster.next_proc, cluster.next_proc + len(items))
            folders = [sandbox.output_dir(keeper.spool, JobId(cluster.id, proc)) for proc in procs]
            await asyncio.to_thread(sandbox.make_folders, folders)
        made = []
        for proc, item in enumerate(items, cluster.next_proc):
            job = self._job(cluster, factory, proc, item)
            job.idle_from = now
            paths = keeper.log_paths(job)
            said = logged(job, now) if paths else b""
            made.append((job, [(path, said) for path in paths]))
            await turns.give_way()
        return made

    def _enter(self, cluster: Cluster, factory: Factory, made: Sequence[tuple[Job, Entries]]) -> None:
        """Into the queue with these jobs."""
        keeper, now = self.keeper, self.keeper.now()
        first, jobs = cluster.next_proc, [job for job, _ in made]
        cluster.next_proc += len(jobs)
        if cluster.next_proc >= factory.total:
            factory.mode, factory.reason = Mode.DONE, ""
        save(keeper, cluster)
        keeper.queue.do_many(
            "INSERT INTO jobs (cluster, proc, status, priority, submitter, ad) VALUES (?, ?, ?, ?, ?, ?)",
            [(cluster.id, job.proc, int(job.status), job.priority, job.submitter, job.ad.pack()) for job in jobs],
        )
        keeper.record_all([entry for _, entries in made for entry in entries])
        keeper.tell(
            JobsSubmitted(
                at=now,
                schedd=keeper.name,
                owner=cluster.owner,
                submitter=cluster.submitter,
                cluster=cluster.id,
                first_proc=first,
                count=len(jobs),
                **held_of(jobs),
            )
        )
        for _ in jobs:
            keeper.table.newcomers.add()
        keeper.table.add(cluster, jobs)
        keeper.demand_grew.set()
        keeper.counts_changed.set()

    def _job(self, cluster: Cluster, factory: Factory, proc: int, item: Item) -> Job:
        """The job that an item makes, after what happened to its cluster since it was submitted."""
        status = JobStatus.HELD if cluster.ad.eval("JobStatus") == JobStatus.HELD else JobStatus.IDLE
        job = make_job(cluster, proc, item.ad, status, item.priority, item.submitter)
        if factory.edited:
            factories.without(job.ad, factory.edited)
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
            job.submitter = submitter_of(job.ad, job.cluster.user, self.settings.nice_group)
        except BadSubmit as error:
            self.keeper.context.log.warning("edit_not_for_job", job_id=str(job.id), reason=str(error))

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

        row = await self.keeper.queue.read(read)
        if row is None:
            raise ValueError(f"job {cluster.id}.{cluster.next_proc} is not in the store")
        first, count, body = row
        items = factories.unpack_items(body, cluster.submitter)
        if len(items) != count or not first <= cluster.next_proc < first + count:
            raise ValueError(f"job {cluster.id}.{cluster.next_proc} is not in the store")
        self._pieces[cluster.id] = (first, items)
        while len(self._pieces) > PIECES:
            self._pieces.popitem(last=False)
        return first, items


def save(keeper: Keeper, cluster: Cluster) -> None:
    """Write down where a factory stands, with the next commit."""
    assert cluster.factory is not None
    factories.describe(cluster.ad, cluster.factory, cluster.next_proc)
    cluster.raw = None  # the ad as it was packed last; no job's autocluster hangs on these attributes
    keeper.queue.do(
        "UPDATE clusters SET next_proc = ?, ad = ? WHERE id = ?", (cluster.next_proc, cluster.ad.pack(), cluster.id)
    )


def pause(keeper: Keeper, cluster: Cluster, mode: Mode, reason: str) -> None:
    """Stop a factory: for as long as the mode is HELD or ERROR, or for good. The caller commits."""
    assert cluster.factory is not None
    cluster.factory.mode, cluster.factory.reason = mode, reason[:2000]
    save(keeper, cluster)
    if mode is Mode.REMOVED:
        keeper.queue.do("DELETE FROM items WHERE cluster = ?", (cluster.id,))
        keeper.drop_empty(cluster)


def resume(keeper: Keeper, cluster: Cluster) -> None:
    """Let a factory go on. The caller commits."""
    assert cluster.factory is not None
    cluster.factory.mode, cluster.factory.reason = Mode.RUNNING, ""
    save(keeper, cluster)
    keeper.table.note_due(cluster)
