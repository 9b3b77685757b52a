"""Which jobs wait, in the order in which they are to start (spec rows NEG-15, NEG-29).

Jobs of one submitter come by priority (higher first), then by age (cluster, proc). They lie in one bucket for each
autocluster, so the first job of an autocluster, and how many of it come in a row, are found without walking the queue.
Pure: no I/O, no clock.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from engine.queue.bucket import Bucket, Key, key_of


@dataclass(frozen=True, slots=True)
class JobRange:
    """Consecutive idle jobs of one autocluster."""

    autocluster: int
    first: Key
    count: int


@dataclass(frozen=True, slots=True)
class _Page:
    """Where a list of requests goes on, as long as no job comes or goes: after `skip` of them comes `following`."""

    skip: int
    counts: bool
    only: frozenset[int] | None
    following: JobRange
    rest: Iterator[JobRange]


class IdleQueue:
    """The idle jobs of one submitter."""

    def __init__(self) -> None:
        self.buckets: dict[int, Bucket] = {}
        self.total = 0
        #: (first key, autocluster) of every bucket, sorted: kept, as who ends a job asks for the first of them.
        self._heads: list[tuple[Key, int]] = []
        self._weights: dict[int, float] = {}  # of one job of each autocluster
        self._weighted: dict[float, int] = {}  # how many jobs have which weight: what is counted does not drift
        self._page: _Page | None = None

    def add(self, autocluster: int, key: Key, weight: float = 1.0) -> None:
        """Add a job that is not here yet. weight: what one job of the autocluster asks for, in cores."""
        self._page = None
        bucket = self.buckets.get(autocluster)
        if bucket is None:
            bucket = self.buckets[autocluster] = Bucket()
            self._weights[autocluster] = weight
            insort(self._heads, (key, autocluster))
        elif key < (first := bucket.first()):
            self._head_moves(autocluster, first, key)
        bucket.add(key)
        self._count(autocluster, 1)

    def add_row(self, autocluster: int, priority: int, cluster: int, procs: Sequence[int], weight: float = 1.0) -> None:
        """Add many jobs of one cluster. procs: ascending, of jobs that are not here yet."""
        if procs:
            self.add(autocluster, key_of(priority, cluster, procs[0]), weight)
            self.buckets[autocluster].add_row((-priority, cluster), procs[1:])
            self._count(autocluster, len(procs) - 1)

    def _count(self, autocluster: int, more: int) -> None:
        self.total += more
        weight = self._weights[autocluster]
        self._weighted[weight] = self._weighted.get(weight, 0) + more

    def weight(self) -> float:
        """What all jobs ask for together, in cores."""
        return sum(weight * count for weight, count in self._weighted.items())

    def remove(self, autocluster: int, key: Key) -> None:
        self._page = None
        bucket = self.buckets.get(autocluster)
        if bucket is None:
            return
        first = bucket.first()
        if not bucket.remove(key):
            return
        self._count(autocluster, -1)
        if not len(bucket):
            del self.buckets[autocluster], self._weights[autocluster]
            self._head_moves(autocluster, first, None)
        elif key == first:
            self._head_moves(autocluster, first, bucket.first())

    def remove_row(self, autocluster: int, priority: int, cluster: int, procs: Sequence[int]) -> None:
        """Remove many jobs of one cluster. procs: ascending."""
        self._page = None
        bucket = self.buckets.get(autocluster)
        if bucket is None:
            return
        first, before = bucket.first(), len(bucket)
        bucket.remove_row((-priority, cluster), procs)
        self._count(autocluster, len(bucket) - before)
        if not len(bucket):
            del self.buckets[autocluster], self._weights[autocluster]
            self._head_moves(autocluster, first, None)
        elif bucket.first() != first:
            self._head_moves(autocluster, first, bucket.first())

    def _head_moves(self, autocluster: int, old: Key, new: Key | None) -> None:
        """The first job of a bucket is another one now; None: there is no bucket any more."""
        at = bisect_left(self._heads, (old, autocluster))
        after = at + 1
        if new is not None and after < len(self._heads) and new > old and (new, autocluster) < self._heads[after]:
            self._heads[at] = (new, autocluster)  # its place is the same
            return
        del self._heads[at]
        if new is not None:
            insort(self._heads, (new, autocluster))

    def first(self, autocluster: int) -> Key | None:
        bucket = self.buckets.get(autocluster)
        return bucket.first() if bucket is not None else None

    def count(self, autocluster: int) -> int:
        bucket = self.buckets.get(autocluster)
        return len(bucket) if bucket is not None else 0

    def heads(self) -> Sequence[tuple[Key, int]]:
        """(first key, autocluster) of every autocluster, in the order in which they would start. For reading, before
        the next job comes or goes."""
        return self._heads

    def runs(
        self, limit: int, *, skip: int = 0, counts: bool = True, only: frozenset[int] | None = None
    ) -> tuple[list[JobRange], bool]:
        """Up to `limit` requests after the first `skip`, and whether there are more.

        counts False: each job a request of its own (USE_RESOURCE_REQUEST_COUNTS). only: the autoclusters that count;
        None: all. O(requests * log autoclusters); who goes on where the last call ended pays for no request twice.
        """
        page = self._page
        if page is not None and (page.skip, page.counts, page.only) == (skip, counts, only):
            rest, found = page.rest, [page.following]
        else:
            rest, found = self._runs(counts, only), []
            for _ in islice(rest, skip):
                pass
        found.extend(islice(rest, limit + 1 - len(found)))
        if len(found) <= limit:
            self._page = None
            return found, False
        self._page = _Page(skip + limit, counts, only, found.pop(), rest)
        return found, True

    def _runs(self, counts: bool, only: frozenset[int] | None) -> Iterator[JobRange]:
        """Ranges in order. Buckets that were not begun yet stand in `_heads`, those that were in a heap of their next
        keys: of many autoclusters only those count that are asked for. Nothing comes or goes meanwhile."""
        waiting = iter(self._heads if only is None else [head for head in self._heads if head[1] in only])
        coming = next(waiting, None)
        begun: list[tuple[Key, int, int, int]] = []  # (key, autocluster, where it is in its bucket)
        while begun or coming is not None:
            if coming is not None and (not begun or coming[0] < begun[0][0]):
                (first, autocluster), chunk, at = coming, 0, 0
                coming = next(waiting, None)
            else:
                first, autocluster, chunk, at = heapq.heappop(begun)
            bucket = self.buckets[autocluster]
            others = [head for head in (begun[0][0] if begun else None, coming[0] if coming else None) if head]
            if counts:
                count, chunk, at = bucket.ahead(chunk, at, min(others) if others else None)
            else:
                count, chunk, at = 1, *bucket.step(chunk, at)
            yield JobRange(autocluster, first, count)
            following = bucket.at(chunk, at)
            if following is not None:
                heapq.heappush(begun, (following, autocluster, chunk, at))

    def keys(self) -> Iterable[tuple[Key, int]]:
        """Every idle job with its autocluster, in order. O(n log n): only where each job must be looked at."""
        return heapq.merge(*([(key, autocluster) for key in bucket] for autocluster, bucket in self.buckets.items()))
