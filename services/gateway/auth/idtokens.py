"""IDTOKENS at the gateway: whose one is, and one for who asks (shared.idtokens)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.gateway.core.authorization import ID_DIGITS, Identity, digest, outlives
from shared import idtokens
from shared.classad import ClassAd, ParseError, parse_expr
from shared.config.knobs.idtokens import IdTokenSettings
from shared.errors import PermanentError
from shared.idtokens import KeyFiles, TokenTrouble
from shared.map_file import MapFile
from shared.operations import Level
from shared.user_names import user_of

#: What a limit of a token leaves of levels; what is not here is of daemons, and opens nothing at the gateway.
LEVELS: Final[Mapping[str, Level]] = {
    "READ": Level.READ,
    "WRITE": Level.WRITE,
    "ADMINISTRATOR": Level.ADMINISTRATOR,
    "DAEMON": Level.WRITE,
    "NEGOTIATOR": Level.READ,
    "CONFIG": Level.READ,
}
#: Claims are that large at most where an expression looks at them; a token is bounded anyhow.
_PLAIN: Final = (str, bool, int, float)


@dataclass(frozen=True, slots=True)
class IdTokens:
    """revoked: of which tokens none is taken; fetched: keys that may be asked for; longest_s, max_age_s: None, any."""

    keys: KeyFiles
    issuer: str
    uid_domain: str
    issuer_key: str = idtokens.POOL
    fetched: tuple[str, ...] = (idtokens.POOL,)
    longest_s: float | None = None
    max_age_s: float | None = None
    revoked: str = ""
    rules: MapFile | None = None

    @classmethod
    def of(cls, settings: IdTokenSettings, rules: MapFile) -> IdTokens:
        """As the configuration says. Raises PermanentError for a revocation that is no expression."""
        text = settings.sec_token_revocation_expr
        try:
            if text:
                parse_expr(text)
        except ParseError as error:
            raise PermanentError(f"SEC_TOKEN_REVOCATION_EXPR = {text}: no ClassAd expression: {error}") from error
        return cls(
            KeyFiles.of(settings),
            settings.trust_domain,
            settings.uid_domain,
            settings.sec_token_issuer_key,
            settings.sec_token_fetch_allowed_signing_keys,
            settings.sec_issued_token_expiration,
            settings.sec_token_max_age,
            text or "",
            rules,
        )

    def identity(self, token: str, header: Mapping[str, Any], now: float) -> Identity:
        """Whose a token is. Raises ValueError with the reason why it is nobody's."""
        name = header.get("kid", idtokens.POOL)
        if header.get("alg") != "HS256" or not isinstance(name, str):
            raise TokenTrouble("it is a JWT, and of no issuer that is taken here")
        claims = idtokens.check(token, self.keys.read(name), self.issuer, now, self.max_age_s)
        if self.revoked and self._is_revoked(claims):
            raise TokenTrouble("it was revoked (SEC_TOKEN_REVOCATION_EXPR)")
        limits = idtokens.authorizations(claims)
        level = Level.ADMINISTRATOR
        if limits is not None:
            level = max((LEVELS.get(one, Level.NONE) for one in limits), default=Level.NONE)
        return Identity(
            user_of(self._mapped(claims["sub"]), self.uid_domain),
            level,
            f"jwt-{digest(token)[:ID_DIGITS]}",
            expires=idtokens.number(claims, "exp"),
            method="IDTOKENS",
            may_config=limits is None or "CONFIG" in limits or "ADMINISTRATOR" in limits,
        )

    def _mapped(self, name: str) -> str:
        """Whom the map file says, else the name itself."""
        return (self.rules.user("IDTOKENS", name) if self.rules is not None else None) or name

    def _is_revoked(self, claims: Mapping[str, Any]) -> bool:
        ad = ClassAd()
        ad["RevokedByExpression"] = parse_expr(self.revoked)
        for name, value in claims.items():
            if isinstance(value, _PLAIN) and name.isidentifier() and name.lower() != "revokedbyexpression":
                ad[name] = value
        # What can not be evaluated revokes nothing, as in HTCondor, where a token may lack what is asked about.
        return ad.eval("RevokedByExpression") is True

    def issue(self, identity: Identity, key: str, authorizations: Sequence[str], lifetime_s: float, now: float) -> str:
        """A token for who asks, of no more rights. Raises PermissionError and ValueError with the reason."""
        name = key or self.issuer_key
        if name not in self.fetched:
            raise PermissionError(f"key {name[:40]}: it may not be asked for (SEC_TOKEN_FETCH_ALLOWED_SIGNING_KEYS)")
        if identity.scopes:
            raise PermissionError(
                f"your token is for {', '.join(identity.scopes)} only, which an IDTOKEN can not be; "
                "see `roost token create -scope`"
            )
        if unknown := [one for one in authorizations if one not in idtokens.AUTHORIZATIONS]:
            raise ValueError(f"{unknown[0]}: there are {', '.join(idtokens.AUTHORIZATIONS)}")
        if more := [one for one in authorizations if LEVELS.get(one, Level.ADMINISTRATOR) > identity.level]:
            raise PermissionError(f"{more[0]}: you have {identity.level.name}, so no token of yours has more")
        if self.longest_s is not None:
            lifetime_s = min(lifetime_s or self.longest_s, self.longest_s)
        if longer := outlives(identity, now + lifetime_s if lifetime_s else 0.0):
            raise PermissionError(longer)
        # A limit of who asks is the token's too: what the lists give may change, and the limit may not.
        own = [one for one in ("READ", "WRITE", "ADMINISTRATOR") if Level[one] <= identity.level]
        return idtokens.make(
            self.keys.read(name),
            name,
            issuer=self.issuer,
            user=identity.user,
            now=now,
            jti=os.urandom(16).hex(),
            lifetime_s=lifetime_s,
            authorizations=authorizations or own,
        )
