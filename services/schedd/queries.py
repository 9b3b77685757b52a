"""Questions about jobs: those in the queue, page by page in (cluster, proc) order, and those that left it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from services.schedd import history
from services.schedd.jobs import Job, JobId, full_ad, full_packed
from services.schedd.keeper import Keeper
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd, Expr, ParseError, evaluate, is_true, parse_expr
from shared.classad.expr import fold
from shared.messages.queue import JobPage, QueryJobs

#: A page ends after so many jobs or bytes, whatever was asked for: a message must stay small.
PAGE_JOBS: Final = 5000
PAGE_BYTES: Final = 4 << 20
#: Seconds of work between two looks at other messages.
TURN_S: Final = 0.005
MAX_CONSTRAINT: Final = 100_000


def parse_constraint(text: str) -> Expr | None:
    """Raises RemoteFailure bad-request that says where the constraint is wrong."""
    if not text.strip():
        return None
    if len(text) > MAX_CONSTRAINT:
        raise RemoteFailure("bad-request", f"constraint: longer than {MAX_CONSTRAINT} characters")
    try:
        return parse_expr(text)
    except ParseError as error:
        raise RemoteFailure("bad-request", f"constraint: {error}") from error


def parse_ids(texts: Sequence[str]) -> list[JobId]:
    try:
        return [JobId.parse(text) for text in texts]
    except ValueError as error:
        raise RemoteFailure("bad-request", str(error)) from error


async def chosen(keeper: Keeper, ids: Sequence[str], constraint: str) -> tuple[list[Job], list[str]]:
    """(jobs chosen by ids and constraint, ids that name none). Raises RemoteFailure bad-request."""
    expr = parse_constraint(constraint)
    wanted = parse_ids(ids)
    missing: list[str] = []
    found: list[Job] = []
    if not wanted:
        found = list(keeper.table.jobs())
    for text, job_id in zip(ids, wanted, strict=True):
        cluster = keeper.table.clusters.get(job_id.cluster)
        if job_id.proc < 0 and cluster is not None:
            found += [cluster.jobs[proc] for proc in sorted(cluster.jobs)]
        elif (job := keeper.table.get(job_id)) is not None:
            found.append(job)
        else:
            missing.append(text)
    if expr is not None:
        found = await matching(keeper, found, expr)
    return found, missing


async def matching(keeper: Keeper, jobs: Sequence[Job], expr: Expr) -> list[Job]:
    """The jobs for which a constraint is true; others get their turn meanwhile."""
    now = keeper.now()
    found = []
    until = time.perf_counter() + TURN_S
    for job in jobs:
        if is_true(evaluate(expr, full_ad(keeper.name, job, now), None, now)):
            found.append(job)
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + TURN_S
    return found


class Queries:
    """Answers QueryJobs."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper

    async def query(self, asked: QueryJobs) -> JobPage:
        """One page. Raises RemoteFailure bad-request."""
        expr = parse_constraint(asked.constraint)
        ids = parse_ids(asked.ids)
        limit = min(asked.limit, PAGE_JOBS) if asked.limit > 0 else PAGE_JOBS
        if asked.history:
            return await history.page(
                self.keeper.queue, ids, expr, projection=asked.projection, limit=limit, after=asked.after
            )
        totals = self.keeper.table.totals()
        after = (-1, -1)
        if asked.after:
            cluster, proc = parse_ids([asked.after])[0]
            after = (cluster, proc)
        return await self._page(ids, expr, asked.projection, limit, after, totals)

    async def _page(
        self,
        ids: Sequence[JobId],
        expr: Expr | None,
        projection: Sequence[str],
        limit: int,
        after: tuple[int, int],
        totals: dict[str, int],
    ) -> JobPage:
        keeper, now = self.keeper, self.keeper.now()
        ads: list[bytes] = []
        size = 0
        last = ""
        until = time.perf_counter() + TURN_S
        for cluster_id in self._clusters(ids, after[0]):
            cluster = keeper.table.clusters.get(cluster_id)
            if cluster is None:
                continue
            for proc in self._procs(cluster_id, sorted(cluster.jobs), ids):
                job = cluster.jobs.get(proc)
                if job is None or (cluster_id, proc) <= after:
                    continue
                if time.perf_counter() > until:
                    await asyncio.sleep(0)
                    until = time.perf_counter() + TURN_S
                if expr is not None and not is_true(evaluate(expr, full_ad(keeper.name, job, now), None, now)):
                    continue
                if len(ads) == limit or size > PAGE_BYTES:
                    return JobPage(ads=ads, next=last, totals=totals)
                packed = (
                    project(full_ad(keeper.name, job, now), projection)
                    if projection
                    else full_packed(keeper.name, job, now)
                )
                ads.append(packed)
                size += len(packed)
                last = str(job.id)
        return JobPage(ads=ads, totals=totals)

    def _clusters(self, ids: Sequence[JobId], after: int) -> list[int]:
        known = {job_id.cluster for job_id in ids} if ids else self.keeper.table.clusters.keys()
        return sorted(number for number in known if number >= after)

    @staticmethod
    def _procs(cluster: int, procs: list[int], ids: Sequence[JobId]) -> list[int]:
        if not ids:
            return procs
        named = {job_id.proc for job_id in ids if job_id.cluster == cluster}
        return procs if -1 in named else [proc for proc in procs if proc in named]


def project(ad: ClassAd, names: Sequence[str]) -> bytes:
    """Only these attributes, packed."""
    table = ad.table()
    return ClassAd.from_table({key: table[key] for name in names if (key := fold(name)) in table}).pack()
