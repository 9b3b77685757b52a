"""Packages of a lock file that only some tests need, in a folder of their own: installed when they are first needed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class Missing(Exception):
    """The packages can not be had."""


def folder_of(lock: str, cache: str, *, built: Sequence[str] = ()) -> Path:
    """A folder with all packages of a lock file (`requirements-NAME.lock`), below this one of the user's cache. built:
    those that are there as sources only, which our own setuptools build. Raises Missing."""
    file = ROOT / lock
    name = f"{hashlib.sha256(file.read_bytes()).hexdigest()[:12]}-{sys.implementation.cache_tag}"
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = caches / cache / name
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command.append("--no-compile")  # of thousands of modules a test reads some hundred
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        command += [
            "--require-hashes",
            "--only-binary",
            ":all:",
            "--target",
            f"{place}/made",
            "--requirement",
            str(file),
        ]
        if built:
            command += ["--no-build-isolation", "--no-binary", ",".join(built)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(f"what {lock} names can not be installed into {folder}: {done.stderr.strip()}")
        with contextlib.suppress(OSError):  # another one was quicker
            Path(place, "made").rename(folder)
    return folder
