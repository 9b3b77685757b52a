"""Asks the gateways of other pools how these do, for one page about all of them. Shared by all who look."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import aiohttp

from services.gateway import fetch
from services.gateway.core import other_pools
from services.gateway.single_flight import SharesAnswers, shared
from shared.daemon.clock import Clock
from shared.tls import ClientTls, TlsTrouble, explained

#: How long an answer is good, and how long a pool has for it, seconds.
FRESH_S: Final = 5.0
WAIT_S: Final = 5.0


class OtherPools(SharesAnswers):
    """names: of pools; directory: with one for each of them. tls: whom to believe besides a pool's own ca.pem."""

    def __init__(self, names: tuple[str, ...], directory: Path, tls: ClientTls, clock: Clock) -> None:
        # Whoever plays another pool gets its token: its host is checked always, and it is shown no certificate of ours.
        self._tls = replace(tls, check_host=True, cert_file="", key_file="", _made={})
        self._names, self._directory, self._clock = names, directory, clock
        self._known: dict[str, dict[str, Any]] = {}
        super().__init__(clock.monotonic)

    @shared(FRESH_S)
    async def told(self) -> list[dict[str, Any]]:
        """{name, url, at, error, ...line} for each, in the order of the configuration. One that can not be asked says
        why in error, and has the numbers of the last time, at that time; without any at is None."""
        return list(await asyncio.gather(*map(self._pool, self._names)))

    async def _pool(self, name: str) -> dict[str, Any]:
        url = ""
        try:
            url, token, tls = await asyncio.to_thread(self._read, name)
            async with asyncio.timeout(WAIT_S):
                found = await _ask(url, token, tls)
        except (aiohttp.ClientError, OSError, ValueError, TlsTrouble) as error:
            # TimeoutError is an OSError.
            why = explained(error, url) or str(error) or f"no answer within {WAIT_S:g} s"
            known = self._known.get(name, {"at": None, **other_pools.line({}, {}, "")})
            return {**known, "name": name, "url": url, "error": why[: other_pools.MOST_TEXT]}
        self._known[name] = {"at": self._clock.now(), **found}
        return {**self._known[name], "name": name, "url": url, "error": ""}

    def _read(self, name: str) -> tuple[str, str, Any]:
        """(URL, token, TLS) of a pool. Raises OSError, ValueError, TlsTrouble."""
        place = self._directory / name
        url = other_pools.check_url(_text(place / "url"))
        token = _text(place / "token").strip()
        if not token or not token.isascii() or not token.isprintable():
            raise ValueError(f"{place / 'token'} holds no token")
        authority = place / "ca.pem"
        tls = replace(self._tls, ca_file=str(authority), _made={}) if authority.exists() else self._tls
        return url, token, tls.context() if url.startswith("https:") else True


async def _ask(url: str, token: str, tls: Any) -> Mapping[str, Any]:
    async with fetch.session(tls, {"Authorization": f"Bearer {token}"}) as session:
        answers = await asyncio.gather(
            *(fetch.get(session, f"{url}/v1/{what}") for what in ("overview", "attention", "pool"))
        )
    overview, attention, pool = map(other_pools.document, answers)
    return other_pools.line(overview, attention, pool.get("version"))


def _text(path: Path) -> str:
    """Raises ValueError for what is no such text."""
    with path.open("rb") as file:
        data = file.read(other_pools.MOST_FILE + 1)
    if len(data) > other_pools.MOST_FILE:
        raise ValueError(f"{path} is too large")
    return data.decode()
