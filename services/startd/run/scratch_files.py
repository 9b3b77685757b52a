"""The startd's own files in a scratch directory, whose owner may have put links and files in the way. Nothing here
follows a link; what is written belongs to the account of the directory. Blocking."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def write(scratch: Path, name: str, data: bytes, mode: int = 0o644) -> None:
    """In place of what has this name. Raises OSError."""
    with _opened(scratch) as top:
        write_in(top, top, name, data, mode)


def write_all(scratch: Path, files: Mapping[str, bytes]) -> None:
    """The same of several, by name, that everybody may read."""
    with _opened(scratch) as top:
        for name, data in files.items():
            write_in(top, top, name, data, 0o644)


def write_in(folder: int, top: int, name: str, data: bytes, mode: int) -> None:
    """The same, in a directory that is open. top: the scratch directory, whose account gets the file."""
    try:
        descriptor = os.open(name, _NEW, mode, dir_fd=folder)
    except FileExistsError:
        os.unlink(name, dir_fd=folder)
        descriptor = os.open(name, _NEW, mode, dir_fd=folder)
    with open(descriptor, "wb", buffering=0) as file:
        give(descriptor, top)
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]


@contextlib.contextmanager
def created(scratch: Path, name: str, mode: int) -> Iterator[int]:
    """A new file in place of what has this name, open for writing; gone where writing it fails. Raises OSError."""
    with _opened(scratch) as top:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=top)
        descriptor = os.open(name, _NEW, mode, dir_fd=top)
        try:
            give(descriptor, top)
            os.fchmod(descriptor, mode)
            yield descriptor
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=top)
            raise
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def opened(scratch: Path, name: str) -> Iterator[int]:
    """A plain file, open for reading. Raises OSError."""
    with _opened(scratch) as top:
        descriptor = os.open(name, _OLD, dir_fd=top)
        try:
            here, owner = os.fstat(descriptor), os.fstat(top)
            if not stat.S_ISREG(here.st_mode) or here.st_uid not in (owner.st_uid, os.geteuid()):
                raise PermissionError(f"{name} is no plain file of the job's")
            yield descriptor
        finally:
            os.close(descriptor)


def write_below(scratch: Path, folder: str, name: str, data: bytes, mode: int = 0o644) -> None:
    """The same in a directory of the scratch directory, which is made where there is none. Raises OSError."""
    with _opened(scratch) as top:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o755, dir_fd=top)
        inner = os.open(folder, DIRECTORY, dir_fd=top)
        try:
            give(inner, top)
            write_in(inner, top, name, data, mode)
        finally:
            os.close(inner)


def make_folders(scratch: Path, names: Iterable[str]) -> None:
    """The directories that files of these names lie in, where they are missing. Raises OSError."""
    with _opened(scratch) as top:
        for folder in sorted({name.rpartition("/")[0] for name in names} - {""}):
            inner = os.dup(top)
            try:
                for part in folder.split("/"):
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=inner)
                    outer, inner = inner, os.open(part, DIRECTORY, dir_fd=inner)
                    os.close(outer)
                    give(inner, top)
            finally:
                os.close(inner)


def read(scratch: Path, name: str, most: int) -> str:
    """The beginning of a plain file; empty: there is none."""
    try:
        with _opened(scratch) as top, open(os.open(name, _OLD, dir_fd=top), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return ""
            return file.read(most).decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def remove(scratch: Path, *names: str) -> None:
    with contextlib.suppress(OSError), _opened(scratch) as top:
        for name in names:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=top)


def make_executable(scratch: Path, name: str) -> None:
    """A plain file; nothing happens to anything else."""
    with contextlib.suppress(OSError), _opened(scratch) as top, open(os.open(name, _OLD, dir_fd=top), "rb") as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fchmod(file.fileno(), 0o755)


def give(descriptor: int, top: int) -> None:
    """Give it to the account of the scratch directory. Raises PermissionError for what is somebody else's."""
    here, owner = os.fstat(descriptor), os.fstat(top)
    if here.st_uid == owner.st_uid:
        return
    if here.st_uid != os.geteuid():
        raise PermissionError("a file of the startd in the scratch directory belongs to somebody else")
    os.fchown(descriptor, owner.st_uid, owner.st_gid)


@contextlib.contextmanager
def _opened(scratch: Path) -> Iterator[int]:
    top = os.open(scratch, DIRECTORY)
    try:
        yield top
    finally:
        os.close(top)
