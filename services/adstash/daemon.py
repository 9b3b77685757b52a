"""Adstash: exports the histories of the pool's jobs to Elasticsearch, OpenSearch, or files of JSON lines, each record
once (spec rows MON-17 to MON-20). Nobody waits for it; what it has not exported stays in the histories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from prometheus_client.core import Metric

from services.adstash.exporter import Exporter
from services.adstash.making import files_of, target_of
from services.adstash.sources import ScheddHistory, Source, jobs_by_bus, schedds
from services.adstash.target import Target
from shared.config.knobs import AdstashSettings
from shared.daemon.clock import set_or_over
from shared.daemon.context import Context
from shared.daemon.measures import Source as Measures
from shared.daemon.measures import counter, gauge
from shared.daemon.satellite import Satellite
from shared.errors import RoostError

#: What could not be exported is tried again after so many seconds, or the interval if that is shorter.
RETRY_S: Final = 60.0


class Adstash(Satellite):
    """See the module."""

    subsystem: ClassVar[str] = "ADSTASH"
    my_type: ClassVar[str] = "Adstash"
    at_start: ClassVar[tuple[str, ...]] = ("ADSTASH_CHECKPOINT_FILE",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = AdstashSettings.from_config(context.config)
        self.target: Target = target_of(self.settings, context.clock, context.log)
        self.exporter = Exporter(
            self.target, Path(self.settings.adstash_checkpoint_file), self.settings.adstash_se_bunch_size, context.log
        )
        self._old: list[Target] = []  # that a pass may still use
        self.passes = self.failures = 0
        self.newest = 0.0
        self.trouble = ""
        self._again = asyncio.Event()
        self._whole = asyncio.Lock()  # a pass, or a change of the target
        context.metrics.register(_Metrics(self))

    async def setup(self) -> None:
        """Raises PermanentError for a checkpoint that can not be used."""
        await self.exporter.read_checkpoint()
        await super().setup()

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"export": self._export(), **super().tasks()}

    async def reconfigure(self) -> None:
        fresh = AdstashSettings.from_config(self.context.config)
        target = target_of(fresh, self.context.clock, self.context.log)
        target.counts = self.target.counts
        self.settings = fresh
        before, self.target = self.target, target
        self._again.set()
        self._old.append(before)  # a pass may be under way: the next one closes it

    async def close(self) -> None:
        for target in (*self._old, self.target):
            await target.close()

    def ready(self) -> str:
        return self.trouble

    async def _export(self) -> None:
        clock = self.context.clock
        while True:
            self._again.clear()
            began = clock.monotonic()
            await self.look()
            interval = float(self.settings.adstash_sample_interval)
            pause = min(RETRY_S, interval) if self.trouble else interval - (clock.monotonic() - began)
            await set_or_over(self._again, clock, max(1.0, pause))

    async def look(self) -> None:
        """One pass over all sources."""
        async with self._whole:
            while self._old:
                await self._old.pop().close()
            self.exporter.target, self.exporter.bunch = self.target, self.settings.adstash_se_bunch_size
            try:
                passed = await self.exporter.run(await self._sources())
                self.trouble = "; ".join(f"{name}: {reason}" for name, reason in passed.problems.items())
                records = passed.records
            except RoostError as error:
                self.trouble, records = f"the pool's schedds are not known: {error}", 0
        self.passes += 1
        if self.trouble:
            self.failures += 1
            self.context.log.warning("not_exported", reason=self.trouble, records=records)
        else:
            self.newest = self.context.clock.now()
            self.context.log.info("exported", records=records)

    async def _sources(self) -> list[Source]:
        settings, bus = self.settings, self.context.bus
        found: list[Source] = []
        if settings.adstash_schedd_history:
            known = await schedds(bus)
            wanted = settings.adstash_read_schedds
            for name in sorted(known if "*" in wanted else known.keys() & set(wanted)):
                found.append(ScheddHistory(name, partial(jobs_by_bus, bus, known[name])))
        return found + files_of(settings, self.context.spool, self.context.name)

    def update_s(self) -> float:
        return float(self.settings.master_update_interval)

    def said(self) -> Mapping[str, object]:
        return {
            "AdstashRecords": self.exporter.records,
            "AdstashRefused": self.target.counts.refused,
            "AdstashNewest": int(self.newest),
            "AdstashProblem": self.trouble,
        }


class _Metrics(Measures):
    """What adstash measures of itself."""

    def __init__(self, adstash: Adstash) -> None:
        self._adstash = adstash

    def collect(self) -> Iterator[Metric]:
        adstash, counts = self._adstash, self._adstash.target.counts
        yield counter("roost_adstash_passes", "Passes over all histories", adstash.passes)
        yield counter("roost_adstash_failures", "Passes that did not export all", adstash.failures)
        yield counter("roost_adstash_records", "Records exported that were not there before", counts.exported)
        yield counter("roost_adstash_records_again", "Records sent that were there already", counts.there)
        yield counter("roost_adstash_records_refused", "Records that the server will never take", counts.refused)
        yield counter("roost_adstash_records_bare", "Records exported without attributes of their users", counts.bare)
        unreadable = "Records of histories that can not be read"
        yield counter("roost_adstash_records_unreadable", unreadable, adstash.exporter.unreadable)
        newest = "Time of the newest pass that exported all, seconds since 1970; 0: none yet"
        yield gauge("roost_adstash_newest_seconds", newest, adstash.newest)
