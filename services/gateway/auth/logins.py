"""Who asks: the methods by which somebody logs in, and the level that they have then.

A request with a token is its token's, and with a bad one nobody's. Without one it is of the account at the other end of
the local socket (FS), else of whom the certificate names that TLS has verified (SSL)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from starlette.types import Scope

from services.gateway.auth.client_hosts import ClientHosts
from services.gateway.auth.idtokens import IdTokens
from services.gateway.auth.local_peer import LOCAL_PEER, LocalPeer
from services.gateway.auth.scitokens import SciTokens
from services.gateway.auth.tokens import TokenStore
from services.gateway.core.access_lists import Lists
from services.gateway.core.authorization import ASK, ID_DIGITS, Identity
from services.gateway.core.login_methods import FS, IDTOKENS, SCITOKENS, SSL, Methods
from services.gateway.core.peer_certificate import PeerCertificate, of_scope
from shared.idtokens import parts
from shared.map_file import MapFile
from shared.operations import Level
from shared.user_names import user_of


class Logins:
    """look() tells who asks; changes nothing."""

    def __init__(
        self,
        tokens: TokenStore,
        lists: Lists,
        methods: Methods,
        hosts: ClientHosts,
        uid_domain: str,
        idtokens: IdTokens,
        scitokens: SciTokens,
        rules: MapFile,
        now: Callable[[], float],
    ) -> None:
        self._tokens = tokens
        self.idtokens = idtokens
        self._scitokens = scitokens
        self._rules = rules
        self._now = now
        self._lists = lists
        self._methods = methods
        self._hosts = hosts
        self._uid_domain = uid_domain

    @property
    def takes_local(self) -> bool:
        """Whether users of this machine may log in by the local socket."""
        return self._methods.takes(FS)

    async def close(self) -> None:
        """End what is under way: questions to issuers."""
        await self._scitokens.close()

    async def look(self, token: str, scope: Scope, address: str) -> tuple[Identity | None, str]:
        """Who asks; None with the reason (empty where nothing was shown). Raises RetryableError where the store is
        away."""
        if token:
            jwt = parts(token)
            if jwt is not None:
                return await self._signed(token, jwt[0], jwt[1], address)
            identity, why = await self._tokens.look(token)
            return (await self._allowed(identity, IDTOKENS, address, granted=True)) if identity else (None, why)
        peer = _state(scope).get(LOCAL_PEER)
        if isinstance(peer, LocalPeer):
            return await self._local(peer, address)
        certificate = of_scope(scope)
        if certificate is not None:
            return await self._certified(certificate, address)
        return None, ""

    async def _certified(self, certificate: PeerCertificate, address: str) -> tuple[Identity | None, str]:
        """Whose a certificate is that TLS has verified: whom the map file says, by the one form of its subject or the
        other. Without a rule it is nobody's, as an authority may certify more than users of this pool."""
        names = (certificate.subject_dn, certificate.subject)
        found = next((user for name in names if (user := self._rules.user(SSL, name)) is not None), None)
        try:
            if found is None:
                raise ValueError(f"CERTIFICATE_MAPFILE has no rule for SSL {certificate.subject_dn[:300]}")
            user = user_of(found, self._uid_domain)
        except ValueError as error:
            return None, f"no valid token, and your certificate is nobody's: {error}; {ASK}"
        identity = Identity(
            user,
            Level.ADMINISTRATOR,
            f"ssl-{certificate.fingerprint[:ID_DIGITS]}",
            expires=certificate.until,
            method=SSL,
        )
        return await self._allowed(identity, SSL, address, granted=False)

    async def _signed(
        self, token: str, header: dict[str, Any], claims: dict[str, Any], address: str
    ) -> tuple[Identity | None, str]:
        """Whose a JWT is. Nothing of it is believed before its signature was checked: the issuer tells only by whose
        key that is."""
        method = SCITOKENS if self._scitokens.takes(claims) else IDTOKENS
        if not self._methods.takes(method):
            return None, _not_taken(method)  # and no issuer is asked for keys
        try:
            if method == SCITOKENS:
                identity = await self._scitokens.identity(token, header, claims)
            else:
                identity = self.idtokens.identity(token, header, self._now())
        except ValueError as error:
            return None, f"no valid token: {error}; {ASK}"
        return await self._allowed(identity, method, address, granted=False)

    async def _local(self, peer: LocalPeer, address: str) -> tuple[Identity | None, str]:
        try:
            name = await peer.name()
            user = user_of(self._rules.user(FS, name) or name, self._uid_domain)
        except ValueError as error:
            return None, f"no valid token, and the local socket does not know you: {error}"
        identity = Identity(user, Level.ADMINISTRATOR, f"fs-{peer.uid}", method=FS)
        return await self._allowed(identity, FS, address, granted=False, local=True)

    async def _allowed(
        self, identity: Identity, method: str, address: str, *, granted: bool, local: bool = False
    ) -> tuple[Identity | None, str]:
        """What is left of a level by the lists and by the methods that are taken. granted: the level is the pool's own
        word, and not only what the method could give at most. local: they are on this machine."""
        if not self._methods.takes(method):
            return None, _not_taken(identity.method)
        most = min(identity.level, self._methods.most(method))
        names = self._hosts.own if local else await self._hosts.of(address)
        user = identity.user
        level = self._lists.level(user, address, names, most, granted=granted)
        return (
            replace(
                identity,
                level=level,
                levels=self._lists.levels(user, address, names, most, granted=granted),
                may_config=identity.may_config and self._may_config(user, address, names),
            ),
            "",
        )

    def _may_config(self, user: str, address: str, names: tuple[str, ...]) -> bool:
        lists = self._lists
        if lists.denied("CONFIG", user, address, names):
            return False
        return "CONFIG" not in lists.allow or lists.has("CONFIG", user, address, names, granted=False)


def _not_taken(method: str) -> str:
    return f"no valid token: {method} is not taken here (SEC_DEFAULT_AUTHENTICATION_METHODS)"


def _state(scope: Scope) -> dict[str, Any]:
    found = scope.get("state")
    return found if isinstance(found, dict) else {}
