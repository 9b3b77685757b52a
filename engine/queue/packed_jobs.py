"""Jobs that stay packed: those that wait, differ from their cluster in nothing that anybody decides by, and were needed
by nobody since they came. They are kept as the bytes that the database has of them, for a tenth of what a job takes.

A job is packed from when it comes (or is read from the database) until somebody asks for it; then it is made, and
stays. So who has a job has the only one. Who only looks takes a `peek`: it is as the job is, and is not to be changed.

Jobs of a cluster that are in the same state, and came into it in the same way, are one group. What an order on many of
them writes into their ads is written once, for the group: the database has it in each job's ad. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final, Generic, TypeVar

import msgpack

from shared.classad.expr import fold

IDLE: Final = 1  # JobStatus

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

#: Attributes (folded) that orders on jobs that wait write (services.schedd.core.job_changes).
WRITTEN: Final = frozenset(
    [
        *("lastjobstatus", "jobstatus", "enteredcurrentstatus", "numholds", "numholdsbyreason"),
        *("holdreason", "holdreasoncode", "holdreasonsubcode", "releasereason", "removereason"),
        *("lastholdreason", "lastholdreasoncode", "lastholdreasonsubcode"),
    ]
)
#: A packed ad with nothing in it.
NOTHING: Final = msgpack.packb({})
#: Groups of one cluster. Each is asked for a job that is looked for.
MOST_GROUPS: Final = 200


@dataclass(slots=True)
class PackedJobs:
    """Packed jobs of one cluster, all idle or all held. They have in common what stands here besides `ads`."""

    priority: int
    submitter: str
    idle_from: float  # Job.idle_from
    names: set[str] = field(default_factory=set)  # folded names of attributes that some of them have of their own
    ads: dict[int, bytes] = field(default_factory=dict)  # by proc: what is its own besides `state`, packed
    status: int = IDLE
    state: bytes = NOTHING  # what each of them has of its own of WRITTEN, packed; their `ads` have none of it then
    autocluster: int = 0
    generation: int = -1  # of the significant attributes that `autocluster` belongs to
    sorted_as: int = 0  # Job.sorted_as
    offered: bool = False  # they stand in the idle queue

    def ad(self, proc: int) -> bytes:
        """All that is a job's own, packed."""
        return merged(self.ads[proc], self.state)

    def row(self, procs: Sequence[int], at: int) -> Sequence[int]:
        """The one at this place, which is in this group, and all that follow it and are too."""
        end, ads = at + 1, self.ads
        while end < len(procs) and procs[end] in ads:
            end += 1
        return procs[at:end]


J = TypeVar("J")


class JobMap(Mapping[int, J], Generic[J]):
    """The jobs of a cluster, by proc. Reading one makes it; `in`, `len` and going through the procs make none."""

    __slots__ = ("_made", "_order", "_unpack", "groups")

    def __init__(self) -> None:
        self._made: dict[int, J] = {}
        #: Makes a job. It knows the cluster, so it is there only while jobs are packed: a circle would be freed late.
        self._unpack: Callable[[PackedJobs, int, bytes], J] | None = None
        self._order: list[int] | None = None  # all procs, ascending, and perhaps some that are gone
        self.groups: list[PackedJobs] = []  # none is empty

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

    def group_of(self, proc: int) -> PackedJobs | None:
        """The group that a packed job is in; None: it is made, or there is none."""
        for group in self.groups:
            if proc in group.ads:
                return group
        return None

    @property
    def packed_count(self) -> int:
        return sum(len(group.ads) for group in self.groups)

    def _make(self, proc: int, *, keep: bool) -> J | None:
        group = self.group_of(proc)
        if group is None or self._unpack is None:
            return None
        job = self._unpack(group, proc, group.ad(proc))
        if keep:
            self._made[proc] = job
            del group.ads[proc]
            if not group.ads:
                self._drop(group)
        return job

    def _drop(self, group: PackedJobs) -> None:
        self.groups = [one for one in self.groups if one is not group]
        if not self.groups:
            self._unpack = None

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

    def add_packed(self, group: PackedJobs, unpack: Callable[[PackedJobs, int, bytes], J]) -> None:
        """Take jobs that are not here yet. unpack: makes the job of a proc."""
        self.groups.append(group)
        self._unpack = unpack
        self._order = None

    def move(self, group: PackedJobs, procs: Sequence[int], to: PackedJobs | None) -> None:
        """Have some jobs of a group in another one, which may be new; None: nowhere, they are no more."""
        if to is not None and all(to is not one for one in self.groups):
            self.groups.append(to)
        if len(procs) == len(group.ads):
            taken, group.ads = group.ads, {}
        else:
            taken = {proc: group.ads.pop(proc) for proc in procs}
        if to is not None:
            to.ads.update(taken)
        if not group.ads:
            self._drop(group)
        if self._order is not None and len(self) < len(self._order) // 2:
            self._order = None

    def __iter__(self) -> Iterator[int]:
        """A snapshot, as who reads what it gives makes jobs."""
        return iter(self._procs())

    def _procs(self) -> list[int]:
        return list(chain(self._made, *(group.ads for group in self.groups)))

    def __len__(self) -> int:
        return len(self._made) + self.packed_count

    def __contains__(self, proc: object) -> bool:
        return proc in self._made or any(proc in group.ads for group in self.groups)

    def made(self) -> list[J]:
        """The jobs that are not packed, by proc."""
        return [self._made[proc] for proc in sorted(self._made)]

    def made_procs(self) -> list[int]:
        """Their procs, in no order."""
        return list(self._made)

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


def merged(first: bytes, second: bytes) -> bytes:
    """One packed ad of two that have no name in common."""
    return joined(first, [second])


def merging(second: bytes) -> Callable[[bytes], bytes]:
    """`merged` with this one, for many: takes the first of the two."""
    more, begin = _head(second)
    body = second[begin:]
    heads = [_PACKER.pack_map_header(count + more) for count in range(_SHORT)]

    def merge(first: bytes) -> bytes:
        count = first[0] - _SHORT_MAP
        return heads[count] + first[1:] + body if 0 <= count < _SHORT else joined(first, [second])

    return merge


def joined(first: bytes, others: Sequence[bytes]) -> bytes:
    """One packed ad of several that have no name in common."""
    count, begin = _head(first)
    parts = [first[begin:]]
    for one in others:
        more, begin = _head(one)
        count += more
        parts.append(one[begin:])
    head = _PACKER.pack_map_header(count)
    return head + b"".join(parts)  # type: ignore[no-any-return]


_PACKER: Final = msgpack.Packer()
#: A map of fewer names than this has them in its first byte, above this one.
_SHORT: Final = 16
_SHORT_MAP: Final = 0x80
_unpack: Final = partial(msgpack.unpackb, unicode_errors="surrogateescape")


def _head(packed: bytes) -> tuple[int, int]:
    """How many names a packed ad has, and where the first of them is: a map of MessagePack."""
    first = packed[0]
    if _SHORT_MAP <= first < _SHORT_MAP + _SHORT:
        return first - _SHORT_MAP, 1
    size = {0xDE: 2, 0xDF: 4}[first]
    return int.from_bytes(packed[1 : 1 + size], "big"), 1 + size


def split(packed: bytes) -> tuple[bytes, bytes]:
    """(the rest, what is of WRITTEN) of what is a job's own, packed."""
    body = _unpack(packed)
    state = {name: body.pop(name) for name in sorted(body) if fold(name) in WRITTEN}
    return (
        msgpack.packb(body, unicode_errors="surrogateescape"),
        msgpack.packb(state, unicode_errors="surrogateescape"),
    )


class Splitter:
    """`split` of many, most of which end alike: an order wrote the same behind what is each job's own."""

    def __init__(self) -> None:
        self._ends: list[tuple[bytes, int, bytes]] = []  # (what is behind the rest, its names, `state`), the last first
        self._plain: dict[tuple[str, ...], bool] = {}  # whether none of these names is of WRITTEN

    def split(self, packed: bytes) -> tuple[bytes, bytes, tuple[str, ...]]:
        """(the rest, what is of WRITTEN, names in the rest) of what is a job's own, packed."""
        count, begin = _head(packed)
        for place, (end, number, state) in enumerate(self._ends):
            if number <= count and packed.endswith(end):
                rest = _PACKER.pack_map_header(count - number) + packed[begin : len(packed) - len(end)]
                names = self._names(rest)
                if names is not None:
                    if place:
                        self._ends.insert(0, self._ends.pop(place))
                    return rest, state, names
        rest, state = split(packed)
        number, begin = _head(state)
        if number and packed.endswith(state[begin:]):
            self._ends.insert(0, (state[begin:], number, state))
            del self._ends[MOST_GROUPS:]
        return rest, state, tuple(_unpack(rest))

    def _names(self, rest: bytes) -> tuple[str, ...] | None:
        """Of a packed ad that is whole, and has nothing of WRITTEN; None: it is not."""
        try:
            names = tuple(_unpack(rest))
        except ValueError:  # the end of a text only looked like it
            return None
        plain = self._plain.get(names)
        if plain is None:
            plain = self._plain[names] = WRITTEN.isdisjoint(map(fold, names))
        return names if plain else None
