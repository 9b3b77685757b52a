"""State that must survive any one daemon, as daemons see it: Redis (or its embedded twin) through a few
primitives.

Every change of several keys is one Lua script in shared/state/lua/<name>.lua. Scripts that only the active
negotiator may run take its epoch and refuse a stale one (StaleEpoch). Only commands of Redis 6.2 are used,
and no cmsgpack in scripts, so that all variants serve: redis-server, the embedded store, Redis with
Sentinel. A script touches no key but those in KEYS, uses no random numbers, and may be run again with the
same arguments without harm (an answer that is lost is asked for again); docs/state.md tells how to write
one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shared.counters import CountsBy, DurationsBy
from shared.errors import PermanentError, RetryableError

Value = bytes | str | int | float


class StoreUnavailable(RetryableError):
    """Redis can not be reached, is loading, or was failed over just now."""


class Unconfirmed(StoreUnavailable):
    """Written, but no replica confirmed it in time: it may be lost if the primary dies now."""


class StoreInUse(PermanentError):
    """Another process has the pool's directory open."""


class StaleEpoch(PermanentError):
    """A newer negotiator is active: whoever got this must stop acting as the active one."""


class ScriptError(PermanentError):
    """A script refused (its reply starts with a code word of its own), or is wrong."""


@dataclass(slots=True)
class StoreHealth:
    """What /readyz tells of the store."""

    connected: bool = False
    waiting_for: str = ""  # empty when all is well
    last_error: str = ""
    variant: str = ""  # redis, sentinel, private, embedded
    replicas: int = 0  # as far as known
    called: DurationsBy = field(default_factory=DurationsBy)  # by script or command, with all attempts
    failed: CountsBy = field(default_factory=CountsBy)  # calls that came to nothing, by the same


class Store(Protocol):
    """Keys are text; values come back as bytes. Every method may raise StoreUnavailable, after some
    attempts."""

    @property
    def health(self) -> StoreHealth: ...

    async def start(self) -> None:
        """Connect. Waits for Redis (with back-off) until cancelled. Raises StoreInUse."""

    async def stop(self) -> None: ...

    async def ping(self) -> None:
        """One attempt, which shows in `health`."""

    async def run(self, script: str, keys: Sequence[str], args: Sequence[Value], *, confirm: bool = False) -> object:
        """Run shared/state/lua/<script>.lua. With `confirm`, wait until a replica has it where there is one
        (Unconfirmed if that takes too long). A script's error reply that starts with STALE becomes
        StaleEpoch, any other one ScriptError."""

    async def get(self, key: str) -> bytes | None: ...
    async def mget(self, keys: Sequence[str]) -> list[bytes | None]: ...
    async def set(self, key: str, value: Value, *, ttl_s: float | None = None) -> None: ...
    async def delete(self, *keys: str) -> int: ...
    async def hget(self, key: str, field: str) -> bytes | None: ...
    async def hgetall(self, key: str) -> dict[bytes, bytes]: ...

    async def hgetall_many(self, keys: Sequence[str]) -> list[dict[bytes, bytes]]:
        """Several hashes in few round trips, in the order of the keys."""

    async def hmget(self, key: str, fields: Sequence[str]) -> list[bytes | None]: ...
    async def hset(self, key: str, mapping: Mapping[str, Value]) -> None: ...
    async def hdel(self, key: str, *fields: str) -> int: ...

    async def zrange_by_score(self, key: str, low: float, high: float, *, limit: int = 0) -> list[bytes]:
        """Members with low <= score <= high, lowest first; limit 0: all."""
