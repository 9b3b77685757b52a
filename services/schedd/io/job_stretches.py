"""Goes through the queue in order, and gives the jobs that fit a question, as many at a time as can be told of
together: packed jobs of one group, of which none is made, or jobs that are made. Others have their turn meanwhile."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final

from engine.queue.job_table import JobTable
from engine.queue.jobs import Cluster, Job, JobId
from engine.queue.packed_jobs import PackedJobs
from services.schedd.core.group_verdicts import Verdicts
from shared.classad.question import Question

#: Jobs of one stretch.
PART_JOBS: Final = 250
#: Jobs that are looked at between two looks at the time, where they are alike.
BLOCK: Final = 1000
#: Where fewer than one of so many jobs of a cluster are left, these are sorted for themselves.
FEW: Final = 8
FIRST: Final = JobId(-1, -1)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Jobs of a cluster in order. group: the packed ones are of; None: they are made. Good until the next await."""

    cluster: Cluster
    procs: list[int]
    group: PackedJobs | None

    def jobs(self) -> Iterator[Job]:
        """To look at: packed ones are made for it."""
        for proc in self.procs:
            job = self.cluster.jobs.peek(proc)
            if job is not None:
                yield job


async def fitting(
    question: Question,
    table: JobTable,
    verdicts: Verdicts,
    ids: Sequence[JobId],
    after: JobId | None = None,
    *,
    newest: bool = False,
    most: int = PART_JOBS,
) -> AsyncGenerator[Stretch, None]:
    """Jobs by cluster and proc that come after one; newest: the other way round, before it. ids: only these, proc -1
    for a whole cluster. Raises TooExpensive."""
    named: dict[int, set[int]] = {}
    for job_id in ids:
        named.setdefault(job_id.cluster, set()).add(job_id.proc)
    for number in sorted(named if ids else table.clusters, reverse=newest):
        cluster = table.clusters.get(number)
        if cluster is None or (after is not None and (number > after.cluster if newest else number < after.cluster)):
            continue
        bound = after.proc if after is not None and number == after.cluster else None
        some = named.get(number, {-1})
        if -1 in some:
            procs = await ordered(question, cluster, verdicts, bound, newest)
        else:
            procs = _of_these(sorted(some), bound, newest)
        async for stretch in of_cluster(question, cluster, verdicts, procs, most):
            yield stretch


async def of_cluster(
    question: Question, cluster: Cluster, verdicts: Verdicts, procs: Iterator[int], most: int = PART_JOBS
) -> AsyncGenerator[Stretch, None]:
    """Those of these jobs that there are and that fit."""
    jobs = cluster.jobs
    part: list[int] = []
    of: PackedJobs | None = None
    while block := list(islice(procs, BLOCK)):
        at = 0
        while at < len(block):
            if question.due():
                if part:  # they may change meanwhile
                    yield Stretch(cluster, part, of)
                    part = []
                await question.yield_if_due()
            group = jobs.group_of(block[at])
            verdict = verdicts.of_group(cluster, group) if group is not None else None
            row: Sequence[int] = block[at : at + 1]
            if group is not None and verdict is not None:
                row = group.row(block, at)
            else:
                verdict = _fits(cluster, group, verdicts, row[0])
            at += len(row)
            if not verdict:
                continue
            if part and group is not of:
                yield Stretch(cluster, part, of)
                part = []
            of = group
            part += row
            while len(part) > most:
                yield Stretch(cluster, part[:most], of)
                part = part[most:]
    if part:
        yield Stretch(cluster, part, of)


def _fits(cluster: Cluster, group: PackedJobs | None, verdicts: Verdicts, proc: int) -> bool:
    if group is not None:
        return verdicts.of_packed(cluster, group, proc)
    job = cluster.jobs.peek(proc)
    return job is not None and verdicts.of_job(job)


async def ordered(
    question: Question,
    cluster: Cluster,
    verdicts: Verdicts,
    bound: int | None = None,
    newest: bool = False,
    without: Callable[[PackedJobs], bool] = lambda _: False,
) -> Iterator[int]:
    """Procs of a cluster in order, from the one after `bound` on, less those of groups of which none fits, and of those
    that are left out by `without`."""
    jobs = cluster.jobs
    out: list[PackedJobs] = []
    passed_over = True  # by whoever goes through them, too
    for group in list(jobs.groups):
        await question.yield_if_due()
        if group.ads and without(group):
            passed_over = False
            out.append(group)
        elif group.ads and verdicts.of_group(cluster, group) is False:
            out.append(group)
    if passed_over and sum(len(group.ads) for group in out) * FEW <= len(jobs) * (FEW - 1):
        # Each page of many would have to sort what comes after it.
        return jobs.preceding(bound) if newest else jobs.following(-1 if bound is None else bound)
    groups = (group.ads for group in jobs.groups if all(group is not one for one in out))
    return _of_these(sorted(chain(jobs.made_procs(), *groups)), bound, newest)


def _of_these(procs: Sequence[int], bound: int | None, newest: bool) -> Iterator[int]:
    """procs: ascending, -1 stands for none."""
    if newest:
        end = len(procs) if bound is None else bisect_left(procs, bound)
        return (procs[place] for place in range(end - 1, -1, -1))
    return (procs[place] for place in range(bisect_right(procs, -1 if bound is None else bound), len(procs)))
