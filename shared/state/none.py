"""The store of a daemon that needs none: no connection, no user of Redis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from shared.errors import PermanentError
from shared.state.api import StoreHealth, Value

VARIANT = "none"


class NoStore:
    """See shared.state.api.Store. Every call is a programmer's error."""

    def __init__(self) -> None:
        self._health = StoreHealth(connected=True, variant=VARIANT)

    @property
    def health(self) -> StoreHealth:
        return self._health

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def ping(self) -> None: ...

    async def run(self, script: str, keys: Sequence[str], args: Sequence[Value], *, confirm: bool = False) -> object:
        _refuse(script)

    async def get(self, key: str) -> bytes | None:
        _refuse("get")

    async def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        _refuse("mget")

    async def set(self, key: str, value: Value, *, ttl_s: float | None = None) -> None:
        _refuse("set")

    async def delete(self, *keys: str) -> int:
        _refuse("delete")

    async def hget(self, key: str, field: str) -> bytes | None:
        _refuse("hget")

    async def hgetall(self, key: str) -> dict[bytes, bytes]:
        _refuse("hgetall")

    async def hgetall_many(self, keys: Sequence[str]) -> list[dict[bytes, bytes]]:
        _refuse("hgetall_many")

    async def hmget(self, key: str, fields: Sequence[str]) -> list[bytes | None]:
        _refuse("hmget")

    async def hset(self, key: str, mapping: Mapping[str, Value]) -> None:
        _refuse("hset")

    async def hdel(self, key: str, *fields: str) -> int:
        _refuse("hdel")

    async def zrange_by_score(self, key: str, low: float, high: float, *, limit: int = 0) -> list[bytes]:
        _refuse("zrange_by_score")


def _refuse(call: str) -> NoReturn:
    raise PermanentError(f"{call}: this daemon has no store (Daemon.uses_store)")
