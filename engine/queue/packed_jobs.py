"""Jobs that stay packed: those that wait, differ from their cluster in nothing that anybody decides by, and were needed
by nobody since they came. They are kept as the bytes that the database has of them, for a tenth of what a job takes.

A job is packed from when it comes (or is read from the database) until somebody asks for it; then it is made, and
stays. So who has a job has the only one. Who only looks takes a `peek`: it is as the job is, and is not to be changed.
Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

#: Attributes (folded) of which a packed job has none of its own: each makes somebody look at it, or places it in
#: another row of the queue. What slots look at is known to the autoclusters only.
LOOKED_AT: Final = frozenset(
    [
        *("isnoopjob", "skipifdataflow", "deferraltime", "jobcooldownexpiration", "jobuniverse"),
        *("cronminute", "cronhour", "crondayofmonth", "cronmonth", "crondayofweek"),
        *("timerremove", "periodichold", "periodicrelease", "periodicremove", "periodicvacate"),
        *("allowedjobduration", "allowedexecuteduration", "leavejobinqueue"),
        *("jobprio", "accountinggroup", "niceuser"),
    ]
)


@dataclass(slots=True)
class PackedJobs:
    """The packed jobs of one cluster. All are idle, and have in common what stands here besides `ads`."""

    priority: int
    submitter: str
    idle_from: float  # Job.idle_from
    names: set[str] = field(default_factory=set)  # folded names of attributes that some of them have of their own
    ads: dict[int, bytes] = field(default_factory=dict)  # by proc: what is its own, packed
    autocluster: int = 0
    generation: int = -1  # of the significant attributes that `autocluster` belongs to
    sorted_as: int = 0  # Job.sorted_as
    offered: bool = False  # they stand in the idle queue


J = TypeVar("J")


class JobMap(Mapping[int, J], Generic[J]):
    """The jobs of a cluster, by proc. Reading one makes it; `in`, `len` and going through the procs make none."""

    __slots__ = ("_made", "_order", "_unpack", "packed")

    def __init__(self) -> None:
        self._made: dict[int, J] = {}
        #: Makes a job. It knows the cluster, so it is there only while jobs are packed: a circle would be freed late.
        self._unpack: Callable[[PackedJobs, int, bytes], J] | None = None
        self._order: list[int] | None = None  # all procs, ascending, and perhaps some that are gone
        self.packed: PackedJobs | None = None

    def __getitem__(self, proc: int) -> J:
        job = self._made.get(proc)
        if job is None:
            job = self._make(proc, keep=True)
            if job is None:
                raise KeyError(proc)
        return job

    def peek(self, proc: int) -> J | None:
        """The job to look at, not to change; None: there is none."""
        job = self._made.get(proc)
        return self._make(proc, keep=False) if job is None else job

    def _make(self, proc: int, *, keep: bool) -> J | None:
        packed, unpack = self.packed, self._unpack
        ad = packed.ads.get(proc) if packed is not None else None
        if packed is None or unpack is None or ad is None:
            return None
        job = unpack(packed, proc, ad)
        if keep:
            self._made[proc] = job
            del packed.ads[proc]
            if not packed.ads:
                self.packed = self._unpack = None
        return job

    def __setitem__(self, proc: int, job: J) -> None:
        order = self._order
        if order is not None and proc not in self:
            if order and proc < order[-1]:
                self._order = None
            else:
                order.append(proc)
        self._made[proc] = job

    def __delitem__(self, proc: int) -> None:
        """Of a job that is not packed."""
        del self._made[proc]
        if self._order is not None and len(self) < len(self._order) // 2:
            self._order = None

    def add_packed(self, packed: PackedJobs, unpack: Callable[[PackedJobs, int, bytes], J]) -> None:
        """Take jobs that are not here yet, while none is packed. unpack: makes the job of a proc."""
        self.packed, self._unpack = packed, unpack
        self._order = None

    def __iter__(self) -> Iterator[int]:
        """A snapshot, as who reads what it gives makes jobs."""
        return iter(self._procs())

    def _procs(self) -> list[int]:
        return [*self._made, *(self.packed.ads if self.packed is not None else ())]

    def __len__(self) -> int:
        return len(self._made) + (len(self.packed.ads) if self.packed is not None else 0)

    def __contains__(self, proc: object) -> bool:
        return proc in self._made or (self.packed is not None and proc in self.packed.ads)

    def made(self) -> list[J]:
        """The jobs that are not packed, by proc."""
        return [self._made[proc] for proc in sorted(self._made)]

    def following(self, proc: int) -> Iterator[int]:
        """Procs after this one, ascending; those of jobs that leave meanwhile too."""
        order = self._ordered()
        for place in range(bisect_right(order, proc), len(order)):
            yield order[place]

    def preceding(self, proc: int | None) -> Iterator[int]:
        """Procs before this one (None: all), descending; those of jobs that leave meanwhile too."""
        order = self._ordered()
        end = len(order) if proc is None else bisect_left(order, proc)
        for place in range(end - 1, -1, -1):
            yield order[place]

    def _ordered(self) -> list[int]:
        if self._order is None:
            self._order = sorted(self._procs())
        return self._order


def may_be_packed(names: Collection[str]) -> bool:
    """Whether nobody looks at an idle job with own attributes of these names (folded) before it starts, as far as
    these tell."""
    return LOOKED_AT.isdisjoint(names) and not any(name.startswith("request") for name in names)
