"""What daemons keep is their account's alone, whatever the umask: directories 0700, files 0600. What an older version
or an administrator left more open is closed, and the caller learns of it to tell.

Files of jobs below a directory that is closed keep their modes: their owners get them back with those."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

DIRECTORY: Final = 0o700
FILE: Final = 0o600
#: What SQLite keeps beside a database, with the database's mode where it makes it.
BESIDE_DATABASE: Final = ("-wal", "-shm", "-journal")
#: How deep below a SPOOL daemons have files of their own: `schedd/<name>/job_queue.db`.
_DEPTH: Final = 3
#: Holds directories of jobs and nothing else.
_OF_JOBS: Final = frozenset({"sandboxes", "incoming"})


@dataclass(slots=True)
class Closed:
    """What was closed, and what could not be, with the reason."""

    paths: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, other: Closed) -> None:
        self.paths += other.paths
        self.problems += other.problems


def make_directory(path: Path) -> None:
    """Make a directory that only this account enters, and so those above it that lack. One that is there stays as it
    is. Raises OSError."""
    try:
        path.mkdir(mode=DIRECTORY)
    except FileNotFoundError:
        make_directory(path.parent)
        path.mkdir(mode=DIRECTORY, exist_ok=True)
    except FileExistsError:
        if not path.is_dir():
            raise


def make_database(path: Path) -> None:
    """Make the file of a SQLite database before SQLite does, which would make it with the mode that the umask leaves;
    and close one that is there, with what lies beside it. Raises OSError."""
    make_directory(path.parent)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE))
    for end in ("", *BESIDE_DATABASE):
        close(path.with_name(path.name + end))


def opener(path: str, flags: int) -> int:
    """For open(): a file that is made is 0600."""
    return os.open(path, flags | os.O_CLOEXEC, FILE)


def close(path: Path) -> Closed:
    """Take a file or directory from all but its owner, if it is there; links and devices are left alone."""
    found = Closed()
    try:
        status = path.lstat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            return found
        if not stat.S_IMODE(status.st_mode) & 0o077:
            return found
        if status.st_mode & stat.S_ISVTX:  # a place such as /tmp, where everybody may write
            found.problems.append(f"{path} is a directory for everybody; give the daemon one of its own")
            return found
        _chmod(path, stat.S_IMODE(status.st_mode) & 0o700)
        found.paths.append(str(path))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        found.problems.append(f"{path} can be read by others, and its mode can not be changed: {error.strerror}")
    return found


def _chmod(path: Path, mode: int) -> None:
    # The file itself and not what a link names by now. Not by a descriptor that is open for reading: its end would take
    # this process's locks of the file with it, and SQLite would know nothing of that.
    there = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.chmod(f"/proc/self/fd/{there}", mode)
    finally:
        os.close(there)


def close_all(paths: Iterable[Path]) -> Closed:
    found = Closed()
    for path in paths:
        found.add(close(path))
    return found


def close_spool(spool: Path) -> Closed:
    """Close a daemon's SPOOL: itself, and the files and directories that daemons keep in it. Blocks; what belongs to
    jobs is not gone through, so this takes no longer with many of them."""
    try:
        real = Path(os.path.realpath(spool))  # SPOOL itself may be a link
    except OSError as error:
        return Closed(problems=[f"{spool}: {error.strerror}"])
    found = close(real)
    found.add(close_all(_kept(real, _DEPTH)))
    return found


def _kept(directory: Path, depth: int) -> Iterator[Path]:
    try:
        entries = list(os.scandir(directory))
    except OSError:  # not ours, or not there: nothing of this daemon's is in it
        return
    for entry in entries:
        path = Path(entry.path)
        yield path
        if depth > 1 and entry.name not in _OF_JOBS and entry.is_dir(follow_symlinks=False):
            yield from _kept(path, depth - 1)
