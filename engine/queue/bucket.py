"""Keys of jobs in order, eight bytes each or less: a million idle jobs of one cluster that came in a row are a range.

Jobs of one priority and cluster lie in chunks, which share the head of their keys and have the rest as numbers: a range
as long as these follow each other, else a short array. What comes and goes in the middle of a range makes an array of
its neighbours; it moves one chunk's numbers only. Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

#: (-JobPrio, cluster, proc), and the number of the node of a parallel job: sorts ascending, first to start first.
Key = tuple[int, ...]

#: Numbers of one array; of twice as many two are made.
CHUNK: Final = 1024
#: Numbers that are fewer than one of so many in their span are removed one by one.
SPARSE: Final = 8

Chunk: TypeAlias = "range | array[int]"


def key_of(priority: int, cluster: int, proc: int, node: int = -1) -> Key:
    return (-priority, cluster, proc) if node < 0 else (-priority, cluster, proc, node)


class Bucket:
    """A sorted set of keys."""

    __slots__ = ("_chunks", "_heads", "_lasts", "_size")

    def __init__(self) -> None:
        self._heads: list[Key] = []  # of each chunk: what all its keys begin with
        self._chunks: list[Chunk] = []  # and how they end, ascending; none is empty
        self._lasts: list[Key] = []  # the last key of each chunk, ascending
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: Key) -> bool:
        return self._find(key) is not None

    def __iter__(self) -> Iterator[Key]:
        for head, chunk in zip(self._heads, self._chunks, strict=True):
            for last in chunk:
                yield (*head, last)

    def first(self) -> Key:
        return (*self._heads[0], self._chunks[0][0])

    def add(self, key: Key) -> None:
        """Add a key that is not here."""
        head, last = key[:-1], key[-1]
        at = bisect_left(self._lasts, key)
        if at == len(self._lasts) or self._heads[at] != head:
            at -= 1  # it comes behind the last one of its head
        self._size += 1
        chunk = self._chunks[at] if at >= 0 and self._heads[at] == head else None
        if chunk is None:
            self._put(at + 1, at + 1, head, [range(last, last + 1)])
        elif isinstance(chunk, range) and last == chunk.stop:
            self._put(at, at + 1, head, [range(chunk.start, last + 1)])
        elif isinstance(chunk, range) and last == chunk.start - 1:
            self._put(at, at + 1, head, [range(last, chunk.stop)])
        elif isinstance(chunk, range) and len(chunk) > CHUNK and last > chunk.stop:
            self._put(at + 1, at + 1, head, [range(last, last + 1)])
        else:
            at, opened = self._open(at, last)
            opened.insert(bisect_left(opened, last), last)
            halves = [opened] if len(opened) < 2 * CHUNK else [opened[:CHUNK], opened[CHUNK:]]
            self._put(at, at + 1, head, halves)

    def add_row(self, head: Key, ends: Sequence[int]) -> None:
        """Add many keys of one head that are not here. ends: ascending."""
        start = 0
        while start < len(ends):
            # What lies before the next key that is here goes in at once.
            at = bisect_left(self._lasts, (*head, ends[start]))
            stop = len(ends)
            if at < len(self._lasts) and self._heads[at] == head:
                if self._chunks[at][0] < ends[start]:
                    self.add((*head, ends[start]))
                    start += 1
                    continue
                stop = bisect_left(ends, self._chunks[at][0], lo=start)
            self._put(at, at, head, _chunks(ends[start:stop]))
            self._size += stop - start
            start = stop

    def remove(self, key: Key) -> bool:
        """False if it is not here."""
        found = self._find(key)
        if found is None:
            return False
        at, place = found
        chunk, head = self._chunks[at], self._heads[at]
        self._size -= 1
        if isinstance(chunk, range) and place in (0, len(chunk) - 1):
            rest: Chunk = chunk[1:] if place == 0 else chunk[:-1]
        else:
            at, rest = self._open(at, key[-1])
            del rest[bisect_left(rest, key[-1])]
        self._put(at, at + 1, head, [rest] if rest else [])
        return True

    def remove_row(self, head: Key, ends: Sequence[int]) -> None:
        """Remove many keys of one head. ends: ascending; what is not here is passed over."""
        start = 0
        while start < len(ends):
            at = bisect_left(self._lasts, (*head, ends[start]))
            if at == len(self._lasts) or self._heads[at] != head:
                return
            chunk = self._chunks[at]
            stop = bisect_right(ends, chunk[-1], lo=start)
            if stop - start > 1 and ends[stop - 1] - ends[start] < SPARSE * (stop - start):
                begin, end = bisect_left(chunk, ends[start]), bisect_right(chunk, ends[stop - 1])
                gone = set(ends[start:stop])
                between = [number for number in chunk[begin:end] if number not in gone]
                rest = [part for part in (chunk[:begin], *_chunks(between), chunk[end:]) if part]
                self._size += sum(map(len, rest)) - len(chunk)
                self._put(at, at + 1, head, rest)
            else:
                stop = start + 1
                self.remove((*head, ends[start]))
            start = stop

    # Going through it: a place is (chunk, number in it)

    def at(self, chunk: int, place: int) -> Key | None:
        """The key at a place; None behind the last one."""
        return (*self._heads[chunk], self._chunks[chunk][place]) if chunk < len(self._chunks) else None

    def step(self, chunk: int, place: int) -> tuple[int, int]:
        """The place after this one."""
        return (chunk, place + 1) if place + 1 < len(self._chunks[chunk]) else (chunk + 1, 0)

    def ahead(self, chunk: int, place: int, before: Key | None) -> tuple[int, int, int]:
        """How many keys from this place on come before another one (None: all of them do), and the place behind
        these."""
        count = 0
        while chunk < len(self._chunks):
            if before is None or self._lasts[chunk] < before:
                end = len(self._chunks[chunk])
            elif self._heads[chunk] == before[:-1]:
                end = bisect_left(self._chunks[chunk], before[-1])
            else:
                end = 0
            count += end - place
            if end < len(self._chunks[chunk]):
                return count, chunk, end
            chunk, place = chunk + 1, 0
        return count, chunk, 0

    # Inside

    def _find(self, key: Key) -> tuple[int, int] | None:
        """Where a key is; None: it is not here."""
        at = bisect_left(self._lasts, key)
        if at == len(self._lasts) or self._heads[at] != key[:-1]:
            return None
        chunk = self._chunks[at]
        place = bisect_left(chunk, key[-1])
        return (at, place) if chunk[place] == key[-1] else None

    def _put(self, start: int, stop: int, head: Key, chunks: Sequence[Chunk]) -> None:
        """Have these chunks in place of those from start to stop."""
        if len(chunks) == stop - start == 1:  # as mostly: nothing moves
            self._chunks[start], self._lasts[start] = chunks[0], (*head, chunks[0][-1])
            return
        self._heads[start:stop] = [head] * len(chunks)
        self._chunks[start:stop] = chunks
        self._lasts[start:stop] = [(*head, chunk[-1]) for chunk in chunks]

    def _open(self, at: int, last: int) -> tuple[int, array[int]]:
        """The array that this number belongs into: of a range its neighbours become one."""
        chunk = self._chunks[at]
        if not isinstance(chunk, range):
            return at, chunk
        start = max(0, min(bisect_left(chunk, last) - CHUNK // 2, len(chunk) - CHUNK))
        before, opened, behind = chunk[:start], array("q", chunk[start : start + CHUNK]), chunk[start + CHUNK :]
        self._put(at, at + 1, self._heads[at], [one for one in (before, opened, behind) if one])
        return at + bool(before), opened


def _chunks(ends: Sequence[int]) -> list[Chunk]:
    """Ascending numbers as chunks."""
    if not ends:
        return []
    if ends[-1] - ends[0] == len(ends) - 1:
        return [range(ends[0], ends[-1] + 1)]
    return [array("q", ends[start : start + CHUNK]) for start in range(0, len(ends), CHUNK)]
