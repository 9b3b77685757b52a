"""An append-only file of write commands: what the embedded store is rebuilt from.

A record is its length and CRC-32 (two little-endian 32-bit numbers) and a msgpack list of commands, each a
list of byte strings. A record is handed to the kernel before the write it belongs to is acknowledged, so
`kill -9` loses nothing acknowledged; the disk gets it within a second (as Redis does with `appendfsync
everysec`), so a power failure loses at most that. A torn record at the end is the write that was never
acknowledged; what follows damage further inside is set aside in a file of its own and reported, never
silently dropped.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgpack

from shared.files import sync_directory

Command = list[bytes]

MAGIC = b"ROOST-JOURNAL-1\n"
_HEAD = struct.Struct("<II")


class Journal:
    """One open journal file, used from one thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged: Path | None = None  # where unreadable records were set aside, if there were any
        self._fd = -1
        self.size = 0
        self.unsynced = False

    def open(self) -> Iterator[list[Command]]:
        """Read all records, then stand ready to append. Exhaust the iterator."""
        data = self.path.read_bytes() if self.path.exists() else b""
        if data and not data.startswith(MAGIC):
            self._set_aside(data)
            data = b""
        good = len(MAGIC) if data else 0
        while good < len(data):
            record = _record(data, good)
            if record is None:
                if _follows(data, good):
                    self._set_aside(data[good:])
                break
            commands, good = record
            yield commands
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._fd, good)
        os.lseek(self._fd, good, os.SEEK_SET)
        self.size = good
        if good == 0:
            self._write(MAGIC)

    def append(self, commands: list[Command]) -> None:
        """Hand a record to the kernel. Raises OSError (a full disk): then nothing of it stays in the file."""
        try:
            self._write(_packed(commands))
        except OSError:
            os.ftruncate(self._fd, self.size)
            os.lseek(self._fd, self.size, os.SEEK_SET)
            raise

    def rewrite(self, batches: Iterable[list[Command]]) -> None:
        """Replace the whole file by these records, atomically and on disk when this returns."""
        fresh = self.path.with_suffix(".new")
        with open(fresh, "wb", opener=_private) as file:
            file.write(MAGIC)
            for commands in batches:
                file.write(_packed(commands))
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        os.replace(fresh, self.path)
        sync_directory(self.path.parent)
        os.close(self._fd)
        self._fd = os.open(self.path, os.O_RDWR)
        os.lseek(self._fd, size, os.SEEK_SET)
        self.size = size
        self.unsynced = False

    def empty(self) -> None:
        """Forget all records."""
        os.ftruncate(self._fd, len(MAGIC))
        os.lseek(self._fd, len(MAGIC), os.SEEK_SET)
        self.size = len(MAGIC)

    def sync_later(self) -> Callable[[], None]:
        """What waits for the disk, to be called in a thread. It has a descriptor of its own, since the file
        may be rewritten meanwhile. Raises OSError when called."""
        self.unsynced = False
        fd = os.dup(self._fd)

        def sync() -> None:
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)

        return sync

    def close(self) -> None:
        if self._fd >= 0:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]
        self.size += len(data)
        self.unsynced = True

    def _set_aside(self, data: bytes) -> None:
        number = 1
        while (target := self.path.with_suffix(f".damaged-{number}")).exists():
            number += 1
        target.write_bytes(data)
        self.damaged = target


def _packed(commands: list[Command]) -> bytes:
    body: bytes = msgpack.packb(commands)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def _record(data: bytes, at: int) -> tuple[list[Command], int] | None:
    """The record at this place and where the next begins; None where there is no whole one."""
    if at + _HEAD.size > len(data):
        return None
    length, crc = _HEAD.unpack_from(data, at)
    start, end = at + _HEAD.size, at + _HEAD.size + length
    if end > len(data) or zlib.crc32(data[start:end]) != crc:
        return None
    commands: list[Command] = msgpack.unpackb(data[start:end])
    return commands, end


def _follows(data: bytes, at: int) -> bool:
    """Whether a bad record was more than a write cut short: its length says where the next one would
    begin."""
    if at + _HEAD.size > len(data):
        return False
    length, _ = _HEAD.unpack_from(data, at)
    return at + _HEAD.size + int(length) <= len(data)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
