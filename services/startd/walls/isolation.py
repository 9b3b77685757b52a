"""From a launch to the walls that the fork server puts up around it. Pure.

What comes out is part of the request to spawn (`forkserver.server.Server`), so that it can be written to a socket and
read in a log.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from services.startd.launchers.api import Launch
from services.startd.walls.limits import MIB
from services.startd.walls.rules import WallRules, whole
from shared.classad import evaluate

#: In the scratch directory: what lies over /tmp, /var/tmp and the like.
PRIVATE = ".private"
#: The most a job's priority is lowered by.
_WORST_NICE = 19


@dataclass(frozen=True, slots=True)
class Ground:
    """What this startd may do on this machine."""

    root: bool
    mounts: bool  # mount namespaces of its own
    pid_namespaces: bool
    hidden: tuple[str, ...] = ()  # directories that no job may look into: the journal, credentials


def nice_of(rules: WallRules, launch: Launch) -> int:
    """JOB_RENICE_INCREMENT: how much the job's priority is lowered, 0 to 19."""
    return min(max(whole(rules.nice, launch.machine_ad, launch.job_ad), 0), _WORST_NICE)


def limits_of_process(rules: WallRules, launch: Launch) -> dict[str, int]:
    """RLIMIT_* of every process of the job: the launch's own and STARTER_RLIMIT_AS (MiB; 0: none)."""
    limits = dict(launch.limits)
    size = whole(rules.address_space_mib, launch.machine_ad, launch.job_ad)
    if size > 0:
        limits["RLIMIT_AS"] = size * MIB
    return limits


def private_directories(rules: WallRules, launch: Launch) -> list[str]:
    """MOUNT_UNDER_SCRATCH: shared directories of which this job gets its own, outer ones first. One that the job
    names files in (its directory, program or streams, but for what is in its scratch directory) stays shared."""
    if launch.container is not None:
        return []  # the container runtime makes them
    if launch.account is None:
        return []
    value = evaluate(rules.under_scratch, launch.machine_ad, launch.job_ad)
    words = [word.strip() for word in value.split(",")] if isinstance(value, str) else []
    wanted = sorted({posixpath.normpath(word) for word in words if word.startswith("/") and word.strip("/")})
    scratch = str(launch.scratch)
    used = [launch.cwd, launch.executable, launch.stdin, launch.stdout, launch.stderr]
    outside = [path for path in used if path and not _within(path, scratch)]
    return [
        folder
        for folder in wanted
        if not any(_within(path, folder) for path in outside) and not _within(folder, scratch)
    ]


def private_name(folder: str) -> str:
    """Where in the scratch directory the job's own /var/tmp lies: `.private/var_tmp`."""
    return f"{PRIVATE}/{folder.strip('/').replace('/', '_')}"


def walls(rules: WallRules, ground: Ground, launch: Launch, *, tracking_gid: int = 0) -> dict[str, Any]:
    """The walls of one job, without its cgroup. The private directories must be there before it starts."""
    scratch = str(launch.scratch)
    found: dict[str, Any] = {"nice": nice_of(rules, launch), "limits": limits_of_process(rules, launch)}
    account = launch.account
    if ground.root and (account is not None or tracking_gid):
        groups = account.groups if account is not None else ()
        found["account"] = {
            "uid": account.uid if account is not None else 0,
            "gid": account.gid if account is not None else 0,
            "groups": [*groups, *([tracking_gid] if tracking_gid else [])],
        }
        found["dedicated"] = account is not None and account.dedicated
        found["tracking_gid"] = tracking_gid
    if ground.mounts and account is None and rules.pid_namespaces:
        # Root goes through all other walls: there is no point in them.
        found |= {"mounts": {}, "pid_namespace": ground.pid_namespaces}
    elif ground.mounts and account is not None:
        found["mounts"] = {
            "scratch": scratch,
            "hide": posixpath.dirname(scratch) if _hides(launch) else "",
            "private": [[private_name(one), one] for one in private_directories(rules, launch)],
            "shm": launch.memory_mib * MIB if rules.private_shm and launch.container is None else 0,
            "ipc": account.shared,
        }
        # Two jobs of one account could signal each other, and look at each other's files by way of /proc.
        found["pid_namespace"] = ground.pid_namespaces and (rules.pid_namespaces or account.shared)
    if rules.landlock:
        hidden = [] if ground.root or _in_the_way(ground.hidden, launch) else list(ground.hidden)
        if hidden and not _in_the_way([posixpath.dirname(scratch)], launch):
            hidden.append(posixpath.dirname(scratch))
        found["landlock"] = {"hidden": hidden, "permitted": [scratch]}
    return found


def _hides(launch: Launch) -> bool:
    """Not where the job works in a directory beside its scratch directory."""
    execute, scratch = posixpath.dirname(str(launch.scratch)), str(launch.scratch)
    used = [launch.cwd, launch.executable, launch.stdin, launch.stdout, launch.stderr]
    return not any(path and _within(path, execute) and not _within(path, scratch) for path in used)


def _in_the_way(hidden: Collection[str], launch: Launch) -> bool:
    """Whether hiding these would keep the job from what it must do: to hide a directory is to permit what lies beside
    the way to it now, and nothing that comes later. So none on the way may be one that jobs make files in."""
    scratch = str(launch.scratch)
    busy = ["/tmp", "/var/tmp", "/dev/shm", *([launch.cwd] if not _within(launch.cwd, scratch) else [])]
    streams = [
        posixpath.dirname(path) for path in (launch.stdout, launch.stderr) if path and not _within(path, scratch)
    ]
    needed = [path for path in (launch.cwd, launch.executable, launch.stdin) if path and not _within(path, scratch)]
    if any(_within(path, one) for path in needed for one in hidden):
        return True
    return launch.container is not None or any(_within(path, one) for path in hidden for one in (*busy, *streams))


def _within(path: str, folder: str) -> bool:
    return (posixpath.normpath(path) + "/").startswith(posixpath.normpath(folder).rstrip("/") + "/")
