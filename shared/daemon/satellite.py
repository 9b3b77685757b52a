"""A daemon that the pool's other daemons do not wait for: what it shares with them is one ad of its own, and the orders
of an administrator at its inbox, `<subsystem>.<name>`."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Coroutine, Mapping
from typing import Any, ClassVar

from shared.daemon.advertiser import Advertiser
from shared.daemon.base import Daemon
from shared.daemon.clock import set_or_over
from shared.daemon.context import Context
from shared.daemon.orders import obey
from shared.messages.base import Envelope, Message


class Satellite(Daemon):
    """See the module. Who overrides setup, tasks or drain calls these, too."""

    my_type: ClassVar[str]  # of its ad: "Defrag"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.advertiser = Advertiser(context, self.my_type)
        self._untold = asyncio.Event()

    @abstractmethod
    def said(self) -> Mapping[str, object]:
        """What its ad says besides what those of all daemons do."""

    @abstractmethod
    def update_s(self) -> float:
        """Seconds between its ads."""

    def tell(self) -> None:
        """Send the ad at once: what it says has changed."""
        self._untold.set()

    async def setup(self) -> None:
        await self.context.bus.serve(f"{self.subsystem.lower()}.{self.context.name}", self._on_request)

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"advertise": self._advertise()}

    async def drain(self) -> None:
        await self.advertiser.invalidate()

    async def _on_request(self, envelope: Envelope) -> Message:
        return await obey(self, envelope, self.advertiser)

    async def _advertise(self) -> None:
        while True:
            self._untold.clear()
            await self.advertiser.publish({self.context.name: self.advertiser.own_ad(self.said())})
            await set_or_over(self._untold, self.context.clock, self.update_s())
