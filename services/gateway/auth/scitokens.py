"""SCITOKENS at the gateway: whose a token of an issuer is, with the keys that the issuer publishes (core.scitokens).

Keys are fetched when a token wants them, once for all who wait, and never sooner than AGAIN_S after the last time. An
issuer that is away takes nobody's login away whose key is had."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import aiohttp
import structlog

from services.gateway import fetch
from services.gateway.auth.idtokens import LEVELS
from services.gateway.core import scitokens
from services.gateway.core.authorization import ID_DIGITS, Identity, digest
from services.gateway.core.login_methods import SCITOKENS
from services.gateway.core.scitokens import Fetched, Issuer, Key
from shared import idtokens
from shared.errors import RetryableError
from shared.idtokens import TokenTrouble
from shared.map_file import MapFile
from shared.operations import Level
from shared.tasks import TaskSet
from shared.tls import ClientTls, TlsTrouble, explained
from shared.user_names import user_of

#: An issuer's two answers have so long together, seconds.
WAIT_S: Final = 10.0


class SciTokens:
    """tls: how issuers are known; refresh_s: keys are fetched again after that; keep_s: those of an issuer that is away
    count so long. now: s since 1970."""

    def __init__(
        self,
        issuers: Mapping[str, Issuer],
        rules: MapFile,
        uid_domain: str,
        tls: ClientTls,
        now: Callable[[], float],
        monotonic: Callable[[], float],
        log: structlog.stdlib.BoundLogger,
        *,
        refresh_s: float,
        keep_s: float,
    ) -> None:
        self._issuers = issuers
        self._rules = rules
        self._uid_domain = uid_domain
        # Whoever plays an issuer is everybody: its host is checked always, and it is shown no certificate of ours.
        self._tls = replace(tls, check_host=True, cert_file="", key_file="", own_ca_file="", _made={})
        self._now = now
        self._monotonic = monotonic
        self._log = log
        self._refresh_s = refresh_s
        self._keep_s = keep_s
        self._had: dict[str, Fetched] = {}
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._tasks = TaskSet()

    def takes(self, claims: Mapping[str, Any]) -> bool:
        """Whether a token says to be of one of the issuers. Nothing of it is checked yet."""
        issuer = claims.get("iss")
        return isinstance(issuer, str) and issuer in self._issuers

    async def identity(self, token: str, header: dict[str, Any], claims: Mapping[str, Any]) -> Identity:
        """Whose a token is, which `takes`. Raises ValueError with the reason; RetryableError where its issuer's keys
        can not be had now."""
        issuer = self._issuers[claims["iss"]]
        scitokens.algorithm(header)
        key = await self._key(issuer, header)
        good = scitokens.check(token, header, key, issuer, self._now())
        limits = scitokens.authorizations(good, issuer)
        level = Level.ADMINISTRATOR
        if limits is not None:
            level = max((LEVELS.get(one, Level.NONE) for one in limits), default=Level.NONE)
        name = f"{issuer.url},{good['sub']}"
        user = self._rules.user(SCITOKENS, name)
        if user is None:
            raise TokenTrouble(f"it is nobody's here: CERTIFICATE_MAPFILE has no rule for SCITOKENS {name}")
        return Identity(
            user_of(user, self._uid_domain),
            level,
            f"scitoken-{digest(token)[:ID_DIGITS]}",
            expires=idtokens.number(good, "exp"),
            method=SCITOKENS,
            may_config=limits is None or "CONFIG" in limits or "ADMINISTRATOR" in limits,
        )

    async def close(self) -> None:
        """End what is being fetched."""
        await self._tasks.cancel()

    async def _key(self, issuer: Issuer, header: dict[str, Any]) -> Key:
        had = self._had.get(issuer.url, Fetched())
        now = self._monotonic()
        found = scitokens.find(had.good(now, self._keep_s), header)
        fetch, wait = scitokens.step(had, found is not None, now, self._refresh_s, self._keep_s)
        if fetch and issuer.url not in self._fetching:
            task = self._tasks.spawn(self._fetch(issuer), f"keys of {issuer.url}")
            self._fetching[issuer.url] = task
            task.add_done_callback(lambda _: self._fetching.pop(issuer.url, None))
        if wait and (running := self._fetching.get(issuer.url)) is not None:
            await asyncio.shield(running)
        if wait:
            had = self._had.get(issuer.url, Fetched())
            found = scitokens.find(had.good(self._monotonic(), self._keep_s), header)
        if found is not None:
            return found
        if had.trouble or had.got is None:
            # It may be good. That is not who asks' fault, so it is no failed login either.
            raise RetryableError(f"the keys of {issuer.url} can not be had now; the gateway's log says why")
        raise TokenTrouble(
            f"its key is none that {issuer.url} publishes for it (it is asked once in {scitokens.AGAIN_S:g} s at most)"
        )

    async def _fetch(self, issuer: Issuer) -> None:
        """Replaces the keys that are had, or notes why not."""
        had = self._had.get(issuer.url, Fetched())
        tried = self._monotonic()
        self._had[issuer.url] = replace(had, tried=tried)
        try:
            async with asyncio.timeout(WAIT_S):
                got = await self._ask(issuer)
        except (aiohttp.ClientError, OSError, ValueError, TlsTrouble) as error:
            # TimeoutError is an OSError.
            trouble = explained(error, issuer.url) or str(error) or f"no answer within {WAIT_S:g} s"
            self._had[issuer.url] = replace(had, tried=tried, trouble=trouble)
            if trouble != had.trouble:
                self._log.warning(
                    "issuer_not_read",
                    issuer=issuer.url,
                    reason=trouble[:1000],
                    effect="keys that are had count on" if had.keys else "nobody logs in with its tokens",
                )
            return
        self._had[issuer.url] = Fetched(got, self._monotonic(), tried)
        if had.trouble or {key.kid for key in got} != {key.kid for key in had.keys}:
            self._log.info("issuer_keys", issuer=issuer.url, keys=[key.kid[:100] for key in got])

    async def _ask(self, issuer: Issuer) -> tuple[Key, ...]:
        """Raises aiohttp.ClientError, OSError, ValueError, TlsTrouble."""
        tls = True if issuer.is_plain else await asyncio.to_thread(self._tls.context)
        async with fetch.session(tls) as session:
            first, second = scitokens.discovery(issuer)
            document = await fetch.get(session, first, or_none=True)
            if document is None:
                document = await fetch.get(session, second)
            assert document is not None
            published = await fetch.get(session, scitokens.keys_url(document, issuer))
            assert published is not None
            return scitokens.keys(published)
