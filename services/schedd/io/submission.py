"""Takes new jobs: SubmitJobs, in one part or several, each repeated as often as its sender needs to be sure of it.

What is accepted is decided in `services.schedd.core.acceptance`. Here it is written, in one transaction with what
users' logs say of it and before the answer; the jobs are in the queue when they are on disk.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import pwd
import socket
import sqlite3
from collections import OrderedDict
from heapq import merge
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

from engine.queue import late_materialization
from engine.queue.jobs import BadSubmit, Cluster, Job, make_job, priority_of
from engine.queue.late_materialization import Factory, Item
from services.schedd.core import scheduler_universe
from services.schedd.core.acceptance import (
    UNFINISHED_S,
    AcceptedJob,
    Draft,
    SubmitLimits,
    accept_job,
    begin_draft,
    check_limits,
    checked,
    owner_of,
)
from services.schedd.core.job_changes import (
    PublishEvent,
    WriteLogs,
    cluster_log_event,
    submit_log_event,
    submitted_event,
)
from services.schedd.io import job_trace, spool
from services.schedd.io.job_updates import JobUpdates
from services.schedd.io.late_materialization import LateMaterialization
from services.schedd.io.queue_db import rows
from shared import tracing
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd
from shared.cooperative import Yielder, reading
from shared.messages.queue import SubmitJobs, Submitted
from shared.users import local_name, same

#: How long a repeated submit is recognised, seconds.
REMEMBER_S: Final = 24 * 3600
#: A submit of more jobs is written before any of them may run.
MOST_WITH_RUNS: Final = 100
#: More parts than this has no submit.
MAX_PARTS: Final = 1 << 31


class Submission:
    """Makes clusters of SubmitJobs messages."""

    def __init__(self, updates: JobUpdates, late: LateMaterialization) -> None:
        self.updates = updates
        self.late = late  # makes the first jobs of a factory
        self.next_cluster = 1
        self._drafts: dict[tuple[str, str], Draft] = {}
        self._answers: OrderedDict[tuple[str, str, int], tuple[float, Submitted]] = OrderedDict()
        #: Each lives for as long as a message holds it or waits for it.
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def load(self, database: sqlite3.Connection, now: float) -> None:
        """Read how earlier submits were answered, and delete what is left of those whose last part never came."""
        database.execute("DELETE FROM jobs WHERE cluster IN (SELECT id FROM clusters WHERE NOT complete)")
        database.execute("DELETE FROM submits WHERE cluster IN (SELECT id FROM clusters WHERE NOT complete)")
        database.execute("DELETE FROM clusters WHERE NOT complete")
        database.execute("DELETE FROM items WHERE cluster NOT IN (SELECT id FROM clusters)")
        database.execute(
            "DELETE FROM clusters WHERE id NOT IN (SELECT cluster FROM jobs) AND id NOT IN (SELECT cluster FROM items)"
        )
        for user, submit_id, part, cluster, first, count, at in rows(
            database, "SELECT user, submit_id, part, cluster, first_proc, count, at FROM submits ORDER BY at"
        ):
            if now - at < REMEMBER_S:
                self._answers[user, submit_id, part] = (
                    at,
                    Submitted(cluster=cluster, first_proc=first, count=count),
                )
        highest = database.execute(
            "SELECT max(m) FROM (SELECT max(id) AS m FROM clusters UNION ALL SELECT max(cluster) FROM history "
            "UNION ALL SELECT max(cluster) FROM submits)"
        ).fetchone()[0]
        stored = database.execute("SELECT value FROM meta WHERE key = 'next_cluster'").fetchone()
        self.next_cluster = max((highest or 0) + 1, stored[0] if stored else 1)

    def may_use_files(self, user: str) -> bool:
        """Whether jobs of this user read and write files here directly: only the schedd's own account's, and those of
        users that the configuration names. Everybody else's come and go over HTTP."""
        settings = self.updates.settings
        return local_name(user, settings.uid_domain) == getpass.getuser() or any(
            same(user, one) for one in settings.file_users
        )

    async def submit(self, asked: SubmitJobs) -> Submitted:
        """Queue the jobs of one message. Raises RemoteFailure (bad-request, unavailable); nothing stays then."""
        key = (asked.user, asked.submit_id)
        if not asked.submit_id or len(asked.submit_id) > 200:
            raise RemoteFailure("bad-request", "submit_id: want a unique text of up to 200 characters")
        if asked.part is not None and not 0 <= asked.part < MAX_PARTS:
            raise RemoteFailure("bad-request", f"part {asked.part}: want 0, 1, 2, ... below {MAX_PARTS}")
        lack = self.updates.queue.lacks_room(len(asked.cluster_ad) + sum(map(len, asked.procs)))
        if lack:
            raise RemoteFailure("unavailable", f"the spool of this schedd is full: {lack}", retryable=True)
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:  # a repeated message waits for the first to be done
                known = self._answers.get((*key, _part(asked)))
                if known is not None:
                    return known[1]
                with tracing.span("schedd.submit", schedd=self.updates.name, user=asked.user, jobs=len(asked.procs)):
                    return await self._take(asked, key)
        except BadSubmit as error:
            await self._discard(key)
            raise RemoteFailure("bad-request", str(error)) from error

    async def _take(self, asked: SubmitJobs, key: tuple[str, str]) -> Submitted:
        """Take one part. Raises BadSubmit, RemoteFailure."""
        updates, now = self.updates, self.updates.now()
        draft = self._drafts.get(key)
        if draft is None:
            if asked.part:
                raise BadSubmit(
                    f"part {asked.part} of a submit whose earlier parts are not here; submit everything anew"
                )
            common = await reading(len(asked.cluster_ad), checked, asked.cluster_ad, "cluster ad")
            draft = self._drafts[key] = self._begin(asked, common, now)
        draft.at = now
        cluster = draft.cluster
        first = cluster.next_proc
        added = await self._accept(asked, draft)
        cluster.next_proc += len(added)
        if added and not first:
            draft.first = added[0].ad
        if draft.factory is None:
            for job in added:
                if job.packed:
                    draft.packed[job.proc] = job.ad
                else:
                    draft.jobs.append(job)
        total = cluster.next_proc
        jobs: list[Job] = []
        entries: list[tuple[str, bytes]] = []
        if not asked.more:
            cluster.ad["TotalSubmitProcs"] = total
            if draft.factory is not None and total:
                self._found(draft.factory, cluster)
            jobs, entries = await self._jobs(draft, now)
            if cluster.spool and entries:
                await asyncio.to_thread(spool.make_folders, [Path(path).parent for path, _ in entries])
        items = await self._packed(draft, added) if draft.factory is not None else []
        # From here to the commit nothing may come between: the submit is there as a whole or not at all.
        self._store(draft, added, items, complete=not asked.more)
        answer = Submitted(cluster=cluster.id, first_proc=first, count=len(added))
        if not asked.more:
            answer = Submitted(cluster=cluster.id, first_proc=0, count=total)
            del self._drafts[key]
        self._remember(key, asked, answer, now)
        if asked.more:
            await updates.commit()
            return answer
        if not total:
            await self._discard(key, draft)
            raise RemoteFailure("bad-request", "the submit has no job; queue at least one")
        if draft.factory is not None:
            example = make_job(cluster, 0, draft.first, draft.status, priority_of(cluster.ad), cluster.submitter)
            said = cluster_log_event(example, socket.gethostname(), now)
            updates.carry_out([WriteLogs(updates.entries.of_cluster(cluster, said, example.ad))])
            await updates.commit()
            updates.table.clusters[cluster.id] = cluster
            await self.late.materialize(cluster)
            return answer
        # The user's log and the stream tell of the jobs after this same commit.
        if draft.packed:  # all are idle, and told by one of them
            example = _unpacked(draft, 0, now) if 0 in draft.packed else jobs[0]
            told = submitted_event(updates.name, [example], now, total)
        else:
            told = submitted_event(updates.name, jobs, now)
        updates.carry_out([WriteLogs(entries), PublishEvent(told)])
        begun = 0
        if updates.claims.idle and total <= MOST_WITH_RUNS:
            # Whose claims are kept may be next on them: those runs are begun with the submit, on disk with it.
            await self._enter(draft, jobs, now)
            begun = updates.claims.give_kept()
            await updates.commit()
        else:
            await updates.commit()
            await self._enter(draft, jobs, now)
            if updates.table.undecided:
                await updates.commit()
        if updates.table.due_here:
            updates.due_here.set()
        if begun < total:  # else no more is wanted than negotiators know
            updates.claims.offer_jobs()
        return answer

    async def _enter(self, draft: Draft, jobs: list[Job], now: float) -> None:
        """Put the jobs of a submit into the queue."""
        updates, cluster = self.updates, draft.cluster
        yielder = Yielder()
        cluster.entering = True  # the first may have left before the last comes
        try:
            if not updates.table.add_packed(cluster, draft.packed, draft.names, now):
                for proc in draft.packed:
                    updates.table.add(cluster, (_unpacked(draft, proc, now),))
                    await yielder.yield_if_due()
            for made in jobs:
                updates.table.add(cluster, (made,))
                await yielder.yield_if_due()
        finally:
            cluster.entering = False
            updates.drop_empty(cluster)

    def _begin(self, asked: SubmitJobs, common: ClassAd, now: float) -> Draft:
        settings = self.updates.settings
        owner_of(asked.user)
        if not asked.spool and not self.may_use_files(asked.user):
            raise BadSubmit(
                f"files of {asked.user} can not be used directly by this schedd, which runs as {getpass.getuser()} and "
                f"has UID_DOMAIN = {settings.uid_domain}; submit with spooling (roost submit -spool), or give the "
                "access point and the gateway the same UID_DOMAIN"
            )
        draft = begin_draft(
            common,
            asked,
            self.next_cluster,
            now,
            rules=settings.rules,
            nice_group=settings.nice_group,
            late=settings.late_materialization,
        )
        if draft.cluster.here:
            account = pwd.getpwuid(os.getuid()).pw_name
            problem = scheduler_universe.refusal(asked.user, account, settings.uid_domain, spool=asked.spool)
            if problem:
                raise BadSubmit(problem)
        if draft.cluster.parallel:
            # What HTCondor's START and RANK of machines for parallel jobs look at.
            draft.cluster.ad["Scheduler"] = f"DedicatedScheduler@{self.updates.name}"
            if draft.factory is not None:
                raise BadSubmit("a cluster of the parallel universe has one job: leave out max_materialize")
        if (trace := tracing.current()) is not None:
            draft.cluster.ad[job_trace.ATTRIBUTE] = trace
        self.take_number()
        return draft

    def is_free(self, number: int, below: int, *, unused: bool) -> bool:
        """Whether no cluster has this number, and none will get it by itself. unused: nothing was stored under it when
        the next number was `below`."""
        drafted = any(draft.cluster.id == number for draft in self._drafts.values())
        return number >= self.next_cluster or (unused and number < below and not drafted)

    def take_number(self, wanted: int | None = None) -> int:
        """The number of a new cluster: the next one, or one that the caller knows to be free; none below it is given
        out any more. Written with the next commit."""
        number = self.next_cluster if wanted is None else wanted
        self.next_cluster = max(self.next_cluster, number + 1)
        self.updates.queue.put_meta("next_cluster", self.next_cluster)
        return number

    async def _accept(self, asked: SubmitJobs, draft: Draft) -> list[AcceptedJob]:
        """Check every job of a part. Other messages get their turn now and then."""
        settings, table, now = self.updates.settings, self.updates.table, self.updates.now()
        check_limits(
            draft,
            len(asked.procs),
            [one for (user, _), one in self._drafts.items() if user == asked.user],
            SubmitLimits(
                settings.max_jobs_per_submission,
                settings.max_jobs_per_owner,
                settings.max_jobs_submitted,
                settings.max_late_jobs,
            ),
            queued=table.per_user.get(asked.user, 0),
            promised=table.promised(asked.user) if draft.factory is not None else 0,
            total=table.total,
        )
        priority = priority_of(draft.cluster.ad)
        added: list[AcceptedJob] = []
        yielder = Yielder()
        try:
            for proc, packed in enumerate(asked.procs, draft.cluster.next_proc):
                await yielder.yield_if_due()  # what users write may take long to evaluate
                added.append(
                    await reading(
                        len(packed),
                        accept_job,
                        draft,
                        proc,
                        packed,
                        now,
                        priority=priority,
                        rules=settings.rules,
                        nice_group=settings.nice_group,
                    )
                )
        finally:
            for warning in draft.warnings:
                self.updates.context.log.warning("submit_requirement", cluster=draft.cluster.id, unmet=warning)
            draft.warnings.clear()
        return added

    def _found(self, factory: Factory, cluster: Cluster) -> None:
        """Let a factory begin with the first of its jobs, as all of them are stored now."""
        factory.total, cluster.next_proc = cluster.next_proc, 0
        cluster.factory = factory
        cluster.ad[late_materialization.DIGEST] = str(self.updates.queue.path)
        late_materialization.describe(cluster.ad, factory, 0)

    async def _jobs(self, draft: Draft, now: float) -> tuple[list[Job], list[tuple[str, bytes]]]:
        """The jobs of a submit that are made at once, and what users' logs say of all of them: (path, text)."""
        jobs: list[Job] = []
        entries: list[tuple[str, bytes]] = []
        host = socket.gethostname()
        yielder = Yielder()
        for one in draft.jobs:
            jobs.append(make_job(draft.cluster, one.proc, one.ad, one.status, one.priority, one.submitter))
            jobs[-1].idle_from = now
            await yielder.yield_if_due()
        logged = self.updates.entries.may_be_logged(draft.cluster, draft.names)
        packed = (_unpacked(draft, proc, now) for proc in (draft.packed if logged else ()))
        for job in merge(jobs, packed, key=lambda job: job.proc):
            entries += self.updates.entries.of_job(job, lambda job=job: submit_log_event(job, host, now))  # type: ignore[misc]
            await yielder.yield_if_due()
        return jobs, entries

    async def _packed(self, draft: Draft, added: list[AcceptedJob]) -> list[tuple[int, int, int, bytes]]:
        """The jobs of a factory as they are stored: (cluster, first proc, count, body)."""
        cluster = draft.cluster
        items = [Item(job.ad, job.priority, job.submitter) for job in added]
        first = added[0].proc if added else 0
        stored = []
        yielder = Yielder()
        for piece in late_materialization.pieces(items):
            stored.append((cluster.id, first, len(piece), late_materialization.pack_items(piece, cluster.submitter)))
            first += len(piece)
            await yielder.yield_if_due()
        return stored

    def _store(
        self, draft: Draft, added: list[AcceptedJob], items: list[tuple[int, int, int, bytes]], *, complete: bool
    ) -> None:
        """Write a part of a submit with the next commit. items: the same jobs, if a factory is to make them later."""
        queue, cluster = self.updates.queue, draft.cluster
        queue.put_cluster(cluster, complete=complete, new=not draft.stored)
        draft.stored = True
        if draft.factory is not None:
            queue.put_items(items)
        else:
            queue.put_new_jobs(
                [(cluster.id, job.proc, int(job.status), job.priority, job.submitter, job.ad) for job in added]
            )

    def _remember(self, key: tuple[str, str], asked: SubmitJobs, answer: Submitted, now: float) -> None:
        part = _part(asked)
        if part == ANY_PART:
            return
        self._answers[(*key, part)] = (now, answer)
        self.updates.queue.remember_submit(key, part, answer.cluster, answer.first_proc, answer.count, now)

    async def _discard(self, key: tuple[str, str], draft: Draft | None = None) -> None:
        """Delete all that is there of a submit, so that nothing half-done stays in the queue."""
        draft = self._drafts.pop(key, None) or draft
        for known in [entry for entry in self._answers if entry[:2] == key]:
            del self._answers[known]
        self.updates.queue.discard_submit(key, draft.cluster.id if draft is not None else None)
        await self.updates.commit()

    async def tidy(self) -> None:
        """Forget old submits, and parts whose rest never came."""
        now = self.updates.now()
        while self._answers and now - next(iter(self._answers.values()))[0] > REMEMBER_S:
            self._answers.popitem(last=False)
        self.updates.queue.forget_submits(before=now - REMEMBER_S)
        for key, draft in list(self._drafts.items()):
            if now - draft.at > UNFINISHED_S:
                await self._discard(key)


def _unpacked(draft: Draft, proc: int, now: float) -> Job:
    """One of the packed jobs of a submit."""
    cluster = draft.cluster
    job = make_job(cluster, proc, draft.packed[proc], draft.status, priority_of(cluster.ad), cluster.submitter)
    job.idle_from = now
    return job


#: A part of a submit that has no number can not be told from a repeated one.
ANY_PART: Final = -2
LAST_PART: Final = -1


def _part(asked: SubmitJobs) -> int:
    """The number by which a part is remembered. The last part stands for the whole submit, whatever its number."""
    if not asked.more:
        return LAST_PART
    return asked.part if asked.part is not None else ANY_PART
