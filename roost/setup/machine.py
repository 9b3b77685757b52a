"""The hands of `roost setup`: what is looked at on this machine, written to it, and asked of its systemd."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
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
from roost.setup.layout import UNITS, File
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
    """What was written, below root: each as a whole or not at all. Owners are of this machine, so files below another
    root stay of whoever writes them. Raises OSError, and LookupError for an owner that this machine does not know."""
    done = []
    for file in files:
        path = below(root, file.path)
        if file.once and path.exists():
            continue
        if file.mode & 0o077 or file.owner:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        else:
            private_files.make_directory(path.parent)
        replace_on_disk(path, file.text.encode(), file.mode, _ids(file.owner) if root == Path("/") else None)
        done.append(file.path)
    return done


def _ids(owner: str) -> tuple[int, int] | None:
    """uid and gid of "account:group"; None for none. Raises LookupError."""
    account, _, group = owner.partition(":")
    try:
        return (pwd.getpwnam(account).pw_uid, grp.getgrnam(group).gr_gid) if owner else None
    except KeyError:
        raise LookupError(f"this machine has no account {owner}") from None


def ensure_directory(path: Path) -> None:
    """Have a directory that everybody enters. One that is there stays as it is. Raises OSError."""
    path.mkdir(parents=True, exist_ok=True, mode=0o755)


def same(file: File) -> bool:
    """Whether a file says so already."""
    try:
        return Path(file.path).read_text() == file.text
    except OSError:
        return False


def ensure_account(name: str, home: PurePosixPath) -> bool:
    """Have an account for daemons, with a group of its name, that nobody logs in to. Says whether it was made. Raises
    ClientError."""
    with contextlib.suppress(KeyError):
        pwd.getpwnam(name)
        return False
    command = ["useradd", "--system", "--user-group", "--home-dir", str(home), "--no-create-home"]
    run([*command, "--shell", "/usr/sbin/nologin", name])
    return True


def below(root: Path, path: PurePosixPath) -> Path:
    return root / path.relative_to("/")


def start(*units: str) -> None:
    """Have systemd start them now, in this order, anew where they run, and at each boot. Raises ClientError."""
    systemctl("daemon-reload")
    systemctl("enable", "--quiet", *units)
    systemctl("restart", "--no-block", *units)


def remove(units: Iterable[str], paths: Iterable[PurePosixPath]) -> list[str]:
    """End these units, and delete them and these files. What was done, a line each. Raises OSError, ClientError."""
    done = []
    for unit in units:
        path = Path(UNITS / unit)
        if path.exists():
            systemctl("disable", "--quiet", "--now", unit)
            path.unlink()
            done.append(f"stopped {unit}, removed {path}")
    for path in map(Path, paths):
        if path.exists():
            path.unlink()
            done.append(f"removed {path}")
    systemctl("daemon-reload")
    return done


def wait_for(unit: str, patience_s: float) -> Unit:
    """How it stands once it is active or has failed, or after so many seconds. Raises ClientError."""
    until = time.monotonic() + patience_s
    while True:
        found = dict(
            line.partition("=")[::2]
            for line in systemctl("show", "--property=ActiveState,StatusText", unit).splitlines()
        )
        state = found.get("ActiveState", "unknown")
        if state in ("active", "failed") or time.monotonic() > until:
            return Unit(state, found.get("StatusText", ""))
        time.sleep(_LOOK_S)


def systemctl(*words: str) -> str:
    """What it says. Raises ClientError."""
    return run(["systemctl", *words])


def run(command: list[str], patience_s: float | None = None, **environment: str) -> str:
    """What a program says. Raises ClientError with its own words."""
    words = " ".join(command[:3])
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            check=False,
            timeout=patience_s,
            env={**_plain(), **environment},
        )
    except OSError as error:
        raise ClientError(f"{command[0]}: {error.strerror}", "failed") from error
    except subprocess.TimeoutExpired as error:
        raise ClientError(f"{words}: no end after {patience_s:.0f} s", "failed") from error
    if done.returncode:
        raise ClientError(f"{words}: {(done.stderr or done.stdout).strip()[-500:]}", "failed")
    return done.stdout


def _plain() -> dict[str, str]:
    """Its answers are read: they are to be English."""
    return {**os.environ, "LC_ALL": "C"}
