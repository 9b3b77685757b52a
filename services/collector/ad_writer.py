"""Writes the collector's ads to Redis. Changes are collected while a write is under way, so the busier the pool, the
larger the batches.

Nothing here holds the loop for long, whatever daemons say: ads are made ready one by one, with turns of others in
between, and a batch has an end.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from dataclasses import dataclass, field
from itertools import islice

import structlog

from shared.backoff import Backoff
from shared.compression import AdCompressor, train_dictionary
from shared.cooperative import Yielder
from shared.daemon.ad_rows import BadAd
from shared.daemon.ad_table import AdTable, Change, GroupKey
from shared.daemon.clock import Clock
from shared.state import Store, StoreUnavailable
from shared.state.ads import GroupWrite, StoredGroup, write_ads, write_claims

#: Groups in one write, and bytes of ads at which there are enough of them.
BATCH, BATCH_BYTES = 500, 16 << 20
#: Ads written before the first dictionary is made, how many it is made of, and how many there may ever be: the old ones
#: stay, as long as the pool lives, for ads that have not changed since.
LEAST_WRITTEN, SAMPLES, MOST_DICTIONARIES = 1000, 1000, 16
#: Smaller numbers of dictionaries are set aside by Zstandard.
FIRST_NUMBER = 1 << 15
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


class AdWriter:
    """Keeps the copy in Redis up to date with a table."""

    def __init__(
        self, store: Store, clock: Clock, log: structlog.stdlib.BoundLogger, table: AdTable, compressor: AdCompressor
    ) -> None:
        self.written = 0  # groups
        self._table, self._compressor = table, compressor
        self._store = store
        self._clock = clock
        self._log = log
        self._sizes = _Sizes()
        self._unwritten: dict[GroupKey, _Unwritten] = {}
        self._claims: dict[str, tuple[int, int, dict[str, str]]] = {}
        self._in_redis: dict[GroupKey, int] = {}  # content that we know to be there
        self._wake = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Groups and claims that are not in Redis yet."""
        return len(self._unwritten) + len(self._claims)

    def note(self, change: Change) -> None:
        """A message did this."""
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

    def lacks(self, key: GroupKey) -> None:
        """Redis may have nothing of a group, or not all of it."""
        self._unwritten[key] = _Unwritten(None)
        self._wake.set()

    def stands(self, key: GroupKey, content: int) -> None:
        """Redis has a group, as of this content."""
        self._in_redis[key] = content

    def gone(self, key: GroupKey) -> None:
        """A group is no more, in Redis neither."""
        self._in_redis.pop(key, None)
        self._unwritten.pop(key, None)

    def take_claims(self, daemon: str, start_time: int, sequence: int, claims: dict[str, str]) -> None:
        """A startd's claim ids, by slot."""
        known = self._claims.get(daemon)
        if known is None or known[:2] < (start_time, sequence):
            self._claims[daemon] = (start_time, sequence, claims)
            self._wake.set()

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
        taken: list[GroupKey] = []
        writes: list[GroupWrite] = []
        claims, self._claims = self._claims, {}
        turn, size = Yielder(), 0
        try:
            for key in list(islice(self._unwritten, BATCH)):
                change = self._unwritten.pop(key, None)
                if change is None:
                    continue  # it expired meanwhile
                taken.append(key)
                if (write := await self._write_of(key, change, turn)) is not None:
                    writes.append(write)
                    size += sum(map(len, write.group.ads.values()))
                if size >= BATCH_BYTES:
                    break
            lacking = await write_ads(self._store, writes, self._compressor)
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
        if len(self._compressor.numbers) >= MOST_DICTIONARIES:
            return False
        if not self._compressor.current:
            return self._sizes.count >= LEAST_WRITTEN
        return self._sizes.worse()

    async def _make_dictionary(self) -> None:
        """Make a dictionary of some of the ads."""
        rows = [row for _, _, row in self._table.rows()]
        samples = []
        for row in rows[:: max(1, len(rows) // SAMPLES)]:
            with contextlib.suppress(BadAd):
                samples.append(row.packed())
        number = FIRST_NUMBER + secrets.randbelow(2**30)
        made = await asyncio.to_thread(train_dictionary, samples, number)
        self._sizes = _Sizes()
        if made is not None:
            self._compressor.add(number, made, self._clock.now())
            self._log.info("dictionary_made", number=number, bytes=len(made), samples=len(samples))

    async def _write_of(self, key: GroupKey, change: _Unwritten, turn: Yielder) -> GroupWrite | None:
        """What is to be written of a group; others have their turn in between. What they change meanwhile is noted as
        on top of this, and written after it."""
        group = self._table.group(*key)
        if group is None:
            return None
        start_time, sequence, content, heard = group.start_time, group.sequence, group.content, group.heard
        due = group.due(self._table.lifetime_s)
        self._in_redis[key] = content
        names = list(group.rows) if change.base is None else list(change.names)
        gone = sorted(change.gone)
        ads: dict[str, bytes] = {}
        for name in names:
            if (row := group.rows.get(name)) is None:
                continue
            try:
                ads[name] = row.stored()
            except BadAd as error:
                self._log.warning("ad_unreadable", my_type=key[0], of=key[1], ad=name, reason=str(error))
            await turn.yield_if_due()
        self._sizes.add(len(ads), sum(map(len, ads.values())))
        return GroupWrite(StoredGroup(*key, start_time, sequence, content, heard, ads), due, change.base, gone)
