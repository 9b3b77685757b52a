"""Files that jobs of this machine share: inputs that their owners call public, kept for the next job that wants them.

A file is called after the SHA-256 of its content and found by nothing else, so no job and no access point can make it
mean anything else. It is hashed again whenever it is copied out: what was changed or broke meanwhile is thrown away and
got anew. Jobs get copies, never the file itself; its directory is readable by the startd alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import secrets
import shutil
import stat
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from structlog.stdlib import BoundLogger

from shared.disk_space import shortage_in
from shared.transfer.public import DIGEST

#: Bytes that are copied in a thread at a time: others have their turn in between.
SLICE: Final = 16 << 20
CHUNK: Final = 1 << 18
_COMING: Final = "incoming"


class ReuseDirectory:
    """The directory, bounded in size: what was used longest ago goes first."""

    def __init__(self, log: BoundLogger) -> None:
        self._log = log
        self._path: Path | None = None
        self._most = 0
        self._files: OrderedDict[str, int] = OrderedDict()  # digest -> bytes, the one used last at the end
        self._coming: dict[str, int] = {}  # bytes of those that are being got
        self._locks: dict[str, asyncio.Lock] = {}

    @property
    def most_bytes(self) -> int:
        """0: nothing is kept."""
        return self._most

    @property
    def bytes(self) -> int:
        return sum(self._files.values())

    def open(self, path: Path, most_bytes: int) -> None:
        """Keep files here, as many as fit; what an earlier life kept is found again. Blocking. Where the directory can
        not be had, nothing is kept."""
        self._path, self._most = None, 0
        self._files.clear()
        if not most_bytes:
            shutil.rmtree(path, ignore_errors=True)
            return
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise PermissionError(f"{path} is no directory of the startd's account")
            path.chmod(0o700)
            shutil.rmtree(path / _COMING, ignore_errors=True)
            (path / _COMING).mkdir(mode=0o700)
            kept = _kept(path)
        except OSError as error:
            self._log.warning("nothing_is_reused", path=str(path), reason=str(error))
            return
        self._path, self._most = path, most_bytes
        self._files.update((name, size) for _, name, size in sorted(kept))
        self._make_room(0)

    def size_of(self, digest: str) -> int | None:
        """Bytes of a file that is kept."""
        return self._files.get(digest)

    async def have(self, digest: str, size: int, fill: Callable[[Path], Awaitable[None]]) -> bool:
        """Have a file, from before or by `fill`, which puts it into an empty directory under its digest. Who asks while
        it is being got waits for that. False: it does not fit. Raises what fill does, and OSError."""
        lock = self._locks.setdefault(digest, asyncio.Lock())
        try:
            async with lock:
                if digest in self._files:
                    return True
                if not self._takes(size):
                    return False
                self._coming[digest] = size
                try:
                    return await self._get(digest, size, fill)
                finally:
                    self._coming.pop(digest, None)
        finally:
            if not lock.locked():
                self._locks.pop(digest, None)

    def _takes(self, size: int) -> bool:
        if self._path is None or size + sum(self._coming.values()) > self._most:
            return False
        self._make_room(size)
        return not shortage_in(self._path, size)

    async def _get(self, digest: str, size: int, fill: Callable[[Path], Awaitable[None]]) -> bool:
        assert self._path is not None
        folder = self._path / _COMING / secrets.token_hex(8)
        folder.mkdir(mode=0o700)
        try:
            await fill(folder)
            came = os.lstat(folder / digest)
            if not stat.S_ISREG(came.st_mode) or came.st_size != size:
                return False
            (folder / digest).chmod(0o600)
            os.utime(folder / digest)
            os.replace(folder / digest, self._path / digest)
            self._files[digest] = size
            return True
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, True)

    async def copy(self, digest: str, into: int) -> int | None:
        """Copy a file into one that is open. Returns its bytes; None: it is not here, or is not what it was any more.
        Raises OSError."""
        if self._path is None or digest not in self._files:
            return None
        path = self._path / digest
        try:
            source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            self._files.pop(digest, None)
            return None
        try:
            found, size = await hashed_copy(source, into)
        finally:
            os.close(source)
        if found != digest:
            self._log.warning("reused_file_was_changed", digest=digest)
            self._remove(digest)
            return None
        if digest in self._files:
            self._files.move_to_end(digest)
            with contextlib.suppress(OSError):
                os.utime(path)
        return size

    def _make_room(self, size: int) -> None:
        while self._files and self.bytes + sum(self._coming.values()) + size > self._most:
            self._remove(next(iter(self._files)))

    def _remove(self, digest: str) -> None:
        self._files.pop(digest, None)
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path / digest)


def _kept(path: Path) -> list[tuple[int, str, int]]:
    """Files of an earlier life: when they were used last, what they are called, and their bytes. Raises OSError."""
    found = []
    with os.scandir(path) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if DIGEST.fullmatch(entry.name) and stat.S_ISREG(status.st_mode):
                found.append((status.st_mtime_ns, entry.name, status.st_size))
    return found


async def hashed_copy(source: int, into: int) -> tuple[str, int]:
    """Copy what is open. Returns the SHA-256 of it, and how many bytes there were. Raises OSError."""
    digest = hashlib.sha256()
    size = 0

    def some() -> int:
        copied = 0
        while copied < SLICE and (chunk := os.read(source, CHUNK)):
            digest.update(chunk)
            left = memoryview(chunk)
            while left:
                left = left[os.write(into, left) :]
            copied += len(chunk)
        return copied

    while copied := await asyncio.to_thread(some):
        size += copied
    return digest.hexdigest(), size
