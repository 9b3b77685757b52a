"""A daemon that no other daemon of the pool waits for: it shares one ad of its own, and takes an administrator's orders
at its inbox, `<subsystem>.<name>`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Coroutine, Mapping
from typing import Any, ClassVar

from shared.daemon.advertiser import Advertiser
from shared.daemon.base import Daemon
from shared.daemon.clock import wait_for_event
from shared.daemon.context import Context
from shared.daemon.orders import handle_order
from shared.messages.base import Envelope, Message


class AuxiliaryDaemon(Daemon):
    """A daemon with an ad of its own, which takes orders at its inbox. Who overrides setup, tasks or drain calls
    these, too."""

    my_type: ClassVar[str]  # of its ad: "Defrag"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.advertiser = Advertiser(context, self.my_type)
        self._advertise_now = asyncio.Event()

    @abstractmethod
    def ad_attributes(self) -> Mapping[str, object]:
        """What its ad says besides what those of all daemons do."""

    @abstractmethod
    def update_interval_s(self) -> float:
        """Seconds between its ads."""

    def advertise_soon(self) -> None:
        """Send the ad at once: what it says has changed."""
        self._advertise_now.set()

    async def setup(self) -> None:
        await self.context.bus.serve(f"{self.subsystem.lower()}.{self.context.name}", self._on_request)

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"advertise": self._advertise()}

    async def drain(self) -> None:
        await self.advertiser.invalidate()

    async def _on_request(self, envelope: Envelope) -> Message:
        return await handle_order(self, envelope, self.advertiser)

    async def _advertise(self) -> None:
        while True:
            self._advertise_now.clear()
            await self.advertiser.publish({self.context.name: self.advertiser.own_ad(self.ad_attributes())})
            await wait_for_event(self._advertise_now, self.context.clock, self.update_interval_s())
