"""Scratch directories: made private, measured, and removed whatever the job did to them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from services.startd.sandbox import tree

#: Up to so many files are removed without a thread.
SMALL = 16


def prefix(startd: str) -> str:
    """How the scratch directories of one startd begin, so that several startds can share one EXECUTE."""
    return f"dir_{sha256(startd.encode()).hexdigest()[:8]}_"


def name_of(startd: str, unique: str) -> str:
    """The name of a scratch directory. `unique` must be hard to guess."""
    return prefix(startd) + unique


def make(execute: Path, name: str) -> Path:
    """A new scratch directory that only this user can enter."""
    path = execute / name
    os.mkdir(path, 0o700)
    return path


def remove_small(path: Path) -> bool:
    """Remove a scratch directory that holds a few plain files at most, at once; False when it is more work: a thread
    for each short job would cost more than the job."""
    try:
        with os.scandir(path) as entries:
            names = [entry.path for entry, _ in zip(entries, range(SMALL + 1), strict=False) if not entry.is_dir()]
        if len(names) > SMALL:
            return False
        for name in names:
            os.unlink(name)
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def remove(path: Path) -> bool:
    """Remove a scratch directory with everything in it; whether nothing is left. Never leaves it through a link."""
    return not tree.remove(path)


def sweep(execute: Path, startd: str, keep: Iterable[str]) -> list[str]:
    """Remove this startd's scratch directories that no run owns (after a crash); names of those that resisted."""
    kept = set(keep)
    start = prefix(startd)
    resisted = []
    for name in os.listdir(execute):
        if name.startswith(start) and name not in kept and not remove(execute / name):
            resisted.append(name)
    return resisted


def size_kib(path: Path) -> int:
    """What a directory tree occupies, KiB; directories that can not be read count as empty."""
    return tree.size_kib(path)
