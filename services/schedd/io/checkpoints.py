"""Checkpoints of jobs: what a run saved of its work, in the spool until the job is over.

One is a directory with a number, which nobody reads before the job's ad has this number (CheckpointNumber): so there is
always one whole checkpoint, or none. Of one that lies at a URL (checkpoint_destination) there are the output so far and
the manifest; those that are not wanted any more go to `checkpoint_cleanup`, with the job's ad. Blocking."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from engine.queue.jobs import Job, JobId
from shared import private_files
from shared.files import replace_on_disk
from shared.transfer.bundle import Source
from shared.transfer.checkpoint_manifest import is_manifest

NUMBER: Final = "CheckpointNumber"
#: Beside the checkpoints of a job of which some lie at a URL: who removes them there needs it when the job is gone.
JOB_AD: Final = "job.ad"


def folder_of(spool: Path, job: JobId) -> Path:
    return spool / "checkpoints" / str(job)


def put_by(spool: Path, job: JobId, staging: Path, ad: str) -> int:
    """Move what was received beside the checkpoints that are there. Returns its number. ad: the job's, which is kept
    where the files of the checkpoint lie at a URL. Raises OSError."""
    folder = folder_of(spool, job)
    private_files.make_directory(folder.parent)
    private_files.make_directory(folder)
    number = max((int(name) for name in os.listdir(folder) if name.isdigit()), default=-1) + 1
    new = folder / str(number)
    new.mkdir(mode=0o700)
    names = sorted(os.listdir(staging))
    if any(map(is_manifest, names)):
        replace_on_disk(folder / JOB_AD, ad.encode(errors="surrogateescape"))
    for entry in names:
        os.rename(staging / entry, new / entry)
    for path in (new, folder):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return number


def keep_only(spool: Path, job: JobId, number: int) -> bool:
    """This one is the job's: the others go. Whether some are to be removed at their URL."""
    folder = folder_of(spool, job)
    kept = {name for name in os.listdir(folder / str(number)) if is_manifest(name)}
    due = False
    for name in os.listdir(folder):
        if not name.isdigit() or name == str(number):
            continue
        manifests = {one for one in os.listdir(folder / name) if is_manifest(one)} - kept
        for one in manifests:
            due = True
            place = _cleanup_of(spool) / f"{job}.{name}"
            private_files.make_directory(place)
            shutil.copyfile(folder / JOB_AD, place / JOB_AD)
            os.rename(folder / name / one, place / one)
        shutil.rmtree(folder / name, ignore_errors=True)
    return due


def drop(spool: Path, job: JobId) -> bool:
    """The job is over. Whether checkpoints of it are to be removed at their URL."""
    folder = folder_of(spool, job)
    due = (folder / JOB_AD).exists()
    if due:
        os.rename(folder, _cleanup_of(spool) / str(job))
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return due


def awaiting_cleanup(spool: Path) -> list[Path]:
    """Directories with an ad of a job (JOB_AD) and, in them or below, manifests of what is to be removed."""
    folder = spool / "checkpoint-cleanup"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _cleanup_of(spool: Path) -> Path:
    folder = spool / "checkpoint-cleanup"
    private_files.make_directory(folder)
    return folder


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
            job = JobId.parse(name)
        except ValueError:
            shutil.rmtree(folder / name, ignore_errors=True)
            continue
        if not known(job):
            drop(spool, job)
