"""The links to the collectors of CONDOR_VIEW_HOST: a bus for each, and a task that sends it what changed (spec row
COL-09). A view that can not be reached gets everything once it can be; it holds up nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from services.collector.core.forwarding import Outbox
from shared.bus import connect
from shared.bus.api import Bus, Exchange
from shared.daemon.ad_table import AdTable, GroupKey
from shared.daemon.clock import Clock
from shared.errors import RoostError
from shared.messages.ads import ForwardedAds

#: Seconds between looks at what is to be told: many changes of one daemon are told once.
EVERY_S = 1.0
#: Groups told in one go.
STEP = 100


class ViewLinks:
    """All views of one collector, none at first. `name`: its own inbox."""

    def __init__(
        self,
        name: str,
        table: AdTable,
        clock: Clock,
        log: structlog.stdlib.BoundLogger,
        make_bus: Callable[[str, str], Bus] = connect,
    ) -> None:
        self._name = name
        self._make_bus = make_bus
        self._links: dict[str, tuple[Bus, Outbox]] = {}  # by URL
        self._changed = asyncio.Event()
        self._told_others = 0  # views that are none any more
        self._table = table
        self._clock = clock
        self._log = log
        self._wake = asyncio.Event()

    def aim(self, urls: Iterable[str]) -> None:
        """Tell these views from now on, and no others. Raises what making a link raises, and changes nothing then."""
        wanted = list(dict.fromkeys(urls))
        whole_every_s = self._table.lifetime_s / 3
        made = {
            url: (self._make_bus(url, self._name), Outbox(self._name, whole_every_s))
            for url in wanted
            if url not in self._links
        }
        self._told_others += sum(outbox.told for url, (_, outbox) in self._links.items() if url not in wanted)
        self._links = {url: self._links.get(url) or made[url] for url in wanted}
        self._changed.set()

    def __len__(self) -> int:
        return len(self._links)

    @property
    def told(self) -> int:
        """Groups that were told, to all views."""
        return self._told_others + sum(outbox.told for _, outbox in self._links.values())

    @property
    def waiting(self) -> int:
        """Groups that are still to be told."""
        return sum(len(outbox) for _, outbox in self._links.values())

    def note(self, key: GroupKey) -> None:
        """Something was said about this group."""
        for _, outbox in self._links.values():
            outbox.note((key,))

    async def forward(self) -> None:
        """Root task."""
        served: dict[str, tuple[Bus, asyncio.Task[None]]] = {}
        async with asyncio.TaskGroup() as links:
            while True:
                self._changed.clear()
                for url in served.keys() - self._links.keys():
                    bus, task = served.pop(url)
                    task.cancel()
                    await asyncio.gather(task, bus.stop(), return_exceptions=True)
                for url in self._links.keys() - served.keys():
                    bus, outbox = self._links[url]
                    served[url] = bus, links.create_task(self._serve(bus, outbox))
                await self._changed.wait()

    async def stop(self) -> None:
        await asyncio.gather(*(bus.stop() for bus, _ in self._links.values()), return_exceptions=True)

    async def _serve(self, bus: Bus, outbox: Outbox) -> None:
        async def gap() -> None:
            outbox.forget()

        bus.on_gap(gap)
        await bus.start()
        # Nothing is told but what daemons say from now on: among the ads that were read from Redis are those of others.
        while True:
            while len(outbox):
                for message in outbox.take(self._table, STEP, self._clock.now()):
                    if message is None:
                        await asyncio.sleep(0)
                    else:
                        await self._tell(bus, outbox, message)
                await asyncio.sleep(0)
            await self._clock.sleep(EVERY_S)

    async def _tell(self, bus: Bus, outbox: Outbox, message: ForwardedAds) -> None:
        key = (message.my_type, message.daemon)
        while True:
            try:
                await bus.publish(Exchange.ADS, f"forward.{message.my_type}.{message.daemon}", message)
            except RoostError as error:
                self._log.info("not_forwarded", my_type=key[0], of=key[1], reason=str(error))
                outbox.failed(key)
                await self._clock.sleep(EVERY_S)
            return
