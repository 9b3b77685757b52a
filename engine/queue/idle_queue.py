"""Which jobs wait, in the order in which they are to start (spec rows NEG-15, NEG-29).

Jobs of one submitter come by priority (higher first), then by age (cluster, proc). They lie in one sorted list for each
autocluster, so the first job of an autocluster, and how many of it come in a row, are found without walking the queue.
Pure: no I/O, no clock.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

#: (-JobPrio, cluster, proc), and the number of the node of a parallel job: sorts ascending, first to start first.
Key = tuple[int, ...]

#: Removed entries in front of a list are given back when they are so many, and half of it.
COMPACT_AT = 64


def key_of(priority: int, cluster: int, proc: int, node: int = -1) -> Key:
    return (-priority, cluster, proc) if node < 0 else (-priority, cluster, proc, node)


@dataclass(slots=True)
class Bucket:
    """A sorted list that is mostly appended to at the end and taken from the front."""

    keys: list[Key] = field(default_factory=list)
    start: int = 0  # entries before it are gone

    def __len__(self) -> int:
        return len(self.keys) - self.start

    def __contains__(self, key: Key) -> bool:
        at = bisect_left(self.keys, key, lo=self.start)
        return at < len(self.keys) and self.keys[at] == key

    def __iter__(self) -> Iterator[Key]:
        return iter(self.keys[self.start :])

    def first(self) -> Key:
        return self.keys[self.start]

    def add(self, key: Key) -> None:
        if not self.keys or key > self.keys[-1]:
            self.keys.append(key)
        elif self.start and key < self.keys[self.start]:
            self.start -= 1
            self.keys[self.start] = key
        else:
            insort(self.keys, key, lo=self.start)

    def remove(self, key: Key) -> bool:
        at = bisect_left(self.keys, key, lo=self.start)
        if at >= len(self.keys) or self.keys[at] != key:
            return False
        if at == self.start:
            self.start += 1
            if self.start >= COMPACT_AT and self.start * 2 >= len(self.keys):
                del self.keys[: self.start]
                self.start = 0
        else:
            del self.keys[at]
        return True


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
        self._page: _Page | None = None

    def add(self, autocluster: int, key: Key) -> None:
        self._page = None
        bucket = self.buckets.get(autocluster)
        if bucket is None:
            bucket = self.buckets[autocluster] = Bucket()
        bucket.add(key)
        self.total += 1

    def remove(self, autocluster: int, key: Key) -> None:
        self._page = None
        bucket = self.buckets.get(autocluster)
        if bucket is not None and bucket.remove(key):
            self.total -= 1
            if not len(bucket):
                del self.buckets[autocluster]

    def first(self, autocluster: int) -> Key | None:
        bucket = self.buckets.get(autocluster)
        return bucket.first() if bucket is not None else None

    def count(self, autocluster: int) -> int:
        bucket = self.buckets.get(autocluster)
        return len(bucket) if bucket is not None else 0

    def heads(self) -> list[tuple[Key, int]]:
        """(first key, autocluster) of every autocluster, in the order in which they would start."""
        return sorted((bucket.first(), autocluster) for autocluster, bucket in self.buckets.items())

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
        heads = [
            (bucket.first(), autocluster, bucket.start)
            for autocluster, bucket in self.buckets.items()
            if only is None or autocluster in only
        ]
        heapq.heapify(heads)
        while heads:
            first, autocluster, at = heapq.heappop(heads)
            keys = self.buckets[autocluster].keys
            if not counts:
                end = at + 1
            elif heads:
                end = bisect_left(keys, heads[0][0], lo=at)
            else:
                end = len(keys)
            yield JobRange(autocluster, first, end - at)
            if end < len(keys):
                heapq.heappush(heads, (keys[end], autocluster, end))

    def keys(self) -> Iterable[tuple[Key, int]]:
        """Every idle job with its autocluster, in order. O(n log n): only where each job must be looked at."""
        return heapq.merge(*([(key, autocluster) for key in bucket] for autocluster, bucket in self.buckets.items()))
