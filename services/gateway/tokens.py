"""Tokens in the store, and the first one: a file that whoever starts the pool can read and nobody else."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import msgpack

from services.gateway.authorization import Identity, Level, Token, digest, identify
from shared.state import keys
from shared.state.api import Store

_CACHE_S = 5.0


class Tokens:
    """Looks tokens up in the store, remembering answers for a few seconds so that a request costs no round trip."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self.now = now
        self._seen: dict[str, tuple[float, Token | None]] = {}

    async def identity(self, token: str) -> Identity | None:
        key, now = digest(token), self.now()
        cached = self._seen.get(key)
        if cached is None or cached[0] < now:
            row = await self._store.hget(keys.TOKENS, key)
            cached = (now + _CACHE_S, _decode(row) if row else None)
            if len(self._seen) > 10_000:  # somebody is guessing
                self._seen.clear()
            self._seen[key] = cached
        return identify(cached[1], now)

    async def add(self, token: str, what: Token) -> None:
        await self._store.hset(keys.TOKENS, {digest(token): msgpack.packb(asdict(what))})
        self._seen.pop(digest(token), None)

    async def create(self, what: Token) -> str:
        token = secrets.token_urlsafe(32)
        await self.add(token, what)
        return token

    async def listed(self) -> dict[str, Token]:
        """All tokens by the first 12 digits of their digest, which `revoke` takes."""
        rows = await self._store.hgetall(keys.TOKENS)
        return {key.decode()[:12]: _decode(row) for key, row in rows.items()}

    async def revoke(self, prefix: str) -> int:
        """Returns how many tokens went: those whose digest starts with `prefix` (at least 8 digits)."""
        if len(prefix) < 8:
            raise ValueError("name a token by at least 8 digits of its id (see `roost token list`)")
        rows = await self._store.hgetall(keys.TOKENS)
        gone = [key.decode() for key in rows if key.decode().startswith(prefix)]
        self._seen.clear()
        return await self._store.hdel(keys.TOKENS, *gone) if gone else 0

    async def bootstrap(self, path: Path, user: str) -> None:
        """Accept the token in `path` as an administrator's; make the file (mode 0600) when there is none."""
        await self.add(_read_or_make(path), Token(user, Level.ADMINISTRATOR, label="bootstrap"))


def _read_or_make(path: Path) -> str:
    """Once, at start: the loop has nothing else to do yet."""
    try:
        token = path.read_text().strip()
    except FileNotFoundError:
        token = ""
    if not token:
        token = secrets.token_urlsafe(32)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token + "\n")
    return token


def _decode(row: bytes) -> Token:
    raw = msgpack.unpackb(row)
    return Token(raw["user"], Level(raw["level"]), raw.get("label", ""), raw.get("expires", 0.0))
