"""Counts jobs that are alike, cluster by cluster. Packed jobs that differ in nothing that is asked are not looked at
one by one, so it takes no longer with a million of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Final

from engine.queue.hold_reasons import kind
from engine.queue.job_columns import packed_columns
from engine.queue.jobs import Cluster, JobId
from engine.queue.packed_jobs import PackedJobs
from services.schedd.core.group_verdicts import Verdicts
from services.schedd.core.rights import Viewer
from services.schedd.io.column_parts import Parts, columns_of
from services.schedd.io.job_stretches import Stretch, of_cluster, ordered
from services.schedd.io.job_updates import JobUpdates
from shared.bus.api import RemoteFailure
from shared.classad.expr import fold
from shared.classad.question import Question
from shared.messages.queue import ALIKE, JobPage, QueryJobs

#: Lines of one cluster, and of an answer unless one cluster has more; and its bytes.
MOST_LINES: Final = 10_000
PAGE_LINES: Final = 5000
PAGE_BYTES: Final = 4 << 20

#: Of this attribute texts that differ in numbers and paths only are one.
_REASON: Final = "holdreason"

#: What jobs that are alike have of the attributes that they are counted by.
_Values = tuple[Any, ...]


async def counted(
    question: Question, updates: JobUpdates, viewer: Viewer, verdicts: Verdicts, ids: Sequence[JobId], asked: QueryJobs
) -> JobPage:
    """A page of lines, cluster by cluster, see QueryJobs.by. Raises RemoteFailure bad-request where one cluster has too
    many, TooExpensive."""
    wanted = {job_id.cluster for job_id in ids}
    if any(job_id.proc >= 0 for job_id in ids) or (asked.after and not asked.after.isdecimal()):
        raise RemoteFailure("bad-request", "by: jobs of whole clusters are counted; name these by their numbers")
    after = int(asked.after) if asked.after else -1
    by = frozenset(map(fold, asked.by))
    shown = frozenset(map(fold, asked.projection))
    page = Parts()
    last = after
    clusters = updates.table.clusters
    for number in sorted(number for number in (wanted or clusters) if number > after):
        cluster = clusters.get(number)
        if cluster is None:
            continue
        if page.rows >= PAGE_LINES or page.size > PAGE_BYTES:
            return JobPage(ads=[], columns=page.packed(), rows=page.rows, next=str(last))
        lines = await _count(question, updates, viewer, verdicts, cluster, by)
        for first, count in sorted(lines.values()):
            await question.yield_if_due()
            group = cluster.jobs.group_of(first)
            for rows, columns in columns_of(updates, Stretch(cluster, [first], group), [first], shown, viewer):
                page.add(rows, [*columns, (ALIKE, [count])])
        last = number
    return JobPage(ads=[], columns=page.packed(), rows=page.rows)


async def _count(
    question: Question, updates: JobUpdates, viewer: Viewer, verdicts: Verdicts, cluster: Cluster, by: frozenset[str]
) -> dict[_Values, list[int]]:
    """[first proc, how many] of the jobs of a cluster that fit."""
    found: dict[_Values, list[int]] = {}
    whole: dict[int, PackedJobs] = {}
    for group in list(cluster.jobs.groups):
        await question.yield_if_due()
        if not group.ads or verdicts.of_group(cluster, group) is not True:
            continue
        first = next(iter(group.ads))
        columns = packed_columns(updates.name, cluster, group, [first], updates.now(), by, viewer.hidden(cluster.user))
        if (by | {fold(name) for name, _ in columns}).isdisjoint(group.names | {"procid", "globaljobid"}):
            whole[id(group)] = group
            _put(found, _values(by, columns)[0], min(group.ads), len(group.ads))
    procs = await ordered(question, cluster, verdicts, without=lambda group: id(group) in whole)
    async with aclosing(of_cluster(question, cluster, verdicts, procs)) as stretches:
        async for stretch in stretches:
            at = 0
            for rows, columns in columns_of(updates, stretch, stretch.procs, by, viewer):
                for values in _values(by, columns, rows):
                    _put(found, values, stretch.procs[at], 1)
                    at += 1
            if len(found) > MOST_LINES:
                raise RemoteFailure(
                    "bad-request",
                    f"by: the jobs of cluster {cluster.id} are of more than {MOST_LINES} kinds; name attributes in "
                    "which fewer of them differ",
                )
    return found


def _values(by: frozenset[str], columns: Sequence[tuple[str, list[Any]]], rows: int = 1) -> list[_Values]:
    """What each job has: 1, 1.0 and True are equal to Python, not to a ClassAd."""
    asked = {key: cells for name, cells in columns if (key := fold(name)) in by}
    if _REASON in asked:
        asked[_REASON] = [kind(cell) if isinstance(cell, str) else cell for cell in asked[_REASON]]
    if not asked:
        return [()] * rows
    names = sorted(asked)  # a column that no job of a lot has is left out of it
    return [
        tuple((name, type(cell).__name__, cell) for name, cell in zip(names, cells, strict=True) if cell is not None)
        for cells in zip(*(asked[name] for name in names), strict=True)
    ]


def _put(found: dict[_Values, list[int]], values: _Values, first: int, count: int) -> None:
    line = found.setdefault(values, [first, 0])
    line[0] = min(line[0], first)
    line[1] += count
