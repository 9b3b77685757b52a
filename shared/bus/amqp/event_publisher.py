"""The events of a daemon on RabbitMQ, from their publishing until the broker has them: the outbox and the spool
(shared.bus.outbox, shared.bus.spool) on the links of a bus.

An event goes out at once where there is a link, and else waits for one. An event that went out is kept until the broker
has answered something behind it; otherwise it goes out again over the next link, under the same id.
"""

from __future__ import annotations

import asyncio
from typing import Final

from shared.bus.amqp.link import Link, LinkLost, Refused
from shared.bus.amqp.publisher import Publisher
from shared.bus.api import BusUnavailable, Exchange
from shared.bus.handling import packed, reconnected
from shared.bus.outbox import Outbox, PendingEvent
from shared.bus.spool import EventSpool

#: Seconds between asking the broker whether it has taken the events that were sent.
SETTLE_S: Final = 1.0


class EventPublisher:
    """Publishes the events of one daemon, and keeps them until the broker has them. spool: None where events that wait
    are not kept on the disk."""

    def __init__(self, publisher: Publisher, spool: EventSpool | None) -> None:
        self.spool = spool
        self._publisher = publisher
        self._outbox = Outbox()
        self._telling = asyncio.Lock()
        self._repeating = False  # what waited goes out: nobody waits for it
        self._away_since = 0.0  # wall clock; 0: there is a link, or never was one

    @property
    def waiting(self) -> int:
        return len(self._outbox)

    def begin(self) -> None:
        """Take up what the last life left on the spool."""
        for event in self.spool.take() if self.spool is not None else ():
            self._outbox.add(event)

    async def tell(self, event: PendingEvent) -> None:
        """Send an event, or keep it until there is a connection. Raises BusUnavailable when the bus was stopped."""
        if self._publisher.stopped:
            raise BusUnavailable("the bus is stopped")
        self._outbox.add(event)
        if self.spool is not None and (self._repeating or self._publisher.link is None):
            self.spool.add([event])
        if self._repeating and not self._outbox.crowded:
            return
        try:
            await self.send()
        except asyncio.CancelledError:
            self._publisher.spawn(self.send())  # others' events may wait behind it, and nobody may say anything more
            raise

    async def send(self) -> None:
        """All that wait, in their order, as long as the link holds."""
        async with self._telling:
            while (event := self._outbox.next()) is not None:
                link = self._publisher.link
                if link is None:
                    return
                properties = self._publisher.properties(event.id, event.type, durable=False)
                try:
                    await link.publish_plain(Exchange.EVENTS, event.key, event.data, properties)
                except (LinkLost, Refused) as error:
                    link.fail(f"publishing failed: {error}")
                    return
                self._outbox.mark_sent(event, asyncio.get_running_loop().time())
                self._publisher.health.published += 1

    def opened(self, *, again: bool) -> None:
        """There is a link. again: not the first, so `repeat` follows, and until then events wait behind older ones."""
        self._repeating = again

    async def repeat(self) -> None:
        """Send what was said without a connection, and what the broker may have lost; then tell how that was."""
        out = self._publisher
        told = reconnected(out.sender, out.now(), self._away_since, self._outbox)
        self._away_since = 0.0
        if told is not None:
            if told.lost:
                out.health.unpublished.add("dropped", count=told.lost)
            envelope = out.envelope(told)
            self._outbox.add(PendingEvent(told.type, packed(envelope), envelope.id, told.type, envelope.ts))
        try:
            await self.send()
        finally:
            self._repeating = False

    async def settle(self, link: Link) -> None:
        """Have the broker say, now and then, that it took what was sent: only that is forgotten."""
        loop = asyncio.get_running_loop()
        while link.usable:
            await asyncio.sleep(SETTLE_S)
            if not self._outbox.unconfirmed:
                continue
            asked = self._outbox.checkpoint()
            try:
                await link.settled()
            except (LinkLost, Refused) as error:
                link.fail(f"asking whether events arrived failed: {error}")
                return
            self._outbox.confirm(asked, loop.time())
            if self.spool is not None and not self._outbox.unconfirmed and not len(self._outbox):
                self.spool.clear()

    def broke(self) -> None:
        """The link is gone."""
        self._away_since = self._away_since or self._publisher.now()
        again = self._outbox.connection_lost(asyncio.get_running_loop().time())
        if self.spool is not None and not self._publisher.stopped:
            self.spool.add(again)

    async def finish(self) -> None:
        """At the end: send those of a time without a connection that are on their way yet. Where there is a broker that
        has all, the spool is emptied; else the next life tells it."""
        await self.send()
        link = self._publisher.link
        if self.spool is None or not self.spool.used or link is None or len(self._outbox):
            return
        try:
            await link.settled()
        except (LinkLost, Refused):
            return
        self.spool.clear()

    def close(self) -> None:
        if self.spool is not None:
            self.spool.close()
