"""What this process gives a container from outside: its scratch directory, limits, the text of profiles."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from services.startd.core.run.job_launch import CREDENTIALS
from services.startd.exec.docker.plan import Limits
from services.startd.isolation.host_capabilities import threads


def give(scratch: Path, user: str) -> None:
    """The scratch directory to the job's user, where we may give it away."""
    if os.getuid() != 0:
        return
    uid, _, gid = user.partition(":")
    if not uid.isdigit() or not gid.isdigit():
        return
    owner = int(uid), int(gid)
    for folder, folders, files in os.walk(scratch):
        if folder == str(scratch) and CREDENTIALS in folders:
            folders.remove(CREDENTIALS)  # the startd's own: the job may put nothing there
        for name in (*folders, *files):
            os.chown(os.path.join(folder, name), *owner, follow_symlinks=False)
    os.chown(scratch, *owner)


def put_limits(pid: int, rlimits: Mapping[str, int]) -> None:
    """On a process of this account, by their names without RLIMIT_; never more than it has. Raises OSError."""
    for name, most in rlimits.items():
        which = getattr(resource, f"RLIMIT_{name.upper()}")
        has = resource.prlimit(pid, which)[1]
        least = most if has < 0 else min(most, has)
        resource.prlimit(pid, which, (least, least))


def own_limits() -> Limits:
    """No more than Podman takes for as many as there can be: it gives itself no more, and so no container either."""
    files, processes = (resource.getrlimit(what)[1] for what in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    try:
        pids = int(Path("/proc/sys/kernel/pid_max").read_text())
    except (OSError, ValueError):
        pids = 1 << 15
    return Limits(_finite(files, 1 << 20), _finite(processes, pids), threads())


def _finite(limit: int, most: int) -> int:
    return most if limit < 0 else min(limit, most)


def read_profiles(host: dict[str, Any]) -> None:
    """The engine takes a seccomp profile itself, not its file's name. Raises OSError."""
    options = []
    for option in host.get("SecurityOpt") or []:
        name, _, value = option.partition("=")
        if name == "seccomp" and value.startswith("/"):
            option = f"seccomp={Path(value).read_text()}"
        options.append(option)
    if options:
        host["SecurityOpt"] = options
