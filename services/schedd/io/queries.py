"""Questions about jobs: those in the queue, page by page in (cluster, proc) order, and those that left it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

from engine.queue import late_materialization
from engine.queue.job_columns import needed, projected
from engine.queue.job_table import JobTable
from engine.queue.jobs import Cluster, Job, JobId, JobStatus, full_packed
from services.schedd.core.group_verdicts import Verdicts
from services.schedd.core.rights import Viewer
from services.schedd.io import history
from services.schedd.io.column_parts import Parts, columns_of
from services.schedd.io.job_counts import counted
from services.schedd.io.job_stretches import PART_JOBS, Stretch, fitting
from services.schedd.io.job_updates import JobUpdates
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd, Expr, ParseError, evaluate, is_true, parse_expr
from shared.classad.budget import Budget
from shared.classad.expr import fold
from shared.classad.question import Question
from shared.cooperative import reading
from shared.messages.queue import JobPage, QueryJobs
from shared.users import whole

#: A page ends after so many jobs or bytes, whatever was asked for: a message must stay small.
PAGE_JOBS: Final = 5000
PAGE_BYTES: Final = 4 << 20
#: Their ads have all that the jobs of a cluster share.
PAGE_FACTORIES: Final = 200
MAX_CONSTRAINT: Final = 100_000
#: Attributes that one question may name.
MOST_NAMES: Final = 10_000
#: Ids of jobs and clusters that one question or order may name.
MOST_IDS: Final = 10_000
#: Jobs of a page of ads that are packed in one go.
TOGETHER: Final = 20


#: Jobs that are ordered in one go where they are alike.
CHOSEN: Final = 2000


class Chosen(NamedTuple):
    """Some jobs of a cluster. procs: ascending."""

    cluster: int
    procs: list[int]


async def parse_constraint(text: str) -> Expr | None:
    """Raises RemoteFailure bad-request that says where the constraint is wrong."""
    if not text.strip():
        return None
    if len(text) > MAX_CONSTRAINT:
        raise RemoteFailure("bad-request", f"constraint: longer than {MAX_CONSTRAINT} characters")
    try:
        return await reading(len(text), parse_expr, text)
    except ParseError as error:
        raise RemoteFailure("bad-request", f"constraint: {error}") from error


def parse_ids(texts: Sequence[str]) -> list[JobId]:
    """Raises RemoteFailure bad-request."""
    if len(texts) > MOST_IDS:
        raise RemoteFailure(
            "bad-request",
            f"ids: {len(texts)} of them, at most {MOST_IDS} are taken; name whole clusters, or ask in parts",
        )
    try:
        return [JobId.parse(text) for text in texts]
    except ValueError as error:
        raise RemoteFailure("bad-request", str(error)) from error


async def chosen(
    question: Question,
    updates: JobUpdates,
    viewer: Viewer,
    ids: Sequence[str],
    constraint: str,
    *,
    after: str = "",
    limit: int = 0,
) -> tuple[list[Chosen], list[str], bool]:
    """(jobs chosen by ids and constraint in their order, ids that name none, whether there are more). viewer: the
    constraint is about what this one sees. after: only jobs that come after this one; limit: at most so many, 0: all.
    Raises RemoteFailure bad-request, TooExpensive."""
    expr = await parse_constraint(constraint)
    wanted = parse_ids(ids)
    table = updates.table
    missing = [text for text, job_id in zip(ids, wanted, strict=True) if not _is_there(table, job_id)]
    last = parse_ids([after])[0] if after else None
    found: list[Chosen] = []
    room = limit if limit > 0 else sys.maxsize
    verdicts = Verdicts(expr, updates.name, updates.now(), viewer.hidden)
    async with aclosing(fitting(question, table, verdicts, wanted, last, most=CHOSEN)) as stretches:
        async for stretch in stretches:
            if procs := stretch.procs[:room]:
                found.append(Chosen(stretch.cluster.id, procs))
            if len(procs) < len(stretch.procs):
                return found, missing, True
            room -= len(procs)
    return found, missing, False


def _is_there(table: JobTable, job_id: JobId) -> bool:
    cluster = table.clusters.get(job_id.cluster)
    return cluster is not None and (job_id.proc < 0 or job_id.proc in cluster.jobs)


async def chosen_factories(
    question: Question, updates: JobUpdates, viewer: Viewer, ids: Sequence[str], constraint: str
) -> list[Cluster]:
    """Clusters with jobs that are not materialized yet which an action means: named by their number, or a constraint is
    true of their ad (see `factories.shown`). Raises RemoteFailure bad-request, TooExpensive."""
    expr, clusters = await parse_constraint(constraint), updates.table.clusters
    wanted = [job_id.cluster for job_id in parse_ids(ids) if job_id.proc < 0] if ids else list(clusters)
    now = updates.now()
    found = []
    for number in wanted:
        cluster = clusters.get(number)
        if cluster is None or cluster.factory is None or cluster.factory.over:
            continue
        if expr is None or is_true(evaluate(expr, factory_ad(cluster, now, viewer), None, now)):
            found.append(cluster)
        await question.yield_if_due()
    return [cluster for cluster in found if clusters.get(cluster.id) is cluster]


def factory_ad(cluster: Cluster, now: float, viewer: Viewer) -> ClassAd:
    """The ad that queries see of a factory's cluster."""
    statuses = [int(job.status) for job in cluster.jobs.made()]
    for group in cluster.jobs.groups:
        statuses += [int(group.status)] * len(group.ads)
    ad = late_materialization.shown(cluster.ad, statuses)
    if hidden := viewer.hidden(cluster.user):
        ad = ClassAd.from_table({key: entry for key, entry in ad.table().items() if key not in hidden})
    ad["ServerTime"] = int(now)
    return ad


def told_of_first(table: JobTable, job: Job) -> str:
    """Why the first of the idle jobs that are like this one was rejected in the last cycle that looked at it; empty:
    nobody said, or this one waits for nothing."""
    idle = table.idle.get(job.submitter) if job.status == JobStatus.IDLE and job.generation >= 0 else None
    key = idle.first(job.autocluster) if idle is not None else None
    cluster = table.clusters.get(key[1]) if key is not None else None
    first = cluster.jobs.peek(key[2]) if cluster is not None and key is not None else None
    return first.text("LastRejMatchReason") if first is not None else ""


class Queries:
    """Answers QueryJobs."""

    def __init__(self, updates: JobUpdates) -> None:
        self.updates = updates

    async def query(self, asked: QueryJobs) -> JobPage:
        """One page. Raises RemoteFailure bad-request, TooExpensive."""
        async with Question(Budget("this query")) as question:
            return await self._answer(question, asked)

    async def _answer(self, question: Question, asked: QueryJobs) -> JobPage:
        for what, names in (("projection", asked.projection), ("by", asked.by)):
            if len(names) > MOST_NAMES:
                raise RemoteFailure("bad-request", f"{what}: {len(names)} names, at most {MOST_NAMES} are taken")
        expr = await parse_constraint(asked.constraint)
        ids = parse_ids(asked.ids)
        limit = min(asked.limit, PAGE_JOBS) if asked.limit > 0 else PAGE_JOBS
        viewer = Viewer(asked.user, asked.admin, self.updates.settings.rights)
        if asked.history or asked.epochs:
            await self._have_left(ids)
            return await history.page(
                question, self.updates.queue, ids, expr, self._past(viewer),
                projection=asked.projection, limit=limit, after=asked.after,
                records=history.RUNS if asked.epochs else history.JOBS,
            )  # fmt: skip
        if asked.factories:
            return await self._factories(question, ids, expr, asked, viewer)
        updates, table = self.updates, self.updates.table
        verdicts = Verdicts(expr, updates.name, updates.now(), viewer.hidden)
        if asked.by:
            page = await counted(question, updates, viewer, verdicts, ids, asked)
        else:
            after = parse_ids([asked.after])[0] if asked.after else None
            listed = asked.columns and bool(asked.projection)
            most = PART_JOBS if listed else TOGETHER
            jobs = fitting(question, table, verdicts, ids, after, newest=asked.newest, most=most)
            async with aclosing(jobs) as stretches:
                if listed:
                    page = await self._listed(stretches, asked.projection, limit, viewer)
                else:
                    page = await self._page(stretches, asked, limit, viewer)
        told = {"totals": table.totals(), "scheduler_totals": table.scheduler_totals()}
        return page.model_copy(update=told)

    async def _have_left(self, ids: Sequence[JobId]) -> None:
        """Wait until the history has whoever left the queue before: who asks the queue first, and then the history,
        finds every job. Raises RemoteFailure unavailable where one of these can not get there, as the disk is full."""
        queue = self.updates.queue
        leaving = queue.leaving()
        if leaving and not queue.full:
            await queue.commit()
        elif any(
            wanted.cluster == cluster and (wanted.proc < 0 or first <= wanted.proc <= last)
            for cluster, first, last in leaving
            for wanted in ids
        ):
            raise RemoteFailure(
                "unavailable",
                f"a job has left the queue, and its record waits for room on the disk: {queue.full}",
                True,
            )

    def _past(self, viewer: Viewer) -> Callable[[ClassAd], ClassAd]:
        """What this one sees of the ad of a job that left the queue."""
        domain = self.updates.settings.uid_domain

        def shown(ad: ClassAd) -> ClassAd:
            table = ad.table()
            if viewer.private.isdisjoint(table):
                return ad
            hidden = viewer.hidden(whole(ad.eval_string("User") or ad.eval_string("Owner"), domain))
            return ClassAd.from_table({key: entry for key, entry in table.items() if key not in hidden})

        return shown

    async def _factories(
        self, question: Question, ids: Sequence[JobId], expr: Expr | None, asked: QueryJobs, viewer: Viewer
    ) -> JobPage:
        """A page of clusters that have factories, in the order of their numbers."""
        updates, now = self.updates, self.updates.now()
        wanted, after = {job_id.cluster for job_id in ids}, parse_ids([asked.after])[0].cluster if asked.after else -1
        limit = min(asked.limit, PAGE_FACTORIES) if asked.limit > 0 else PAGE_FACTORIES
        keys = [fold(name) for name in asked.projection]
        ads: list[bytes] = []
        last = ""
        for number in sorted(number for number in updates.table.clusters if number > after):
            cluster = updates.table.clusters.get(number)
            if cluster is None or cluster.factory is None or (wanted and number not in wanted):
                continue
            await question.yield_if_due()
            ad = factory_ad(cluster, now, viewer)
            if expr is not None and not is_true(evaluate(expr, ad, None, now)):
                continue
            if len(ads) == limit:
                return JobPage(ads=ads, next=last)
            table = ad.table()
            if keys:
                ad = ClassAd.from_table({key: table[key] for key in keys if key in table})
            ads.append(ad.pack())
            last = str(number)
        return JobPage(ads=ads)

    async def _page(self, stretches: AsyncIterator[Stretch], asked: QueryJobs, limit: int, viewer: Viewer) -> JobPage:
        updates, now = self.updates, self.updates.now()
        ads: list[bytes] = []
        size = 0
        last = ""
        reasons: dict[str, str] = {}
        keys = [fold(name) for name in asked.projection]
        async for stretch in stretches:
            for job in stretch.jobs():
                if len(ads) == limit or size > PAGE_BYTES:
                    return JobPage(ads=ads, next=last, reasons=reasons)
                hidden = viewer.hidden(job.cluster.user)
                packed = (
                    projected(updates.name, job, updates.now(), sorted(needed(job, keys) - hidden))
                    if keys
                    else full_packed(updates.name, job, now, hidden)
                )
                ads.append(packed)
                size += len(packed)
                last = str(job.id)
                if asked.reasons and str(job.autocluster) not in reasons and (why := told_of_first(updates.table, job)):
                    reasons[str(job.autocluster)] = why
                job.settle()
        return JobPage(ads=ads, reasons=reasons)

    async def _listed(
        self, stretches: AsyncIterator[Stretch], projection: Sequence[str], limit: int, viewer: Viewer
    ) -> JobPage:
        """A page in columns: many jobs are made and read in a fraction of the time."""
        keys = frozenset(map(fold, projection))
        page = Parts(PART_JOBS)
        last = ""
        async for stretch in stretches:
            room = limit - page.rows
            if room <= 0 or page.size > PAGE_BYTES:
                return JobPage(ads=[], columns=page.packed(), rows=page.rows, next=last)
            procs = stretch.procs[:room]
            for rows, columns in columns_of(self.updates, stretch, procs, keys, viewer):
                page.add(rows, columns)
            last = str(JobId(stretch.cluster.id, procs[-1]))
            if len(procs) < len(stretch.procs):
                return JobPage(ads=[], columns=page.packed(), rows=page.rows, next=last)
        return JobPage(ads=[], columns=page.packed(), rows=page.rows)
