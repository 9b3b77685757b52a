"""What people may do in a pool: HTCondor's levels, and the one table of the level that each operation needs. A gateway
looks at it before it asks a daemon; the daemon looks at it again, for what the gateway's statement says of the person
(shared/messages/flows.py names the operations of each message). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final


class Level(IntEnum):
    """Each level includes the ones before it."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMINISTRATOR = 3


#: Operation -> level it needs. One row for every guarded route; an operation that is not listed is refused.
NEEDS: Final[Mapping[str, Level]] = MappingProxyType(
    {
        "pool": Level.READ,
        "ads": Level.READ,
        "jobs.query": Level.READ,
        "jobs.submit": Level.WRITE,
        "jobs.import": Level.ADMINISTRATOR,
        "jobs.act": Level.WRITE,
        "jobs.edit": Level.WRITE,
        "jobs.files": Level.WRITE,
        "jobs.visit": Level.WRITE,
        "credentials": Level.WRITE,
        "events": Level.READ,
        "priorities": Level.READ,
        "priorities.set": Level.ADMINISTRATOR,
        "quotas.set": Level.ADMINISTRATOR,
        "dead-letters": Level.ADMINISTRATOR,
        "tokens": Level.ADMINISTRATOR,
        "tokens.fetch": Level.READ,  # an IDTOKEN for oneself, of no more rights
        "audit": Level.ADMINISTRATOR,
        "identities": Level.ADMINISTRATOR,
        "enroll": Level.NONE,  # for who has a join token, which the registrar looks at
        "health": Level.READ,
        "config": Level.READ,
        "config.set": Level.WRITE,  # and what SETTABLE_ATTRS_<LEVEL> of the daemon says, which nobody sets over HTTP
        "reconfig": Level.ADMINISTRATOR,
        "restart": Level.ADMINISTRATOR,
        "off": Level.ADMINISTRATOR,
        "on": Level.ADMINISTRATOR,
        "drain": Level.ADMINISTRATOR,
        "vacate": Level.ADMINISTRATOR,
        "update-machine-ad": Level.ADMINISTRATOR,
    }
)


def level_of(name: str) -> Level:
    """The level of this name; NONE for what is no level."""
    return Level.__members__.get(name, Level.NONE)


def in_scope(operation: str, scopes: Iterable[str]) -> bool:
    """Whether one of these patterns fits an operation; without patterns all do."""
    wanted = tuple(scopes)
    return not wanted or any(fnmatchcase(operation, scope) for scope in wanted)
