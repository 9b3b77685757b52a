"""Between a gateway and the registrar (inbox `registrar`): who may have a user of the broker and of Redis."""

from __future__ import annotations

from typing import Any, ClassVar

from shared.messages.base import Large, Message, message

#: Where the registrar answers.
INBOX = "registrar"


@message
class CreateJoinToken(Message):
    """Make a join token: with it, `uses` daemons of these roles, with names that fit a shell pattern, get users of
    their own."""

    type: ClassVar[str] = "registrar.create-token"
    roles: list[str]
    names: str
    uses: int = 1
    lifetime_s: float = 3600.0  # 0: it does not expire
    by: str = ""  # whom the gateway knows the asker as, here and below


@message
class JoinTokenMade(Message):
    """The token, which can not be asked for again, and the id by which it is listed and revoked."""

    type: ClassVar[str] = "registrar.token-made"
    token: str
    id: str
    expires: float = 0.0  # seconds since 1970; 0: never


@message
class Enroll(Message):
    """Make a user for one daemon. The daemon's machine made the password and keeps it: here are its hashes, as
    the broker and Redis take them."""

    type: ClassVar[str] = "registrar.enroll"
    token: str
    role: str
    name: str
    broker_hash: str  # RabbitMQ's: base64 of four bytes of salt and the SHA-256 of salt and password
    redis_digest: str = ""  # SHA-256 in hexadecimal; empty: it needs no user of Redis
    address: str = ""  # where the gateway was asked from


@message
class Enrolled(Message):
    """Where the daemon connects to as that user: URLs without user and password. gateway_keys: public keys of the
    pool's gateways, as PEM, that it is to believe."""

    type: ClassVar[str] = "registrar.enrolled"
    user: str
    amqp: list[str] = []
    gateway_keys: list[str] = []


@message
class AskIdentities(Message):
    """Who has a user of the broker, and which join tokens there are."""

    type: ClassVar[str] = "registrar.ask"


@message
class Identities(Large):
    """One map for each. identities: user, role, name, since, seen, connected, by, address, enrolled (false: made by
    hand). tokens: id, roles, names, left, expires, created, by."""

    type: ClassVar[str] = "registrar.identities"
    identities: list[dict[str, Any]] = []
    tokens: list[dict[str, Any]] = []


@message
class RevokeIdentity(Message):
    """Take users away at once: of this user (`startd.node1`), of all daemons of this name (`node1`), or the join token
    of this id."""

    type: ClassVar[str] = "registrar.revoke"
    name: str
    by: str = ""


@message
class Revoked(Message):
    """What is gone."""

    type: ClassVar[str] = "registrar.revoked"
    users: list[str] = []
    tokens: int = 0
