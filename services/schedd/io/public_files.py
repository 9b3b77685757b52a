"""Which input files of a run are public, and what they are: names with the SHA-256 of their content."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from shared.classad import ClassAd
from shared.transfer.bundle import CHUNK, Source, open_source
from shared.transfer.public import MOST_FILES, PublicFile, is_kept, public_names

#: Digests that are remembered.
MOST_KNOWN: Final = 10_000
#: Files that are hashed at a time: others of the schedd's threads have work too.
MOST_AT_ONCE: Final = 2
#: A file that was written so short a time ago (s) may be written again without a later time: it is hashed anew.
FRESH_S: Final = 2.0

#: What tells a file from itself after a change: device, inode, bytes, time in nanoseconds.
_State = tuple[int, int, int, int]


class PublicFiles:
    """Hashes files once, as long as they do not change. now: seconds since 1970."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._known: OrderedDict[_State, str] = OrderedDict()
        self._hashing = asyncio.Semaphore(MOST_AT_ONCE)

    async def listed(self, job: ClassAd, sources: Iterable[Source]) -> list[tuple[PublicFile, Source]]:
        """Those of what goes along with a job. Raises TransferError, OSError."""
        names = public_names(job)
        wanted = [one for one in sources if one.name in names][:MOST_FILES]
        return [(found, one) for one in wanted if (found := await self._look(one)) is not None]

    async def _look(self, source: Source) -> PublicFile | None:
        status = await asyncio.to_thread(_status, source)
        if status is None or not is_kept(status):
            return None
        digest = self._known.get(_state(status))
        if digest is None:
            async with self._hashing:
                digest = self._known.get(_state(status))  # somebody else may have had it hashed meanwhile
                if digest is None:
                    status, digest = await self._hash(source)
        return PublicFile(source.name, digest, status.st_size, status.st_mode & 0o777)

    async def _hash(self, source: Source) -> tuple[os.stat_result, str]:
        status, digest = await asyncio.to_thread(_hashed, source)
        if abs(self._now() - status.st_mtime) > FRESH_S:
            self._known[_state(status)] = digest
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return status, digest


def _state(status: os.stat_result) -> _State:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _status(source: Source) -> os.stat_result | None:
    try:
        return os.stat(source.path)
    except OSError:
        return None  # who sends it with the others tells that


def _hashed(source: Source) -> tuple[os.stat_result, str]:
    """Raises TransferError, OSError."""
    digest = hashlib.sha256()
    with open_source(source) as file:
        status = os.fstat(file.fileno())
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return status, digest.hexdigest()
