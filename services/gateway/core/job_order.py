"""Jobs of all queues in the order of a column. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shared.classad import ClassAd
from shared.classad.cells import PackedText
from shared.classad.column_page import Sheet

_JOB: Final = ("ClusterId", "ProcId")
_PLAIN: Final = frozenset((str, int, float, bool))
#: How jobs may be sorted, and by which attribute: the first of them that a job has.
ORDERS: Final[Mapping[str, Sequence[str]]] = {
    "job": (),
    "status": ("JobStatus",),
    "user": ("AccountingGroup", "User", "Owner"),
    "batch": ("JobBatchName",),
    "command": ("Cmd",),
    "since": ("EnteredCurrentStatus",),
    "submitted": ("QDate",),
    "priority": ("JobPrio",),
    "starts": ("NumJobStarts",),
    "cpus": ("RequestCpus",),
    "memory": ("RequestMemory",),
}


def fields(name: str) -> tuple[str, ...]:
    """What is read of each job for this one of ORDERS."""
    return (*_JOB, *ORDERS[name])


@dataclass(frozen=True, slots=True)
class Place:
    """A job where it comes in the order."""

    schedd: str
    job_id: str


class SortedJobs:
    """`add` the jobs of all queues, newest first, then `sort` them, then read pages. by: one of ORDERS. Of jobs that
    are alike the newest come first; those that lack the attribute come last, either way."""

    def __init__(self, by: str, *, descending: bool) -> None:
        self._by, self._descending = by, descending
        self._schedds: list[str] = []
        self._of: list[int] = []  # for each job its place in `_schedds`
        self._ids: list[tuple[int, int]] = []
        self._numbers: list[float | None] = []
        self._texts: list[str | None] = []
        self._order: list[int] = []

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, schedd: str, jobs: Sheet) -> None:
        """Some more jobs of a schedd."""
        columns = [_values(jobs, name) for name in ORDERS[self._by]]
        clusters, procs = jobs.cells("clusterid"), jobs.cells("procid")
        for place, (cluster, proc) in enumerate(zip(clusters, procs, strict=True)):
            values = (column[place] for column in columns if column[place] is not None)
            self._put(schedd, cluster, proc, next(values, None))

    def add_ad(self, schedd: str, job: ClassAd) -> None:
        values = (job.eval(name) for name in ORDERS[self._by] if job.lookup(name) is not None)
        self._put(schedd, job.eval("ClusterId"), job.eval("ProcId"), next(values, None))

    def _put(self, schedd: str, cluster: object, proc: object, value: object) -> None:
        if not isinstance(cluster, int) or not isinstance(proc, int):
            return
        if not self._schedds or self._schedds[-1] != schedd:
            self._schedds.append(schedd)
        self._of.append(len(self._schedds) - 1)
        self._ids.append((cluster, proc))
        if self._by == "job":
            value = (cluster << 32) + proc
        number = isinstance(value, int | float) and math.isfinite(value)
        self._numbers.append(float(value) if number else None)  # type: ignore[arg-type]
        self._texts.append(_shown(self._by, value) if isinstance(value, str) else None)

    def sort(self) -> None:
        """To be called when all jobs are there, by a thread of its own: numbers first, then texts."""
        numbers = [place for place, value in enumerate(self._numbers) if value is not None]
        texts = [place for place, value in enumerate(self._texts) if value is not None]
        # What is compared is of one type and looked up in C: 100,000 of them hold up others for some 20 ms.
        numbers.sort(key=_of(self._numbers), reverse=self._descending)
        texts.sort(key=_of(self._texts), reverse=self._descending)
        parts = [texts, numbers] if self._descending else [numbers, texts]
        known = set(numbers).union(texts)
        self._order = [*parts[0], *parts[1], *(place for place in range(len(self._ids)) if place not in known)]

    def page(self, after: int, limit: int) -> list[Place]:
        """The next `limit` after the first `after`."""
        return [
            Place(self._schedds[self._of[place]], "{}.{}".format(*self._ids[place]))
            for place in self._order[after : after + limit]
        ]


def _values(jobs: Sheet, name: str) -> Sequence[object]:
    """What jobs have under a name: an expression (RequestMemory is one where nobody asked for so much) as its value in
    that job. Of jobs that are alike in all that was read it is worked out once."""
    cells = jobs.cells(name.lower())
    if all(cell is None or cell.__class__ in _PLAIN for cell in cells):
        return cells
    others = [jobs.cells(other.lower()) for other in jobs.names() if other not in _JOB]
    known: dict[tuple[object, ...], object] = {}
    found: list[object] = []
    for place, cell in enumerate(cells):
        if cell is None or cell.__class__ in _PLAIN:
            found.append(cell)
            continue
        key = tuple(_mark(column[place]) for column in others)
        if key not in known:
            known[key] = jobs[place].eval(name)
        found.append(known[key])
    return found


def _mark(cell: object) -> object:
    return cell.data if isinstance(cell, PackedText) else cell if cell.__class__ in _PLAIN else id(cell)


def _of(values: Sequence[Any]) -> Callable[[int], Any]:
    return values.__getitem__


def _shown(by: str, text: str) -> str:
    """A text as its column shows it, whatever its case."""
    return (text.rpartition("/")[2] if by == "command" else text).lower()
