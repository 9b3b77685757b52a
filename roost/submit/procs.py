"""What differs in each job of a cluster, kept small: a submit of a million jobs keeps some 20 bytes of each.

The jobs are expanded and checked before any is queued, and sent some at a time; between the two they wait here, packed
as they are sent, a thousand in one compressed piece.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, overload

import msgpack

from roost.submit.commands import Attributes
from shared.classad import ClassAd

#: Jobs of one piece. Fewer are kept as they came.
PIECE: Final = 1000
_NAMED: Final = frozenset(("ProcId", "JobStatus"))


class Procs(Sequence[Attributes]):
    """The jobs of one cluster in order, as mappings of attributes; each has at least ProcId and JobStatus."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._last: list[Attributes] = []
        self._read: tuple[int, list[Attributes]] = (-1, [])  # the piece that was asked for last
        #: Of all attributes that any job has of its own.
        self.names: set[str] = set()

    def append(self, proc: Attributes) -> None:
        if len(self._last) == PIECE:
            rows = [(one["ProcId"], one["JobStatus"], _own(one).pack()) for one in self._last]
            self._pieces.append(zlib.compress(msgpack.packb(rows), 1))
            self._last = []
        self._last.append(proc)
        self.names.update(proc)

    def __len__(self) -> int:
        return len(self._pieces) * PIECE + len(self._last)

    @overload
    def __getitem__(self, index: int) -> Attributes: ...

    @overload
    def __getitem__(self, index: slice) -> list[Attributes]: ...

    def __getitem__(self, index: int | slice) -> Attributes | list[Attributes]:
        if isinstance(index, slice):
            return [self[one] for one in range(len(self))[index]]
        number, place = divmod(range(len(self))[index], PIECE)
        return self._piece(number)[place]

    def __iter__(self) -> Iterator[Attributes]:
        for number in range(len(self._pieces) + 1):
            yield from self._piece(number)

    def _piece(self, number: int) -> list[Attributes]:
        if number == len(self._pieces):
            return self._last
        if self._read[0] != number:
            made = [
                {"ProcId": proc, "JobStatus": status, **dict(ClassAd.unpack(ad).cells())}
                for proc, status, ad in self._rows(number)
            ]
            self._read = (number, made)
        return self._read[1]

    def _rows(self, number: int) -> list[tuple[int, Any, bytes]]:
        rows: list[tuple[int, Any, bytes]] = msgpack.unpackb(zlib.decompress(self._pieces[number]))
        return rows

    def ads(self) -> Iterator[ClassAd]:
        """What the schedd gets of each job: its number is its place, and all are on hold or none is."""
        for number in range(len(self._pieces)):
            for _, _, ad in self._rows(number):
                yield ClassAd.unpack(ad)
        for one in self._last:
            yield _own(one)


def _own(proc: Attributes) -> ClassAd:
    return ClassAd({name: value for name, value in proc.items() if name not in _NAMED})
