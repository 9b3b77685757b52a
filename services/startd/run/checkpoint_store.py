"""Checkpoints of a run that lie at a URL: their files go there by plug-in, and come from there; the access point has
their manifest (`shared.transfer.checkpoint_manifest`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from services.startd.core.journal_records import RunRecord
from services.startd.core.run.failures import Fault, RunFailed
from services.startd.core.run.job_launch import Launch
from services.startd.core.run.plugins import Results, Transfer
from services.startd.run import scratch_files
from services.startd.run.url_transfer import UrlTransfer
from shared.classad import ClassAd
from shared.transfer import checkpoint_manifest
from shared.transfer.bundle import Source, checksums
from shared.transfer.checkpoint_manifest import base_of, is_manifest, manifest_name, url_of
from shared.transfer.errors import TransferError
from shared.transfer.urls import destination_of

#: Of a manifest, bytes.
_MOST: Final = 1 << 27


class CheckpointStore:
    """Of one run. source: how a file of the scratch directory is read."""

    def __init__(
        self, record: RunRecord, urls: UrlTransfer, scratch: Callable[[], Path], source: Callable[[Path, str], Source]
    ) -> None:
        self._record = record
        self._urls = urls
        self._scratch = scratch
        self._source = source

    async def put(
        self, job: ClassAd, sources: Sequence[Source], launch: Launch, limit: int | None
    ) -> tuple[Source, Results]:
        """Send what a checkpoint has: its manifest, for the access point. Raises RunFailed, TransferError,
        TransferUnavailable: no time was left for it."""
        scratch, manifest = self._scratch(), manifest_name(self._record.attempt, self._record.launches)
        base = base_of(destination_of(job), manifest)
        saved = [source for source in sources if not is_manifest(source.name)]  # one may be left of an earlier try
        files = await asyncio.to_thread(checksums, saved, limit_bytes=limit)
        transfers = [Transfer(url_of(base, name), str(launch.scratch / name), folders=True) for _, name in files]
        try:
            results = await self._urls.send(job, launch, transfers)
        except RunFailed as error:
            raise _of_checkpoint(error) from error
        await asyncio.to_thread(scratch_files.write, scratch, manifest, checkpoint_manifest.written(manifest, files))
        return self._source(scratch / manifest, manifest), results

    async def forget(self, source: Source) -> None:
        """A manifest that the access point has: it is no work of the job."""
        await asyncio.to_thread(scratch_files.remove, self._scratch(), source.name)

    async def get(self, job: ClassAd, names: Iterable[str], launch: Launch) -> Results:
        """Fetch what a checkpoint has beside what came from the access point (names). Raises RunFailed."""
        scratch = self._scratch()
        manifest = next((name for name in names if is_manifest(name)), "")
        if not manifest:
            return Results()
        try:
            data = await asyncio.to_thread(scratch_files.read, scratch, manifest, _MOST)
            await asyncio.to_thread(scratch_files.remove, scratch, manifest)
            files = checkpoint_manifest.read(manifest, data.encode("utf-8", "surrogateescape"))
            base = base_of(destination_of(job), manifest)
            await asyncio.to_thread(scratch_files.make_folders, scratch, [name for _, name in files])
            wanted = [Transfer(url_of(base, name), str(launch.scratch / name)) for _, name in files]
            results = await self._urls.get(job, launch, wanted)
            await asyncio.to_thread(self._check, files, base)
        except RunFailed as error:
            raise _of_checkpoint(error) from error
        except TransferError as error:
            raise Fault.NO_CHECKPOINT.failure(f"checkpoint: {error}") from error
        return results

    def _check(self, files: Sequence[tuple[str, str]], base: str) -> None:
        """Raises TransferError."""
        found = {name: checksum for checksum, name in checksums(self._source(self._scratch() / n, n) for _, n in files)}
        for checksum, name in files:
            if found.get(name) != checksum:
                raise TransferError(f"{url_of(base, name)} is not what was put there (SHA-256)")


def _of_checkpoint(error: RunFailed) -> RunFailed:
    """What a plug-in could not do, with the code of checkpoints. What is this machine's fault stays so."""
    return Fault.NO_CHECKPOINT.failure(f"checkpoint: {error.message}", error.subcode) if error.kind == "hold" else error
