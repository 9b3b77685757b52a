"""What of a pool lies in Redis and can not be had again: accounting records, tokens, absent machines, and the epochs
that must only grow. Ads and claim ids are left out, as daemons say them anew, and so are leases."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack

from roost.errors import ClientError
from shared.accounting_version import NONE
from shared.state import Store, keys
from shared.state.accounting import read_records, read_version
from shared.state.versions import check, later_than
from shared.stored_versions import ABSENT, ACCOUNTING, ELECTION, TOKENS

#: Hashes besides the accounting records.
_HASHES: Final = (keys.TOKENS, keys.TOKENS_USED, keys.ABSENT)
#: Kinds of all of them, whose versions are kept with them.
_KINDS: Final = (TOKENS, ABSENT, ELECTION, ACCOUNTING)
#: Fields of one write.
_AT_ONCE: Final = 500


@dataclass(slots=True)
class StoredState:
    """strings and hashes by key, as bytes; without the prefix of a shared Redis."""

    strings: dict[str, bytes] = field(default_factory=dict)
    hashes: dict[str, dict[bytes, bytes]] = field(default_factory=dict)

    def pack(self) -> bytes:
        packed: bytes = msgpack.packb([1, self.strings, self.hashes])
        return packed

    @classmethod
    def unpack(cls, data: bytes) -> StoredState:
        """Raises ClientError."""
        try:
            version, strings, hashes = msgpack.unpackb(data, strict_map_key=False)
            if version != 1:
                raise ValueError(f"version {version}")
            found = cls(strings, hashes)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise ClientError(f"state.msgpack can not be read: {error}", "failed") from error
        if why := later_than(found.versions()):
            raise ClientError(f"state.msgpack can not be restored: {why}", "failed")
        return found

    def versions(self) -> dict[str, str]:
        """Those that were written down, by kind."""
        said = {kind: self.strings.get(keys.version(kind)) for kind in _KINDS}
        return {kind: version.decode("utf-8", "replace") for kind, version in said.items() if version is not None}

    def __len__(self) -> int:
        return len(self.strings) + sum(map(len, self.hashes.values()))


async def read(store: Store, shards: Iterable[str]) -> StoredState:
    """shards: names of negotiators that have one (NEGOTIATOR_NAME), "" for those without. Each shard's records are as
    they were at one moment. Raises StoreUnavailable, also for what is of a later release."""
    await check(store, *_KINDS)
    found = StoredState()
    for kind in _KINDS:
        if (version := await store.get(keys.version(kind))) is not None:
            found.strings[keys.version(kind)] = version
    for shard in dict.fromkeys(["", *shards]):
        books = await read_records(store, shard)
        if (epoch := await store.get(keys.had_epoch(shard))) is not None:
            found.strings[keys.had_epoch(shard)] = epoch
        if books.version == NONE:
            continue
        found.strings[keys.accountant_version(shard)] = books.version.arg.encode()
        parts: tuple[tuple[str, Mapping[bytes, bytes]], ...] = (
            (keys.accountant(shard), books.submitters),
            (keys.accountant_groups(shard), books.groups),
            (keys.accountant_claims(shard), books.claims),
        )
        found.hashes |= {key: dict(rows) for key, rows in parts if rows}
    for key in _HASHES:
        if rows := await store.hgetall(key):
            found.hashes[key] = rows
    return found


async def occupied(store: Store, state: StoredState) -> str:
    """Why this store is not to be written to; empty: it has nothing that would be lost. Raises StoreUnavailable, also
    where it has records of a later release."""
    await check(store, *_KINDS)
    shards = [
        key.removeprefix(keys.had_epoch("")).lstrip(":") for key in state.strings if key.startswith(keys.had_epoch(""))
    ]
    for shard in dict.fromkeys(["", *shards]):
        lease = await store.hgetall(keys.had_lease(shard))
        if float(lease.get(b"until", b"0") or 0) > time.time() * 1000:
            return "a HAD holds its lease: stop the pool's HADs and negotiators first"
        if await read_version(store, shard) != NONE:
            return f"it has accounting records already{f' of {shard}' if shard else ''}"
    if await store.hgetall(keys.TOKENS):
        return "it has tokens already"
    return ""


async def write(store: Store, state: StoredState) -> None:
    """Into a store that `occupied` says nothing of. May be done again. Raises StoreUnavailable."""
    for key, rows in state.hashes.items():
        listed: list[tuple[Any, Any]] = list(rows.items())
        for start in range(0, len(listed), _AT_ONCE):
            await store.hset(key, dict(listed[start : start + _AT_ONCE]))
    for key, text in state.strings.items():  # versions last: records without one are none
        await store.set(key, text)
