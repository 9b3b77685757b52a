"""Which join tokens there are, whom they let in, and who was let in. Pure: decisions come back, `now` goes in (seconds
since 1970).

A join token lets daemons of some roles, with names that fit a pattern, have a user of their own each. It is stored as
its digest. A name that has a user gets no other one: an administrator revokes the first. The same machine may ask again
with the same password, as when the answer was lost on the way."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

from shared.stored_versions import IDENTITIES

VERSION: Final = IDENTITIES
#: Digits of a digest that name a join token.
ID_DIGITS: Final = 12
#: Join tokens that are over are remembered for so long, to say why they do not work; and who was revoked, to be held
#: out where a broker gets its users from a file.
BURY_S: Final = 30 * 86400.0
#: RabbitMQ's hash of a password: salt and SHA-256.
_BROKER_HASH_BYTES: Final = 4 + 32
_REDIS_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class JoinToken:
    """roles, names: whom it lets in; names is a shell pattern. left: how many more. expires: 0, never. revoked: when an
    administrator took it away; it is remembered, as it may stand in REGISTRAR_JOIN_TOKENS_FILE."""

    roles: tuple[str, ...]
    names: str
    left: int
    expires: float = 0.0
    created: float = 0.0
    by: str = ""
    revoked: float = 0.0


@dataclass(frozen=True, slots=True)
class Identity:
    """A daemon that was let in. Hashes of its passwords, as the broker and Redis take them, never those themselves."""

    broker: str
    redis: str = ""
    token: str = ""  # id of the join token
    by: str = ""  # who made that
    address: str = ""  # where it asked from
    since: float = 0.0
    seen: float = 0.0  # when it was connected last; 0: never
    revoked: float = 0.0


T = TypeVar("T", JoinToken, Identity)


class Refused(Exception):
    """The reason, for whoever asked. guess: it may be somebody who tries tokens."""

    def __init__(self, reason: str, *, guess: bool = False) -> None:
        super().__init__(reason)
        self.guess = guess


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def check_hashes(broker: str, redis: str) -> None:
    """Raises Refused for what is no hash of a password."""
    try:
        size = len(base64.b64decode(broker, validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if size != _BROKER_HASH_BYTES:
        raise Refused("the broker's hash of the password: want base64 of 4 bytes of salt and a SHA-256")
    if redis and not _REDIS_DIGEST.fullmatch(redis):
        raise Refused("Redis's digest of the password: want a SHA-256 in hexadecimal")


@dataclass(slots=True)
class Registry:
    """tokens: by digest. identities: by the broker's user, "<role>.<name>"."""

    tokens: dict[str, JoinToken] = field(default_factory=dict)
    identities: dict[str, Identity] = field(default_factory=dict)

    def copy(self) -> Registry:
        return Registry(dict(self.tokens), dict(self.identities))

    def create(self, token: str, what: JoinToken) -> str:
        """Enter a join token; returns its id."""
        self.tokens[digest(token)] = what
        return digest(token)[:ID_DIGITS]

    def enroll(self, token: str, user: str, asked: Identity, now: float) -> Identity:
        """Let a daemon in; uses the token up by one. asked: its hashes and address. Raises Refused, and changes nothing
        then."""
        role, _, name = user.partition(".")
        key = digest(token)
        found = self.tokens.get(key)
        if found is None or found.revoked:
            raise Refused("this pool does not know the join token; ask its administrator for another", guess=True)
        check_hashes(asked.broker, asked.redis)
        before = self.identities.get(user)
        if before is not None and not before.revoked:
            if before.token == key[:ID_DIGITS] and (before.broker, before.redis) == (asked.broker, asked.redis):
                return before  # it did not hear the answer
            raise Refused(f"{user} has a user already; an administrator takes it away with `roost identities revoke`")
        if found.expires and found.expires <= now:
            raise Refused("the join token has expired; ask the pool's administrator for another", guess=True)
        if found.left < 1:
            raise Refused("the join token has been used; ask the pool's administrator for another", guess=True)
        if role not in found.roles:
            raise Refused(f"the join token is for {', '.join(found.roles)}, not for {role}")
        if not fnmatchcase(name, found.names):
            raise Refused(f"the join token is for names that fit {found.names!r}, not for {name!r}")
        made = replace(asked, token=key[:ID_DIGITS], by=found.by, since=now)
        self.tokens[key] = replace(found, left=found.left - 1)
        self.identities[user] = made
        return made

    def named(self, name: str, others: Sequence[str] = ()) -> list[str]:
        """Users that are meant by a user, or by a name alone: of all roles. others: users that were not let in here."""
        users = [user for user, one in self.identities.items() if not one.revoked]
        return [user for user in dict.fromkeys([*users, *others]) if name in (user, user.partition(".")[2])]

    def revoke(self, users: Sequence[str], now: float) -> None:
        """Take these out, and remember that they are."""
        for user in users:
            self.identities[user] = replace(self.identities.get(user, Identity(broker="")), revoked=now)

    def revoke_token(self, ident: str, now: float) -> int:
        """Take join tokens of this id away: how many there were."""
        gone = [
            key for key, one in self.tokens.items() if len(ident) >= 8 and key.startswith(ident) and not one.revoked
        ]
        for key in gone:
            self.tokens[key] = replace(self.tokens[key], revoked=now)
        return len(gone)

    def saw(self, users: Sequence[str], now: float) -> None:
        """These are connected."""
        for user in users:
            if user in self.identities:
                self.identities[user] = replace(self.identities[user], seen=now)

    def bury(self, now: float) -> None:
        """Forget tokens that have been over for long."""
        self.tokens = {key: one for key, one in self.tokens.items() if not one.expires or one.expires > now - BURY_S}

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "tokens": {key: asdict(one) for key, one in self.tokens.items()},
            "identities": {user: asdict(one) for user, one in self.identities.items()},
        }


def from_json(data: Mapping[str, Any]) -> Registry:
    """Raises ValueError for what is no registry, or one of a later version."""
    try:
        if data["version"] != VERSION:
            raise ValueError(f"its version is {data['version']!r}, and this registrar reads {VERSION}")
        tokens = {str(key): _token(row) for key, row in data["tokens"].items()}
        identities = {str(user): _known(Identity, row) for user, row in data["identities"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is no registry: {error!r}") from error
    return Registry(tokens, identities)


def _token(row: Mapping[str, Any]) -> JoinToken:
    return replace(_known(JoinToken, row), roles=tuple(map(str, row["roles"])))


def _known(kind: type[T], row: Mapping[str, Any]) -> T:
    names = {one.name for one in fields(kind)}
    return kind(**{name: value for name, value in row.items() if name in names})
