"""The sources of records: histories of schedds, newest first, and history files of this machine, from where the last
pass ended.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Final, Protocol

from services.adstash.core.checkpoint import SourceCheckpoint
from services.adstash.core.documents import SCHEDD_HISTORY, Document, document, job_of, records
from shared.bus.api import Bus
from shared.classad import ClassAd, PackedError
from shared.daemon.pool_ads import pool_ads
from shared.errors import RetryableError
from shared.messages.queue import JobPage, QueryJobs

#: Jobs in one page of a schedd's history.
_PAGE: Final = 500
_PATIENCE_S: Final = 120.0
#: Bytes of a file read at once; a record is shorter.
_CHUNK: Final = 8 << 20


class SourceUnavailable(RetryableError):
    """A source can not be read now."""


class Source(Protocol):
    name: str  # in the checkpoint
    unreadable: int  # records that were passed over

    def documents(self, mark: SourceCheckpoint) -> AsyncGenerator[Document, None]:
        """What has not been exported. When all of it came, `next` is the mark to keep. Raises RoostError."""

    def next(self, mark: SourceCheckpoint) -> SourceCheckpoint: ...


class ScheddHistory:
    """The history of one schedd. It comes newest first, so it is read up to the newest record that the last completed
    pass had; what comes into it meanwhile is for the next pass.

    jobs: its jobs that left the queue, newest first."""

    def __init__(self, schedd: str, jobs: Callable[[], AsyncGenerator[ClassAd, None]]) -> None:
        self.name = f"schedd-{schedd}"
        self.schedd = schedd
        self.unreadable = 0
        self._jobs = jobs
        self._newest = ""

    async def documents(self, mark: SourceCheckpoint) -> AsyncGenerator[Document, None]:
        self._newest = ""
        async with aclosing(self._jobs()) as jobs:
            async for ad in jobs:
                try:
                    job = job_of(ad)
                    if job == mark.newest:
                        return
                    found = document(ad, SCHEDD_HISTORY, self.schedd)
                except (PackedError, ValueError):
                    self.unreadable += 1
                    continue
                self._newest = self._newest or job
                yield found

    def next(self, mark: SourceCheckpoint) -> SourceCheckpoint:
        return SourceCheckpoint(self._newest or mark.newest, mark.offsets, mark.passes + (1 if self._newest else 0))


async def jobs_by_bus(bus: Bus, inbox: str) -> AsyncGenerator[ClassAd, None]:
    """The history of the schedd with this inbox, newest first, a page at a time."""
    after = ""
    while True:
        page = await bus.call(inbox, QueryJobs(history=True, limit=_PAGE, after=after), timeout=_PATIENCE_S)
        assert isinstance(page, JobPage)
        for packed in page.ads:
            yield ClassAd.unpack(packed)
        if not page.next:
            return
        after = page.next


async def schedds(bus: Bus) -> dict[str, str]:
    """The schedds that the collector knows: name to inbox (MON-17)."""
    found: dict[str, str] = {}
    async for ads in pool_ads(bus, "Scheduler", projection=("Name", "MyAddress")):
        for ad in ads:
            if (name := ad.eval_string("Name")) and (inbox := ad.eval_string("MyAddress")).startswith("schedd."):
                found[name] = inbox
    return found


class HistoryFile:
    """A history file, and those that it was renamed to as it grew. Each is known by its inode, so that a file goes on
    where it was left under any name."""

    def __init__(self, path: Path, source: str, daemon: str) -> None:
        self.name = f"file-{path}"
        self.path, self.source, self.daemon = path, source, daemon
        self.unreadable = 0
        self._offsets: dict[str, int] = {}
        self._some = False

    async def documents(self, mark: SourceCheckpoint) -> AsyncGenerator[Document, None]:
        self._offsets, self._some = {}, False
        try:
            for path in await asyncio.to_thread(self._files):
                async for found in self._of_file(path, mark):
                    self._some = True
                    yield found
        except OSError as error:
            raise SourceUnavailable(f"{error.filename or self.path}: {error.strerror}") from error

    def _files(self) -> list[Path]:
        """Oldest first: renamed ones have the time in their names."""
        kept = sorted(self.path.parent.glob(f"{self.path.name}.[0-9]*T[0-9]*"))
        return [*kept, self.path] if self.path.exists() else kept

    async def _of_file(self, path: Path, mark: SourceCheckpoint) -> AsyncGenerator[Document, None]:
        with path.open("rb") as file:
            told = os.fstat(file.fileno())
            inode = f"{told.st_dev}-{told.st_ino}"
            offset = mark.offsets.get(inode, 0)
            if offset > told.st_size:  # another file that got its number
                offset = 0
            self._offsets[inode] = offset
            wanted = _CHUNK
            while True:
                file.seek(offset)
                data = await asyncio.to_thread(file.read, wanted)
                used = 0
                for record in records(data, self.source):
                    used = record.end
                    if record.ad is None:
                        self.unreadable += 1
                    else:
                        yield document(record.ad, record.source, self.daemon)
                offset += used
                self._offsets[inode] = offset
                if len(data) < wanted:
                    return
                wanted = _CHUNK if used else wanted * 2  # a record that is longer than what was read

    def next(self, mark: SourceCheckpoint) -> SourceCheckpoint:
        return SourceCheckpoint(mark.newest, dict(self._offsets), mark.passes + (1 if self._some else 0))
