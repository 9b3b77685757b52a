"""RabbitMQ and Redis that somebody else runs: what they must know of the pool, told over the network. Blocks."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from roost.errors import ClientError
from roost.setup.servers import uses_store
from shared.errors import RoostError
from shared.state import acl
from shared.state.redis_store import RedisStore
from shared.state.urls import parse
from shared.tls import ClientTls

_PATIENCE_S: Final = 60.0


def declare(api: str, definitions: Mapping[str, Any], tls: ssl.SSLContext) -> None:
    """Give a broker definitions. api: URL of its management API, with an administrator's user and password. Raises
    ClientError."""
    _ask(api, "POST", "/api/definitions", tls, json.dumps(definitions).encode())


def remove_user(api: str, user: str, tls: ssl.SSLContext) -> bool:
    """Have a broker have no such user. Says whether it had. Raises ClientError."""
    return _ask(api, "DELETE", f"/api/users/{quote(user, safe='')}", tls) != 404


def _ask(api: str, method: str, path: str, tls: ssl.SSLContext, body: bytes | None = None) -> int:
    """The status of its answer, which is 404 where there is nothing of that name. Raises ClientError."""
    parts = urlsplit(api)
    place = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
    request = urllib.request.Request(
        urlunsplit((parts.scheme, place, parts.path.rstrip("/") + path, "", "")),
        body,
        {"Content-Type": "application/json", "Authorization": f"Basic {base64.b64encode(login).decode()}"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_S, context=tls) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        if error.code == 404 and method == "DELETE":
            return 404
        mend = {401: ": a user with the tag administrator has to ask", 403: ": that user is no administrator"}
        told = error.read(500).decode(errors="replace").strip()
        raise ClientError(
            f"RabbitMQ's management at {place} says {error.code} {error.reason}{mend.get(error.code, f': {told}')}",
            "failed",
        ) from error
    except OSError as error:
        raise ClientError(
            f"RabbitMQ's management at {place} does not answer: {getattr(error, 'reason', error)}", "failed"
        ) from error


def check_store(url: str) -> None:
    """Raises ClientError for the URL of a Redis that can not be told of users so."""
    try:
        found = parse(url)
    except RoostError as error:
        raise ClientError(str(error), "failed") from error
    if found.variant != "redis":
        raise ClientError(
            f"{found.shown}: each server behind sentinels has an access list of its own, so set that up by hand "
            "(docs/state.md), and give the servers to units of your own",
            "failed",
        )


def prepare_store(url: str, passwords: Mapping[str, str], tls: ClientTls) -> list[str]:
    """Have a Redis know the pool's functions, and these users. url: of who may do that. What was done, and what is to
    be known, a line each. Raises ClientError."""

    async def tell() -> list[str]:
        store = RedisStore(parse(bare), tls=own, retry_s=_PATIENCE_S)
        try:
            done = [f"Redis: {await store.load_functions()}"]
            if lines and (warning := await store.set_users(lines)):
                done.append(warning)
            return done
        finally:
            await store.stop()

    own, bare = tls.for_url(url)
    prefix = parse(url).prefix
    lines = [acl.user_line(user, password, prefix) for user, password in passwords.items() if uses_store(user)]
    try:
        return asyncio.run(tell())
    except RoostError as error:
        raise ClientError(str(error), "failed") from error
