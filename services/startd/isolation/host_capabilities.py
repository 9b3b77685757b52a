"""What this machine lets this startd isolate jobs with: looked at once, when it starts."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import stat
from functools import cache, lru_cache
from pathlib import Path

from services.startd.core.isolation import HostCapabilities, Login
from services.startd.forkserver import kernel

_PR_SET_DUMPABLE = 4
#: A directory for each GPU.
_NVIDIA = Path("/proc/driver/nvidia/gpus")
_CAP_SYS_ADMIN = 1 << 21


def look_at_host() -> HostCapabilities:
    root = os.geteuid() == 0
    able = root and _capabilities() & _CAP_SYS_ADMIN != 0 and os.path.exists("/proc/self/ns/mnt")
    return HostCapabilities(
        root=root,
        mounts=able,
        pid_namespaces=able and os.path.exists("/proc/self/ns/pid"),
        landlock=kernel.landlock_version() >= kernel.LANDLOCK_SIGNALS,
    )


@cache
def can_mount() -> bool:
    """Whether this process may mount file systems."""
    return look_at_host().mounts


def find_sockets(named: str) -> tuple[str, ...]:
    """Sockets to which this process's account may connect and at which it would get processes that are nobody's
    children: those of container engines, and of the account's own service manager. named: ROOST_DOCKER_HOST."""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    engines = (named, os.environ.get("DOCKER_HOST", ""))
    places = (
        *(engine.removeprefix("unix://") for engine in engines if engine.startswith("unix://")),
        *(f"{top}/{name}" for top in ("/run", "/var/run", runtime) for name in _ENGINES),
        *(f"{runtime}/{name}" for name in ("systemd/private", "bus")),
    )
    found = dict.fromkeys(os.path.realpath(path) for path in places if path and _may_connect(path))
    return tuple(found)


#: Under /run, and under the runtime directory of an account.
_ENGINES = (
    "docker.sock",
    "podman/podman.sock",
    "containerd/containerd.sock",
    "crio/crio.sock",
    "buildkit/buildkitd.sock",
)


def _may_connect(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode) and os.access(path, os.W_OK, effective_ids=True)
    except OSError:
        return False


def closed_to_others(folder: Path) -> str:
    """The first directory on the way that only its owner may enter; empty: none."""
    for place in _way_to(folder):
        try:
            if not os.stat(place).st_mode & 0o011:
                return place
        except OSError:
            continue  # who comes there will be told
    return ""


@lru_cache(maxsize=64)
def _way_to(folder: Path) -> tuple[str, ...]:
    """The directories on the way, the outermost first: each job asks."""
    return tuple(map(str, reversed((folder, *folder.parents))))


def find_login(name: str) -> Login | None:
    """An account of this machine, with the groups it is in."""
    try:
        entry = pwd.getpwnam(name)
        groups = os.getgrouplist(name, entry.pw_gid)
    except (KeyError, OSError, ValueError):
        return None
    return Login(entry.pw_name, entry.pw_uid, entry.pw_gid, tuple(groups), entry.pw_dir)


def find_gpus(driver: Path = _NVIDIA, dev: Path = Path("/dev")) -> dict[str, str]:
    """The GPUs that NVIDIA's driver has: UUID by the path of the device."""
    found = {}
    with contextlib.suppress(OSError):  # there is no such driver
        for folder in sorted(os.listdir(driver)):
            text = (driver / folder / "information").read_text(errors="replace")
            said = {
                name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())
            }
            path = dev / f"nvidia{said.get('Device Minor', '')}"
            if said.get("Device Minor", "").isdecimal() and path.exists():
                found[str(path)] = said.get("GPU UUID", "")
    return found


def close_to_own_account() -> None:
    """Jobs of a startd that is not root have its account: keep them out of its memory and environment, where the
    broker's password may be."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def threads() -> int:
    """How many the machine has of all accounts: never fewer than one account has."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 0


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
