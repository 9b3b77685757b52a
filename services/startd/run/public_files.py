"""Inputs that the job calls public (public_input_files): taken from those that this machine keeps, or got once for all
jobs that want them.

Whatever goes wrong here costs nothing but the saving: the files travel as others do then.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from structlog.stdlib import BoundLogger

from services.startd.core.journal_records import RunRecord
from services.startd.core.run.plugins import Results
from services.startd.run import scratch_files
from services.startd.run.context import RunContext
from services.startd.run.reuse_directory import hashed_copy
from shared.classad import ClassAd
from shared.transfer.client import fetch, list_public
from shared.transfer.errors import TransferError
from shared.transfer.public import PublicFile, public_names, public_urls
from shared.transfer.urls import local_name

#: In the statistics of the job: files that this machine had already.
REUSED: Final = "reused"
#: What comes by URL is written with these permissions.
_MODE: Final = 0o644


class PublicFiles:
    """Those of one run. reused: what needed not to be transferred. got_files, got_bytes: what came
    from the access point to be kept."""

    def __init__(self, record: RunRecord, context: RunContext, log: BoundLogger) -> None:
        self._record = record
        self._context = context
        self._log = log
        self.reused = Results()
        self.got_files, self.got_bytes = 0, 0

    @property
    def _scratch(self) -> Path:
        return self._context.scratch(self._record)

    async def place(self, job: ClassAd, limit_bytes: int | None) -> list[PublicFile]:
        """Put the public files of the access point into the scratch directory: all of them, or none, and they travel
        with the others."""
        record, context = self._record, self._context
        if not context.reuse.most_bytes or not public_names(job):
            return []
        url, token, tls = record.transfer_url, record.transfer_token, context.transfer_tls
        try:
            listed = await list_public(context.session(), url, token, tls=tls)
            if limit_bytes is not None and sum(one.size for one in listed) > limit_bytes:
                return []
            for one in listed:

                async def get(folder: Path, one: PublicFile = one) -> None:
                    what = f"public/{one.sha256}"
                    await fetch(context.session(), url, token, folder, what=what, limit_bytes=one.size, tls=tls)
                    context.counts.files.bytes.add("public", count=one.size)

                if not await self._place(one, get):
                    raise OSError(f"{one.name} can not be kept")
        except (TransferError, OSError) as error:
            self._log.info("public_files_travel_with_others", reason=str(error))
            self.reused, self.got_files, self.got_bytes = Results(), 0, 0
            return []
        return listed

    async def _place(self, file: PublicFile, get: Callable[[Path], Awaitable[None]]) -> bool:
        """A kept file that was changed is got anew, once. Raises what get does, and OSError."""
        reuse = self._context.reuse
        for _ in range(2):
            got = False

            async def fill(folder: Path) -> None:
                nonlocal got
                got = True
                await get(folder)

            if not await reuse.have(file.sha256, file.size, fill):
                return False
            if await self._copied(file):
                if got:
                    self.got_files, self.got_bytes = self.got_files + 1, self.got_bytes + file.size
                else:
                    self._count(file.size)
                return True
        return False

    async def _copied(self, file: PublicFile) -> bool:
        with scratch_files.created(self._scratch, file.name, file.mode) as into:
            if await self._context.reuse.copy(file.sha256, into) is not None:
                return True
        scratch_files.remove(self._scratch, file.name)
        return False

    def _count(self, size: int) -> None:
        self.reused = self.reused.plus(Results("", {REUSED: 1}, {REUSED: size}))
        self._context.counts.files.bytes.add(REUSED, count=size)

    async def place_by_url(self, job: ClassAd) -> frozenset[str]:
        """Put those into the scratch directory that are kept, and whose URLs say by `#sha256=` what they are. Returns
        these."""
        reuse, placed = self._context.reuse, set()
        for url, digest in public_urls(job).items():
            size = reuse.size_of(digest)
            try:
                if size is not None and await self._copied(PublicFile(local_name(url), digest, size, _MODE)):
                    placed.add(url)
                    self._count(size)
            except OSError as error:
                self._log.info("public_file_is_transferred", url=url.partition("?")[0], reason=str(error))
        return frozenset(placed)

    async def keep_by_url(self, job: ClassAd, placed: frozenset[str]) -> None:
        """Keep those that were transferred. A plug-in is the job: what it brought is kept under the name of its content
        alone, and not at all where that is another than the URL says."""
        for url, digest in public_urls(job).items():
            if url in placed:
                continue
            try:
                with scratch_files.opened(self._scratch, local_name(url)) as source:

                    async def fill(folder: Path, source: int = source, digest: str = digest) -> None:
                        with scratch_files.created(folder, digest, 0o600) as into:
                            found, _ = await hashed_copy(source, into)
                        if found != digest:
                            raise OSError("its content is another")

                    await self._context.reuse.have(digest, os.fstat(source).st_size, fill)
            except OSError as error:
                self._log.info("public_file_is_not_kept", url=url.partition("?")[0], reason=str(error))
