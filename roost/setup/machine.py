"""The hands of `roost setup`: what is looked at on this machine, written to it, and asked of its systemd."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import shared
from roost.errors import ClientError
from roost.setup.execution_point import File
from shared import private_files
from shared.config import load_config
from shared.files import replace_on_disk

#: systemd is process 1 of a machine that has this directory (sd_booted(3)).
_BOOTED: Final = Path("/run/systemd/system")
#: Seconds between two looks at a unit that starts.
_LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Unit:
    """How a unit stands: active, activating, failed...; in words, as its daemon says."""

    state: str
    words: str


def has_systemd() -> bool:
    return _BOOTED.is_dir()


def foreign(paths: Iterable[Path]) -> Path | None:
    """The first of these, or of the directories that they lie in, which somebody besides root can change: what a unit
    of root's runs must not be theirs. A link counts as what it leads to. None: all are root's."""
    for path in paths:
        for part in (path := path.resolve(), *path.parents):
            about = part.stat()
            sticky = part.is_dir() and about.st_mode & stat.S_ISVTX
            if about.st_uid != 0 or (about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky):
                return part
    return None


def own_code() -> list[Path]:
    """The interpreter, and where it finds Roost and what Roost stands on."""
    import msgpack

    return [Path(sys.executable), Path(sys.prefix), Path(shared.__file__), Path(msgpack.__file__)]


def reads(first: Path, directory: PurePosixPath) -> bool:
    """Whether a configuration that begins with this file goes on with those of the directory. Raises ConfigError."""
    config = load_config([first], subsystem="STARTD", env={})
    return str(directory) in (config.get("LOCAL_CONFIG_DIR") or "").replace(",", " ").split()


def write(files: Iterable[File], root: Path) -> list[PurePosixPath]:
    """What was written, below root: each as a whole or not at all. Raises OSError."""
    done = []
    for file in files:
        path = below(root, file.path)
        if file.once and path.exists():
            continue
        if file.mode & 0o077:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        else:
            private_files.make_directory(path.parent)
        replace_on_disk(path, file.text.encode(), file.mode)
        done.append(file.path)
    return done


def below(root: Path, path: PurePosixPath) -> Path:
    return root / path.relative_to("/")


def start(unit: str) -> None:
    """Have systemd start it now, anew where it runs, and at each boot. Raises ClientError."""
    _systemctl("daemon-reload")
    _systemctl("enable", "--quiet", unit)
    _systemctl("restart", "--no-block", unit)


def wait_for(unit: str, patience_s: float) -> Unit:
    """How it stands once it is active or has failed, or after so many seconds. Raises ClientError."""
    until = time.monotonic() + patience_s
    while True:
        found = dict(
            line.partition("=")[::2]
            for line in _systemctl("show", "--property=ActiveState,StatusText", unit).splitlines()
        )
        state = found.get("ActiveState", "unknown")
        if state in ("active", "failed") or time.monotonic() > until:
            return Unit(state, found.get("StatusText", ""))
        time.sleep(_LOOK_S)


def _systemctl(*words: str) -> str:
    try:
        done = subprocess.run(["systemctl", *words], capture_output=True, text=True, check=False, env=_plain())
    except OSError as error:
        raise ClientError(f"systemctl: {error.strerror}", "failed") from error
    if done.returncode:
        raise ClientError(f"systemctl {' '.join(words)}: {done.stderr.strip()[:500]}", "failed")
    return done.stdout


def _plain() -> dict[str, str]:
    """Its answers are read: they are to be English."""
    return {**os.environ, "LC_ALL": "C"}
