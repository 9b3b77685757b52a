"""The pool's Redis in the simulation: the product's Lua scripts on plain dicts, and a replica that lags.

The contract suite of stores holds it to what the real ones do. A hundredth of the embedded store's cost is why it is
there: three HADs look at their lease every second or two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lupa import lua51

from shared.state.api import ScriptError, StaleEpoch, StoreHealth, StoreUnavailable, Unconfirmed, Value
from shared.state.scripts import script

#: How long a write that is to be confirmed waits for a replica that does not, seconds.
CONFIRM_S = 1.0


class _Scripts:
    """Compiles each script once. `data` is what redis.call works on, `now` its clock."""

    def __init__(self) -> None:
        self.lua: Any = lua51.LuaRuntime(encoding=None, unpack_returned_tuples=True)
        self.data: dict[bytes, Any] = {}
        self.now = 0.0
        self._functions: dict[str, Any] = {}
        self._prepare = self.lua.execute(_PREPARE)(self._call)

    def run(self, name: str, data: dict[bytes, Any], keys: list[bytes], args: list[bytes], now: float) -> Any:
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._prepare(script(name).text.encode())
        self.data, self.now = data, now
        try:
            reply = function(self.lua.table_from(keys), self.lua.table_from(args))
        except lua51.LuaError as error:
            raise ScriptError(str(error)) from None
        return self._reply(reply)

    def _reply(self, value: Any) -> Any:
        if isinstance(value, bool):
            return 1 if value else None
        if isinstance(value, float):
            return int(value)
        if lua51.lua_type(value) == "table":
            if value[b"err"] is not None:
                raise ScriptError(value[b"err"].decode())
            return [self._reply(one) for _, one in sorted(value.items())]
        return value

    def _call(self, name: bytes, *parts: Any) -> Any:
        words = [_bytes(part) for part in parts]
        data, key = self.data, words[0] if words else b""
        match name.upper():
            case b"GET":
                return _false(data.get(key))
            case b"HGET":
                return _false(data.get(key, {}).get(words[1]))
            case b"HMGET":
                return self.lua.table_from([_false(data.get(key, {}).get(field)) for field in words[1:]])
            case b"HGETALL":
                return self.lua.table_from([word for pair in data.get(key, {}).items() for word in pair])
            case b"EXISTS":
                return sum(one in data for one in words)
            case b"TIME":
                seconds, micros = divmod(int(self.now * 1e6), 1_000_000)
                return self.lua.table_from([b"%d" % seconds, b"%d" % micros])
        match name.upper():
            case b"SET":
                data[key] = words[1]
            case b"DEL":
                return sum(data.pop(one, None) is not None for one in words)
            case b"HSET":
                fields = data.setdefault(key, {})
                fields.update(zip(words[1::2], words[2::2], strict=True))
            case b"HDEL":
                fields = data.get(key, {})
                for field in words[1:]:
                    fields.pop(field, None)
                if not fields:
                    data.pop(key, None)
            case b"RENAME":
                data[words[1]] = data.pop(key)
            case b"ZADD":
                data.setdefault(key, {})[words[2]] = float(words[1])
            case b"ZREM":
                data.get(key, {}).pop(words[1], None)
            case unknown:
                raise AssertionError(f"the simulation's Redis has no {unknown!r}: add it here")
        return 1


_PREPARE = b"""
local through = ...
return function(through)
  redis = {
    call = through, pcall = through,
    error_reply = function(text) return {err = text} end,
    status_reply = function(text) return {ok = text} end,
  }
  return function(text)
    local chunk = assert(loadstring(text))
    return function(keys, args)
      KEYS, ARGV = keys, args
      return chunk()
    end
  end
end
"""


def _false(value: bytes | None) -> bytes | bool:
    return False if value is None else value


_scripts: list[_Scripts] = []  # one for a process: scripts stay compiled


class SimulatedStore:
    """See shared.state.api.Store.

    `replica`: what a fail-over would go to. While `lags` is None it has every write; else it has what was there when
    that began, and what was confirmed since: a write that waits for confirmation is on it after `lags` seconds, with
    all before it, or never (math.inf).
    """

    def __init__(self, *, now: Callable[[], float]) -> None:
        self._now = now
        self._data: dict[bytes, Any] = {}
        self._ends: dict[bytes, float] = {}  # by key: when it expires
        self.lags: float | None = None
        self._replica: dict[bytes, Any] = {}
        self._life = 0  # rises with every fail-over: who waited for a confirmation before it gets none
        self.health = StoreHealth(connected=True, variant="simulated", replicas=1)
        if not _scripts:
            _scripts.append(_Scripts())

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self.health.connected = False

    async def ping(self) -> None:
        if not self.health.connected:
            raise StoreUnavailable("the store is stopped")

    # What a simulation does to it

    def fall_behind(self, seconds: float) -> None:
        """From now on the replica gets what it must confirm only, and that so much later."""
        self._replica = self._copy()
        self.lags = seconds

    def catch_up(self) -> None:
        self.lags, self._replica = None, {}

    def fail_over(self) -> None:
        """The primary is lost; its replica takes over, with what it has."""
        if self.lags is not None:
            self._data = self._replica
            self.catch_up()
        self._life += 1

    def forget_all(self) -> None:
        self._data = {}
        self._ends.clear()
        self._life += 1

    def _copy(self) -> dict[bytes, Any]:
        return {key: dict(value) if isinstance(value, dict) else value for key, value in self._data.items()}

    # What daemons ask of it

    async def run(self, script: str, keys: Sequence[str], args: Sequence[Value], *, confirm: bool = False) -> object:
        data = self._alive()
        try:
            reply = _scripts[0].run(
                script, data, [key.encode() for key in keys], [_bytes(a) for a in args], self._now()
            )
        except ScriptError as error:
            if str(error).startswith("STALE"):
                raise StaleEpoch(str(error)) from None
            raise ScriptError(f"script {script}: {error}") from None
        if confirm and self.lags is not None:
            await self._confirm(self.lags)
        return reply

    async def _confirm(self, lags: float) -> None:
        life, written = self._life, self._copy()
        await asyncio.sleep(min(lags, CONFIRM_S))
        if self._life != life or lags > CONFIRM_S:
            raise Unconfirmed(f"no replica confirmed the write within {CONFIRM_S:g} s")
        if self.lags is not None:
            self._replica = written

    async def get(self, key: str) -> bytes | None:
        return self._alive().get(key.encode())

    async def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        data = self._alive()
        return [data.get(key.encode()) for key in keys]

    async def set(self, key: str, value: Value, *, ttl_s: float | None = None) -> None:
        self._alive()[key.encode()] = _bytes(value)
        self._ends.pop(key.encode(), None)
        if ttl_s is not None:
            self._ends[key.encode()] = self._now() + ttl_s

    async def delete(self, *keys: str) -> int:
        data = self._alive()
        return sum(data.pop(key.encode(), None) is not None for key in keys)

    async def hget(self, key: str, field: str) -> bytes | None:
        return self._alive().get(key.encode(), {}).get(_field(field))

    async def hgetall(self, key: str) -> dict[bytes, bytes]:
        return dict(self._alive().get(key.encode(), {}))

    async def hgetall_many(self, keys: Sequence[str]) -> list[dict[bytes, bytes]]:
        return [await self.hgetall(key) for key in keys]

    async def hmget(self, key: str, fields: Sequence[str]) -> list[bytes | None]:
        known = self._alive().get(key.encode(), {})
        return [known.get(_field(field)) for field in fields]

    async def hset(self, key: str, mapping: Mapping[str, Value]) -> None:
        if mapping:
            fields = self._alive().setdefault(key.encode(), {})
            fields.update((_field(name), _bytes(value)) for name, value in mapping.items())

    async def hdel(self, key: str, *fields: str) -> int:
        data = self._alive()
        known = data.get(key.encode(), {})
        gone = sum(known.pop(_field(field), None) is not None for field in fields)
        if not known:
            data.pop(key.encode(), None)
        return gone

    async def zrange_by_score(self, key: str, low: float, high: float, *, limit: int = 0) -> list[bytes]:
        scored = sorted((score, member) for member, score in self._alive().get(key.encode(), {}).items())
        found = [member for score, member in scored if low <= score <= high]
        return found[:limit] if limit else found

    def _alive(self) -> dict[bytes, Any]:
        if not self.health.connected:
            raise StoreUnavailable("the store is stopped")
        if self._ends:
            now = self._now()
            for key in [key for key, end in self._ends.items() if end <= now]:
                self._data.pop(key, None)
                del self._ends[key]
        return self._data


def _field(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, float):
        return b"%d" % value if value == int(value) else repr(value).encode()
    return str(value).encode()
