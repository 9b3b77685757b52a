"""Writes the manifest of a job into its scratch directory, whose owner may have put links and files in the way."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from services.startd.run import scratch_files


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
        top = os.open(scratch, scratch_files.DIRECTORY)
        stack.callback(os.close, top)
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700, dir_fd=top)
        inside = os.open(directory, scratch_files.DIRECTORY, dir_fd=top)
        stack.callback(os.close, inside)
        scratch_files.give(inside, top)
        yield top, inside


def _write(top: int, inside: int, name: str, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    scratch_files.write_in(inside, top, name, text.encode("utf-8", "surrogateescape"), 0o600)
