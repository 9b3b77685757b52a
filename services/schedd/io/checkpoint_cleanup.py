"""Removes checkpoints at the URLs where their jobs put them (checkpoint_destination), once they are not wanted any
more: by the programs that the administrator has named for the beginnings of URLs (CHECKPOINT_DESTINATION_MAPFILE).

What is to be removed lies in the spool until it is: manifests, each with the ad of its job. So whoever is killed, it
goes on, and what failed is tried again. The programs run as the schedd's account.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from engine.queue.jobs import Job
from services.schedd.io import checkpoints
from services.schedd.io.job_updates import JobUpdates
from shared import job_log
from shared.classad import ClassAd, ParseError, parse_ads
from shared.classad.functions import UserMap, UserMapError
from shared.subprocess_runner import ProgramFailed, clean_environment, run
from shared.transfer import checkpoint_manifest
from shared.transfer.checkpoint_manifest import base_of
from shared.transfer.errors import TransferError
from shared.transfer.urls import destination_of

#: Between two tries of what failed, seconds.
AGAIN_S: Final = 3600.0
#: Comes with Roost, as HTCondor's of that name does with HTCondor.
LOCAL: Final = "cleanup_locally_mounted_checkpoint"
_LOCAL_PROGRAM: Final = Path(__file__).with_name(f"{LOCAL}.py")
_SAID: Final = 300


async def keep(updates: JobUpdates, job: Job, number: int) -> None:
    """This checkpoint is the job's from now on, and those before it go."""
    taken = job.ad.eval("NumCkpts")
    job.ad[checkpoints.NUMBER] = number
    job.ad["NumCkpts"] = (taken if isinstance(taken, int) else 0) + 1
    job.ad["LastCkptTime"] = int(updates.now())
    updates.queue.put(job)
    for stage in ("started", "finished"):
        updates.record(job, partial(job_log.transferring, job.id, updates.now(), "output", stage))
    await updates.commit()
    if await asyncio.to_thread(checkpoints.keep_only, updates.spool, job.id, number):
        updates.checkpoints_due.set()


class CheckpointCleanup:
    """Of one schedd."""

    def __init__(self, updates: JobUpdates) -> None:
        self._updates = updates
        self._log = updates.context.log

    async def run(self) -> None:
        """Until cancelled."""
        due = self._updates.checkpoints_due
        while True:
            due.clear()
            for folder in await asyncio.to_thread(checkpoints.awaiting_cleanup, self._updates.spool):
                await self._clean(folder)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await due.wait()

    async def _clean(self, folder: Path) -> None:
        """Everything of one job that is due. What can not be removed now stays for the next time."""
        try:
            ad = await asyncio.to_thread(_read_ad, folder / checkpoints.JOB_AD)
            destination = destination_of(ad)
            command = await asyncio.to_thread(
                command_for,
                Path(self._updates.settings.checkpoint_destinations),
                self._updates.settings.libexec,
                destination,
            )
            if not command:
                self._log.warning(
                    "checkpoints_left",
                    url=destination,
                    mend="CHECKPOINT_DESTINATION_MAPFILE names no program that removes them: remove them by hand",
                )
            async with asyncio.timeout(self._updates.settings.checkpoint_cleanup_timeout_s):
                for path in await asyncio.to_thread(_manifests, folder) if command else ():
                    await self._remove(path, command, destination, folder / checkpoints.JOB_AD)
            await asyncio.to_thread(shutil.rmtree, folder)
        except (OSError, TimeoutError, ParseError, UserMapError, TransferError, ProgramFailed) as error:
            self._log.warning(
                "checkpoints_not_removed", job_id=folder.name, reason=str(error) or "it took too long", again_s=AGAIN_S
            )

    async def _remove(self, manifest: Path, command: Sequence[str], destination: str, ad: Path) -> None:
        """The files of one checkpoint, then its manifest. Raises OSError, TransferError, ProgramFailed."""
        data = await asyncio.to_thread(manifest.read_bytes)
        base = base_of(destination, manifest.name)
        for _, name in checkpoint_manifest.read(manifest.name, data):
            words = [*command, "-from", base, "-file", name, "-jobad", str(ad)]
            done = await run(
                words,
                env=clean_environment(os.environ),
                timeout_s=self._updates.settings.checkpoint_cleanup_timeout_s,
            )
            if not done.good:
                said = (done.stderr or done.stdout).decode(errors="replace").strip()[-_SAID:]
                raise ProgramFailed(f"{base}{name}: {command[0]}: {done}: {said}")
        await asyncio.to_thread(manifest.unlink)
        self._log.info("checkpoint_removed", url=base)


def command_for(mapfile: Path, libexec: str, destination: str) -> list[str]:
    """The words of the program that removes what is below a URL; empty: none is named. Raises OSError, UserMapError.
    Blocking."""
    try:
        text = mapfile.read_text(errors="surrogateescape")
    except FileNotFoundError:
        return []
    found = UserMap.parse(text, prefixes=True).entry(destination)
    if found is None or {".", ".."} & set(unquote(destination).split("/")):  # it would not be below that beginning
        return []
    prefix, words = found
    program, *more = (word.replace("\\0", prefix) for word in words.split(","))
    if program == LOCAL:
        return [sys.executable, "-I", "-S", str(_LOCAL_PROGRAM), *more]
    return [program if os.path.isabs(program) else os.path.join(libexec, program), *more]


def _manifests(folder: Path) -> list[Path]:
    return sorted(folder.rglob(f"{checkpoint_manifest.PREFIX}*"))


def _read_ad(path: Path) -> ClassAd:
    """Raises OSError, ParseError."""
    return next(iter(parse_ads(path.read_text(errors="surrogateescape"), "old")), ClassAd())
