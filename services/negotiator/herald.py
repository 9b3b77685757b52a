"""Tells the pool what cycles come to, behind their back: no cycle waits for the broker to have heard of the last
one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from shared.bus.api import Exchange, Outgoing
from shared.daemon.context import Context
from shared.errors import RoostError
from shared.messages.events import Event

#: Events that wait for the broker. More than this, and they are lost: cycles go on whoever hears of them.
MOST: Final = 5000
#: In one go.
_STEP: Final = 200


class Herald:
    """Publishes events in their order. `lost`: called when some of them were not."""

    def __init__(self, context: Context, lost: Callable[[], None]) -> None:
        self.context = context
        self._lost = lost
        self._waiting: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.lost = 0  # events that never were published
        context.bus.on_gap(self._on_gap)

    @property
    def waiting(self) -> int:
        """Events that are not published yet."""
        return len(self._waiting)

    async def _on_gap(self) -> None:
        """What was told while there was no broker has waited, but not without bound: all is told anew."""
        self._lost()

    def tell(self, events: Iterable[Event]) -> None:
        self._waiting.extend(events)
        if len(self._waiting) > MOST:
            self.context.log.warning("events_not_told", events=len(self._waiting))
            self.lost += len(self._waiting)
            self._waiting.clear()
            self._lost()
        if self._waiting:
            self._idle.clear()
            self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._some()
            self._idle.set()

    async def drain(self) -> None:
        """Until all is told."""
        await self._idle.wait()

    async def _some(self) -> None:
        part = [self._waiting.popleft() for _ in range(min(_STEP, len(self._waiting)))]
        try:
            await self.context.bus.publish_many([Outgoing(Exchange.EVENTS, event.type, event) for event in part])
        except RoostError as error:
            self.lost += len(part)
            self.context.log.info("event_not_sent", events=len(part), type=part[-1].type, reason=str(error))
            self._lost()
