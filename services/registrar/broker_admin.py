"""RabbitMQ's management API: users, their rights, their connections."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

import aiohttp
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from shared.bus.definitions import permissions, split_user, topic_permissions
from shared.config.errors import ConfigError, config_error
from shared.errors import RetryableError
from shared.tls import ClientTls

_TIMEOUT_S: Final = 10.0
#: How often connections of a user who is gone are asked to be closed, 0.75 s in all.
_CLOSE_TRIES: Final = 5
_HASHING: Final = "rabbit_password_hashing_sha256"


class BrokerUnavailable(RetryableError):
    """No node's management API answers, or it refuses us."""


class BrokerAdmin:
    """path: REGISTRAR_BROKER_API_FILE, read with each request, as passwords are changed. vhost: the pool's."""

    def __init__(self, path: str | None, vhost: str, tls: ClientTls) -> None:
        self._path, self._vhost, self._tls = path, quote(vhost, safe=""), tls
        self._http: aiohttp.ClientSession | None = None

    def urls(self) -> list[SplitResult]:
        """The nodes, tried in turn, with user and password. Blocks. Raises ConfigError."""
        path = self._path
        if not path:
            raise config_error("REGISTRAR_BROKER_API_FILE is not set: the registrar makes users by RabbitMQ's API")
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            raise config_error(f"REGISTRAR_BROKER_API_FILE: {path}: {error}") from error
        found = [urlsplit(one.strip().rstrip("/")) for one in text.split(",") if one.strip()]
        bad = [one for one in found if one.scheme not in ("http", "https") or not (one.hostname and one.password)]
        if bad or not found:
            raise config_error(f"REGISTRAR_BROKER_API_FILE: {path}: want http[s]://user:password@host:port")
        return found

    async def users(self) -> list[str]:
        """Names of all users who can log in."""
        found = await self._ask("GET", "/api/users?columns=name,password_hash")
        return [str(one.get("name", "")) for one in found if one.get("password_hash")]

    async def has(self, user: str) -> bool:
        return await self._ask("GET", f"/api/users/{quote(user, safe='')}", missing=True) is not None

    async def make(self, user: str, password_hash: str) -> None:
        """A daemon's user with its rights. It may do nothing before the last of them is set."""
        role, name = split_user(user)
        who = quote(user, safe="")
        body = {"password_hash": password_hash, "hashing_algorithm": _HASHING, "tags": ""}
        await self._ask("PUT", f"/api/users/{who}", body)
        for entry in topic_permissions(role, name):
            await self._ask("PUT", f"/api/topic-permissions/{self._vhost}/{who}", entry)
        await self._ask("PUT", f"/api/permissions/{self._vhost}/{who}", permissions(role, name))

    async def remove(self, user: str) -> None:
        """Take a user away, and end its connections."""
        who = quote(user, safe="")
        # The broker ends the connections of a user that it deletes; one that was just being opened is ended here.
        await self._ask("DELETE", f"/api/users/{who}", missing=True)
        # It answers 500 when one of them ends by itself at this very moment.
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(BrokerUnavailable),
            stop=stop_after_attempt(_CLOSE_TRIES),
            wait=wait_exponential(0.05),
            reraise=True,
        ):
            with attempt:
                await self._ask("DELETE", f"/api/connections/username/{who}", missing=True)

    async def connected(self) -> set[str]:
        """Users that are connected, as the broker knew a few seconds ago."""
        return {str(one.get("user", "")) for one in await self._ask("GET", "/api/connections?columns=user")}

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _ask(self, method: str, path: str, body: Any = None, *, missing: bool = False) -> Any:
        """The answer; None where there is nothing of that name, if that may be. Raises BrokerUnavailable."""
        if self._http is None:
            self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S))
        try:
            urls = await asyncio.to_thread(self.urls)
        except ConfigError as error:
            raise BrokerUnavailable(str(error)) from error
        reasons = []
        for parts in urls:
            place = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
            bare = urlunsplit((parts.scheme, place, parts.path, "", ""))
            login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}".encode()
            headers = {"Authorization": f"Basic {b64encode(login).decode()}"}
            context = self._tls.context() if parts.scheme == "https" else True
            try:
                async with self._http.request(
                    method, f"{bare}{path}", json=body, headers=headers, ssl=context
                ) as answer:
                    if answer.status == 404 and missing:
                        return None
                    if answer.status < 300:
                        return await answer.json() if answer.status == 200 else None
                    reasons.append(f"{place}: {method} {path.partition('?')[0]}: {answer.status} {answer.reason}")
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                reasons.append(f"{place}: {error or type(error).__name__}")
        raise BrokerUnavailable(f"the broker's management API: {'; '.join(reasons)}")
