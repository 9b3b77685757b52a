"""Where the files of spooled jobs lie, and what is there. Which files travel with a job is shared with the clients that
spool (shared.transfer.sandbox)."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from engine.queue.jobs import Job, JobId
from shared import private_files
from shared.transfer.bundle import Source

#: Files that are listed of one job.
MOST_LISTED: Final = 10_000


def spooled_sources(shared: Path, own: Path) -> list[Source]:
    """What goes along with a spooled job: the files of its cluster, then its own."""
    found: dict[str, Source] = {}
    for folder in (shared, own):
        if folder.is_dir():
            for entry in sorted(os.listdir(folder)):
                found[entry] = Source(folder / entry, entry, within=folder)
    return list(found.values())


def listing(out: Path) -> list[dict[str, object]]:
    """The files under a directory: path from there, size in bytes, time of the last change (s since 1970), by path."""
    found: list[dict[str, object]] = []
    for folder, directories, files in os.walk(out):
        directories.sort()
        for name in files:
            path = Path(folder, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                place = str(path.relative_to(out)).encode(errors="replace").decode()
                found.append({"name": place, "size": status.st_size, "mtime": status.st_mtime})
        if len(found) >= MOST_LISTED:
            break
    return sorted(found[:MOST_LISTED], key=lambda one: str(one["name"]))


def plain_file(within: Path, path: Path) -> Path | None:
    """Where a file really lies, if that is inside `within` and it is a plain file."""
    real = path.resolve()
    if not real.is_relative_to(within.resolve()) or not stat.S_ISREG(real.stat().st_mode):
        return None
    return real


def spool_dirs(spool: Path, job: Job) -> tuple[Path, Path, Path]:
    """Directories of a spooled job: input of its cluster, its own input, its output."""
    return input_dir(spool, JobId(job.cluster.id, -1)), input_dir(spool, job.id), output_dir(spool, job.id)


def input_dir(spool: Path, job: JobId) -> Path:
    """Where the input of a spooled job is, or, proc -1, that of its whole cluster."""
    base = spool / str(job.cluster)
    return base / "shared" if job.proc < 0 else base / f"proc{job.proc}" / "in"


def output_dir(spool: Path, job: JobId) -> Path:
    """Where the output and the log of a spooled job are."""
    return spool / str(job.cluster) / f"proc{job.proc}" / "out"


def make_folders(folders: Iterable[Path]) -> None:
    """Where logs of spooled jobs begin before anything else of them is there. What can not be made is told of when the
    log is written."""
    for folder in folders:
        with contextlib.suppress(OSError):
            private_files.make_directory(folder)
