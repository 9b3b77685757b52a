"""The store of tokens, and the first token: a file that the owner of the pool can read and nobody else."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import msgpack

from services.gateway.core.authorization import ASK, ID_DIGITS, Identity, Token, digest, identify, why_not
from shared.errors import RoostError
from shared.operations import Level
from shared.state import keys
from shared.state.api import Store
from shared.user_names import user_of

#: Answers of the store are remembered for so long, seconds. A change is told to all gateways at once; this bounds what
#: a lost message may do.
_CACHE_S: Final = 5.0
_CACHED: Final = 10_000
#: Tokens that are over are remembered for so long, to say why they do not work.
BURY_S: Final = 30 * 86400.0
#: When each token was used last is written down this often.
USES_S: Final = 10.0

Tell = Callable[[list[str], str], Awaitable[None]]


class TokenStore:
    """Looks tokens up in the store, remembering answers for a few seconds so that a request costs no round trip.

    tell: called with the ids of tokens that changed, and who changed them, so that other gateways forget them.
    uid_domain: completes the users of tokens that were stored without a domain."""

    def __init__(
        self, store: Store, now: Callable[[], float], tell: Tell | None = None, uid_domain: str = "localdomain"
    ) -> None:
        self._store = store
        self.now = now
        self._tell = tell
        self._uid_domain = uid_domain
        self._seen: OrderedDict[str, tuple[float, Token | None]] = OrderedDict()
        self._used: dict[str, float] = {}
        self._changes = 0

    async def look(self, token: str) -> tuple[Identity | None, str]:
        """Whose token this is; None with the reason (empty where no token was given)."""
        if not token:
            return None, ""
        key, now = digest(token), self.now()
        cached = self._seen.get(key)
        if cached is None or cached[0] < now:
            changes = self._changes
            row = await self._store.hget(keys.TOKENS, key)
            cached = (now + _CACHE_S, _decode(row) if row else None)
            if changes == self._changes:  # else this may be how it was before
                self._seen[key] = cached
                self._seen.move_to_end(key)
            if len(self._seen) > _CACHED:  # somebody is guessing
                self._seen.popitem(last=False)
        identity = identify(cached[1], now, key[:ID_DIGITS])
        if identity is None:
            return None, why_not(cached[1], now)
        try:
            # Not everything that is stored was made by a gateway that looks at names.
            identity = replace(identity, user=user_of(identity.user, self._uid_domain))
        except ValueError as error:
            return None, f"no valid token: it stands for a user that is none: {error}; {ASK}"
        self._used[key] = now
        return identity, ""

    async def identity(self, token: str) -> Identity | None:
        return (await self.look(token))[0]

    async def add(self, token: str, what: Token, by: str = "") -> None:
        key = digest(token)
        await self._store.hset(keys.TOKENS, {key: _encode(what)})
        await self._changed([key], by)

    async def create(self, what: Token, by: str = "") -> tuple[str, str]:
        """A new token and its id."""
        await self._bury()
        token = secrets.token_urlsafe(32)
        await self.add(token, replace(what, created=self.now(), by=by), by)
        return token, digest(token)[:ID_DIGITS]

    async def listed(self, *, all: bool = False) -> dict[str, tuple[Token, float]]:
        """Tokens by the first 12 digits of their digest, which `revoke` takes, with their last use (s since 1970, 0:
        never). all: also those that are over."""
        rows, used = await self._store.hgetall(keys.TOKENS), await self._uses()
        found = {key.decode(): _decode(row) for key, row in rows.items()}
        return {
            key[:ID_DIGITS]: (token, used.get(key, 0.0)) for key, token in found.items() if all or not token.revoked
        }

    async def revoke(self, prefix: str, by: str = "", may: Callable[[Token], bool] = lambda _: True) -> int:
        """Returns how many tokens went: those whose digest starts with `prefix` (at least 8 digits), as far as `may`
        says of them."""
        if len(prefix) < 8:
            raise ValueError("name a token by at least 8 digits of its id (see `roost token list`)")
        rows = await self._store.hgetall(keys.TOKENS)
        now = self.now()
        gone = {
            key.decode(): replace(token, revoked=now)
            for key, row in rows.items()
            if key.decode().startswith(prefix) and not (token := _decode(row)).revoked and may(token)
        }
        if gone:
            await self._store.hset(keys.TOKENS, {key: _encode(token) for key, token in gone.items()})
            await self._changed(list(gone), by)
        return len(gone)

    def forget(self, ids: list[str]) -> None:
        """Tokens of these ids have changed: ask the store again."""
        self._changes += 1
        wanted = set(ids)
        for key in [key for key in self._seen if key[:ID_DIGITS] in wanted]:
            del self._seen[key]

    async def _changed(self, digests: list[str], by: str) -> None:
        ids = [key[:ID_DIGITS] for key in digests]
        self.forget(ids)
        if self._tell is not None:
            await self._tell(ids, by)

    async def _bury(self) -> None:
        """Drop tokens that have been over for long."""
        before = self.now() - BURY_S
        rows = {key.decode(): _decode(row) for key, row in (await self._store.hgetall(keys.TOKENS)).items()}
        gone = [key for key, t in rows.items() if 0 < (t.revoked or t.expires) < before]
        if gone:
            await self._store.hdel(keys.TOKENS, *gone)
            await self._store.hdel(keys.TOKENS_USED, *gone)

    async def _uses(self) -> dict[str, float]:
        stored = await self._store.hgetall(keys.TOKENS_USED)
        found = {key.decode(): float(at) for key, at in stored.items()}
        for key, at in self._used.items():
            found[key] = max(at, found.get(key, 0.0))
        return found

    async def run(self) -> None:
        """Write down now and then when tokens were used, until cancelled."""
        while True:
            await asyncio.sleep(USES_S)
            await self.write_uses()

    async def write_uses(self) -> None:
        """What fails is written the next time."""
        used, self._used = self._used, {}
        if used:
            try:
                await self._store.hset(keys.TOKENS_USED, {key: f"{at:.0f}" for key, at in used.items()})
            except RoostError:
                self._used = {**used, **self._used}

    async def bootstrap(self, path: Path, user: str) -> None:
        """Accept the token in `path` as an administrator's; make the file (mode 0600) when there is none."""
        await self.add(_read_or_make(path), Token(user, Level.ADMINISTRATOR, label="bootstrap", created=self.now()))


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


def _encode(token: Token) -> bytes:
    packed: bytes = msgpack.packb(asdict(token))
    return packed


def _decode(row: bytes) -> Token:
    raw = msgpack.unpackb(row)
    return Token(
        raw["user"],
        Level(raw["level"]),
        raw.get("label", ""),
        raw.get("expires", 0.0),
        tuple(raw.get("scopes", ())),
        raw.get("created", 0.0),
        raw.get("by", ""),
        raw.get("revoked", 0.0),
    )
