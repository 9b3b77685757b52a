"""Documents of servers outside of the pool: bounded, and asked for only where the configuration names them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final

import aiohttp

MOST_BYTES: Final = 262_144


def session(tls: ssl.SSLContext | bool, headers: Mapping[str, str] | None = None) -> aiohttp.ClientSession:
    """For one server, to be closed. tls: whom to believe; True for one without TLS."""
    # No redirects, cookies or proxies: a server is asked where it is named, and nobody else.
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls, limit=2),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        headers={"Accept": "application/json", "Accept-Encoding": "identity", **(headers or {})},
    )


async def get(session: aiohttp.ClientSession, url: str, *, or_none: bool = False) -> bytes | None:
    """A document. or_none: None where there is no such one. Raises aiohttp.ClientError, OSError, ValueError."""
    async with session.get(url, allow_redirects=False) as answer:
        if or_none and answer.status in (404, 405, 410):
            return None
        if answer.status != 200:
            what = "a redirect, which is not followed" if 300 <= answer.status < 400 else "and not the document"
            raise ValueError(f"{url}: status {answer.status}, {what}")
        body = bytearray()
        async for piece in answer.content.iter_chunked(65_536):
            body += piece
            if len(body) > MOST_BYTES:
                raise ValueError(f"{url}: more than {MOST_BYTES} bytes")
        return bytes(body)
