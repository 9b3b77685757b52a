"""Checkpoints of jobs: what a run saved of its work, in the spool until the job is over.

One is a directory with a number, which nobody reads before the job's ad has this number (CheckpointNumber): so there is
always one whole checkpoint, or none. Blocking."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from engine.queue.jobs import Job, JobId
from shared import private_files
from shared.transfer.bundle import Source

NUMBER: Final = "CheckpointNumber"


def folder_of(spool: Path, job: JobId) -> Path:
    return spool / "checkpoints" / str(job)


def put_by(spool: Path, job: JobId, staging: Path) -> int:
    """Move what was received beside the checkpoints that are there. Returns its number. Raises OSError."""
    folder = folder_of(spool, job)
    private_files.make_directory(folder.parent)
    private_files.make_directory(folder)
    number = max(map(int, os.listdir(folder)), default=-1) + 1
    new = folder / str(number)
    new.mkdir(mode=0o700)
    for entry in sorted(os.listdir(staging)):
        os.rename(staging / entry, new / entry)
    for path in (new, folder):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return number


def keep_only(spool: Path, job: JobId, number: int) -> None:
    """This one is the job's: the others go."""
    folder = folder_of(spool, job)
    for name in os.listdir(folder):
        if name != str(number):
            shutil.rmtree(folder / name, ignore_errors=True)


def sources(spool: Path, job: Job) -> list[Source]:
    """What a run begins with besides its input; empty: it has no checkpoint."""
    number = job.ad.eval(NUMBER)
    folder = folder_of(spool, job.id) / str(number)
    if not isinstance(number, int) or isinstance(number, bool) or not folder.is_dir():
        return []
    return [Source(folder / name, name, within=folder) for name in sorted(os.listdir(folder))]


def sweep(spool: Path, known: Callable[[JobId], bool]) -> None:
    """Checkpoints of jobs that left while nobody removed them go."""
    folder = spool / "checkpoints"
    for name in os.listdir(folder) if folder.is_dir() else ():
        try:
            gone = not known(JobId.parse(name))
        except ValueError:
            gone = True
        if gone:
            shutil.rmtree(folder / name, ignore_errors=True)
