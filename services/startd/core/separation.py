"""Whether anything stands between a startd and the jobs that it runs as processes, and so whose jobs it takes. Pure.

A startd that is root gives jobs accounts that are not its own. Without root a job has the startd's account, and only
the kernel can keep it from the startd's files and processes: Landlock, which also keeps signals in from version 6 on
(Linux 6.12). It does not keep a job from a socket that its account may connect to, so where such a socket starts
processes outside of the walls (a container engine's, the user's own service manager), nothing separates them.

*Own users* (ROOST_OWN_USERS) are those who need no walls: the owner of a personal pool, as whom the startd runs anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from shared.classad import parse_expr

EVERYBODY: Final = "*"
#: Of the slot's ad, where not every job may run as a process: what the slot asks of a job besides, and why.
WITHIN_SEPARATION, REASON = "WithinSeparation", "ProcessJobsReason"
#: What jobs look like that run in a container or a virtual machine, and are no process jobs.
_CONTAINED: Final = (
    "TARGET.JobUniverse =?= 13 || TARGET.WantDocker =?= true || TARGET.WantContainer =?= true"
    " || TARGET.DockerImage isnt undefined || TARGET.ContainerImage isnt undefined"
)


@dataclass(frozen=True, slots=True)
class Separation:
    """by: what separates jobs from the startd; nothing: `missing` says why."""

    by: Literal["accounts", "Landlock", ""]
    missing: str = ""


def find_separation(
    *, root: bool, closed_to_others: str, landlock: int, landlock_wanted: bool, needed: int, sockets: tuple[str, ...]
) -> Separation:
    """closed_to_others: a directory on the way to EXECUTE that only root may enter, where that is. landlock: the
    kernel's version, 0: none; needed: the version that is enough. sockets: those that start processes outside of the
    walls, and that the startd's account may connect to."""
    if root:
        if closed_to_others:
            return Separation("", f"accounts other than root can not enter {closed_to_others}")
        return Separation("accounts")
    if not landlock_wanted:
        return Separation("", "it is not root, and ROOST_LANDLOCK is false")
    if landlock < needed:
        has = f"Landlock of version {landlock}" if landlock else "no Landlock"
        return Separation("", f"it is not root, and this kernel has {has}: version {needed} (Linux 6.12) is needed")
    if sockets:
        return Separation("", f"a process of its account can start others outside of all walls by {', '.join(sockets)}")
    return Separation("Landlock")


def is_own(own_users: tuple[str, ...], user: str) -> bool:
    """user: as name@domain."""
    return EVERYBODY in own_users or (user != "" and user in own_users)


def refusal(separation: Separation, own_users: tuple[str, ...], user: str) -> str:
    """Why a job of this user may not run as a process; empty: it may."""
    if separation.by or is_own(own_users, user):
        return ""
    return f"{why(separation)}; {_mend(own_users)}"


def why(separation: Separation) -> str:
    return f"nothing separates process jobs from this startd: {separation.missing}"


def _mend(own_users: tuple[str, ...]) -> str:
    whose = f"it runs those of {', '.join(own_users)} and " if own_users else "it runs "
    return f"{whose}jobs in containers only (ROOST_OWN_USERS names users who are trusted all the same)"


def attributes(separation: Separation, own_users: tuple[str, ...], contained: str) -> Mapping[str, object]:
    """What the slots say of it. contained: an expression that puts jobs into containers, of this machine's (MY) and the
    job's (TARGET) attributes."""
    if separation.by or EVERYBODY in own_users:
        return {}
    users = "".join(f" || TARGET.User =?= {_quoted(user)}" for user in own_users)
    asked = parse_expr(f"{_CONTAINED} || ({contained}) =?= true{users}")
    return {WITHIN_SEPARATION: asked, REASON: f"{why(separation)}; {_mend(own_users)}"}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
