"""Authorization: who is asking, tokens, and whether the one table of operations (shared/operations.py) lets them.
Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Final

from shared.operations import NEEDS, Level, in_scope


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is asking. `user` is "name@domain" and becomes the owner of what it submits."""

    user: str
    level: Level
    token: str = ""  # id of the token, never itself
    scopes: tuple[str, ...] = ()  # shell patterns of operations; none: all that the level opens
    expires: float = 0.0  # seconds since 1970; 0: never
    method: str = "TOKEN"  # by which they logged in: TOKEN (one that the pool stores), FS, SSL, IDTOKENS, SCITOKENS
    #: Subsystem -> level, where ALLOW_<LEVEL>_<SUBSYS> and DENY_<LEVEL>_<SUBSYS> say another one than `level`.
    levels: tuple[tuple[str, Level], ...] = ()
    may_config: bool = True  # ALLOW_CONFIG and DENY_CONFIG

    def level_for(self, operation: str) -> Level:
        """The level that counts for an operation."""
        return dict(self.levels).get(subsystem_of(operation), self.level) if self.levels else self.level

    @property
    def admin(self) -> bool:
        """Whether they act for others at the queue of jobs."""
        return self.level_for("jobs.act") >= Level.ADMINISTRATOR


@dataclass(frozen=True, slots=True)
class Token:
    """What is stored of a token: never the token itself, only its digest (the key it is found under). Times are
    seconds since 1970."""

    user: str
    level: Level
    label: str = ""
    expires: float = 0.0  # 0: never
    scopes: tuple[str, ...] = ()
    created: float = 0.0
    by: str = ""  # who had it made
    revoked: float = 0.0  # 0: it is good


#: Daemon whose work an operation is, by its beginning; the gateway's own: the others.
_WORK: Final = (
    ("jobs.", "SCHEDD"),
    ("ads", "COLLECTOR"),
    ("pool", "COLLECTOR"),
    ("priorities", "NEGOTIATOR"),
    ("quotas", "NEGOTIATOR"),
    ("drain", "STARTD"),
    ("vacate", "STARTD"),
    ("update-machine-ad", "STARTD"),
)


def subsystem_of(operation: str) -> str:
    """The daemon whose lists ALLOW_<LEVEL>_<SUBSYS> hold for an operation."""
    return next((subsystem for beginning, subsystem in _WORK if operation.startswith(beginning)), "GATEWAY")


#: Types of events that need more than READ: patterns, and the level.
EVENTS_NEED: Final = {"gateway.*": Level.ADMINISTRATOR}
#: Digits of a digest that name a token.
ID_DIGITS: Final = 12
ASK = "ask the pool's administrator for another (roost token create)"


def digest(token: str) -> str:
    """What a token is stored under: its SHA-256, so that who reads the store can not use it."""
    return hashlib.sha256(token.encode()).hexdigest()


def identify(found: Token | None, now: float, token: str = "") -> Identity | None:
    """The identity that a stored token gives, or None when it is unknown or over. token: its id."""
    if why_not(found, now):
        return None
    assert found is not None
    return Identity(found.user, found.level, token, found.scopes, found.expires)


def why_not(found: Token | None, now: float) -> str:
    """Empty when a token is good; else why not."""
    if found is None:
        return f"no valid token: this pool does not know the one that was sent; {ASK}"
    if found.revoked:
        return f"no valid token: the one that was sent was revoked at {_shown(found.revoked)}; {ASK}"
    if found.expires and found.expires <= now:
        return f"no valid token: the one that was sent expired at {_shown(found.expires)}; {ASK}"
    return ""


def refusal(identity: Identity | None, operation: str) -> str:
    """Empty when the operation is allowed; else why not, and what would help."""
    needed = NEEDS[operation]
    if identity is None:
        return "no valid token: send `Authorization: Bearer TOKEN`, with a token of the pool's administrator"
    level = identity.level_for(operation)
    if level < needed:
        what = "your token gives" if identity.method == "TOKEN" else f"you have, by {identity.method},"
        return f"{operation} needs {needed.name}, {what} {level.name}; ask the pool's administrator"
    if operation == "config.set" and not identity.may_config:
        return "config.set: ALLOW_CONFIG does not list you, or DENY_CONFIG does; ask the pool's administrator"
    if not in_scope(operation, identity.scopes):
        return f"your token is for {', '.join(identity.scopes)} only, not for {operation}; ask the pool's administrator"
    return ""


def beyond(identity: Identity, level: Level, scopes: tuple[str, ...]) -> list[str]:
    """What a token of this level and scopes would open that its maker's does not: nobody hands on more than they
    have. A token that is for some operations only makes no token for all, and none with a wider pattern, as there may
    be more operations tomorrow."""
    wide = [] if scopes or not identity.scopes else ["every operation"]
    made = Identity("", level, scopes=scopes)
    more = [operation for operation in NEEDS if not refusal(made, operation) and refusal(identity, operation)]
    if identity.scopes and not more:
        # `*` is all that a pattern has, so a pattern that is matched as a text opens no more than what it matches.
        wide += [f"all of {one}" for one in scopes if not any(fnmatchcase(one, mine) for mine in identity.scopes)]
    return wide + more


def may_see(identity: Identity, token: Token) -> bool:
    """Whether somebody who may list tokens is shown this one, and may revoke it: what opens no more than theirs."""
    return not beyond(identity, token.level, token.scopes)


def outlives(identity: Identity, expires: float) -> str:
    """Why a token that ends then (s since 1970, 0: never) can not be made by somebody whose own ends; empty: it can."""
    if identity.expires and (not expires or expires > identity.expires):
        return f"your token ends at {_shown(identity.expires)}, so it makes none that is good longer; give a lifetime"
    return ""


def may_hear(level: Level, event: str) -> bool:
    """Whether events of this type are told to who has this level."""
    return all(level >= needed for pattern, needed in EVENTS_NEED.items() if fnmatchcase(event, pattern))


def _shown(at: float) -> str:
    return f"{datetime.fromtimestamp(min(at, 253402300799.0), UTC):%Y-%m-%d %H:%M:%S} UTC"
