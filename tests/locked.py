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
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirement", str(file)]
    if built:
        options += ["--no-build-isolation", *(word for name in built for word in ("--no-binary", name))]
    # uv takes an eighth of pip's processor time; where it finds no registry, as pip's settings it does not read, pip
    # does it. Neither compiles: of thousands of modules a test reads some hundred.
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--python", sys.executable]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        for number, program in enumerate((uv, pip)):
            made = Path(place, str(number))
            try:
                done = subprocess.run([*program, *options, "--target", str(made)], capture_output=True, text=True)
            except FileNotFoundError:  # no uv
                continue
            if not done.returncode:
                break
        else:
            raise Missing(f"what {lock} names can not be installed into {folder}: {done.stderr.strip()}")
        with contextlib.suppress(OSError):  # another one was quicker
            made.rename(folder)
    return folder
