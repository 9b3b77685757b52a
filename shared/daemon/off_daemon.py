"""The process of a daemon that is switched off: an OffDaemon waits for `on` in its place.

The process stays, as its supervisor would start it again anyway. The OffDaemon has an inbox of its own, so that what
others send to the daemon waits for it as it does while a daemon is down. Its ad (MyType DaemonMaster) tells the pool
what is off, since when, and by whom.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from shared.classad import ClassAd
from shared.daemon import orders
from shared.daemon.advertiser import OFF_TYPE, Advertiser
from shared.daemon.base import Daemon
from shared.daemon.context import Context
from shared.daemon.off_mark import OffMark, clear_off_mark, read_off_mark
from shared.errors import RoostError
from shared.messages.ads import SendAds
from shared.messages.base import Ack, Envelope, Failure, Message
from shared.messages.orders import OrderTaken, Reconfigure, Restart, SetConfig, SwitchOff, SwitchOn

#: Seconds between its ads.
UPDATE_S: Final = 60.0


def inbox(subsystem: str, name: str) -> str:
    """Where the OffDaemon of a daemon listens."""
    return f"{subsystem.lower()}.off.{name}"


class OffDaemon(Daemon):
    """Stands in for one daemon: refuses its requests, advertises that it is off, and obeys `on`."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._advertiser = Advertiser(context, OFF_TYPE, subsystem=self.subsystem)

    async def setup(self) -> None:
        await self.context.bus.serve(inbox(self.subsystem, self.context.name), self._on_request)

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"advertise": self._advertise()}

    async def reconfigure(self) -> None:
        """The daemon reads everything as it begins."""

    async def drain(self) -> None:
        await self._advertiser.invalidate()

    async def _on_request(self, envelope: Envelope) -> Message:
        body = envelope.body
        if isinstance(body, SendAds):
            self._advertiser.resend(body)
            return Ack()
        if isinstance(body, SwitchOn):
            return await self._switch_on()
        if isinstance(body, SwitchOff):
            return OrderTaken(said="it is off already")
        if isinstance(body, Reconfigure | Restart):
            return OrderTaken(said="it is off, and reads its configuration when it is switched on")
        if isinstance(body, SetConfig):
            return await orders.handle_order(self, envelope)
        return Failure(code="off", reason=f"it is off; `roost on -{self.subsystem.lower()}` switches it on")

    async def _switch_on(self) -> Message:
        try:
            await orders.check_configuration(self)
            await asyncio.to_thread(clear_off_mark, self.context, self.subsystem)
        except (RoostError, ValueError, OSError) as error:
            return Failure(code="refused", reason=f"it stays off: {error}")
        self.context.log.info("switched_on")
        orders.restart(self)
        return OrderTaken(said="it is on")

    async def _advertise(self) -> None:
        while True:
            await self._advertiser.publish({self._advertiser.daemon: self._ad()})
            await self.context.clock.sleep(UPDATE_S)

    def _ad(self) -> ClassAd:
        context = self.context
        told = read_off_mark(context, self.subsystem) or OffMark(0.0)
        return ClassAd(
            {
                "MyType": OFF_TYPE,
                "Name": self._advertiser.daemon,
                "Machine": context.config.get("FULL_HOSTNAME") or context.name,
                "MyAddress": inbox(self.subsystem, context.name),
                "Subsystem": self.subsystem,
                "DaemonName": context.name,
                "DaemonState": "Off",
                "OffSince": int(told.since),
                "OffBy": told.by,
                "OffReason": told.reason,
            }
        )
