"""Taking new jobs: SubmitJobs, in one part or several, each as often as its sender needs to be sure of it."""

from __future__ import annotations

import asyncio
import getpass
import socket
import sqlite3
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

from services.schedd import factories, sandbox, trail
from services.schedd.acceptance import (
    BadSubmit,
    accept_cluster,
    accept_proc,
    checked,
    owner_of,
    priority_of,
    submitter_of,
)
from services.schedd.factories import BadLimit, Factory, Item
from services.schedd.jobs import Cluster, Job, JobStatus, make_job
from services.schedd.keeper import Keeper
from services.schedd.queue import rows
from services.schedd.settings import Settings
from shared import job_log, tracing
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd
from shared.messages.events import JobsSubmitted
from shared.messages.queue import SubmitJobs, Submitted
from shared.turns import Turns

#: How long a repeated submit is recognised, seconds.
REMEMBER_S: Final = 24 * 3600
#: Parts that came without the last one are thrown away after this time.
UNFINISHED_S: Final = 3600
#: Submits of one user that wait for further parts: each keeps its jobs here.
MAX_UNFINISHED: Final = 100
#: More parts than this has no submit.
MAX_PARTS: Final = 1 << 31


#: A job as it was accepted: proc, ad, priority, submitter.
Row = tuple[int, bytes, int, str]


@dataclass(slots=True)
class Draft:
    """A submit whose last part has not come yet: in the database, but not in the queue."""

    cluster: Cluster
    status: JobStatus
    each: dict[str, Any]
    at: float  # wall clock, of its last part
    before: ClassAd  # the common ad before the administrator's rules changed it
    checked: bool = False  # the common ad meets all requirements
    stored: bool = False  # the cluster has its row; a first part may well bring no job, to learn the number
    rows: list[Row] = field(default_factory=list)  # proc, ad, priority, submitter
    factory: Factory | None = None  # its jobs are stored for later, and `rows` stays empty


class Submission:
    """Makes clusters of SubmitJobs messages."""

    def __init__(self, keeper: Keeper, settings: Settings, materialize: Callable[[Cluster], Awaitable[None]]) -> None:
        self.keeper = keeper
        self.settings = settings
        self._materialize = materialize  # makes the first jobs of a factory
        self.next_cluster = 1
        self._drafts: dict[tuple[str, str], Draft] = {}
        self._answers: OrderedDict[tuple[str, str, int], tuple[float, Submitted]] = OrderedDict()
        #: Each lives for as long as a message holds it or waits for it.
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def load(self, database: sqlite3.Connection, now: float) -> None:
        """What is remembered of earlier submits. Nothing stays of those whose last part never came."""
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
        owner = user.partition("@")[0]
        return owner == getpass.getuser() or owner in self.settings.file_users or user in self.settings.file_users

    async def submit(self, asked: SubmitJobs) -> Submitted:
        """Queue the jobs of one message. Raises RemoteFailure (bad-request, unavailable); nothing stays then."""
        key = (asked.user, asked.submit_id)
        if not asked.submit_id or len(asked.submit_id) > 200:
            raise RemoteFailure("bad-request", "submit_id: want a unique text of up to 200 characters")
        if asked.part is not None and not 0 <= asked.part < MAX_PARTS:
            raise RemoteFailure("bad-request", f"part {asked.part}: want 0, 1, 2, ... below {MAX_PARTS}")
        lack = self.keeper.queue.lacks_room(len(asked.cluster_ad) + sum(map(len, asked.procs)))
        if lack:
            raise RemoteFailure("unavailable", f"the spool of this schedd is full: {lack}", retryable=True)
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:  # a repeated message waits for the first to be done
                known = self._answers.get((*key, _part(asked)))
                if known is not None:
                    return known[1]
                with tracing.span("schedd.submit", schedd=self.keeper.name, user=asked.user, jobs=len(asked.procs)):
                    return await self._take(asked, key)
        except BadSubmit as error:
            await self._discard(key)
            raise RemoteFailure("bad-request", str(error)) from error

    async def _take(self, asked: SubmitJobs, key: tuple[str, str]) -> Submitted:
        now = self.keeper.now()
        draft = self._drafts.get(key)
        if draft is None:
            if asked.part:
                raise BadSubmit(
                    f"part {asked.part} of a submit whose earlier parts are not here; submit everything anew"
                )
            draft = self._begin(asked, now)
            self._drafts[key] = draft
        draft.at = now
        cluster = draft.cluster
        first = cluster.next_proc
        self._check_limits(asked, draft)
        added = await self._accept(asked, draft)
        cluster.next_proc += len(added)
        if draft.factory is None:
            draft.rows += added
        total = cluster.next_proc
        jobs: list[Job] = []
        entries: list[tuple[str, bytes]] = []
        if not asked.more:
            cluster.ad["TotalSubmitProcs"] = total
            if draft.factory is not None and total:
                self._found(draft.factory, cluster)
            jobs, entries = await self._jobs(draft, now)
            if cluster.spool and entries:
                await asyncio.to_thread(sandbox.make_folders, [Path(path).parent for path, _ in entries])
        stored = await self._packed(draft, added) if draft.factory is not None else []
        # From here to the commit nothing may come between: the submit is there as a whole or not at all.
        self._store(asked, draft, added, stored)
        answer = Submitted(cluster=cluster.id, first_proc=first, count=len(added))
        if not asked.more:
            answer = Submitted(cluster=cluster.id, first_proc=0, count=total)
            del self._drafts[key]
        self._remember(key, asked, answer, now)
        if asked.more:
            await self.keeper.commit()
            return answer
        if not total:
            await self._discard(key, draft)
            raise RemoteFailure("bad-request", "the submit has no job; queue at least one")
        if draft.factory is not None:
            said = job_log.cluster_submitted(cluster.id, now, socket.gethostname())
            self.keeper.record_all([(path, said) for path in self.keeper.cluster_log_paths(cluster)])
            await self.keeper.commit()
            self.keeper.table.clusters[cluster.id] = cluster
            await self._materialize(cluster)
            return answer
        # The user's log and the stream tell of the jobs after this same commit.
        self.keeper.record_all(entries)
        self.keeper.tell(
            JobsSubmitted(
                at=now,
                schedd=self.keeper.name,
                owner=cluster.owner,
                submitter=cluster.submitter,
                cluster=cluster.id,
                first_proc=0,
                count=len(jobs),
                **held_of(jobs),
            )
        )
        await self.keeper.commit()
        turns = Turns()
        for job in jobs:
            self.keeper.table.add(cluster, (job,))
            await turns.give_way()
        self.keeper.demand_grew.set()
        return answer

    def _found(self, factory: Factory, cluster: Cluster) -> None:
        """All jobs of a factory are stored: it begins with the first of them."""
        factory.total, cluster.next_proc = cluster.next_proc, 0
        cluster.factory = factory
        cluster.ad[factories.DIGEST] = str(self.keeper.queue.path)
        factories.describe(cluster.ad, factory, 0)

    def _begin(self, asked: SubmitJobs, now: float) -> Draft:
        owner = owner_of(asked.user)
        common = checked(asked.cluster_ad, "cluster ad")
        if not asked.spool and not self.may_use_files(asked.user):
            raise BadSubmit(
                f"files of {owner} can not be used directly by this schedd, which runs as {getpass.getuser()}; submit "
                "with spooling (roost submit -spool)"
            )
        number = self.next_cluster
        accepted = accept_cluster(common, user=asked.user, cluster=number, now=now, spool=asked.spool)
        # The submit language writes false where its user said nothing.
        if asked.spool and (accepted.ad.text("LeaveJobInQueue") or "false").lower() == "false":
            # Ten days for its owner to fetch the output, as HTCondor gives.
            accepted.ad.set_text(
                "LeaveJobInQueue", "JobStatus == 4 && (CompletionDate =?= 0 || time() - CompletionDate < 864000)"
            )
        before = accepted.ad.copy()
        self.settings.rules.transform(accepted.ad, now)
        priority_of(accepted.ad)
        if (trace := tracing.current()) is not None:
            accepted.ad[trail.ATTRIBUTE] = trace
        submitter = submitter_of(accepted.ad, asked.user, self.settings.nice_group)
        factory = None
        if self.settings.late_materialization:
            try:
                limits = factories.limits_of(accepted.ad)
            except BadLimit as error:
                raise BadSubmit(str(error)) from error
            factory = None if limits is None else Factory(0, *limits)
        self.next_cluster += 1
        self.keeper.queue.do(
            "INSERT OR REPLACE INTO meta (key, value) VALUES ('next_cluster', ?)", (self.next_cluster,)
        )
        cluster = Cluster(
            id=number,
            owner=owner,
            user=asked.user,
            submitter=submitter,
            qdate=int(now),
            ad=accepted.ad,
            spool=asked.spool,
            submit_id=asked.submit_id,
        )
        return Draft(cluster, accepted.status, accepted.each, now, before, factory=factory)

    def _check_limits(self, asked: SubmitJobs, this: Draft) -> None:
        """Raises BadSubmit when there would be too many jobs."""
        settings, table = self.settings, self.keeper.table
        late = this.factory is not None
        earlier = this.cluster.next_proc
        wanted = earlier + len(asked.procs)
        mine = [draft for (user, _), draft in self._drafts.items() if user == asked.user]
        unfinished = [draft.cluster.next_proc for draft in mine if (draft.factory is not None) == late]
        if len(mine) > MAX_UNFINISHED:
            raise BadSubmit(
                f"{len(mine) - 1} other submits of {asked.user} have not had their last part; finish these first "
                f"(they are forgotten after {UNFINISHED_S // 60} minutes)"
            )
        where = "that wait to be materialized" if late else "in the queue"
        if late:
            # The other limits are kept by whoever makes jobs of these.
            kept = table.promised(asked.user) + sum(unfinished) - earlier
            limits = [(settings.max_late_jobs, kept, "ROOST_SCHEDD_LATE_JOBS_PER_OWNER")]
        else:
            queued = table.per_user.get(asked.user, 0) + sum(unfinished) - earlier
            limits = [
                (settings.max_jobs_per_submission, 0, "MAX_JOBS_PER_SUBMISSION"),
                (settings.max_jobs_per_owner, queued, "MAX_JOBS_PER_OWNER"),
            ]
        for limit, have, name in limits:
            if have + wanted > limit:
                raise BadSubmit(
                    f"{wanted} jobs besides {have} {where} are more than {name} = {limit}; submit fewer, or "
                    "have the limit raised"
                )

    async def _accept(self, asked: SubmitJobs, draft: Draft) -> list[Row]:
        """Check every proc. Other messages get their turn now and then."""
        cluster = draft.cluster
        first = cluster.next_proc
        priority = priority_of(cluster.ad)
        rules, now = self.settings.rules, self.keeper.now()
        special = {"jobprio", "accountinggroup", "niceuser"}
        done: list[Row] = []
        turns = Turns()
        for offset, packed in enumerate(asked.procs):
            await turns.give_way()  # what users write may take long to evaluate
            proc = first + offset
            ad_bytes, names = accept_proc(packed, f"job {proc}")
            if rules:
                ad_bytes, names = self._ruled(draft, proc, ad_bytes, names, now)
            own_priority, submitter = priority, cluster.submitter
            if draft.each or not names.isdisjoint(special):
                ad = ClassAd.unpack(ad_bytes)
                ad.chain(cluster.ad)
                try:
                    own_priority = priority_of(ad)
                except BadSubmit as error:
                    raise BadSubmit(f"job {proc}: {error}") from error
                submitter = submitter_of(ad, cluster.user, self.settings.nice_group)
                ad.chain(None)
                ad.update(draft.each)
                ad_bytes = ad.pack()
            done.append((proc, ad_bytes, own_priority, submitter))
        return done

    def _ruled(
        self, draft: Draft, proc: int, ad_bytes: bytes, names: frozenset[str], now: float
    ) -> tuple[bytes, frozenset[str]]:
        """A job as the administrator's rules make it, and the names it says itself then. Raises BadSubmit."""
        rules, by_number = self.settings.rules, "procid" in self.settings.rules.touched
        if names.isdisjoint(rules.touched) and not by_number:
            if not draft.checked:
                self._warn(rules.check(draft.cluster.ad, now), draft)
                draft.checked = True
            return ad_bytes, names
        ad = ClassAd.unpack(ad_bytes)
        if by_number:
            ad["ProcId"] = proc
        try:
            self._warn(rules.rule(ad, draft.before, draft.cluster.ad, now), draft)
        except BadSubmit as error:
            raise BadSubmit(f"job {proc}: {error}") from error
        if by_number:
            del ad["ProcId"]
        return ad.pack(), frozenset(ad.table())

    def _warn(self, warnings: list[str], draft: Draft) -> None:
        for warning in warnings:
            self.keeper.context.log.warning("submit_requirement", cluster=draft.cluster.id, unmet=warning)

    async def _packed(self, draft: Draft, added: list[Row]) -> list[tuple[int, int, int, bytes]]:
        """The jobs of a factory as they are stored: (cluster, first proc, count, body)."""
        cluster = draft.cluster
        items = [Item(ad, priority, submitter) for _, ad, priority, submitter in added]
        first = added[0][0] if added else 0
        stored = []
        turns = Turns()
        for piece in factories.pieces(items):
            stored.append((cluster.id, first, len(piece), factories.pack_items(piece, cluster.submitter)))
            first += len(piece)
            await turns.give_way()
        return stored

    def _store(
        self,
        asked: SubmitJobs,
        draft: Draft,
        added: list[Row],
        stored: list[tuple[int, int, int, bytes]],
    ) -> None:
        queue, cluster = self.keeper.queue, draft.cluster
        if not draft.stored:
            draft.stored = True
            queue.do(
                "INSERT INTO clusters (id, user, submitter, qdate, spool, submit_id, next_proc, complete, ad) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    cluster.id,
                    cluster.user,
                    cluster.submitter,
                    cluster.qdate,
                    cluster.spool,
                    cluster.submit_id,
                    cluster.next_proc,
                    not asked.more,
                    cluster.ad.pack(),
                ),
            )
        else:
            queue.do(
                "UPDATE clusters SET next_proc = ?, complete = ?, ad = ? WHERE id = ?",
                (cluster.next_proc, not asked.more, cluster.ad.pack(), cluster.id),
            )
        if draft.factory is not None:
            queue.do_many("INSERT INTO items (cluster, first_proc, count, body) VALUES (?, ?, ?, ?)", stored)
            return
        queue.do_many(
            "INSERT INTO jobs (cluster, proc, status, priority, submitter, ad) VALUES (?, ?, ?, ?, ?, ?)",
            [(cluster.id, proc, int(draft.status), priority, submitter, ad) for proc, ad, priority, submitter in added],
        )

    async def _jobs(self, draft: Draft, now: float) -> tuple[list[Job], list[tuple[str, bytes]]]:
        """The jobs of a submit, and what their users' logs say of it: (path, text)."""
        jobs: list[Job] = []
        entries: list[tuple[str, bytes]] = []
        turns = Turns()
        for proc, ad, priority, submitter in draft.rows:
            job = make_job(draft.cluster, proc, ad, draft.status, priority, submitter)
            job.idle_from = now
            self.keeper.table.newcomers.add()
            jobs.append(job)
            if paths := self.keeper.log_paths(job):
                said = logged(job, now)
                entries += [(path, said) for path in paths]
            await turns.give_way()
        return jobs, entries

    def _remember(self, key: tuple[str, str], asked: SubmitJobs, answer: Submitted, now: float) -> None:
        part = _part(asked)
        if part == ANY_PART:
            return
        self._answers[(*key, part)] = (now, answer)
        self.keeper.queue.do(
            "INSERT OR REPLACE INTO submits (user, submit_id, part, cluster, first_proc, count, at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*key, part, answer.cluster, answer.first_proc, answer.count, int(now)),
        )

    async def _discard(self, key: tuple[str, str], draft: Draft | None = None) -> None:
        """Nothing half-done stays in the queue."""
        draft = self._drafts.pop(key, None) or draft
        for known in [entry for entry in self._answers if entry[:2] == key]:
            del self._answers[known]
        self.keeper.queue.do("DELETE FROM submits WHERE user = ? AND submit_id = ?", key)
        if draft is not None:
            self.keeper.queue.do("DELETE FROM jobs WHERE cluster = ?", (draft.cluster.id,))
            self.keeper.queue.do("DELETE FROM items WHERE cluster = ?", (draft.cluster.id,))
            self.keeper.queue.do("DELETE FROM clusters WHERE id = ?", (draft.cluster.id,))
        await self.keeper.commit()

    async def tidy(self) -> None:
        """Forget old submits, and parts whose rest never came."""
        now = self.keeper.now()
        while self._answers and now - next(iter(self._answers.values()))[0] > REMEMBER_S:
            self._answers.popitem(last=False)
        self.keeper.queue.do("DELETE FROM submits WHERE at < ?", (int(now - REMEMBER_S),))
        for key, draft in list(self._drafts.items()):
            if now - draft.at > UNFINISHED_S:
                await self._discard(key)


#: A part of a submit that has no number can not be told from a repeated one.
ANY_PART: Final = -2
LAST_PART: Final = -1


def _part(asked: SubmitJobs) -> int:
    """What a part is remembered by. The last part is the whole submit: repeated, it is the same whatever its number."""
    if not asked.more:
        return LAST_PART
    return asked.part if asked.part is not None else ANY_PART


def logged(job: Job, now: float) -> bytes:
    """What the user's log says of a job that came into the queue."""
    return job_log.submitted(
        job.id, now, socket.gethostname(), job.text("SubmitEventNotes"), job.text("SubmitEventUserNotes")
    )


def held_of(jobs: Sequence[Job]) -> dict[str, Any]:
    """What the event of a submit says of jobs that are on hold from the beginning."""
    ranges: list[list[int]] = []
    first: Job | None = None
    for job in jobs:
        if job.status != JobStatus.HELD:
            continue
        first = first or job
        if ranges and ranges[-1][1] == job.proc - 1:
            ranges[-1][1] = job.proc
        else:
            ranges.append([job.proc, job.proc])
    if first is None:
        return {}
    code = int(first.number("HoldReasonCode"))
    return {"held": ranges, "hold_code": code, "hold_reason": first.text("HoldReason")[:1000]}
