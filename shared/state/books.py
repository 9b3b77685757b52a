"""An accountant's books in Redis as a whole: read with their version, written, restored.

The records are the accountant's own business: packed bytes by name here. A version (shared.books) rises with every
write, so that books that went back in time are noticed, and restored from whoever has newer ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.books import NONE, Version, parse
from shared.state import keys
from shared.state.api import Store, StoreUnavailable, Value

#: Records in one run of a script.
BATCH = 5_000
#: Times that books are read which change meanwhile.
ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class StoredBooks:
    """One shard's books: packed records by name."""

    version: Version = NONE
    submitters: Mapping[bytes, bytes] = field(default_factory=dict)
    groups: Mapping[bytes, bytes] = field(default_factory=dict)


async def read_version(store: Store, shard: str) -> Version:
    """NONE where there are no books. Raises StoreUnavailable, BadVersion."""
    return parse(await store.get(keys.accountant_version(shard)))


async def read_books(store: Store, shard: str) -> StoredBooks:
    """All books of a shard as they were at one moment. Raises StoreUnavailable, BadVersion."""
    before = await read_version(store, shard)
    for _ in range(ATTEMPTS):
        submitters = await store.hgetall(keys.accountant(shard))
        groups = await store.hgetall(keys.accountant_groups(shard))
        after = await read_version(store, shard)
        if after == before:
            return StoredBooks(after, submitters, groups)
        before = after
    raise StoreUnavailable(f"the books changed {ATTEMPTS} times while they were read")


async def write_records(
    store: Store, shard: str, epoch: int, base: Version, *, groups: bool, records: Sequence[tuple[str, bytes]]
) -> Version:
    """Write some records (empty bytes: delete it), on books of version `base` or newer. Returns the version after it.
    Raises StaleEpoch, also when the books went back in time."""
    books = keys.accountant_groups(shard) if groups else keys.accountant(shard)
    args: list[Value] = [epoch, base.arg]
    for name, record in records:
        args += [name, record]
    names = [keys.had_epoch(shard), books, keys.accountant_version(shard)]
    return _version(await store.run("accountant_write", names, args, confirm=True))


async def restore_books(store: Store, shard: str, epoch: int, books: StoredBooks) -> Version:
    """Put these in the place of older ones, at once; what is there stays where it is as new. Returns the version after
    it. Raises StaleEpoch."""
    for records, aside in (
        (books.submitters, keys.accountant_aside(shard)),
        (books.groups, keys.accountant_groups_aside(shard)),
    ):
        pairs = list(records.items())
        for start in range(0, max(1, len(pairs)), BATCH):
            args: list[Value] = [epoch, int(start == 0)]
            for name, record in pairs[start : start + BATCH]:
                args += [name, record]
            await store.run("books_stage", [keys.had_epoch(shard), aside], args)
    return await _replace(store, shard, epoch, books.version, replace=True)


async def begin_books(store: Store, shard: str, epoch: int, above: Version) -> Version:
    """Keep the books as they are, or begin new ones, with a version above this one. Raises StaleEpoch."""
    return await _replace(store, shard, epoch, above, replace=False)


async def _replace(store: Store, shard: str, epoch: int, base: Version, *, replace: bool) -> Version:
    names = [
        keys.had_epoch(shard),
        keys.accountant_version(shard),
        keys.accountant(shard),
        keys.accountant_groups(shard),
        keys.accountant_aside(shard),
        keys.accountant_groups_aside(shard),
    ]
    return _version(await store.run("books_replace", names, [epoch, base.arg, int(replace)], confirm=True))


def _version(reply: object) -> Version:
    return parse(reply if isinstance(reply, bytes) else str(reply))
