"""The ads of the pool: an index in memory that answers, and the same in Redis, so that a restart loses nothing and the
negotiator can start with data (spec rows COL-01 to COL-04).

Every collector receives everything and keeps its own index; all of them write (`ad_writer`), and scripts in Redis let
the newest win.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence

import msgpack
import structlog
import zstandard

from services.collector.ad_writer import AdWriter
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
from shared.classad.budget import ads_of
from shared.compression import AdCompressor
from shared.cooperative import Yielder, at_once, in_turns
from shared.daemon.ad_rows import BadAd
from shared.daemon.ad_table import AdMessage, AdTable, Change, Group, Outcome
from shared.daemon.clock import Clock
from shared.daemon.offline_ads import is_offline
from shared.messages.ads import AdDelta
from shared.state import Store, keys
from shared.state.ads import (
    GroupRemoval,
    StoredGroup,
    forget_claims,
    load_ads,
    load_groups,
    remove_ads,
)

#: Of what is read back.
MOST_COLUMNS_BYTES = 1 << 30
#: Groups whose expired ads are taken out together.
BATCH = 500


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
        self.writer = AdWriter(store, clock, log, index.table, index.compressor)
        self._on_change = on_change
        self._store = store
        self._clock = clock
        self._log = log
        self._absent_changes: set[str] = set()
        self._taking_in = asyncio.Lock()
        self._spared_until = float("-inf")

    # Reading

    async def load(self) -> int:
        """Take in what Redis has; returns the number of ads. Nothing expires for a while, since daemons had
        no way to keep their ads alive if nobody listened."""
        turn = Yielder()
        for stored in await load_ads(self._store, compressor=self.compressor):
            self._take(stored)
            await turn.yield_if_due()
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

    # Taking in

    def apply(self, message: AdMessage) -> Change:
        """Raises BadAd."""
        return at_once(ads_of(message.daemon).over(self._steps(message)))

    async def take_in(self, message: AdMessage) -> Change:
        """The same; others have their turn in between, but for other messages of ads. Raises BadAd."""
        async with self._taking_in:  # the second copy of a large one finds that there is nothing to do
            return await in_turns(ads_of(message.daemon).over(self._steps(message)))

    def _steps(self, message: AdMessage) -> Generator[None, None, Change]:
        now = self._clock.now()
        if self.policy.persistent:
            known = self.table.group(message.my_type, message.daemon)
            if known is not None and (yield from needs_whole_ad(message, self._touched(known, message), now)):
                return Change(Outcome.MISSING, message.my_type, message.daemon)
            message = yield from with_offline_ads(message, self.policy.offline_s, now)
        lost = yield from self._absent_after(message)
        new = self.table.group(message.my_type, message.daemon) is None
        change = yield from self.table.steps(message, now)
        if change.outcome in (Outcome.APPLIED, Outcome.ALIVE):
            if new:
                self.order.changed(message.my_type)
            for name in returned(message, self.absentees):
                self._forget_absent(name)
            for ad in lost:
                if ad.name in change.removed:
                    self._remember_absent(ad)
            self.writer.note(change)
        return change

    def matched_offline(self, name: str, at: float) -> list[Change]:
        """Jobs match this slot, which sleeps: its ad says when that was. Not kept in Redis: while jobs wait the
        negotiator says it again."""
        changes = []
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
            over = frozenset(names)
            rest = [name for name in group.rows if name not in over]
            until = group.heard + min(group.rows[n].lifetime_s or self.table.lifetime_s for n in rest) if rest else None
            removals.append((GroupRemoval(group.my_type, group.daemon, group.heard, names, until), group))
        count = 0
        silent: list[str] = []
        turn = Yielder()
        for start in range(0, len(removals), BATCH):
            batch = removals[start : start + BATCH]
            alive = await remove_ads(self._store, [removal for removal, _ in batch])
            for stored in await load_groups(self._store, [(r.my_type, r.daemon) for r in alive], self.compressor):
                self._take(stored)
            spared = {(r.my_type, r.daemon) for r in alive}
            for removal, group in batch:
                still = self.table.group(*group.key)
                if group.key in spared or still is None or still.heard != removal.heard:
                    continue
                absent = [ad async for ad in self._absent_of(still, removal.names, now, turn)]
                if self.table.group(*still.key) is not still or still.heard != removal.heard:
                    self.writer.lacks(still.key)  # it spoke meanwhile, and Redis has it no more
                    continue
                count += self._lose(still, removal.names, absent)
                if still.my_type == MACHINE and self.table.group(*still.key) is None:
                    silent.append(still.daemon)
        await forget_claims(self._store, silent)
        return count

    async def forget(self, now: float) -> None:
        """Drop absent ads that were remembered long enough (ABS-04, ABS-08)."""
        for ad in [ad for ad in self.absentees.values() if ad.expires and ad.expires <= now]:
            self._forget_absent(ad.name)
        await self._write_absent()

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
        self.writer.stands((stored.my_type, stored.daemon), stored.content)

    async def _absent_of(
        self, group: Group, names: Iterable[str], now: float, turn: Yielder
    ) -> AsyncIterator[AbsentAd]:
        """What will be remembered of these ads; others have their turn in between."""
        budget = ads_of(group.daemon)
        for name in names:
            with budget.open():
                ad = self._absent(group, name, now)
            if ad is not None:
                yield ad
            await turn.yield_if_due()

    def _lose(self, group: Group, names: Sequence[str], absent: Iterable[AbsentAd]) -> int:
        for ad in absent:
            self._remember_absent(ad)
        self.table.remove(*group.key, names)
        self._on_change(*group.key, names)
        if self.table.group(*group.key) is None:
            self.writer.gone(group.key)
            self.order.changed(group.my_type)
        return len(names)

    def _touched(self, group: Group, message: AdMessage) -> Iterator[bytes]:
        """The ads that a change is about, as far as they can be read."""
        for name in message.names if isinstance(message, AdDelta) else ():
            row = group.rows.get(name)
            with contextlib.suppress(BadAd):
                if row is not None:
                    yield row.packed()

    def _absent_after(self, message: AdMessage) -> Generator[None, None, list[AbsentAd]]:
        """What would be remembered of the ads that an invalidation takes (ABS-06)."""
        group = self.table.group(message.my_type, message.daemon)
        if group is None or not self.policy.invalidated_too or message.type != "ads.invalidate":
            return []
        now = self._clock.now()
        found = []
        for name in list(group.rows):
            ad = self._absent(group, name, now)
            if ad is not None:
                found.append(ad)
            yield
        return found

    def _absent(self, group: Group, name: str, now: float) -> AbsentAd | None:
        if self.policy.requirements is None or (row := group.rows.get(name)) is None:
            return None
        try:
            packed = row.packed()
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
