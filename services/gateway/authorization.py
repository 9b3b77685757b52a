"""Who may do what: HTCondor's authorization levels, tokens, and the one table of what each operation needs. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """Each level includes the ones before it."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMINISTRATOR = 3


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is asking. `user` is "name@domain" and becomes the owner of what it submits."""

    user: str
    level: Level

    @property
    def admin(self) -> bool:
        return self.level >= Level.ADMINISTRATOR


@dataclass(frozen=True, slots=True)
class Token:
    """What is stored of a token: never the token itself, only its digest (the key it is found under)."""

    user: str
    level: Level
    label: str = ""
    expires: float = 0.0  # seconds since 1970; 0: never


#: Operation -> level it needs. One row for every door; a door that is not listed does not open.
NEEDS: dict[str, Level] = {
    "pool": Level.READ,
    "ads": Level.READ,
    "jobs.query": Level.READ,
    "jobs.submit": Level.WRITE,
    "jobs.act": Level.WRITE,
    "jobs.files": Level.WRITE,
    "jobs.visit": Level.WRITE,
    "events": Level.READ,
    "priorities": Level.READ,
    "priorities.set": Level.ADMINISTRATOR,
    "dead-letters": Level.ADMINISTRATOR,
    "tokens": Level.ADMINISTRATOR,
    "config": Level.READ,
    "reconfig": Level.ADMINISTRATOR,
    "restart": Level.ADMINISTRATOR,
    "off": Level.ADMINISTRATOR,
    "on": Level.ADMINISTRATOR,
    "drain": Level.ADMINISTRATOR,
    "vacate": Level.ADMINISTRATOR,
    "update-machine-ad": Level.ADMINISTRATOR,
}


def digest(token: str) -> str:
    """What a token is stored under: its SHA-256, so that who reads the store can not use it."""
    return hashlib.sha256(token.encode()).hexdigest()


def identify(found: Token | None, now: float) -> Identity | None:
    """The identity that a stored token gives, or None when it is unknown or over."""
    if found is None or (found.expires and found.expires <= now):
        return None
    return Identity(found.user, found.level)


def refusal(identity: Identity | None, operation: str) -> str:
    """Empty when the operation is allowed; else why not, and what would help."""
    needed = NEEDS[operation]
    if identity is None:
        return "no valid token: log in with a token that the pool's administrator gave you"
    if identity.level < needed:
        return f"{operation} needs {needed.name}, your token gives {identity.level.name}; ask the pool's administrator"
    return ""
