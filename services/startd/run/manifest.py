"""Writes the manifest of a job into its scratch directory, whose owner may have put links and files in the way."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def list_scratch(scratch: Path, directory: str, file: str) -> None:
    """Write the names that are in the scratch directory, one a line. Raises OSError."""
    with _opened(scratch, directory) as (top, inside):
        _write(top, inside, file, sorted(os.listdir(top)))


def list_environment(scratch: Path, directory: str, file: str, variables: Iterable[tuple[str, str]]) -> None:
    """Write variables as NAME=value, one a line. Raises OSError."""
    with _opened(scratch, directory) as (top, inside):
        _write(top, inside, file, [f"{name}={value}" for name, value in sorted(variables)])


@contextlib.contextmanager
def _opened(scratch: Path, directory: str) -> Iterator[tuple[int, int]]:
    """The scratch directory and the manifest's, made if need be, of the same account. No links are followed."""
    with contextlib.ExitStack() as stack:
        top = os.open(scratch, _DIRECTORY)
        stack.callback(os.close, top)
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700, dir_fd=top)
        inside = os.open(directory, _DIRECTORY, dir_fd=top)
        stack.callback(os.close, inside)
        _give(inside, top)
        yield top, inside


def _write(top: int, inside: int, name: str, lines: Iterable[str]) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=inside)
    with open(os.open(name, _NEW, 0o600, dir_fd=inside), "w", errors="surrogateescape") as file:
        _give(file.fileno(), top)
        file.writelines(f"{line}\n" for line in lines)


def _give(descriptor: int, top: int) -> None:
    """Give it to the account of the scratch directory. Raises PermissionError for what is somebody else's."""
    here, owner = os.fstat(descriptor), os.fstat(top)
    if here.st_uid == owner.st_uid:
        return
    if here.st_uid != os.geteuid():
        raise PermissionError("the manifest's directory belongs to somebody else")
    os.fchown(descriptor, owner.st_uid, owner.st_gid)
