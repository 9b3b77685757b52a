"""The store inside the process, for a personal pool on a machine without redis-server, and for tests.

fakeredis gives Redis's commands and Lua; a journal in the pool's directory keeps what is written (see
`journal` for what a crash can cost). Everything happens synchronously in the event loop: the order in the
journal is the order in which things happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fakeredis
import structlog
from redis import exceptions

from shared.state.api import ScriptError, StaleEpoch, StoreHealth, StoreInUse, StoreUnavailable, Value
from shared.state.append_log import Command, Journal
from shared.state.recording import absolute, recorded

#: Where the data lie, in the pool's directory.
JOURNAL = "state.journal"
#: The journal is written anew when it has grown by this much, and to this many times what the data need.
COMPACT_BYTES, COMPACT_TIMES = 8 << 20, 3
#: Seconds between waits for the disk.
SYNC_S = 1.0
#: Fields or members of one command in a rewritten journal.
FIELDS_AT_ONCE = 500


class EmbeddedStore:
    """See shared.state.api.Store. Without a directory nothing outlives the process."""

    def __init__(self, directory: Path | None = None, *, now: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._now = now
        self._server = fakeredis.FakeServer(version=(7,))
        self._client: Any = fakeredis.FakeStrictRedis(server=self._server)
        self._journal: Journal | None = None
        self._lock = -1
        self._compacted = 0
        self._syncer: asyncio.Task[None] | None = None
        self._health = StoreHealth(waiting_for="to be started", variant="embedded")
        self._log = structlog.get_logger("store")

    @property
    def health(self) -> StoreHealth:
        return self._health

    async def start(self) -> None:
        if self._directory is not None:
            self._open(self._directory)
            self._syncer = asyncio.create_task(self._sync(), name="store:sync")
        self._health.connected, self._health.waiting_for = True, ""

    async def stop(self) -> None:
        if self._syncer is not None:
            self._syncer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._syncer
            self._syncer = None
        if self._journal is not None:
            self._compact()
            self._journal.close()
            self._journal = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        self._health.connected = False

    async def ping(self) -> None:
        self._call("PING")

    async def run(self, script: str, keys: Sequence[str], args: Sequence[Value], *, confirm: bool = False) -> object:
        text = recorded(script)
        micros = str(int(self._now() * 1_000_000))
        outcome, reply, writes = self._call("EVAL", text, len(keys), *keys, *args, micros, called=script)
        if writes:
            self._keep([absolute(command, int(micros) // 1000) for command in writes])
        if outcome == b"failed":
            message = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)
            if message.startswith("STALE"):
                raise StaleEpoch(message)
            raise ScriptError(f"script {script}: {message}")
        return reply

    async def get(self, key: str) -> bytes | None:
        return self._call("GET", key)  # type: ignore[no-any-return]

    async def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        return self._call("MGET", *keys) if keys else []

    async def set(self, key: str, value: Value, *, ttl_s: float | None = None) -> None:
        if ttl_s is None:
            self._write("SET", key, value)
        else:
            self._write("SET", key, value, "PXAT", int(self._now() * 1000) + max(1, round(ttl_s * 1000)))

    async def delete(self, *keys: str) -> int:
        return int(self._write("DEL", *keys)) if keys else 0

    async def hget(self, key: str, field: str) -> bytes | None:
        return self._call("HGET", key, field)  # type: ignore[no-any-return]

    async def hgetall(self, key: str) -> dict[bytes, bytes]:
        return self._call("HGETALL", key)  # type: ignore[no-any-return]

    async def hgetall_many(self, keys: Sequence[str]) -> list[dict[bytes, bytes]]:
        return [self._call("HGETALL", key) for key in keys]

    async def hmget(self, key: str, fields: Sequence[str]) -> list[bytes | None]:
        return self._call("HMGET", key, *fields) if fields else []

    async def hset(self, key: str, mapping: Mapping[str, Value]) -> None:
        if mapping:
            self._write("HSET", key, *(part for pair in mapping.items() for part in pair))

    async def hdel(self, key: str, *fields: str) -> int:
        return int(self._write("HDEL", key, *fields)) if fields else 0

    async def zrange_by_score(self, key: str, low: float, high: float, *, limit: int = 0) -> list[bytes]:
        part = ("LIMIT", 0, limit) if limit else ()
        return self._call("ZRANGEBYSCORE", key, repr(low), repr(high), *part)  # type: ignore[no-any-return]

    # How

    def _call(self, *command: Value, called: str = "") -> Any:
        """called: how it is counted, if not by the command."""
        began, name = time.perf_counter(), called or str(command[0]).lower()
        try:
            if not self._health.connected:
                raise StoreUnavailable("the embedded store is not running")
            return self._client.execute_command(*command)
        except (StoreUnavailable, exceptions.ConnectionError) as error:
            self._health.failed.add(name)
            if isinstance(error, StoreUnavailable):
                raise
            raise StoreUnavailable(f"embedded store: {error}") from error
        finally:
            self._health.called.add(name, time.perf_counter() - began)

    def _write(self, *command: Value) -> Any:
        reply = self._call(*command)
        self._keep([[_bytes(part) for part in command]])
        return reply

    def _keep(self, commands: list[Command]) -> None:
        journal = self._journal
        if journal is None:
            return
        try:
            journal.append(commands)
        except OSError as error:
            # Memory has it and the disk has not: writing everything anew mends that as soon as there is room.
            self._compacted = -COMPACT_BYTES  # so with the next write
            self._health.last_error = self._health.waiting_for = f"{journal.path}: {error}"
            raise StoreUnavailable(f"{journal.path}: {error}") from error
        if (
            journal.size - max(self._compacted, 0) > max(COMPACT_BYTES, COMPACT_TIMES * self._compacted)
            or self._compacted < 0
        ):
            self._compact()

    def _open(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(directory / "state.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            self._lock = -1
            raise StoreInUse(
                f"{directory}: another process has this pool's state open; stop it, or choose another directory"
            ) from error
        self._journal = Journal(directory / JOURNAL)
        for commands in self._journal.open():
            for command in commands:
                self._client.execute_command(*command)
        if self._journal.damaged is not None:
            self._log.error("journal_damaged", file=str(self._journal.path), set_aside=str(self._journal.damaged))
        self._compact()

    def _compact(self) -> None:
        assert self._journal is not None
        try:
            self._journal.rewrite(self._everything())
        except OSError as error:
            self._health.last_error = f"{self._journal.path}: {error}"
            self._log.error("journal_not_rewritten", file=str(self._journal.path), error=str(error))
            return
        self._compacted = self._journal.size
        self._health.waiting_for = ""

    def _everything(self) -> Iterator[list[Command]]:
        """Commands that make the data as they are."""
        client = self._client
        for key in client.keys("*"):
            kind = client.type(key)
            if kind == b"string":
                commands = [[b"SET", key, client.get(key)]]
            elif kind == b"hash":
                commands = _chunks(b"HSET", key, [f for pair in client.hgetall(key).items() for f in pair])
            elif kind == b"zset":
                scored = client.zrange(key, 0, -1, withscores=True)
                commands = _chunks(b"ZADD", key, [p for m, s in scored for p in (repr(s).encode(), m)])
            elif kind == b"set":
                commands = _chunks(b"SADD", key, sorted(client.smembers(key)))
            else:
                assert kind == b"list", f"{key!r} is a {kind!r}: the pool's scripts do not use that"
                commands = _chunks(b"RPUSH", key, client.lrange(key, 0, -1))
            expires = client.pexpiretime(key)
            if expires > 0:
                commands.append([b"PEXPIREAT", key, str(expires).encode()])
            yield commands

    async def _sync(self) -> None:
        while True:
            await asyncio.sleep(SYNC_S)
            journal = self._journal
            if journal is not None and journal.unsynced:
                try:
                    await asyncio.to_thread(journal.sync_later())
                except OSError as error:
                    self._health.last_error = f"{journal.path}: {error}"
                    self._log.error("journal_not_on_disk", file=str(journal.path), error=str(error))


def _bytes(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    return (repr(value) if isinstance(value, float) else str(value)).encode()


def _chunks(name: bytes, key: bytes, parts: list[bytes]) -> list[Command]:
    size = 2 * FIELDS_AT_ONCE
    return [[name, key, *parts[start : start + size]] for start in range(0, len(parts), size)]
