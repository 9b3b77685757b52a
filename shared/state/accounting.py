"""An accountant's records in Redis as a whole: read with their version, written, restored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shared.accounting_version import NONE, BadVersion, Version, parse
from shared.state import keys, versions
from shared.state.api import Store, StoreUnavailable, Value
from shared.stored_versions import ACCOUNTING

#: Records in one run of a script.
BATCH = 5_000
#: Rows in one argument of a script.
_TOGETHER = 1_000
#: Times that books are read which change meanwhile.
ATTEMPTS = 5


#: Field of the claims' hash that says of which books they are: "epoch count until".
_OF = b""
Row = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class StoredRecords:
    """One shard's books: packed records by name. Of `claims` the field "" is for `until`."""

    version: Version = NONE
    submitters: Mapping[bytes, bytes] = field(default_factory=dict)
    groups: Mapping[bytes, bytes] = field(default_factory=dict)
    claims: Mapping[bytes, bytes] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        version: Version,
        submitters: Mapping[bytes, bytes],
        groups: Mapping[bytes, bytes],
        claims: Mapping[bytes, bytes],
        until: float | None,
    ) -> StoredRecords:
        """Books that somebody has in memory. until: as below."""
        if until is None:
            return cls(version, submitters, groups)
        return cls(version, submitters, groups, {**claims, _OF: f"{version.arg} {until!r}".encode()})

    @property
    def until(self) -> float | None:
        """Until when claims that go on were charged, seconds since 1970; None: the claims that lie there are not of
        these books."""
        epoch_and_count, _, until = self.claims.get(_OF, b"").rpartition(b" ")
        try:
            return float(until) if epoch_and_count and parse(epoch_and_count) == self.version else None
        except (ValueError, BadVersion):
            return None


async def read_version(store: Store, shard: str) -> Version:
    """NONE where there are no books. Raises StoreUnavailable, also where they are of a later release (LaterRecords),
    and BadVersion."""
    await versions.check(store, ACCOUNTING)
    return parse(await store.get(keys.accountant_version(shard)))


async def read_records(store: Store, shard: str) -> StoredRecords:
    """All books of a shard as they were at one moment. Raises StoreUnavailable, BadVersion."""
    before = await read_version(store, shard)
    for _ in range(ATTEMPTS):
        submitters = await store.hgetall(keys.accountant(shard))
        groups = await store.hgetall(keys.accountant_groups(shard))
        claims = await store.hgetall(keys.accountant_claims(shard))
        after = await read_version(store, shard)
        if after == before:
            return StoredRecords(after, submitters, groups, claims)
        before = after
    raise StoreUnavailable(f"the books changed {ATTEMPTS} times while they were read")


class Noted(NamedTuple):
    """What Redis's clock, which may have been set, says: seconds since books were written, and seconds since 1970."""

    passed_s: float
    now: float


async def when_written(store: Store, shard: str, version: Version) -> Noted | None:
    """How long ago books of this version were written; None: they are of another one, or nobody noted it."""
    noted = await store.run("accountant_passed", [keys.accountant_written(shard)], [])
    match noted:
        case [bytes(of), bytes(passed_ms), bytes(now_ms)] if of.decode() == version.arg:
            return Noted(float(passed_ms) / 1000.0, float(now_ms) / 1000.0)
    return None


async def write_records(
    store: Store,
    shard: str,
    epoch: int,
    base: Version,
    *,
    until: float | None = None,
    submitters: Sequence[Row] = (),
    groups: Sequence[Row] = (),
    claims: Sequence[Row] = (),
    staged: bool = False,
) -> Version:
    """Write some records (empty bytes: delete it), on books of version `base` or newer, in one step. until: when claims
    that go on are charged until; None: as it was, what is written has to do with none. staged: the claims put aside by
    `stage_claims` take the place of all that are there before. Returns the version after it. Raises StaleEpoch, also
    when the books went back in time."""
    parts = [_parts(rows) for rows in (submitters, groups, claims)]
    till = "" if until is None else repr(until)
    args: list[Value] = [epoch, base.arg, till, int(staged), len(parts[0]), len(parts[1])]
    for part in parts:
        args += part
    names = [
        keys.had_epoch(shard),
        keys.accountant_version(shard),
        keys.accountant(shard),
        keys.accountant_groups(shard),
        keys.accountant_claims(shard),
        keys.accountant_claims_aside(shard),
        keys.accountant_written(shard),
    ]
    return _version(await store.run("accountant_write", names, args, confirm=True))


async def stage_claims(store: Store, shard: str, epoch: int, claims: Iterable[Row]) -> None:
    """Put all claims aside, a part at a time: so many in one step would keep everybody else from Redis for too long.
    Raises StaleEpoch."""
    rows = [(_OF, b"-"), *claims]  # never none: what is aside is there until it is in force
    await _stage(store, shard, epoch, keys.accountant_claims_aside(shard), rows)


async def restore_records(store: Store, shard: str, epoch: int, books: StoredRecords) -> Version:
    """Put these in the place of older ones, at once; what is there stays where it is as new. Returns the version after
    it. Raises StaleEpoch."""
    for records, aside in (
        (books.submitters, keys.accountant_aside(shard)),
        (books.groups, keys.accountant_groups_aside(shard)),
        (books.claims, keys.accountant_claims_aside(shard)),
    ):
        await _stage(store, shard, epoch, aside, list(records.items()))
    return await _replace(store, shard, epoch, books.version, replace=True)


async def _stage(store: Store, shard: str, epoch: int, aside: str, rows: Sequence[Row]) -> None:
    for start in range(0, max(1, len(rows)), BATCH):
        args: list[Value] = [epoch, int(start == 0)]
        for row in rows[start : start + BATCH]:
            args += row
        await store.run("books_stage", [keys.had_epoch(shard), aside], args)


async def begin_records(store: Store, shard: str, epoch: int, above: Version) -> Version:
    """Keep the books as they are, or begin new ones, with a version above this one. Raises StaleEpoch."""
    return await _replace(store, shard, epoch, above, replace=False)


async def _replace(store: Store, shard: str, epoch: int, base: Version, *, replace: bool) -> Version:
    names = [
        keys.had_epoch(shard),
        keys.accountant_version(shard),
        keys.accountant(shard),
        keys.accountant_groups(shard),
        keys.accountant_claims(shard),
        keys.accountant_aside(shard),
        keys.accountant_groups_aside(shard),
        keys.accountant_claims_aside(shard),
    ]
    return _version(await store.run("books_replace", names, [epoch, base.arg, int(replace)], confirm=True))


def _parts(rows: Sequence[Row]) -> list[bytes]:
    """Rows as few arguments: a client, and an embedded Redis even more so, is slow with many."""
    return [
        b"".join(b"%d %d %b%b" % (len(name), len(row), name, row) for name, row in rows[start : start + _TOGETHER])
        for start in range(0, len(rows), _TOGETHER)
    ]


def _version(reply: object) -> Version:
    return parse(reply if isinstance(reply, bytes) else str(reply))
