"""Which container engine a startd uses, what that one can do, and as whom jobs run in its containers. Pure.

Docker and Podman speak Docker's interface at a socket, each as root or as an account (*rootless*). A rootless engine
makes its containers in a user namespace: root in there is the engine's account outside, and the other users of a
container are ids that only this account's containers have. So jobs of a startd that has that same account run as root
of the container: what they write belongs to the startd, and what they may do outside is what its account may do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from services.startd.core.run.job_launch import Account

UNIX: Final = "unix://"
#: Where engines that are root are found.
OF_ROOT: Final = ("/var/run/docker.sock", "/run/podman/podman.sock")
#: And those of an account, under its runtime directory.
OF_ACCOUNT: Final = ("docker.sock", "podman/podman.sock")
#: Root in the container.
ROOT_INSIDE: Final = "0:0"
_NOBODY = 65534
#: Limits by the control group's controller that keeps them.
_CONTROLLERS: Final = {"memory": "memory", "cpu": "cpus", "pids": "processes"}


def addresses(named: str, environment: Mapping[str, str], uid: int, used: str = "") -> tuple[str, ...]:
    """Addresses of engines, best first. named: ROOST_DOCKER_HOST. used: the one that an earlier life of the startd
    used, whose containers may still be there. What is named is the only one."""
    if only := named or environment.get("DOCKER_HOST", ""):
        return (only,)
    runtime = environment.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    docker, podman = (UNIX + path for path in OF_ROOT)
    own = [f"{UNIX}{runtime}/{name}" for name in OF_ACCOUNT] if uid else []
    return tuple(dict.fromkeys([used, docker, *own, podman] if used else [docker, *own, podman]))


def path_of(address: str) -> str:
    """The socket's path; empty: the engine is asked over a network."""
    return address.removeprefix(UNIX) if address.startswith(UNIX) else ""


Limit = Literal["memory", "cpus", "processes"]


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """lacks: limits that it can not put on containers, having no control groups for it."""

    name: Literal["Docker", "Podman"] = "Docker"
    version: str = ""  # as `docker -v` or `podman -v` prints it
    rootless: bool = False
    lacks: tuple[str, ...] = ()
    binds: bool = True  # whether it can bind containers to cores

    @property
    def podman(self) -> bool:
        return self.name == "Podman"

    @property
    def forgets_ulimits(self) -> bool:
        """Whether what its containers are to have of limits is dropped without a word: Podman's interface of Docker's
        does that with those of an account."""
        return self.podman and self.rootless

    def limits(self, what: Limit) -> bool:
        return what not in self.lacks


def read_facts(version: Mapping[str, Any], info: Mapping[str, Any]) -> EngineFacts:
    """From Docker's `GET /version` and `GET /info`."""
    number, commit = version.get("Version", "?"), version.get("GitCommit", "?")
    kept = {"memory": "MemoryLimit", "cpus": "CpuCfsQuota", "processes": "PidsLimit"}
    return EngineFacts(
        "Docker",
        f"Docker version {number}, build {commit}",
        any("name=rootless" in str(option) for option in info.get("SecurityOptions") or []),
        tuple(limit for limit, flag in kept.items() if info.get(flag) is False),
        info.get("CPUSet") is not False,
    )


def read_podman_facts(info: Mapping[str, Any]) -> EngineFacts:
    """From Podman's own `GET /libpod/info`. What it says elsewhere of limits is what the machine has, whether or not
    its account was given it."""
    host = info.get("host") or {}
    rootless = (host.get("security") or {}).get("rootless") is True
    controllers = host.get("cgroupControllers") or ()
    lacks = tuple(limit for name, limit in _CONTROLLERS.items() if name not in controllers) if rootless else ()
    version = f"podman version {(info.get('version') or {}).get('Version', '?')}"
    return EngineFacts("Podman", version, rootless, lacks, not rootless or "cpuset" in controllers)


def engine_attributes(facts: EngineFacts) -> dict[str, object]:
    """What the slots' ads say of it."""
    found: dict[str, object] = {
        "DockerVersion": facts.version,
        "DockerEngine": facts.name,
        "DockerRootless": facts.rootless,
    }
    if facts.lacks:
        found["DockerLacksLimits"] = ", ".join(facts.lacks)
    return found


def _is_ours(facts: EngineFacts, uid: int, owner: int | None) -> bool:
    """Whether root in its containers is the startd's account. owner: whose socket it is. Where that is root's, a
    rootless engine is one in whose container the startd itself is: the ids in there are the same in the others."""
    return facts.rootless and uid != 0 and owner == uid


def unusable(facts: EngineFacts, address: str, uid: int, owner: int | None, named_user: str, processes: int) -> str:
    """Why this startd can run no jobs on this engine; empty: it can. owner: whose socket it is; none: it has none.
    named_user: ROOST_DOCKER_USER. processes: ROOST_JOB_MAX_PROCESSES."""
    if not facts.rootless:
        return ""
    if owner is None:
        return f"{address} is a rootless engine, which can be used by its Unix socket only"
    if owner not in (0, uid):
        return (
            f"{address} is a rootless engine of the account with uid {owner}, and this startd's uid is {uid}: "
            "what jobs write would not be the startd's. Have the startd run as that account, or name another engine by "
            "ROOST_DOCKER_HOST"
        )
    if _is_ours(facts, uid, owner) and named_user and named_user.partition(":")[0] not in ("0", "root"):
        return (
            f"ROOST_DOCKER_USER = {named_user}: in containers of a rootless engine root is this startd's account, and "
            "no other user can write to the job's directory. Leave it undefined"
        )
    if processes and facts.forgets_ulimits and not facts.limits("processes") and not _is_ours(facts, uid, owner):
        return (
            f"{address} is a Podman that can not limit how many processes a container has, and this startd can do so "
            "only beside it, as its account. ROOST_JOB_MAX_PROCESSES = 0 says that there need be no limit"
        )
    return ""


def container_user(
    facts: EngineFacts, uid: int, gid: int, owner: int | None, named_user: str, account: Account | None
) -> tuple[str, list[str]]:
    """Who runs in a container, as uid:gid, and the further groups: the knob's; root in the containers of the startd's
    own rootless engine; the run's account; the startd's, or nobody when that is root."""
    if named_user:
        return named_user, []
    if _is_ours(facts, uid, owner):
        return ROOT_INSIDE, []
    if account is not None:
        return f"{account.uid}:{account.gid}", [str(group) for group in account.groups]
    return (f"{uid}:{gid}" if uid else f"{_NOBODY}:{_NOBODY}"), []
