"""Takes jobs of another access point's queue (ImportJobs). What is accepted is decided in
`services.schedd.core.imports`; here it is written, and the jobs are in the queue when they are on disk.

What has come of a cluster is noted for good, in the same transaction: its number here, and its highest job. So the same
message may come again, after a lost answer or a year later, and adds nothing twice.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Final

from engine.queue.jobs import BadSubmit, Cluster, Job, make_job
from services.schedd.core.acceptance import AcceptedJob
from services.schedd.core.imports import accept_imported, check_import, make_cluster
from services.schedd.core.job_changes import PublishEvent, submitted_event
from services.schedd.io.job_updates import JobUpdates
from services.schedd.io.submission import Submission
from shared.bus.api import RemoteFailure
from shared.cooperative import Yielder, reading
from shared.messages.queue import ImportJobs, JobsImported

_NOTE: Final = "import:"


class Imports:
    """Makes jobs of ImportJobs messages."""

    def __init__(self, updates: JobUpdates, submission: Submission) -> None:
        self._updates = updates
        self._submission = submission  # gives out numbers of clusters
        self._one_by_one = asyncio.Lock()

    async def take(self, asked: ImportJobs) -> JobsImported:
        """Queue the jobs of one message that have not come before. Raises RemoteFailure; nothing stays then."""
        lack = self._updates.queue.lacks_room(len(asked.cluster_ad) + sum(map(len, asked.procs)))
        if lack:
            raise RemoteFailure("unavailable", f"the spool of this schedd is full: {lack}", retryable=True)
        try:
            check_import(asked)
            async with self._one_by_one:
                return await self._take(asked)
        except BadSubmit as error:
            raise RemoteFailure("bad-request", str(error)) from error

    async def _take(self, asked: ImportJobs) -> JobsImported:
        updates, now = self._updates, self._updates.now()
        direct = self._submission.may_use_files(asked.user)
        below = self._submission.next_cluster
        number, highest, unused = await updates.queue.read(lambda database: _noted(database, asked))
        known = [proc for proc in asked.numbers if proc <= highest]
        coming = [pair for pair in zip(asked.numbers, asked.procs, strict=True) if pair[0] > highest]
        cluster = updates.table.clusters.get(number) if number else None
        spool = cluster.spool if cluster is not None else asked.spool
        if not direct and not spool and not asked.dry_run and coming:
            raise BadSubmit(
                f"files of {asked.user} can not be used directly by this schedd: the jobs' files are to be sent"
            )
        free = self._submission.is_free(asked.cluster, below, unused=unused)
        if coming and not number and not asked.dry_run:
            number = self._submission.take_number(asked.cluster if free else None)
        nice_group = updates.settings.nice_group
        length = len(asked.cluster_ad)
        made = await reading(length, make_cluster, asked, number or asked.cluster, now, nice_group)
        accepted: list[AcceptedJob] = []
        yielder = Yielder()
        for proc, packed in coming:
            await yielder.yield_if_due()
            accepted.append(await reading(len(packed), accept_imported, cluster or made, proc, packed, now, nice_group))
        if asked.dry_run or not accepted:
            return JobsImported(cluster=number or (asked.cluster if free else 0), known=known, direct=direct)
        # Its last job may have left meanwhile, and the cluster with it.
        cluster = updates.table.clusters.get(number, made)
        await self._store(cluster, accepted, asked.origin, now)
        return JobsImported(cluster=number, known=known, direct=direct)

    async def _store(self, cluster: Cluster, accepted: list[AcceptedJob], origin: str, now: float) -> None:
        """From the first write to the commit nothing comes between."""
        updates = self._updates
        new = cluster.id not in updates.table.clusters
        cluster.next_proc = accepted[-1].proc + 1
        if "TotalSubmitProcs" not in cluster.ad:
            cluster.ad["TotalSubmitProcs"] = len(accepted)
        jobs: list[Job] = []
        for one in accepted:
            job = make_job(cluster, one.proc, one.ad, one.status, one.priority, one.submitter)
            job.idle_from = now
            jobs.append(job)
        updates.queue.put_cluster(cluster, complete=True, new=new)
        updates.queue.put_new_jobs(
            [(cluster.id, one.proc, int(one.status), one.priority, one.submitter, one.ad) for one in accepted]
        )
        updates.queue.put_meta(_NOTE + origin, f"{cluster.id} {accepted[-1].proc}")
        # Its user's log has heard of the job when it was submitted.
        updates.carry_out([PublishEvent(submitted_event(updates.name, jobs, now))])
        await updates.commit()
        yielder = Yielder()
        for job in jobs:
            updates.table.add(cluster, (job,))
            await yielder.yield_if_due()
        updates.claims.offer_jobs()


def _noted(database: sqlite3.Connection, asked: ImportJobs) -> tuple[int, int, bool]:
    """The number that the cluster has here (0: it has not come), its highest job that came, and whether nothing is
    stored under its old number."""
    row = database.execute("SELECT value FROM meta WHERE key = ?", (_NOTE + asked.origin,)).fetchone()
    if row is not None:
        number, highest = str(row[0]).split()
        return int(number), int(highest), False
    taken = database.execute(
        "SELECT 1 FROM clusters WHERE id = :id UNION ALL SELECT 1 FROM history WHERE cluster = :id "
        "UNION ALL SELECT 1 FROM submits WHERE cluster = :id LIMIT 1",
        {"id": asked.cluster},
    ).fetchone()
    return 0, -1, taken is None
