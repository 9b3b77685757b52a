"""The files of the pool's history in POOL_HISTORY_DIR, which never take more than POOL_HISTORY_MAX_STORAGE together
(spec row VIEW-02).

Each kind of sample has two files for each level: `<kind>.<level>.new`, to which records are appended, and `.old`, which
it becomes when it is full; the old one before is deleted then. A record holds what changed since the sample before,
compressed, with its length and a checksum in front, so damaged records are noticed. It is written with one call, and a
record that a crash cut off is removed at the next start. All of this blocks: it is called in threads, one at a time.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import msgpack
import zstandard

from services.collector.core.history_samples import KINDS, LEVELS, Averaging, Kind, Row, Rows, level_for
from shared import private_files
from shared.daemon.instance_lock import AlreadyRunning, acquire
from shared.errors import PermanentError
from shared.files import beside

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
    compressed = zstandard.compress(body, 3)
    return _HEAD.pack(len(compressed), zlib.crc32(compressed)) + compressed


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
            compressed = self._file.read(length)
            if len(compressed) < length or zlib.crc32(compressed) != checksum:
                return
            try:
                at, whole, changed, gone = msgpack.unpackb(zstandard.decompress(compressed, LONGEST_OPENED))
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


#: Names in one answer.
MOST_NAMES: Final = 100_000


class NoHistory(PermanentError):
    """It can not be kept, or not asked for: the text names the place and the mend."""


class PoolHistory:
    """All kinds and levels. Read-only while `problem` says why nothing is kept."""

    def __init__(self, directory: Path, most_bytes: int, every_s: float) -> None:
        """every_s: between samples, as far as averages and answers go by it."""
        self._directory = directory
        self._every_s = every_s
        self._files: dict[str, list[_File]] = {}
        self._averages: dict[str, list[Averaging]] = {}
        self._lock = -1
        self.closed = private_files.Closed()  # what `open` took from others
        for kind in KINDS.values():
            room = int(most_bytes * kind.share / (2 * len(LEVELS)))
            self._files[kind.name] = [_File(directory, kind, level, room) for level in range(len(LEVELS))]
            self._averages[kind.name] = [Averaging(kind.name, every_s * samples) for samples in LEVELS[1:]]

    def open(self) -> int:
        """Take the directory, cut off what is not whole, and go on with the averages where they were. Returns how many
        bytes were cut off. Raises NoHistory."""
        try:
            private_files.make_directory(self._directory)
            self.closed = private_files.close_all(
                (self._directory, *(one for files in self._files.values() for file in files for one in file.paths()))
            )
            self._lock = acquire(self._directory, "collector", "pool_history")
            cut = sum(file.open() for files in self._files.values() for file in files)
            for kind in KINDS:
                self._resume(kind)
        except AlreadyRunning:
            raise NoHistory(
                f"POOL_HISTORY_DIR: another collector keeps its history in {self._directory}; give each a directory"
            ) from None
        except OSError as error:
            self.close()
            raise NoHistory(f"POOL_HISTORY_DIR: {error}") from error
        return cut

    def close(self) -> None:
        """Let the directory go."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size() for files in self._files.values() for file in files)

    def add(self, at: float, sample: Mapping[str, Rows]) -> list[str]:
        """A sample of all kinds. Returns the files, none as a rule, that have no room for even one. Raises OSError;
        what was written before stays whole."""
        tight = []
        for kind, rows in sample.items():
            files = self._files[kind]
            written: list[tuple[_File, float, Rows]] = [(files[0], at, rows)]
            for level, averaging in enumerate(self._averages[kind], 1):
                if (done := averaging.add(at, rows)) is not None:
                    written.append((files[level], *done))
            tight += [file.path.name for file, when, values in written if not file.add(when, values)]
        return tight

    def points(self, kind: str, name: str, start: float, end: float) -> tuple[float, list[tuple[float, Row]]]:
        """What there is of one name: seconds between two points, and (time, row) in the order of time. Before the
        level that suits the time has begun, coarser ones tell of it; after its last record finer ones do. Raises
        TooLong, OSError."""
        files = self._files[kind]
        chosen = level_for(start, end, self._every_s)
        found, first, last = files[chosen].of(name, start, end)
        for level in range(chosen + 1, len(LEVELS)):
            until = min(first - self._every_s * LEVELS[level - 1], end)
            older, began, ended = files[level].of(name, start, until)
            found, first, last = older + found, min(first, began), max(last, ended)
        for level in range(chosen - 1, -1, -1):
            newer, _, ended = files[level].of(name, max(last, start - 1) + 1, end)
            found, last = found + newer, max(last, ended)
        return self._every_s * LEVELS[chosen], sorted(found)

    def names(self, kind: str, start: float, end: float) -> list[str]:
        """All names that there is something of. Raises NoHistory where they are too many, OSError."""
        found: set[str] = set()
        for file in self._files[kind]:
            found |= file.names(start, end)
        if len(found) > MOST_NAMES:
            raise NoHistory(f"{len(found)} names: at most {MOST_NAMES} are told; ask for a shorter time")
        return sorted(found)

    def _resume(self, kind: str) -> None:
        """Give the averages the samples that no record of theirs tells of yet."""
        for level, averaging in enumerate(self._averages[kind], 1):
            told = self._files[kind][level].last
            for at, rows in self._files[kind][0].samples():
                if at >= told and (done := averaging.add(at, rows)) is not None:
                    self._files[kind][level].add(*done)


class _File:
    """One level of a kind: the file that grows, and the one before it."""

    def __init__(self, directory: Path, kind: Kind, level: int, room: int) -> None:
        self.path = directory / f"{kind.name}.{level}.new"
        self._old = directory / f"{kind.name}.{level}.old"
        self._room = room
        self._before: Rows | None = None  # what the next record is told in differences from
        self._size = 0
        self.last = 0.0  # time of the newest record

    def open(self) -> int:
        """Returns the number of bytes that were no whole records. Raises OSError."""
        cut = 0
        for path in (self._old, self.path):
            beside(path, ".tmp").unlink(missing_ok=True)
            if not path.exists():
                continue
            with path.open("rb") as file:
                reader = Reader(file)
                for at, _, _, _ in reader.changes():
                    self.last = max(self.last, at)
            if reader.end < path.stat().st_size:
                cut += path.stat().st_size - reader.end
                os.truncate(path, reader.end)
            if reader.end > self._room:
                self._shorten(path)
        self._size = self.path.stat().st_size if self.path.exists() else 0
        return cut

    def paths(self) -> tuple[Path, Path]:
        return self._old, self.path

    def size(self) -> int:
        there = 0
        for path in (self._old, self.path):
            with contextlib.suppress(FileNotFoundError):
                there += path.stat().st_size
        return there

    def add(self, at: float, rows: Rows) -> bool:
        """False when not even an empty file would have room for it. Raises OSError."""
        data = record(at, rows, self._before)
        if self._size and self._size + len(data) > self._room:
            self.path.replace(self._old)
            self._size, self._before = 0, None
            data = record(at, rows, None)
        if len(data) > self._room:
            return False
        try:
            with open(self.path, "ab", opener=private_files.opener) as file:
                file.write(data)
        except OSError:
            self._before = None
            with contextlib.suppress(OSError):
                os.truncate(self.path, self._size)
            raise
        self._size += len(data)
        self._before, self.last = dict(rows), at
        return True

    def samples(self) -> Iterator[tuple[float, Rows]]:
        """All there is, older first."""
        for path in (self._old, self.path):
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                yield from Reader(file).samples()

    def of(self, name: str, start: float, end: float) -> tuple[list[tuple[float, Row]], float, float]:
        """Rows of one name in that time; when the file begins, and when the last record in that time is."""
        found: list[tuple[float, Row]] = []
        first, last = float("inf"), 0.0
        for path in (self._old, self.path):
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                for at, row in Reader(file).of(name):
                    first = min(first, at)
                    if start <= at <= end:
                        last = max(last, at)
                        if row is not None:
                            found.append((at, row))
        return found, first, last

    def names(self, start: float, end: float) -> set[str]:
        found: set[str] = set()
        for path in (self._old, self.path):
            with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
                there: set[str] = set()  # at the moment that the reading has come to
                fresh = True
                for at, whole, changed, gone in Reader(file).changes():
                    if whole:
                        there.clear()
                    there |= changed.keys()
                    there.difference_update(gone)
                    if start <= at <= end:
                        found |= there if fresh else changed.keys()
                        fresh = False
        return found

    def _shorten(self, path: Path) -> None:
        """Leave out the older half until it has room: there is less of it than there was before."""
        with path.open("rb") as file:
            samples = [(at, dict(rows)) for at, rows in Reader(file).samples()]
        data = b""
        while samples:
            samples = samples[(len(samples) + 1) // 2 :]
            before: Rows | None = None
            parts = []
            for at, rows in samples:
                parts.append(record(at, rows, before))
                before = rows
            data = b"".join(parts)
            if len(data) <= self._room:
                break
        spare = beside(path, ".tmp")
        try:
            _write(spare, data)
        except OSError:  # no room for both
            spare.unlink(missing_ok=True)
            path.unlink()
            _write(spare, data)
        spare.replace(path)


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb", opener=private_files.opener) as file:
        file.write(data)
