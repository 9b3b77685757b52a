"""Samples the pool through the collector: how many slots and jobs there are in each state, and what slots offer.
Between two samples events tell what happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from services.journal.core.rows import Fingerprint, Row, fingerprint, job_rows, offered_ad, slot_rows
from services.journal.store import SAMPLES, SLOTS, JournalUnavailable, Store
from shared.backoff import Backoff
from shared.classad import ClassAd
from shared.config.knobs import JournalSettings
from shared.daemon.clock import wait_for_event
from shared.daemon.context import Context
from shared.errors import RoostError
from shared.messages.ads import AdCounts, AdPage, CountAds, QueryAds

#: Ads in one page.
_PAGE: Final = 2000
#: Up to so many slots that changed are asked for by name; of more all are read.
_BY_NAME: Final = 50


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
        submitters = [
            ad async for page in self._ads("Submitter", ["IdleJobs", "RunningJobs", "HeldJobs"]) for ad in page
        ]
        return rows + job_rows(at, submitters)

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
        async for page in self._ads("Machine", list(Fingerprint.ATTRIBUTES), "DynamicSlot =!= true"):
            for ad in page:
                found = fingerprint(ad)
                if found is not None:
                    seen[found.name] = found
        changed = [name for name, found in seen.items() if self._known.get(name) != found]
        gone = [name for name in self._known if name not in seen]
        rows: list[Row] = [{"slot": name, "at": at, "ad": b""} for name in gone]
        told: set[str] = set()
        async for page in self._whole(changed):
            for ad in page:
                name = ad.eval_string("Name")
                if name in seen and name not in told:
                    told.add(name)
                    rows.append({"slot": name, "at": at, "ad": offered_ad(ad)})
        try:
            await self.store.add(SLOTS, rows)
        except JournalUnavailable:
            return  # they differ from what is known at the next look too
        for name in gone:
            del self._known[name]
        self._known.update((name, seen[name]) for name in told)

    async def _whole(self, names: Sequence[str]) -> AsyncIterator[list[ClassAd]]:
        if not names:
            return
        constraint = "DynamicSlot =!= true"
        if len(names) <= _BY_NAME:
            quoted = (name.replace("\\", "\\\\").replace('"', '\\"') for name in names)
            constraint = " || ".join(f'Name == "{name}"' for name in quoted)
        async for page in self._ads("Machine", [], constraint):
            yield page

    async def _ads(self, my_type: str, projection: list[str], constraint: str = "") -> AsyncIterator[list[ClassAd]]:
        after: Any = ""
        while True:
            page = await self.context.bus.call(
                "collector",
                QueryAds(my_types=[my_type], projection=projection, constraint=constraint, limit=_PAGE, after=after),
                timeout=30.0,
            )
            assert isinstance(page, AdPage)
            yield [ClassAd.unpack(packed) for packed in page.ads]
            if not page.next:
                return
            after = page.next
