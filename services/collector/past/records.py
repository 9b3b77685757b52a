"""How samples lie in a file: what changed since the one before, compressed, with its length and a checksum in front. A
record that was cut off by a crash, or that a disk has changed, is found out; so is where the whole ones end."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import BinaryIO, Final

import msgpack
import zstandard

from services.collector.past.sample import Row, Rows

_HEAD: Final = struct.Struct(">II")  # length of what follows, its CRC-32
#: No record is longer; a length beyond that is none. Opened it may be this long: a name and its row in 40 bytes.
LONGEST: Final = 64 << 20
LONGEST_OPENED: Final = 512 << 20


def record(at: float, rows: Mapping[str, Row], before: Mapping[str, Row] | None) -> bytes:
    """A sample. before: the one that the record follows in its file; None: it is the first, and is written whole."""
    if before is None:
        changed, gone = dict(rows), []
    else:
        changed = {name: row for name, row in rows.items() if before.get(name) != row}
        gone = [name for name in before if name not in rows]
    body = msgpack.packb([round(at), before is None, {name: _packed(row) for name, row in changed.items()}, gone])
    squeezed = zstandard.compress(body, 3)
    return _HEAD.pack(len(squeezed), zlib.crc32(squeezed)) + squeezed


def _packed(row: Row) -> list[float]:
    """Whole numbers are shorter as such."""
    return [int(value) if value == int(value) else value for value in row]


class Reader:
    """Reads a file from its beginning. `end`: where the last whole record ends, as far as it was read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.end = 0

    def changes(self) -> Iterator[tuple[float, bool, dict[str, Row], list[str]]]:
        """When; whether all before it is void; what is new; what is gone. Ends where the file or its sense ends."""
        while True:
            head = self._file.read(_HEAD.size)
            if len(head) < _HEAD.size:
                return
            length, checksum = _HEAD.unpack(head)
            if length > LONGEST:
                return
            squeezed = self._file.read(length)
            if len(squeezed) < length or zlib.crc32(squeezed) != checksum:
                return
            try:
                at, whole, changed, gone = msgpack.unpackb(zstandard.decompress(squeezed, LONGEST_OPENED))
                made = {name: tuple(row) for name, row in changed.items()}
            except (zstandard.ZstdError, ValueError, TypeError, AttributeError):
                return
            self.end += _HEAD.size + length
            yield float(at), bool(whole), made, list(gone)

    def samples(self) -> Iterator[tuple[float, Rows]]:
        """Each sample whole. The same dictionary every time: copy what is to be kept."""
        rows: Rows = {}
        for at, whole, changed, gone in self.changes():
            if whole:
                rows.clear()
            rows.update(changed)
            for name in gone:
                rows.pop(name, None)
            yield at, rows

    def of(self, name: str) -> Iterator[tuple[float, Row | None]]:
        """One name in each sample; None where it was not there."""
        row: Row | None = None
        for at, whole, changed, gone in self.changes():
            if name in changed:
                row = changed[name]
            elif whole or name in gone:
                row = None
            yield at, row
