"""Samples the pool through the collector: how many slots and jobs there are in each state, and what slots offer.
Between two samples events tell what happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Final, TypeVar

from services.journal.core.rows import (
    JOBS,
    Fingerprint,
    Row,
    fingerprint,
    job_rows,
    jobs_of,
    offered_ad,
    slot_rows,
)
from services.journal.store import SAMPLES, SLOTS, JournalUnavailable, Store
from shared.backoff import Backoff
from shared.classad import ClassAd
from shared.config.knobs import JournalSettings
from shared.daemon.clock import wait_for_event
from shared.daemon.context import Context
from shared.daemon.pool_ads import made_of_pool_ads
from shared.errors import RoostError
from shared.messages.ads import AdCounts, CountAds

_NOT_DYNAMIC: Final = "DynamicSlot =!= true"
#: Up to so many slots that changed are asked for by name; of more all are read.
_BY_NAME: Final = 50

T = TypeVar("T")


class PoolSampler:
    """Records how many slots and jobs there are, and what slots offer."""

    def __init__(self, context: Context, store: Store, settings: JournalSettings) -> None:
        self.context = context
        self.store = store
        self.settings = settings
        self._known: dict[str, Fingerprint] = {}
        self._sample_now, self._look_now = asyncio.Event(), asyncio.Event()

    def configure(self, settings: JournalSettings) -> None:
        """Go by these from now on, and look at once: an interval of before may be a long one."""
        self.settings = settings
        for now in (self._sample_now, self._look_now):
            now.set()

    async def sample(self) -> None:
        """How many there are of each state, until cancelled."""
        clock = self.context.clock
        growing = Backoff(1.0, self.settings.roost_journal_sample_interval)  # at first often: people look at a new pool
        while True:
            await wait_for_event(self._sample_now, clock, growing.next_s())
            self._sample_now.clear()
            growing.cap_s = self.settings.roost_journal_sample_interval
            try:
                rows = await self._samples(clock.now())
                await self.store.add(SAMPLES, rows)
            except RoostError as error:
                self.context.log.info("pool_not_sampled", reason=str(error))

    async def _samples(self, at: float) -> list[Row]:
        counted = await self.context.bus.call(
            "collector", CountAds(my_type="Machine", by=["State", "PartitionableSlot", "Cpus"])
        )
        assert isinstance(counted, AdCounts)
        rows = slot_rows(at, zip(counted.values, counted.counts, strict=True))
        jobs = self._made_of("Submitter", jobs_of, JOBS.values())
        return rows + job_rows(at, [counts async for page in jobs for counts in page])

    async def watch_slots(self) -> None:
        """What slots offer, until cancelled."""
        clock = self.context.clock
        growing = Backoff(1.0, self.settings.roost_journal_slots_interval)  # at first often: a pool is coming up
        while True:
            await wait_for_event(self._look_now, clock, growing.next_s())
            self._look_now.clear()
            growing.cap_s = self.settings.roost_journal_slots_interval
            try:
                await self.look_at_slots(clock.now())
            except RoostError as error:
                self.context.log.info("slots_not_recorded", reason=str(error))

    async def look_at_slots(self, at: float) -> None:
        """Write down what has changed since the last look."""
        seen: dict[str, Fingerprint] = {}
        async for found in self._made_of("Machine", fingerprint, Fingerprint.ATTRIBUTES, _NOT_DYNAMIC):
            seen.update((one.name, one) for one in found if one is not None)
        changed = [name for name, found in seen.items() if self._known.get(name) != found]
        gone = [name for name in self._known if name not in seen]
        rows: list[Row] = [{"slot": name, "at": at, "ad": b""} for name in gone]
        told: set[str] = set()
        async for page in self._whole(changed):
            for name, ad in page:
                if name in seen and name not in told:
                    told.add(name)
                    rows.append({"slot": name, "at": at, "ad": ad})
        try:
            await self.store.add(SLOTS, rows)
        except JournalUnavailable:
            return  # they differ from what is known at the next look too
        for name in gone:
            del self._known[name]
        self._known.update((name, seen[name]) for name in told)

    async def _whole(self, names: Sequence[str]) -> AsyncIterator[list[tuple[str, bytes]]]:
        """Names and ads of these slots, and maybe of others."""
        if not names:
            return
        constraint = _NOT_DYNAMIC
        if len(names) <= _BY_NAME:
            quoted = (name.replace("\\", "\\\\").replace('"', '\\"') for name in names)
            constraint = " || ".join(f'Name == "{name}"' for name in quoted)
        async for page in self._made_of("Machine", lambda ad: (ad.eval_string("Name"), offered_ad(ad)), (), constraint):
            yield page

    def _made_of(
        self, my_type: str, make: Callable[[ClassAd], T], projection: Iterable[str], constraint: str = ""
    ) -> AsyncIterator[list[T]]:
        return made_of_pool_ads(self.context.bus, my_type, make, constraint=constraint, projection=tuple(projection))
