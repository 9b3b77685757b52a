"""The registrar: gives daemons users of the broker of their own, and takes them away (docs/security.md, Identities of
daemons). It alone holds the rights to do so: gateways, which face people, ask it.

A machine comes with a join token that an administrator made, and with the hash of a password that it made itself, so
the password never leaves it. What the registrar has let in lies in SPOOL/registrar.json; losing the registrar loses
nothing else, and nobody who is in needs it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit, urlunsplit

from services.registrar import registry_file
from services.registrar.broker_admin import BrokerAdmin, BrokerUnavailable
from services.registrar.core.attempts import Attempts
from services.registrar.core.registry import ID_DIGITS, VERSION, Identity, JoinToken, Refused, Registry
from shared.bus.definitions import split_user, user_of, vhost_of
from shared.bus.statements import public_texts
from shared.bus.topology import ROLES
from shared.config.knobs import RegistrarSettings
from shared.config.knobs.tls import TlsSettings
from shared.daemon.auxiliary import AuxiliaryDaemon
from shared.daemon.context import Context
from shared.daemon.metrics import Counter, Declared, Gauge, register
from shared.errors import RoostError
from shared.messages.base import Envelope, Failure, Message
from shared.messages.registrar import (
    INBOX,
    AskIdentities,
    CreateJoinToken,
    Enroll,
    Enrolled,
    Identities,
    JoinTokenMade,
    Revoked,
    RevokeIdentity,
)
from shared.tls import ClientTls

#: Roles that no join token lets in: who has such a user is trusted by all others, so a person makes it by hand. Others
#: than these need no user of Redis.
BY_HAND: Final = ("registrar", "gateway", "collector", "negotiator", "had", "defrag", "rooster")
ENROLLED_ROLES: Final = tuple(role for role in ROLES if role not in BY_HAND)
_MOST_USES: Final = 100_000
#: Seconds between two writings of when daemons were seen.
_SEEN_S: Final = 600.0


class Registrar(AuxiliaryDaemon):
    """The registrar as a daemon."""

    subsystem: ClassVar[str] = "REGISTRAR"
    my_type: ClassVar[str] = "Registrar"
    uses_store: ClassVar[bool] = False
    keeps: ClassVar[Mapping[str, int]] = MappingProxyType({"identities": VERSION})
    at_start: ClassVar[tuple[str, ...]] = ("REGISTRAR_BROKER_API_FILE", "REGISTRAR_JOIN_TOKENS_FILE")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = RegistrarSettings.from_config(context.config)
        self._amqp = _places(self.settings)
        vhost = vhost_of(self.settings.roost_amqp_url or "")
        tls = ClientTls.of(TlsSettings.from_config(context.config))
        self.broker = BrokerAdmin(self.settings.registrar_broker_api_file, vhost, tls)
        self.path = context.spool / "registrar.json"
        self.registry = Registry()
        self.attempts = Attempts()
        self.trouble = ""
        self.let_in = self.refused = 0  # of this life
        self._changing = asyncio.Lock()
        self._written_at = 0.0
        register(context.metrics, METRICS, self)

    async def setup(self) -> None:
        """Raises BadRegistry for a file that can not be used, and ConfigError."""
        await asyncio.to_thread(self.broker.urls)
        self.registry = await asyncio.to_thread(registry_file.read, self.path)
        if self.settings.registrar_join_tokens_file:
            given = await asyncio.to_thread(registry_file.known_tokens, self.settings.registrar_join_tokens_file)
            self.registry.tokens = {**given, **self.registry.tokens}
        await super().setup()
        await self.context.bus.serve(INBOX, self._on_request)

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"watch": self._watch(), **super().tasks()}

    async def reconfigure(self) -> None:
        self.settings = RegistrarSettings.from_config(self.context.config)
        self._amqp = _places(self.settings)
        self.advertise_soon()

    async def close(self) -> None:
        await self.broker.close()

    def ready(self) -> str:
        return self.trouble

    def update_interval_s(self) -> float:
        return float(self.settings.master_update_interval)

    def ad_attributes(self) -> Mapping[str, object]:
        return {"RegistrarIdentities": self.known, "RegistrarProblem": self.trouble}

    @property
    def known(self) -> int:
        """Daemons that were let in and are not revoked."""
        return sum(not one.revoked for one in self.registry.identities.values())

    # Requests

    async def _on_request(self, envelope: Envelope) -> Message:
        body = envelope.body
        if not isinstance(body, CreateJoinToken | Enroll | AskIdentities | RevokeIdentity):
            return await super()._on_request(envelope)
        if isinstance(body, Enroll):
            return await self._enroll(body)
        if isinstance(body, AskIdentities):
            return await self._identities()
        async with self._changing:
            return await (self._create(body) if isinstance(body, CreateJoinToken) else self._revoke(body))

    async def _create(self, asked: CreateJoinToken) -> Message:
        roles = tuple(dict.fromkeys(role.lower() for role in asked.roles))
        wrong = [role for role in roles if role not in ENROLLED_ROLES]
        if wrong or not roles:
            there = ", ".join(ENROLLED_ROLES)
            named = f"{wrong[0][:40]!r} is none of these: " if wrong else "name a role: "
            return Failure(code="bad-request", reason=f"{named}join tokens let in {there}; others are made by hand")
        if not asked.names or len(asked.names) > 200:
            return Failure(code="bad-request", reason="give the names that may enroll, as a shell pattern of 1 to 200")
        if not 1 <= asked.uses <= _MOST_USES or not 0 <= asked.lifetime_s <= 1e10:
            return Failure(code="bad-request", reason=f"uses: 1 to {_MOST_USES}; lifetime: 0 to 1e10 seconds")
        now = self.context.clock.now()
        expires = now + asked.lifetime_s if asked.lifetime_s else 0.0
        fresh = self.registry.copy()
        fresh.bury(now)
        token = secrets.token_urlsafe(32)
        ident = fresh.create(token, JoinToken(roles, asked.names, asked.uses, expires, now, asked.by[:200]))
        await self._keep(fresh)
        self.context.log.info(
            "join_token_made", join_token=ident, roles=roles, names=asked.names, uses=asked.uses, by=asked.by
        )
        return JoinTokenMade(token=token, id=ident, expires=expires)

    async def _enroll(self, asked: Enroll) -> Message:
        now = self.context.clock.monotonic()
        if wait := self.attempts.wait_s(asked.address, now):
            return self._refuse(asked, f"too many join tokens that are none; try again in {wait:.0f} s", "too-many")
        try:
            user = user_of(asked.role, asked.name)
        except ValueError as error:
            return self._refuse(asked, str(error), "bad-request")
        if asked.role in BY_HAND:
            return self._refuse(asked, f"a {asked.role} has a user that is made by hand", "denied")
        async with self._changing:
            before, fresh = self.registry, self.registry.copy()
            wanted = Identity(asked.broker_hash, asked.redis_digest, address=asked.address[:100])
            try:
                made = fresh.enroll(asked.token, user, wanted, self.context.clock.now())
            except Refused as error:
                if error.guess:
                    self.attempts.failed(asked.address, now)
                return self._refuse(asked, str(error), "denied")
            known = before.identities.get(user)
            if (known is None or known.revoked) and await self.broker.has(user):
                if known is None:
                    reason = f"{user} has a user of the broker that was made by hand; revoke it first"
                    return self._refuse(asked, reason, "denied")
                await self.broker.remove(user)
            # Written down before: what fails in between leaves a token that is used and a user that is not.
            await self._keep(fresh)
            try:
                await self.broker.make(user, made.broker)
            except BrokerUnavailable:
                await self._keep(before)
                raise
        self.let_in += 1
        self.context.log.info("enrolled", user=user, token=made.token, by=made.by, address=asked.address)
        self.advertise_soon()
        keys = await asyncio.to_thread(self._gateway_keys)
        return Enrolled(user=user, amqp=list(self._amqp), gateway_keys=keys)

    def _gateway_keys(self) -> list[str]:
        """As they are now: who comes again learns those that were changed since."""
        path = self.settings.roost_gateway_keys
        try:
            return public_texts(Path(path)) if path else []
        except (OSError, ValueError) as error:
            self.context.log.warning("gateway_keys_not_told", path=path, reason=str(error))
            return []

    def _refuse(self, asked: Enroll, reason: str, code: str) -> Failure:
        self.refused += 1
        self.context.log.warning(
            "not_enrolled", user=f"{asked.role[:40]}.{asked.name[:200]}", address=asked.address[:100], reason=reason
        )
        return Failure(code=code, reason=reason)

    async def _revoke(self, asked: RevokeIdentity) -> Message:
        there = [user for user in await self.broker.users() if _of_daemon(user)]
        users = self.registry.named(asked.name, there)
        fresh = self.registry.copy()
        now = self.context.clock.now()
        fresh.revoke(users, now)
        tokens = fresh.revoke_token(asked.name, now)
        if not users and not tokens:
            return Failure(code="not-found", reason=f"nobody is called {asked.name[:80]!r} (see `roost identities`)")
        await self._keep(fresh)  # who is revoked is kept out from now on, whatever fails below
        for user in users:
            await self.broker.remove(user)
        self.context.log.info("revoked", users=users, tokens=tokens, by=asked.by[:200])
        self.advertise_soon()
        return Revoked(users=users, tokens=tokens)

    async def _identities(self) -> Message:
        connected = await self.broker.connected()
        registry, now = self.registry, self.context.clock.now()
        users = [user for user in await self.broker.users() if _of_daemon(user)]
        rows: list[dict[str, Any]] = []
        for user in sorted(users):
            role, name = split_user(user)
            one = registry.identities.get(user, Identity(broker=""))
            if one.revoked:
                continue  # it is about to go
            rows.append(
                {
                    "user": user,
                    "role": role,
                    "name": name,
                    "since": one.since,
                    "seen": now if user in connected else one.seen,
                    "connected": user in connected,
                    "by": one.by,
                    "address": one.address,
                    "enrolled": user in registry.identities,
                }
            )
        tokens = [
            {
                "id": key[:ID_DIGITS],
                "roles": list(one.roles),
                "names": one.names,
                "left": one.left,
                "expires": one.expires,
                "created": one.created,
                "by": one.by,
            }
            for key, one in registry.tokens.items()
            if not one.revoked
        ]
        return Identities(identities=rows, tokens=tokens)

    async def _keep(self, fresh: Registry) -> None:
        """Go by this from now on. Raises OSError, and all is as before then."""
        await asyncio.to_thread(registry_file.write, self.path, fresh)
        self.registry = fresh
        self._written_at = self.context.clock.now()

    # Looking after the broker

    async def _watch(self) -> None:
        """See who is connected, and take away again who was revoked and is back: a broker that starts reads its users
        from a file, where it has one."""
        while True:
            try:
                await self.look()
                self.trouble = ""
            except (RoostError, OSError) as error:
                self.trouble = str(error)
                self.context.log.warning("broker_not_seen", reason=self.trouble)
            await self.context.clock.sleep(float(self.settings.registrar_interval))

    async def look(self) -> None:
        """One look. Raises BrokerUnavailable and OSError."""
        async with self._changing:
            there, connected = set(await self.broker.users()), await self.broker.connected()
            fresh = self.registry.copy()
            fresh.saw(sorted(connected), self.context.clock.now())
            if self.context.clock.now() >= self._written_at + _SEEN_S:
                await self._keep(fresh)
            self.registry = fresh
            for user, one in fresh.identities.items():
                if one.revoked and user in there:
                    self.context.log.warning("revoked_user_was_back", user=user)
                    await self.broker.remove(user)
                elif not one.revoked and user not in there:  # a broker that lost what it knew
                    self.context.log.warning("user_made_again", user=user)
                    await self.broker.make(user, one.broker)


def _of_daemon(user: str) -> bool:
    try:
        split_user(user)
    except ValueError:
        return False
    return True


def _places(settings: RegistrarSettings) -> tuple[str, ...]:
    """URLs of the broker without user and password."""
    if settings.registrar_daemons_amqp:
        return settings.registrar_daemons_amqp
    found = []
    for url in (settings.roost_amqp_url or "").split(","):
        parts = urlsplit(url.strip())
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        place = f"{host}:{parts.port}" if parts.port else host
        found.append(urlunsplit((parts.scheme, place, parts.path, parts.query, "")))
    return tuple(found)


METRICS: Final[Declared[Registrar]] = (
    Gauge("roost_registrar_identities", "Daemons that were let in and are not revoked", lambda one: one.known),
    Counter("roost_registrar_enrolled", "Daemons that were let in", lambda one: one.let_in),
    Counter("roost_registrar_refused", "Daemons that were not let in", lambda one: one.refused),
)
