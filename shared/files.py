"""Files that are whole on disk, or not there: what a crash may not leave half written."""

from __future__ import annotations

import os
from pathlib import Path

from shared import private_files


def beside(path: Path, ending: str) -> Path:
    """The path with something after its name: `a/b.log` and `.new` give `a/b.log.new`."""
    return path.with_name(path.name + ending)


def write_on_disk(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file whose bytes are on disk when this returns; its name may not be. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_on_disk(path: Path, data: bytes, mode: int = 0o600, owner: tuple[int, int] | None = None) -> None:
    """Replace a file as a whole; a directory that lacks is made, the account's alone. The file is on disk when this
    returns. owner: uid and gid that it is given. Raises OSError, and the old one stays then."""
    private_files.make_directory(path.parent)
    fresh = beside(path, ".new")
    write_on_disk(fresh, data, mode)
    if owner is not None:
        os.chown(fresh, *owner)
    os.replace(fresh, path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Have names that came, went or changed in it on disk. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
