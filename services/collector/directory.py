"""The ads of the pool: an index in memory that answers, and the same in Redis, so that a restart loses nothing and the
negotiator can start with data (spec rows COL-01 to COL-04).

Every collector receives everything and keeps its own index; all of them write, and scripts in Redis let the newest win.
Changes are collected while a write is under way, so the busier the pool, the larger the batches.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgpack
import structlog
import zstandard

from services.collector.core.acceptance import (
    MACHINE,
    AbsentAd,
    AbsentPolicy,
    absent_ad,
    match_time_patch,
    needs_whole_ad,
    returned,
    with_offline_ads,
)
from services.collector.core.queries import GroupOrder
from shared.backoff import Backoff
from shared.classad.budget import ads_of
from shared.compression import AdCompressor, train_dictionary
from shared.daemon.ad_rows import BadAd
from shared.daemon.ad_table import AdMessage, AdTable, Change, Group, GroupKey, Outcome
from shared.daemon.clock import Clock
from shared.daemon.offline_ads import is_offline
from shared.messages.ads import AdDelta
from shared.state import Store, StoreUnavailable, keys
from shared.state.ads import (
    GroupRemoval,
    GroupWrite,
    StoredGroup,
    forget_claims,
    load_ads,
    load_groups,
    remove_ads,
    write_ads,
    write_claims,
)

#: Groups in one write.
BATCH = 500
#: Ads written before the first dictionary is made, how many it is made of, and how many there may ever be: the old ones
#: stay, as long as the pool lives, for ads that have not changed since.
LEAST_WRITTEN, SAMPLES, MOST_DICTIONARIES = 1000, 1000, 16
#: Smaller numbers of dictionaries are set aside by Zstandard.
FIRST_NUMBER = 1 << 15
#: Of what is read back.
MOST_COLUMNS_BYTES = 1 << 30
#: Ads whose sizes are compared.
WINDOW = 20_000
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0


@dataclass(slots=True)
class _Unwritten:
    """What Redis lacks of a group since `base`; None: all of it."""

    base: int | None
    names: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)


class _Sizes:
    """How long ads are after compression: the first ones with a dictionary, and the last ones."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0
        self._first = 0.0  # mean

    def add(self, ads: int, size: int) -> None:
        self.count += ads
        self._sum += size

    def worse(self) -> bool:
        """Twice as long as at first. Asked at any time; begins anew with each window."""
        if self.count < WINDOW:
            return False
        mean = self._sum / self.count
        self.count = self._sum = 0
        if not self._first:
            self._first = mean
        return mean > 2 * self._first


class AdIndex:
    """The ads in memory: their table, the order of its groups, and absent ads by name. lifetime_s: CLASSAD_LIFETIME."""

    def __init__(self, lifetime_s: float) -> None:
        self.compressor = AdCompressor()
        self.table = AdTable(lifetime_s, self.compressor)
        self.order = GroupOrder(self.table)
        self.absentees: dict[str, AbsentAd] = {}


class StoredColumns:
    """Columns of ads in Redis, by type: a collector that starts need not read all ads anew. Its methods may raise
    StoreUnavailable."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, my_type: str, data: bytes) -> None:
        """Keep the columns of a type, compressed."""
        compressed = await asyncio.to_thread(zstandard.compress, data, 1)
        await self._store.hset(keys.ADS_COLUMNS, {my_type: compressed})

    async def get(self, my_type: str) -> bytes | None:
        """What `put` kept; None where there is nothing, or nothing that can be read."""
        data = await self._store.hget(keys.ADS_COLUMNS, my_type)
        try:
            return None if data is None else await asyncio.to_thread(zstandard.decompress, data, MOST_COLUMNS_BYTES)
        except zstandard.ZstdError:
            return None


class Directory:
    """Keeps the index up to date, and its copy in Redis.

    on_change: told of ads that came or went otherwise than by a message: type, daemon, names."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        log: structlog.stdlib.BoundLogger,
        index: AdIndex,
        policy: AbsentPolicy,
        on_change: Callable[[str, str, Iterable[str]], None] = lambda my_type, daemon, names: None,
    ) -> None:
        self.compressor, self.table, self.order = index.compressor, index.table, index.order
        self.absentees = index.absentees
        self.policy = policy
        self.written = 0  # groups written to Redis
        self._on_change = on_change
        self._store = store
        self._clock = clock
        self._log = log
        self._sizes = _Sizes()
        self._unwritten: dict[GroupKey, _Unwritten] = {}
        self._claims: dict[str, tuple[int, int, dict[str, str]]] = {}
        self._in_redis: dict[GroupKey, int] = {}  # content that we know to be there
        self._absent_changes: set[str] = set()
        self._wake = asyncio.Event()
        self._spared_until = float("-inf")

    # Reading

    async def load(self) -> int:
        """Take in what Redis has; returns the number of ads. Nothing expires for a while, since daemons had
        no way to keep their ads alive if nobody listened."""
        for stored in await load_ads(self._store, compressor=self.compressor):
            self._take(stored)
        for name, value in (await self._store.hgetall(keys.ABSENT)).items():
            daemon, packed, last_heard, expires = msgpack.unpackb(value)
            ad = AbsentAd(name.decode("utf-8", "surrogateescape"), daemon, packed, last_heard, expires)
            self.absentees[ad.name] = ad
        self.spare()
        return len(self.table)

    def spare(self) -> None:
        """Let no ad expire before its daemon had the time to speak again: after a start, or when the bus was
        away."""
        self._spared_until = self._clock.now() + self.table.lifetime_s / 2

    @property
    def waiting(self) -> int:
        """Groups and claims that are not in Redis yet."""
        return len(self._unwritten) + len(self._claims)

    # Taking in

    def apply(self, message: AdMessage) -> Change:
        """Raises BadAd."""
        with ads_of(message.daemon).open():
            return self._apply(message)

    def _apply(self, message: AdMessage) -> Change:
        known = self.table.group(message.my_type, message.daemon)
        now = self._clock.now()
        if self.policy.persistent:
            if (
                known is not None
                and isinstance(message, AdDelta)
                and needs_whole_ad(message, self._touched(known, message), now)
            ):
                return Change(Outcome.MISSING, message.my_type, message.daemon)
            message = with_offline_ads(message, self.policy.offline_s, now)
        lost = self._absent_after(known, message)
        change = self.table.apply(message, now)
        if change.outcome in (Outcome.APPLIED, Outcome.ALIVE):
            if known is None:
                self.order.changed(message.my_type)
            for name in returned(message, self.absentees):
                self._forget_absent(name)
            for ad in lost:
                if ad.name in change.removed:
                    self._remember_absent(ad)
            self._note(change)
        return change

    def matched_offline(self, names: Iterable[str], at: float) -> list[Change]:
        """Jobs match these slots, which sleep: their ads say when that was. Not kept in Redis: while jobs wait the
        negotiator says it again."""
        changes = []
        for name in names:
            for daemon, spelt in self.table.named(MACHINE, name).items():
                group = self.table.group(MACHINE, daemon)
                row = group.rows.get(spelt) if group is not None else None
                try:
                    if group is None or row is None or not is_offline(row.read(), self._clock.now()):
                        continue
                except BadAd:
                    continue
                row.apply(patch := match_time_patch(at))
                changes.append(Change(Outcome.APPLIED, MACHINE, daemon, {spelt: patch}, (), group.content))
        return changes

    def take_claims(self, daemon: str, start_time: int, sequence: int, claims: dict[str, str]) -> None:
        known = self._claims.get(daemon)
        if known is None or known[:2] < (start_time, sequence):
            self._claims[daemon] = (start_time, sequence, claims)
            self._wake.set()

    def expire(self) -> list[tuple[Group, list[str]]]:
        """Groups with names of ads whose time is over; `drop` takes them out."""
        now = self._clock.now()
        return self.table.expired(now) if now >= self._spared_until else []

    async def drop(self, expired: Iterable[tuple[Group, list[str]]]) -> int:
        """Take expired ads out here and in Redis, but for those another collector has heard of. Returns how
        many."""
        now = self._clock.now()
        removals: list[tuple[GroupRemoval, Group]] = []
        for group, names in expired:
            rest = [name for name in group.rows if name not in names]
            until = group.heard + min(group.rows[n].lifetime_s or self.table.lifetime_s for n in rest) if rest else None
            removals.append((GroupRemoval(group.my_type, group.daemon, group.heard, names, until), group))
        count = 0
        silent: list[str] = []
        for start in range(0, len(removals), BATCH):
            batch = removals[start : start + BATCH]
            alive = await remove_ads(self._store, [removal for removal, _ in batch])
            for stored in await load_groups(self._store, [(r.my_type, r.daemon) for r in alive], self.compressor):
                self._take(stored)
            spared = {(r.my_type, r.daemon) for r in alive}
            for removal, group in batch:
                still = self.table.group(*group.key)
                if group.key not in spared and still is not None and still.heard == removal.heard:
                    count += self._lose(still, removal.names, now)
                    if still.my_type == MACHINE and self.table.group(*still.key) is None:
                        silent.append(still.daemon)
        await forget_claims(self._store, silent)
        return count

    async def forget(self, now: float) -> None:
        """Drop absent ads that were remembered long enough (ABS-04, ABS-08)."""
        for ad in [ad for ad in self.absentees.values() if ad.expires and ad.expires <= now]:
            self._forget_absent(ad.name)
        await self._write_absent()

    # Writing

    async def keep_written(self) -> None:
        """Root task: write what changed, for ever. An unreachable Redis is waited for; nothing is dropped."""
        backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
        while True:
            if not self.waiting:
                await self._wake.wait()
            self._wake.clear()
            try:
                await self.write_some()
            except StoreUnavailable as error:
                self._log.warning("ads_not_written", waiting=self.waiting, reason=str(error))
                await self._clock.sleep(backoff.next_s())
            else:
                backoff.reset()

    async def write_some(self) -> None:
        """One batch. Raises StoreUnavailable; then it is still to be written."""
        if self._needs_dictionary():
            await self._make_dictionary()
        taken = dict(list(self._unwritten.items())[:BATCH])
        claims, self._claims = self._claims, {}
        for key in taken:
            del self._unwritten[key]
        writes = [write for key, change in taken.items() if (write := self._write_of(key, change)) is not None]
        # What comes in from here on stands on what is being written.
        for write in writes:
            self._in_redis[write.group.my_type, write.group.daemon] = write.group.content
        try:
            lacking = await write_ads(self._store, writes, self.compressor)
            await write_claims(self._store, claims)
        except BaseException:
            for key in taken:
                self._unwritten[key] = _Unwritten(None)
            self._claims = claims | self._claims
            raise
        for write in lacking:
            self._unwritten[write.group.my_type, write.group.daemon] = _Unwritten(None)
        self.written += len(writes) - len(lacking)

    def _needs_dictionary(self) -> bool:
        """Whether it is time for a new dictionary: there is none and there are enough ads, or ads as they come now are
        twice as long after compression as those for which the last one was made."""
        if len(self.compressor.numbers) >= MOST_DICTIONARIES:
            return False
        if not self.compressor.current:
            return self._sizes.count >= LEAST_WRITTEN
        return self._sizes.worse()

    async def _make_dictionary(self) -> None:
        """Make a dictionary of some of the ads."""
        rows = [row for _, _, row in self.table.rows()]
        samples = []
        for row in rows[:: max(1, len(rows) // SAMPLES)]:
            with contextlib.suppress(BadAd):
                samples.append(row.packed())
        number = FIRST_NUMBER + secrets.randbelow(2**30)
        made = await asyncio.to_thread(train_dictionary, samples, number)
        self._sizes = _Sizes()
        if made is not None:
            self.compressor.add(number, made, self._clock.now())
            self._log.info("dictionary_made", number=number, bytes=len(made), samples=len(samples))

    def _write_of(self, key: GroupKey, change: _Unwritten) -> GroupWrite | None:
        group = self.table.group(*key)
        if group is None:
            return None
        names = list(group.rows) if change.base is None else [name for name in change.names if name in group.rows]
        ads: dict[str, bytes] = {}
        for name in names:
            try:
                ads[name] = group.rows[name].stored()
            except BadAd as error:
                self._log.warning("ad_unreadable", my_type=key[0], of=key[1], ad=name, reason=str(error))
        self._sizes.add(len(ads), sum(map(len, ads.values())))
        stored = StoredGroup(*key, group.start_time, group.sequence, group.content, group.heard, ads)
        return GroupWrite(stored, group.due(self.table.lifetime_s), change.base, sorted(change.gone))

    def _note(self, change: Change) -> None:
        key = (change.my_type, change.daemon)
        unwritten = self._unwritten.get(key)
        if unwritten is None:
            base = self._in_redis.get(key) if change.base is not None else None
            unwritten = self._unwritten[key] = _Unwritten(base)
        if change.base is None:
            unwritten.base = None
        if unwritten.base is not None:
            unwritten.names |= change.updated.keys()
            unwritten.names -= set(change.removed)
            unwritten.gone -= change.updated.keys()
            unwritten.gone |= set(change.removed)
        self._wake.set()

    # How

    def _take(self, stored: StoredGroup) -> None:
        known = self.table.group(stored.my_type, stored.daemon)
        self.table.load(
            stored.my_type,
            stored.daemon,
            start_time=stored.start_time,
            sequence=stored.sequence,
            content=stored.content,
            heard=stored.heard,
            ads=stored.ads,
        )
        if known is None:
            self.order.changed(stored.my_type)
        self._on_change(stored.my_type, stored.daemon, {**stored.ads, **(known.rows if known is not None else {})})
        self._in_redis[stored.my_type, stored.daemon] = stored.content

    def _lose(self, group: Group, names: Iterable[str], now: float) -> int:
        names = list(names)
        budget = ads_of(group.daemon)
        for name in names:
            with budget.open():
                ad = self._absent(group, name, now)
            if ad is not None:
                self._remember_absent(ad)
        self.table.remove(*group.key, names)
        self._on_change(*group.key, names)
        if self.table.group(*group.key) is None:
            self._in_redis.pop(group.key, None)
            self._unwritten.pop(group.key, None)
            self.order.changed(group.my_type)
        return len(names)

    def _touched(self, group: Group, message: AdDelta) -> dict[str, bytes]:
        """The ads that a change is about, as far as they can be read."""
        found = {}
        for name in message.names:
            row = group.rows.get(name)
            try:
                if row is not None:
                    found[name] = row.packed()
            except BadAd:
                continue
        return found

    def _absent_after(self, group: Group | None, message: AdMessage) -> list[AbsentAd]:
        """What would be remembered of the ads that an invalidation takes (ABS-06)."""
        if group is None or not self.policy.invalidated_too or message.type != "ads.invalidate":
            return []
        now = self._clock.now()
        found = []
        for name in group.rows:
            ad = self._absent(group, name, now)
            if ad is not None:
                found.append(ad)
        return found

    def _absent(self, group: Group, name: str, now: float) -> AbsentAd | None:
        try:
            packed = group.rows[name].packed()
        except BadAd:
            return None
        return absent_ad(self.policy, group.my_type, name, group.daemon, packed, group.heard, now)

    def _remember_absent(self, ad: AbsentAd) -> None:
        self.absentees[ad.name] = ad
        self._absent_changes.add(ad.name)

    def _forget_absent(self, name: str) -> None:
        self.absentees.pop(name, None)
        self._absent_changes.add(name)

    async def _write_absent(self) -> None:
        changes, self._absent_changes = self._absent_changes, set()
        try:
            gone = [name for name in changes if name not in self.absentees]
            kept = [self.absentees[name] for name in changes if name in self.absentees]
            await self._store.hdel(keys.ABSENT, *gone)
            await self._store.hset(
                keys.ABSENT,
                {ad.name: msgpack.packb([ad.daemon, ad.packed, ad.last_heard, ad.expires]) for ad in kept},
            )
        except BaseException:
            self._absent_changes |= changes
            raise
