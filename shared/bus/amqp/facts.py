"""What a daemon on RabbitMQ says of itself (its facts), from when it is said until the broker has it: the outbox and
the shelf (shared.bus.outbox, shared.bus.shelf) on the links of a bus.

A fact goes out at once where there is a link, and waits for one else. What went out waits until the broker has answered
something behind it, and goes out again over the next link otherwise, under the id that it had.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from pamqp.commands import Basic

from shared.bus.amqp.link import Link, LinkLost, Refused
from shared.bus.api import BusHealth, BusUnavailable, Exchange
from shared.bus.handling import packed, reconnected
from shared.bus.outbox import Fact, Outbox
from shared.bus.shelf import Shelf
from shared.messages.base import Envelope, Message

#: Seconds between asking the broker whether it has taken the facts that were sent.
SETTLE_S: Final = 1.0


class Port(Protocol):
    """What facts need of their bus."""

    sender: str
    now: Callable[[], float]  # wall clock

    @property
    def link(self) -> Link | None:
        """None: there is none that is of any use."""

    @property
    def stopped(self) -> bool: ...

    @property
    def health(self) -> BusHealth: ...

    def envelope(self, body: Message) -> Envelope: ...

    def properties(self, message_id: str, kind: str, *, durable: bool) -> Basic.Properties: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something to its end, at the latest when the bus stops."""


class Facts:
    """See the module. shelf: None where facts that wait are not kept on the disk."""

    def __init__(self, port: Port, shelf: Shelf | None) -> None:
        self.shelf = shelf
        self._port = port
        self._outbox = Outbox()
        self._telling = asyncio.Lock()
        self._repeating = False  # what waited goes out: nobody waits for it
        self._away_since = 0.0  # wall clock; 0: there is a link, or never was one

    @property
    def waiting(self) -> int:
        return len(self._outbox)

    def begin(self) -> None:
        """Take up what the last life left on the shelf."""
        for fact in self.shelf.take() if self.shelf is not None else ():
            self._outbox.add(fact)

    async def tell(self, fact: Fact) -> None:
        """Send a fact, or keep it until there is a connection. Raises BusUnavailable when the bus was stopped."""
        if self._port.stopped:
            raise BusUnavailable("the bus is stopped")
        self._outbox.add(fact)
        if self.shelf is not None and (self._repeating or self._port.link is None):
            self.shelf.add([fact])
        if self._repeating and not self._outbox.crowded:
            return
        try:
            await self.send()
        except asyncio.CancelledError:
            self._port.spawn(self.send())  # others' facts may wait behind it, and nobody may say anything more
            raise

    async def send(self) -> None:
        """All that wait, in their order, as long as the link holds."""
        async with self._telling:
            while (fact := self._outbox.next()) is not None:
                link = self._port.link
                if link is None:
                    return
                properties = self._port.properties(fact.id, fact.type, durable=False)
                try:
                    await link.publish_plain(Exchange.EVENTS, fact.key, fact.data, properties)
                except (LinkLost, Refused) as error:
                    link.fail(f"publishing failed: {error}")
                    return
                self._outbox.sent(fact, asyncio.get_running_loop().time())
                self._port.health.published += 1

    def opened(self, *, again: bool) -> None:
        """There is a link. again: not the first, so `repeat` follows, and until then facts wait behind older ones."""
        self._repeating = again

    async def repeat(self) -> None:
        """Send what was said without a connection, and what the broker may have lost; then tell how that was."""
        port = self._port
        told = reconnected(port.sender, port.now(), self._away_since, self._outbox)
        self._away_since = 0.0
        if told is not None:
            if told.lost:
                port.health.unpublished.add("dropped", count=told.lost)
            envelope = port.envelope(told)
            self._outbox.add(Fact(told.type, packed(envelope), envelope.id, told.type, envelope.ts))
        try:
            await self.send()
        finally:
            self._repeating = False

    async def settle(self, link: Link) -> None:
        """Have the broker say, now and then, that it took what was sent: only that is forgotten."""
        loop = asyncio.get_running_loop()
        while link.usable:
            await asyncio.sleep(SETTLE_S)
            if not self._outbox.unanswered:
                continue
            asked = self._outbox.asked()
            try:
                await link.settled()
            except (LinkLost, Refused) as error:
                link.fail(f"asking whether events arrived failed: {error}")
                return
            self._outbox.answered(asked, loop.time())
            if self.shelf is not None and not self._outbox.unanswered and not len(self._outbox):
                self.shelf.clear()

    def broke(self) -> None:
        """The link is gone."""
        self._away_since = self._away_since or self._port.now()
        again = self._outbox.broke(asyncio.get_running_loop().time())
        if self.shelf is not None and not self._port.stopped:
            self.shelf.add(again)

    async def finish(self) -> None:
        """At the end: send those of a time without a connection that are on their way yet. Where there is a broker that
        has all, the shelf is emptied; else the next life tells it."""
        await self.send()
        link = self._port.link
        if self.shelf is None or not self.shelf.used or link is None or len(self._outbox):
            return
        try:
            await link.settled()
        except (LinkLost, Refused):
            return
        self.shelf.clear()

    def close(self) -> None:
        if self.shelf is not None:
            self.shelf.close()
