"""The store on a Redis server, alone or behind Sentinel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import redis.asyncio as aioredis
import structlog
from redis import exceptions
from redis.asyncio.connection import Connection, ConnectionPool, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelManagedConnection
from redis.backoff import NoBackoff
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

from shared.backoff import Backoff
from shared.state.api import ScriptError, StaleEpoch, StoreHealth, StoreUnavailable, Unconfirmed, Value
from shared.state.functions import PREFIX, library
from shared.state.primary import Sentinels
from shared.state.urls import StoreUrl
from shared.tls import ClientTls, explained

T = TypeVar("T")

#: Between attempts of one call: small enough to use the first moment after a restart, jittered against a
#: herd.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.02, 0.25
#: How long what is known of the replicas is believed.
REPLICAS_KNOWN_S = 2.0
#: Keys of one round trip of hgetall_many: some 100 ads each, so a reply of a few MB.
HASHES_AT_ONCE = 200
#: Of a server that knows no FCALL.
OLD = "it has no functions, so it is older than Redis 7: upgrade it"
#: Answers by which a server says that it did nothing, and may do it soon.
PASSING = ("LOADING", "READONLY", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "MISCONF")


class RedisStore:
    """See shared.state.api.Store. A call that fails is tried again for `retry_s`; `timeout_s` bounds one
    attempt. tls: where the URL wants it."""

    def __init__(
        self,
        url: StoreUrl,
        *,
        timeout_s: float = 2.0,
        retry_s: float = 5.0,
        confirm_s: float = 1.0,
        tls: ClientTls | None = None,
    ) -> None:
        self._url = url
        self._prefix = url.prefix
        self._logger = structlog.stdlib.get_logger("store")
        self._retry_s = retry_s
        self._confirm_s = confirm_s
        self._health = StoreHealth(waiting_for="a first answer", variant=url.variant)
        self._handshake = ""  # what failed, of the last connection that could not be opened
        self._client: Any
        self._sentinels: Sentinels | None
        self._client, self._sentinels = _client(url, timeout_s, tls or ClientTls(), self._noted)
        self._replicas_until = 0.0
        self._lacks = ""  # what the server must have before functions can be called

    @property
    def health(self) -> StoreHealth:
        return self._health

    async def start(self) -> None:
        backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
        said = ""
        while True:
            try:
                await self.ping()
            except StoreUnavailable as error:
                if str(error) != said:
                    said = str(error)
                    self._logger.warning("store.unavailable", error=said)
                await asyncio.sleep(backoff.next_s())
            else:
                return

    async def stop(self) -> None:
        await self._client.aclose()
        if self._sentinels is not None:
            await self._sentinels.stop()
        self._health.connected = False

    async def ping(self) -> None:
        await self._once(self._client.ping)

    async def run(self, script: str, keys: Sequence[str], args: Sequence[Value], *, confirm: bool = False) -> object:
        words = [library().functions[script], len(keys), *(self._prefix + key for key in keys), *args]
        try:
            if confirm and await self._replicas():
                return await self._repeat(script, lambda: self._confirmed(words))
            return await self._repeat(script, lambda: self._called(words))
        except exceptions.ResponseError as error:
            if str(error).startswith("STALE"):
                raise StaleEpoch(str(error)) from error
            raise ScriptError(f"script {script}: {error}") from error

    async def get(self, key: str) -> bytes | None:
        found: bytes | None = await self._repeat("get", lambda: self._client.get(self._prefix + key))
        return found

    async def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        if not keys:
            return []
        named = [self._prefix + key for key in keys]
        found: list[bytes | None] = await self._repeat("mget", lambda: self._client.mget(named))
        return found

    async def set(self, key: str, value: Value, *, ttl_s: float | None = None) -> None:
        millis = None if ttl_s is None else max(1, round(ttl_s * 1000))
        await self._repeat("set", lambda: self._client.set(self._prefix + key, value, px=millis))

    async def delete(self, *keys: str) -> int:
        if not keys:
            return 0
        named = [self._prefix + key for key in keys]
        return int(await self._repeat("del", lambda: self._client.delete(*named)))

    async def hget(self, key: str, field: str) -> bytes | None:
        found: bytes | None = await self._repeat("hget", lambda: self._client.hget(self._prefix + key, field))
        return found

    async def hgetall(self, key: str) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = await self._repeat("hgetall", lambda: self._client.hgetall(self._prefix + key))
        return found

    async def hgetall_many(self, keys: Sequence[str]) -> list[dict[bytes, bytes]]:
        found: list[dict[bytes, bytes]] = []
        for start in range(0, len(keys), HASHES_AT_ONCE):
            found += await self._repeat("hgetall", partial(self._hashes, keys[start : start + HASHES_AT_ONCE]))
        return found

    async def hmget(self, key: str, fields: Sequence[str]) -> list[bytes | None]:
        if not fields:
            return []
        found: list[bytes | None] = await self._repeat(
            "hmget", lambda: self._client.hmget(self._prefix + key, list(fields))
        )
        return found

    async def hset(self, key: str, mapping: Mapping[str, Value]) -> None:
        if mapping:
            parts = [part for pair in mapping.items() for part in pair]
            await self._repeat("hset", lambda: self._client.hset(self._prefix + key, items=parts))

    async def hdel(self, key: str, *fields: str) -> int:
        if not fields:
            return 0
        return int(await self._repeat("hdel", lambda: self._client.hdel(self._prefix + key, *fields)))

    async def zrange_by_score(self, key: str, low: float, high: float, *, limit: int = 0) -> list[bytes]:
        start, count = (0, limit) if limit else (None, None)
        found: list[bytes] = await self._repeat(
            "zrangebyscore", lambda: self._client.zrangebyscore(self._prefix + key, low, high, start, count)
        )
        return found

    # Functions, for whoever sets a pool up

    async def load_functions(self) -> str:
        """Have this release's library there; says what was done. Raises StoreUnavailable, and ScriptError where this
        user may not."""
        wanted = library()
        loaded = await self._repeat("function", lambda: self._administer("LOAD", wanted.text))
        return f"{wanted.name} is {'there already' if loaded is None else 'loaded'}"

    async def forget_functions(self) -> list[str]:
        """Delete the libraries of other releases; returns their names. Raises as load_functions does."""
        listed = await self._repeat("function", lambda: self._administer("LIST", "LIBRARYNAME", f"{PREFIX}*"))
        names = [_library_name(one) for one in listed]
        others = sorted(name for name in names if name != library().name)
        for name in others:
            await self._repeat("function", partial(self._administer, "DELETE", name))
        return others

    async def set_users(self, lines: Iterable[str]) -> str:
        """Have these users, as lines of an access list say (shared.state.acl), and have Redis keep them when it is
        restarted. Returns why it does not; empty: it does. Raises StoreUnavailable, and ScriptError where this user may
        not."""
        for line in lines:
            await self._repeat("acl", partial(self._acl, "SETUSER", *line.split()[1:]))
        for words in (("ACL", "SAVE"), ("CONFIG", "REWRITE")):
            try:
                await self._once(partial(self._client.execute_command, *words))
            except exceptions.ResponseError as error:
                why = str(error)
            else:
                return ""
        return f"Redis at {self._url.shown} keeps its users until it is restarted: {why}"

    async def _acl(self, *words: str) -> None:
        try:
            await self._client.execute_command("ACL", *words)
        except exceptions.NoPermissionError as error:
            raise ScriptError(f"Redis at {self._url.shown}: {error}") from error

    async def _administer(self, *words: str) -> Any:
        """FUNCTION with these words; None where what is to be loaded is there, or what is to be deleted is not."""
        try:
            return await self._client.execute_command("FUNCTION", *words)
        except exceptions.NoPermissionError as error:
            raise ScriptError(f"Redis at {self._url.shown}: {error}") from error
        except exceptions.ResponseError as error:
            if "already exists" in str(error) or "not found" in str(error):
                return None
            if str(error).lower().startswith("unknown command"):
                raise ScriptError(f"Redis at {self._url.shown}: {OLD}") from error
            raise

    async def release(self) -> str:
        """The server's release, as "7.2.4"; empty where this user may not ask for it and it is at least Redis 7. Raises
        StoreUnavailable, also for one that is too old to be asked otherwise."""
        try:
            told = await self._once(lambda: self._client.info("server"))
        except StoreUnavailable as error:
            if not _not_permitted(error):
                raise
        except exceptions.ResponseError as error:
            raise self._unavailable(error) from error
        else:
            return str(told.get("redis_version", ""))
        try:
            await self._once(partial(self._called_nothing))
        except exceptions.ResponseError:
            pass
        except StoreUnavailable as error:
            if not _not_permitted(error):  # else it knows FCALL, and refuses it to this user
                raise
        return ""

    async def _called_nothing(self) -> None:
        """Raises ResponseError, as there is no such function, and StoreUnavailable where there are none at all."""
        try:
            await self._client.execute_command("FCALL", f"{PREFIX}none", 0)
        except exceptions.ResponseError as error:
            if str(error).lower().startswith("unknown command"):
                raise self._lacking(OLD) from error
            raise

    # How

    async def _hashes(self, keys: Sequence[str]) -> list[dict[bytes, bytes]]:
        async with self._client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.hgetall(self._prefix + key)
            found: list[dict[bytes, bytes]] = await pipe.execute()
        return found

    async def _called(self, words: Sequence[Value]) -> object:
        """FCALL with these words."""
        try:
            reply: object = await self._client.execute_command("FCALL", *words)
        except exceptions.ResponseError as error:
            await self._bring_functions(error)
            reply = await self._client.execute_command("FCALL", *words)
        self._lacks = ""
        return reply

    async def _confirmed(self, words: Sequence[Value]) -> object:
        """FCALL, and WAIT, which counts what its own connection wrote: so both go in one pipeline."""
        reply, replicas = await self._call_and_wait(words)
        if isinstance(reply, exceptions.ResponseError):
            await self._bring_functions(reply)
            reply, replicas = await self._call_and_wait(words)
        if isinstance(reply, Exception):
            raise reply
        self._lacks = ""
        if isinstance(replicas, Exception) or replicas < 1:
            self._replicas_until = 0.0
            raise Unconfirmed(f"no replica confirmed the write within {self._confirm_s:g} s: {replicas}")
        return reply

    async def _call_and_wait(self, words: Sequence[Value]) -> list[Any]:
        """Both replies; each may be an error."""
        async with self._client.pipeline(transaction=False) as pipe:
            pipe.execute_command("FCALL", *words)
            pipe.execute_command("WAIT", 1, round(self._confirm_s * 1000))
            replies: list[Any] = await pipe.execute(raise_on_error=False)
        return replies

    async def _bring_functions(self, error: exceptions.ResponseError) -> None:
        """FCALL gave this error: load the library where it is missing. Raises the error where that is not why, and
        StoreUnavailable where this user may not load it."""
        said = str(error)
        if said.lower().startswith("unknown command"):
            raise self._lacking(OLD) from error
        if said != "Function not found":
            raise error
        wanted = library()
        try:
            await self._client.execute_command("FUNCTION", "LOAD", wanted.text)
        except exceptions.NoPermissionError as refused:
            raise self._lacking(
                f"it lacks the library {wanted.name} of this release's functions, and this user may not load it: run "
                "`python -m shared.daemon.load_functions` as a user that may (with docker compose: `up` does)"
            ) from refused
        except exceptions.ResponseError as refused:
            if "already exists" not in str(refused):  # somebody else was quicker
                raise
        else:
            self._logger.info("store.functions_loaded", library=wanted.name)

    async def _replicas(self) -> int:
        now = time.monotonic()
        if now >= self._replicas_until:
            role = await self._repeat("role", lambda: self._client.execute_command("ROLE"))
            self._health.replicas = len(role[2]) if role[0] in (b"master", "master") else 0
            self._replicas_until = now + REPLICAS_KNOWN_S
        return self._health.replicas

    async def _repeat(self, name: str, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """name: of the script or command, as it is counted."""
        began = time.perf_counter()
        try:
            return await self._persistently(attempt)
        except StoreUnavailable:
            self._health.failed.add(name)
            raise
        finally:
            self._health.called.add(name, time.perf_counter() - began)

    async def _persistently(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await self._once(attempt)
        except StoreUnavailable as first:
            if isinstance(first, Unconfirmed):
                raise
        retrying = AsyncRetrying(
            stop=stop_after_delay(self._retry_s),
            wait=wait_random_exponential(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S),
            retry=retry_if_exception(_passes),
            reraise=True,
        )
        return await retrying(self._once, attempt)

    async def _once(self, attempt: Callable[[], Awaitable[T]]) -> T:
        health = self._health
        task = asyncio.current_task()
        cancelled = task.cancelling() if task is not None else 0
        try:
            result = await (attempt() if self._sentinels is None else self._sentinels.call(attempt))
        except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
            raise self._unavailable(error) from error
        except exceptions.NoPermissionError as error:
            raise self._unavailable(error, "its access list is not of this release: write it anew") from error
        except exceptions.OutOfMemoryError as error:
            raise self._unavailable(error, "raise its maxmemory, or make room") from error
        except exceptions.ResponseError as error:
            if str(error).startswith(PASSING) or isinstance(error, exceptions.ReadOnlyError):
                if isinstance(error, exceptions.ReadOnlyError):
                    # What was the primary is a replica now: its connections are of no more use.
                    await self._client.connection_pool.disconnect()
                raise self._unavailable(error) from error
            raise
        health.connected = True
        self._handshake = ""
        health.waiting_for = self._lacks
        if task is not None and task.cancelling() > cancelled:
            # The client writes under asyncio.wait_for, and before Python 3.12 that one may swallow a cancellation: who
            # cancelled would wait for a task that goes on, and a time limit would be none.
            raise asyncio.CancelledError
        return result

    def _lacking(self, what: str) -> StoreUnavailable:
        self._lacks = self._health.waiting_for = self._health.last_error = f"Redis at {self._url.shown}: {what}"
        return StoreUnavailable(self._lacks)

    def _noted(self, handshake: str) -> None:
        self._handshake = handshake

    def _unavailable(self, error: Exception, mend: str = "") -> StoreUnavailable:
        handshake = explained(error) if self._url.tls else ""
        if isinstance(error, exceptions.ConnectionError):
            handshake = handshake or self._handshake
        text = handshake or f"{type(error).__name__}: {error}" + (f" ({mend})" if mend else "")
        if self._url.tls and isinstance(error, exceptions.TimeoutError):
            handshake = text = f"{text} (a port that does not speak TLS keeps silent, too)"
        self._health.connected = False
        self._health.last_error = text
        told = handshake or (text if mend else "")
        self._health.waiting_for = f"Redis at {self._url.shown}" + (f": {told}" if told else "")
        return StoreUnavailable(f"Redis at {self._url.shown}: {text}")


def _library_name(listed: Any) -> str:
    """Of one entry of FUNCTION LIST, which is a map or, of an older protocol, a list of names and values."""
    told = dict(listed) if isinstance(listed, dict) else dict(zip(listed[::2], listed[1::2], strict=True))
    return bytes(told[b"library_name"]).decode()


def _passes(error: BaseException) -> bool:
    return isinstance(error, StoreUnavailable) and not isinstance(error, Unconfirmed)


class _Tls(SSLConnection):
    """A connection for which the certificates are looked at again, as they may have been renewed. note: is told of
    handshakes that fail, as the client tells of sentinels only that they can not be reached."""

    def __init__(self, *, tls: ClientTls, note: Callable[[str], None], **options: Any) -> None:
        super().__init__(**options)
        self._tls = tls
        self._note = note

    def _connection_arguments(self) -> Mapping[str, Any]:
        return {**Connection._connection_arguments(self), "ssl": self._tls.context()}

    async def connect_check_health(self, check_health: bool = True, retry_socket_connect: bool = True) -> None:
        try:
            await super().connect_check_health(check_health, retry_socket_connect)
        except exceptions.RedisError as error:
            self._note(explained(error))
            raise


class _ManagedTls(SentinelManagedConnection, _Tls):
    """The same to a server that sentinels name."""


def _client(
    url: StoreUrl, timeout_s: float, tls: ClientTls, note: Callable[[str], None]
) -> tuple[aioredis.Redis, Sentinels | None]:
    """A client that does not retry by itself: that is done in one place, here."""
    secure: dict[str, Any] = {"tls": tls, "note": note}
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
    }
    if url.sentinels:
        sentinel_options: dict[str, Any] = {
            "socket_timeout": timeout_s,
            "socket_connect_timeout": timeout_s,
            "username": url.sentinel_username,
            "password": url.sentinel_password,
        }
        if url.tls:
            options |= {"connection_class": _ManagedTls, **secure}
        login = {"db": url.db, "username": url.username, "password": url.password}
        found = Sentinels(url.sentinels, url.service, sentinel_options=sentinel_options, **login, **options)
        if url.tls:
            found.sentinels = [
                aioredis.Redis.from_pool(
                    ConnectionPool(connection_class=_Tls, **secure, host=host, port=port, **sentinel_options)
                )
                for host, port in url.sentinels
            ]
        return found.client(), found
    named: dict[str, Any] = {**parse_url(url.url)}
    if url.tls and not any(word.startswith("ssl_") for word in named):  # the library's own words are left to it
        named |= {"connection_class": _Tls, **secure}
    client: aioredis.Redis = aioredis.Redis.from_pool(ConnectionPool(**{**options, **named}))
    return client, None


def _not_permitted(error: StoreUnavailable) -> bool:
    return isinstance(error.__cause__, exceptions.NoPermissionError)
