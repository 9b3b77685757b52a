"""Questions about jobs: those in the queue, page by page in (cluster, proc) order; those that left it; and the
negotiator's, which is told each submitter's idle jobs in order, as resource requests (spec rows NEG-15, NEG-29 to
NEG-31)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from engine.queue import late_materialization
from engine.queue.autoclusters import looked_at
from engine.queue.idle_queue import IdleQueue, JobRange
from engine.queue.job_table import JobTable
from engine.queue.jobs import Cluster, Job, JobId, full_ad, full_packed, in_columns, needed, projected
from services.schedd.core.group_verdicts import Verdicts
from services.schedd.core.rights import Viewer
from services.schedd.io import history
from services.schedd.io.job_updates import JobUpdates
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd, Expr, ParseError, column_page, evaluate, is_true, parse_expr
from shared.classad.budget import Budget
from shared.classad.expr import fold
from shared.classad.question import Question
from shared.cooperative import Yielder, reading
from shared.messages.negotiation import GetRequests, RequestList, ResourceRequest
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
#: Jobs of one part of a page in columns, so that its size is known in time; and columns of it.
PART_JOBS: Final = 250
MOST_COLUMNS: Final = 300


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
) -> tuple[list[JobId], list[str], bool]:
    """(jobs chosen by ids and constraint in their order, ids that name none, whether there are more). viewer: the
    constraint is about what this one sees. after: only jobs that come after this one; limit: at most so many, 0: all.
    Raises RemoteFailure bad-request, TooExpensive."""
    expr = await parse_constraint(constraint)
    wanted = parse_ids(ids)
    table = updates.table
    missing = [text for text, job_id in zip(ids, wanted, strict=True) if not _is_there(table, job_id)]
    last = parse_ids([after])[0] if after else JobId(-1, -1)
    found: list[JobId] = []
    now = updates.now()
    verdicts = Verdicts(expr, lambda job: seen(updates, job, viewer, now), now)
    for cluster, proc in ids_in_order(table, wanted, last):
        if verdicts.holds(cluster, proc):
            if len(found) == limit > 0:
                return found, missing, True
            found.append(JobId(cluster.id, proc))
        await question.yield_if_due()
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


def seen(updates: JobUpdates, job: Job, viewer: Viewer, now: float) -> ClassAd:
    """The whole ad of a job, as far as this one sees it."""
    return full_ad(updates.name, job, now, viewer.hidden(job.cluster.user))


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


def ids_in_order(table: JobTable, ids: Sequence[JobId], after: JobId) -> Iterator[tuple[Cluster, int]]:
    """Queued jobs that come after one, by cluster and proc; ids: only these, proc -1 for a whole cluster. Jobs may come
    and go meanwhile: some of those that are told are no more."""
    named: dict[int, set[int]] = {}
    for job_id in ids:
        named.setdefault(job_id.cluster, set()).add(job_id.proc)
    for number in sorted(number for number in (named if ids else table.clusters) if number >= after.cluster):
        cluster = table.clusters.get(number)
        if cluster is None:
            continue
        procs = named.get(number, {-1})
        last = after.proc if number == after.cluster else -1
        for proc in cluster.jobs.following(last) if -1 in procs else sorted(proc for proc in procs if proc > last):
            yield cluster, proc


def in_order(table: JobTable, ids: Sequence[JobId], after: JobId) -> Iterator[Job]:
    """The jobs of ids_in_order, to look at."""
    for cluster, proc in ids_in_order(table, ids, after):
        job = cluster.jobs.peek(proc)
        if job is not None:
            yield job


def newest_first(table: JobTable, ids: Sequence[JobId], before: JobId | None) -> Iterator[Job]:
    """Queued jobs before one (None: all), the last cluster and proc first, to look at. Jobs may come and go
    meanwhile."""
    named: dict[int, set[int]] = {}
    for job_id in ids:
        named.setdefault(job_id.cluster, set()).add(job_id.proc)
    for number in sorted((named if ids else table.clusters), reverse=True):
        cluster = table.clusters.get(number)
        if cluster is None or (before is not None and number > before.cluster):
            continue
        procs = named.get(number, {-1})
        end = before.proc if before is not None and number == before.cluster else None
        some = sorted((proc for proc in procs if end is None or proc < end), reverse=True)
        for proc in cluster.jobs.preceding(end) if -1 in procs else some:
            job = cluster.jobs.peek(proc)
            if job is not None:
                yield job


class Queries:
    """Answers QueryJobs."""

    def __init__(self, updates: JobUpdates) -> None:
        self.updates = updates

    async def query(self, asked: QueryJobs) -> JobPage:
        """One page. Raises RemoteFailure bad-request, TooExpensive."""
        async with Question(Budget("this query")) as question:
            return await self._answer(question, asked)

    async def _answer(self, question: Question, asked: QueryJobs) -> JobPage:
        if len(asked.projection) > MOST_NAMES:
            reason = f"projection: {len(asked.projection)} names, at most {MOST_NAMES} are taken"
            raise RemoteFailure("bad-request", reason)
        expr = await parse_constraint(asked.constraint)
        ids = parse_ids(asked.ids)
        limit = min(asked.limit, PAGE_JOBS) if asked.limit > 0 else PAGE_JOBS
        viewer = Viewer(asked.user, asked.admin, self.updates.settings.rights)
        if asked.history:
            await self._have_left(ids)
            return await history.page(
                question, self.updates.queue, ids, expr, self._past(viewer),
                projection=asked.projection, limit=limit, after=asked.after,
            )  # fmt: skip
        if asked.factories:
            return await self._factories(question, ids, expr, asked, viewer)
        totals = self.updates.table.totals()
        after = parse_ids([asked.after])[0] if asked.after else None
        table = self.updates.table
        jobs = newest_first(table, ids, after) if asked.newest else in_order(table, ids, after or JobId(-1, -1))
        if asked.columns and asked.projection:
            page = await self._listed(question, jobs, expr, asked.projection, limit, totals, viewer)
        else:
            page = await self._page(question, jobs, expr, asked.projection, limit, totals, viewer)
        return page.model_copy(update={"scheduler_totals": table.scheduler_totals()})

    async def _have_left(self, ids: Sequence[JobId]) -> None:
        """Wait until the history has whoever left the queue before: who asks the queue first, and then the history,
        finds every job. Raises RemoteFailure unavailable where one of these can not get there, as the disk is full."""
        queue = self.updates.queue
        leaving = queue.leaving()
        if leaving and not queue.full:
            await queue.commit()
        elif any(JobId(cluster, proc) in ids or JobId(cluster, -1) in ids for cluster, proc in leaving):
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

    async def _page(
        self,
        question: Question,
        jobs: Iterator[Job],
        expr: Expr | None,
        projection: Sequence[str],
        limit: int,
        totals: dict[str, int],
        viewer: Viewer,
    ) -> JobPage:
        updates, now = self.updates, self.updates.now()
        ads: list[bytes] = []
        size = 0
        last = ""
        keys = [fold(name) for name in projection]
        for job in jobs:
            await question.yield_if_due()
            if expr is not None and not is_true(evaluate(expr, seen(updates, job, viewer, now), None, now)):
                continue
            if len(ads) == limit or size > PAGE_BYTES:
                return JobPage(ads=ads, next=last, totals=totals)
            hidden = viewer.hidden(job.cluster.user)
            packed = (
                projected(updates.name, job, updates.now(), sorted(needed(job, keys) - hidden))
                if keys
                else full_packed(updates.name, job, now, hidden)
            )
            ads.append(packed)
            size += len(packed)
            last = str(job.id)
            job.settle()
        return JobPage(ads=ads, totals=totals)

    async def _listed(
        self,
        question: Question,
        jobs: Iterator[Job],
        expr: Expr | None,
        projection: Sequence[str],
        limit: int,
        totals: dict[str, int],
        viewer: Viewer,
    ) -> JobPage:
        """A page in columns: many jobs are made and read in a fraction of the time."""
        updates, now = self.updates, self.updates.now()
        keys = frozenset(map(fold, projection))
        parts: list[bytes] = []
        rows = size = 0
        last = ""
        part: list[Job] = []
        names = set(keys)

        def put() -> None:
            nonlocal rows, size, last
            if part:
                hidden = None if viewer.private.isdisjoint(names) else viewer.hidden
                parts.append(column_page.page(len(part), in_columns(updates.name, part, updates.now(), names, hidden)))
                rows, size, last = rows + len(part), size + len(parts[-1]), str(part[-1].id)
                for job in part:
                    job.settle()
                part.clear()
                names.intersection_update(keys)

        for job in jobs:
            await question.yield_if_due()
            if expr is not None and not is_true(evaluate(expr, seen(updates, job, viewer, now), None, now)):
                continue
            # One job's many names of its own would be columns of all.
            wanted = needed(job, keys)
            if len(part) == PART_JOBS or len(names | wanted) > MOST_COLUMNS:
                put()
            if rows + len(part) == limit or size > PAGE_BYTES:
                put()
                return JobPage(ads=[], columns=b"".join(parts), rows=rows, next=last, totals=totals)
            part.append(job)
            names |= wanted
        put()
        return JobPage(ads=[], columns=b"".join(parts), rows=rows, totals=totals)


#: Negotiators whose cycles are remembered.
MAX_SHARDS: Final = 100
#: Of one answer, all submitters together. A job's ad may have a megabyte, and a message has an end.
MAX_ANSWER_BYTES: Final = 4 << 20
#: Of a request, besides its ad: so that there are no more requests in an answer than it may have values.
_OVERHEAD: Final = 640


class ResourceRequests:
    """Answers GetRequests."""

    def __init__(self, updates: JobUpdates) -> None:
        self.updates = updates
        self._verdicts: dict[str, tuple[tuple[int, int, str], dict[int, bool]]] = {}

    async def get(self, asked: GetRequests) -> RequestList:
        """Raises RemoteFailure bad-request for a constraint that is no expression, TooExpensive for one that costs too
        much.

        No submitter may fill the answer with huge ads: each has an equal part of what is left of it, and what does not
        fit comes with the next question. Only where nothing else was listed one request may exceed it.
        """
        table = self.updates.table
        constraint = await parse_constraint(asked.job_constraint)
        # A match is for an autocluster: the constraint must not divide one.
        yielder = Yielder()
        for job in table.set_significant(asked.significant, looked_at(constraint)):
            table.refresh(job)
            await yielder.yield_if_due()
        if table.sorting:
            self.updates.publish_autoclusters()
        counts = asked.counts and self.updates.settings.request_counts
        requests: dict[str, list[ResourceRequest]] = {}
        more: list[str] = []
        left = MAX_ANSWER_BYTES
        for number, submitter in enumerate(asked.submitters):
            idle = table.idle.get(submitter)
            if idle is None or not idle.total:
                continue
            skip = max(0, asked.skip.get(submitter, 0))
            limit = asked.limit if asked.limit > 0 else 200
            only = await self._allowed(idle, constraint, asked) if constraint is not None else None
            runs, goes_on = idle.runs(limit, skip=skip, counts=counts, only=only)
            part = left // (len(asked.submitters) - number)
            listed: list[ResourceRequest] = []
            size = 0
            for run in runs:
                request = self._request(run)
                needs = len(request.ad) + _OVERHEAD
                if size + needs > part and (listed or left < MAX_ANSWER_BYTES):
                    goes_on = True
                    break
                listed.append(request)
                size += needs
            left -= size
            requests[submitter] = listed
            await yielder.yield_if_due()
            if goes_on:
                more.append(submitter)
        return RequestList(requests=requests, more=more)

    def _request(self, run: JobRange) -> ResourceRequest:
        job = self.updates.table.at(run.first)
        return ResourceRequest(
            autocluster=run.autocluster,
            count=run.count,
            # Slots' owners write what is evaluated with it, in the negotiator: they learn nothing private by that.
            ad=full_packed(self.updates.name, job, self.updates.now(), self.updates.settings.rights.private),
            first_job=str(job.queued_id),
        )

    async def _allowed(self, idle: IdleQueue, constraint: Expr, asked: GetRequests) -> frozenset[int]:
        """The autoclusters that the constraint is true for: all jobs of one agree in what it looks at. Each is asked
        about once a cycle, and others get their turn meanwhile."""
        verdicts = self._verdicts_of(asked)
        now = self.updates.now()
        async with Question(Budget("NEGOTIATOR_JOB_CONSTRAINT")) as question:
            for autocluster in list(idle.buckets):
                if autocluster not in verdicts and (key := idle.first(autocluster)) is not None:
                    ad = full_ad(self.updates.name, self.updates.table.at(key), now)
                    verdicts[autocluster] = is_true(evaluate(constraint, ad, None, now))
                    await question.yield_if_due()
        return frozenset(autocluster for autocluster in idle.buckets if verdicts.get(autocluster))

    def _verdicts_of(self, asked: GetRequests) -> dict[int, bool]:
        """The verdicts on autoclusters in this cycle of this negotiator. They end with it: a constraint may look at the
        clock."""
        if len(self._verdicts) > MAX_SHARDS:
            self._verdicts.clear()
        cycle = (asked.epoch, asked.cycle, asked.job_constraint)
        known = self._verdicts.get(asked.shard)
        if known is None or known[0] != cycle:
            known = self._verdicts[asked.shard] = (cycle, {})
        return known[1]
