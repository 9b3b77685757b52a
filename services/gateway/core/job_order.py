"""Jobs of all queues in the order of a column. Pure."""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shared.classad import ClassAd
from shared.classad.cells import PackedText
from shared.classad.column_page import Sheet

_JOB: Final = ("ClusterId", "ProcId")
_PLAIN: Final = frozenset((str, int, float, bool))
#: An id is one number of 64 bits.
_MOST_CLUSTER, _MOST_PROC = 1 << 31, 1 << 32
#: More different texts are not sorted: their table would take long to grow.
MOST_TEXTS: Final = 1_000_000
#: Texts that are sorted in one go: some milliseconds.
_AT_ONCE: Final = 10_000
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


class TooMany(ValueError):
    """They can not be sorted without holding others up."""


class _Queue:
    """The jobs of one schedd: some twenty bytes each, as a million of them are sorted."""

    def __init__(self) -> None:
        self.ids = array("q")  # cluster << 32 | proc
        self.numbers = array("d")  # NaN: its value is no number
        self.texts = array("i")  # place in SortedJobs._texts; -1: its value is no text


class SortedJobs:
    """`add` the jobs of all queues, newest first, then `sort` them, then read pages. by: one of ORDERS. Of jobs that
    are alike the newest come first, schedd by schedd; those that lack the attribute come last, either way."""

    def __init__(self, by: str, *, descending: bool) -> None:
        self._by, self._descending = by, descending
        self._queues: dict[str, _Queue] = {}
        self._texts: dict[str, int] = {}  # each of them once
        self._schedds: list[str] = []
        self._ids: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # in their order
        self._of: NDArray[np.uint16] = np.zeros(0, dtype=np.uint16)  # for each job its place in `_schedds`

    def __len__(self) -> int:
        """How many are in their order."""
        return len(self._ids)

    def add(self, schedd: str, jobs: Sheet) -> None:
        """Some more jobs of a schedd. Raises TooMany."""
        columns = [_values(jobs, name) for name in ORDERS[self._by]]
        clusters, procs = jobs.cells("clusterid"), jobs.cells("procid")
        for place, (cluster, proc) in enumerate(zip(clusters, procs, strict=True)):
            values = (column[place] for column in columns if column[place] is not None)
            self._put(schedd, cluster, proc, next(values, None))

    def add_ad(self, schedd: str, job: ClassAd) -> None:
        """Raises TooMany."""
        values = (job.eval(name) for name in ORDERS[self._by] if job.lookup(name) is not None)
        self._put(schedd, job.eval("ClusterId"), job.eval("ProcId"), next(values, None))

    def _put(self, schedd: str, cluster: object, proc: object, value: object) -> None:
        if not isinstance(cluster, int) or not isinstance(proc, int):
            return
        if not (0 <= cluster < _MOST_CLUSTER and 0 <= proc < _MOST_PROC):
            return
        queue = self._queues.get(schedd)
        if queue is None:
            queue = self._queues[schedd] = _Queue()
        queue.ids.append((cluster << 32) + proc)
        if self._by == "job":
            value = (cluster << 32) + proc
        number = isinstance(value, int | float) and math.isfinite(value)
        queue.numbers.append(value if number else math.nan)  # type: ignore[arg-type]
        text = -1
        if isinstance(value, str):
            text = self._texts.setdefault(_shown(self._by, value), len(self._texts))
            if text >= MOST_TEXTS:
                raise TooMany(f"more than {MOST_TEXTS:,} different values of {self._by} are not sorted")
        queue.texts.append(text)

    def sort(self) -> None:
        """To be called once, when all jobs are there, by a thread of its own: numbers first, then texts. Others have
        their turn meanwhile, whatever the number of jobs: NumPy lets them while it sorts, and texts are sorted part by
        part."""
        self._schedds = sorted(self._queues)
        queues = [self._queues.pop(name) for name in self._schedds]
        if not queues:
            return
        ids = np.concatenate([np.frombuffer(one.ids, dtype=np.int64) for one in queues])
        of = np.repeat(np.arange(len(queues), dtype=np.uint16), [len(one.ids) for one in queues])
        numbers = np.concatenate([np.frombuffer(one.numbers, dtype=np.float64) for one in queues])
        words = np.concatenate([np.frombuffer(one.texts, dtype=np.int32) for one in queues])
        texts = list(self._texts)
        while self._texts:
            self._texts.popitem()
        ranks = _ranks(texts)
        numbered, worded = np.flatnonzero(~np.isnan(numbers)), np.flatnonzero(words >= 0)
        parts = [_ordered(numbered, numbers[numbered], descending=self._descending)]
        parts.append(_ordered(worded, ranks[words[worded]], descending=self._descending))
        if self._descending:
            parts.reverse()
        order = np.concatenate([*parts, np.flatnonzero(np.isnan(numbers) & (words < 0))])
        self._ids, self._of = ids[order], of[order]

    def page(self, after: int, limit: int) -> list[Place]:
        """The next `limit` after the first `after`."""
        there = slice(after, after + limit)
        return [
            Place(self._schedds[place], f"{one >> 32}.{one & 0xFFFFFFFF}")
            for place, one in zip(self._of[there].tolist(), self._ids[there].tolist(), strict=True)
        ]


def _ordered(places: NDArray[Any], keys: NDArray[Any], *, descending: bool) -> NDArray[Any]:
    """These places by their keys; of equal ones the first first, either way."""
    return places[np.argsort(-keys if descending else keys, kind="stable")]


def _ranks(texts: list[str]) -> NDArray[np.int64]:
    """For each of them, which differ, how many come before it; the list is empty then. Sorting, and letting go of them,
    hold the interpreter, so it is done part by part."""
    starts = range(0, len(texts), _AT_ONCE)
    parts = [sorted(range(start, min(start + _AT_ONCE, len(texts))), key=texts.__getitem__) for start in starts]
    ranks = np.zeros(len(texts), dtype=np.int64)
    for rank, place in enumerate(heapq.merge(*parts, key=texts.__getitem__)):
        ranks[place] = rank
    while texts:
        del texts[-_AT_ONCE:]
    return ranks


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


def _shown(by: str, text: str) -> str:
    """A text as its column shows it, whatever its case."""
    return (text.rpartition("/")[2] if by == "command" else text).lower()
