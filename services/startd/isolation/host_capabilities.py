"""What this machine lets this startd isolate jobs with: looked at once, when it starts."""

from __future__ import annotations

import ctypes
import os
import pwd
from functools import cache
from pathlib import Path

from services.startd.core.isolation import HostCapabilities, Login

_PR_SET_DUMPABLE = 4
_CAP_SYS_ADMIN = 1 << 21


def look_at_host(hidden: tuple[str, ...]) -> HostCapabilities:
    root = os.geteuid() == 0
    able = root and _capabilities() & _CAP_SYS_ADMIN != 0 and os.path.exists("/proc/self/ns/mnt")
    return HostCapabilities(
        root=root,
        mounts=able,
        pid_namespaces=able and os.path.exists("/proc/self/ns/pid"),
        hidden=tuple(path for path in hidden if os.path.isdir(path)),
    )


@cache
def can_mount() -> bool:
    """Whether this process may mount file systems."""
    return look_at_host(()).mounts


def find_login(name: str) -> Login | None:
    """An account of this machine, with the groups it is in."""
    try:
        entry = pwd.getpwnam(name)
        groups = os.getgrouplist(name, entry.pw_gid)
    except (KeyError, OSError, ValueError):
        return None
    return Login(entry.pw_name, entry.pw_uid, entry.pw_gid, tuple(groups), entry.pw_dir)


def close_to_own_account() -> None:
    """Jobs of a startd that is not root have its account: keep them out of its memory and environment, where the
    broker's password may be."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def mountinfo() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text()
    except OSError:
        return ""


def _capabilities() -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    line = next((line for line in status.splitlines() if line.startswith("CapEff:")), "CapEff: 0")
    return int(line.split()[1], 16)
