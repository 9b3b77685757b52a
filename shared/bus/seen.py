"""Which messages with statements were obeyed: each is, once. What was seen outlives the process, or whoever restarts a
daemon could have it obey a message a second time while its statement holds.

On disk it is a ring of records of fixed size in a file that has its full length from the start, so that a disk that
fills up later takes nothing from it. A record is handed to the kernel before its message is obeyed: `kill -9` loses
none, a power failure may lose the last ones. Without a file each life remembers its own."""

from __future__ import annotations

import hashlib
import os
import struct
from pathlib import Path
from typing import Final

import structlog

from shared import private_files

#: Records in the ring, of 32 bytes each: 1 MiB. 436 messages a second fill it in the 75 s that a statement holds.
PLACES: Final = 32_768
#: Messages are remembered in memory up to so many; the oldest are forgotten first.
MOST_SEEN: Final = 1_000_000
#: BLAKE2b of the message's id, its end (s since 1970), and how many came before; a place that was never used is zero.
_RECORD: Final = struct.Struct("<16sdQ")


def seen_file(spool: Path) -> Path:
    """Where a sender keeps them: beside the events that wait for the broker (shared.bus.spool)."""
    return spool.with_suffix(".seen")


class Seen:
    """The messages that one daemon obeyed, until their statements end. path: keeps them over restarts; None: nothing
    does."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._until: dict[bytes, float] = {}  # in order of arrival, which is about that of their ends
        self._count = 0
        self._read = path is None

    def __len__(self) -> int:
        return len(self._until)

    def has(self, message_id: str, now: float) -> bool:
        """Whether this one came before. now: seconds since 1970."""
        if not self._read:
            self._load(now)
        while self._until:
            oldest = next(iter(self._until))
            if self._until[oldest] > now and len(self._until) < MOST_SEEN:
                break
            del self._until[oldest]
        return _name(message_id) in self._until

    def add(self, message_id: str, until: float) -> None:
        """Remember one until then (s since 1970)."""
        name = _name(message_id)
        self._until[name] = until
        self._count += 1
        if self._path is not None:
            try:
                self._write(self._path, _RECORD.pack(name, until, self._count))
            except OSError as error:
                self._note(error)

    def _load(self, now: float) -> None:
        """What earlier lives saw. Blocks for some milliseconds, once."""
        self._read = True
        assert self._path is not None
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            self._note(error)
            return
        whole = len(data) - len(data) % _RECORD.size
        records = sorted(_RECORD.iter_unpack(data[:whole]), key=lambda record: record[2])
        self._count = records[-1][2] if records else 0
        self._until = {name: until for name, until, count in records if count and until > now}

    def _write(self, path: Path, record: bytes) -> None:
        try:
            file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            file = self._make(path)
        try:
            os.pwrite(file, record, self._count % PLACES * _RECORD.size)
        finally:
            os.close(file)

    @staticmethod
    def _make(path: Path) -> int:
        private_files.make_directory(path.parent)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, private_files.FILE)
        try:
            os.posix_fallocate(file, 0, PLACES * _RECORD.size)
        except OSError:
            os.close(file)
            raise
        return file

    def _note(self, error: OSError) -> None:
        """Tell it once, and go on: these are remembered for this life only."""
        self._path, self._read = None, True
        reason = f"{error}; a message that is sent again after a restart within a minute would be obeyed once more"
        structlog.stdlib.get_logger().warning("statements_not_kept", reason=reason)


def _name(message_id: str) -> bytes:
    return hashlib.blake2b(message_id.encode(errors="surrogatepass"), digest_size=16).digest()
