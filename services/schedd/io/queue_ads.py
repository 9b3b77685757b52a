"""The ads of a schedd: one for itself, and one for each submitter of its jobs, to its own pool and to those where these
flock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from engine.queue.submitters import Elsewhere, Identity, schedd_ad, submitter_ad
from services.schedd.core.flocking import elsewhere, running_by_pool
from services.schedd.io.cron import ScheddCron
from services.schedd.io.file_server import FileServer
from services.schedd.io.flocking import Pools
from services.schedd.io.job_updates import JobUpdates
from shared.classad import ClassAd
from shared.daemon.advertiser import Advertiser
from shared.daemon.pace import Pace
from shared.messages.ads import SendAds
from shared.version import VERSION

#: Counts that only go down, or move between running and held, are told this much later, many at a time; the second of
#: these, in seconds, where jobs start and end all the time.
COALESCE_S: Final = (0.2, 1.0)


class QueueAds:
    """Publishes them. pools: those of FLOCK_TO, if there are any. file_server, statistics and cron have what the ad of
    the schedd says besides the counts of its queue."""

    def __init__(
        self,
        updates: JobUpdates,
        pools: Pools | None,
        file_server: FileServer,
        statistics: Callable[[], dict[str, object]],
        cron: ScheddCron,
    ) -> None:
        context = updates.context
        self._updates = updates
        self._table = updates.table
        self._pools = pools
        self._file_server = file_server
        self._statistics = statistics
        self._cron = cron
        self._submitters = Advertiser(context, "Submitter", subsystem="SCHEDD")
        self._schedd = Advertiser(context, "Scheduler", subsystem="SCHEDD")
        self._identity = Identity(
            schedd=context.name,
            inbox=f"schedd.{context.name}",
            machine=context.config.get("FULL_HOSTNAME") or context.name,
            start_time=self._submitters.start_time,
            release=VERSION,
        )

    @property
    def inbox(self) -> str:
        """Where the schedd is spoken to, as its ads say."""
        return self._identity.inbox

    def resend(self, asked: SendAds) -> None:
        """Somebody missed some of our ads."""
        for my_type, advertiser in (("Submitter", self._submitters), ("Scheduler", self._schedd)):
            if asked.my_type in ("", my_type):
                advertiser.resend(asked)

    async def drain(self) -> None:
        """Nobody should negotiate with us or look for us any more."""
        await self._submitters.invalidate()
        await self._schedd.invalidate()
        if self._pools is not None:
            await self._pools.drain()

    async def run(self) -> None:
        """Root task. Submitter ads: at once when there is more to do, a little later for all else, and every
        interval."""
        updates, clock, pace = self._updates, self._updates.context.clock, Pace(*COALESCE_S)
        while True:
            updates.demand_grew.clear()
            updates.counts_changed.clear()
            await self._publish()
            settings = updates.settings
            await clock.sleep(min(settings.min_interval_s, settings.update_interval_s))
            grew = asyncio.ensure_future(updates.demand_grew.wait())
            changed = asyncio.ensure_future(updates.counts_changed.wait())
            try:
                done, _ = await asyncio.wait(
                    (grew, changed), timeout=settings.update_interval_s, return_when=asyncio.FIRST_COMPLETED
                )
                if done and grew not in done:
                    await asyncio.wait((grew,), timeout=pace.wait_s(clock.monotonic()))
                    pace.told(clock.monotonic())
            finally:
                for waiting in (grew, changed):
                    waiting.cancel()
                await asyncio.gather(grew, changed, return_exceptions=True)

    async def _publish(self) -> None:
        runs = running_by_pool(self._updates.claims.claims.values()) if self._pools is not None else {}
        ads: dict[str, ClassAd] = {}
        for name, count in list(self._table.counts.items()):
            if count.total:
                ads[name] = self._submitter_ad(name, elsewhere(runs.get(name, {}), ""))
            else:
                del self._table.counts[name]
        await self._submitters.publish(ads)
        if self._pools is not None:
            waiting = frozenset(name for name in ads if self._table.demand(name)[0])
            await self._pools.publish(waiting, runs, self._submitter_ad)
        mine = schedd_ad(
            self._identity,
            self._table.counts.values(),
            transfer_url=self._file_server.url,
            max_jobs=self._updates.settings.max_jobs_running,
            extra=self._statistics(),
        )
        mine.update(self._cron.attributes())
        await self._schedd.publish({self._identity.schedd: mine})

    def _submitter_ad(self, name: str, elsewhere: Elsewhere) -> ClassAd:
        idle, weighted = self._table.demand(name)
        count = self._table.count(name)
        return submitter_ad(self._identity, name, count, idle=idle, weighted_idle=weighted, elsewhere=elsewhere)
