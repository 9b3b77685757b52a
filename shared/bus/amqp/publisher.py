"""What all parts of a bus on RabbitMQ share: the link that is open now, and how messages go out over it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pamqp.commands import Basic

from shared.bus.amqp.link import Link, LinkLost, NotStored, Refused
from shared.bus.amqp.redelivered import Redelivered, redelivered_file
from shared.bus.amqp.seal import Seal, seal_file
from shared.bus.api import BusHealth, BusUnavailable, NotAllowed, unpublished_as
from shared.errors import RoostError
from shared.messages.base import Envelope, Message
from shared.tasks import TaskSet

TRANSIENT, PERSISTENT = 1, 2
CONTENT_TYPE = "application/msgpack"
#: A channel that closes under a publish may have been closed over another one's: so often it is tried again.
REFUSALS = 3
#: A node that is gone is known to be gone, and its queues have other leaders, within seconds.
FRESHEN_AFTER_S = (2.0, 5.0)
#: Where the broker has not confirmed a message after so many seconds, those that follow go out on other channels: it
#: may have sent this one to a leader that is gone, and what follows on the same channel behind it.
UNCONFIRMED_S = 1.0


class Publisher:
    """The present link of one bus. The bus sets `current`, `connected` and `stopped`; all its parts publish through it.

    sender: the daemon's inbox. user: whom the broker knows us as. publish_wait_s: how long a durable message waits for
    a connection and its confirm. spool: its seal and its counts of redeliveries are kept beside that file."""

    def __init__(
        self,
        *,
        sender: str,
        user: str,
        publish_wait_s: float,
        now: Callable[[], float],
        new_id: Callable[[], str],
        spool: Path | None = None,
    ) -> None:
        self.sender = sender
        self.user = user
        self.publish_wait_s = publish_wait_s
        self.now = now
        self.new_id = new_id
        self.health = BusHealth(waiting_for="start")
        self.seal = Seal(seal_file(spool) if spool is not None else None)
        self.redelivered = Redelivered(redelivered_file(spool) if spool is not None else None)
        self.background = TaskSet()
        self.current: Link | None = None
        self.connected = asyncio.Event()
        self.stopped = False
        self.publishing = 0  # durable messages that are not confirmed yet
        self.idle = asyncio.Event()  # there are none
        self.idle.set()
        self._renewal: asyncio.Task[None] | None = None

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something to its end, at the latest when the bus stops."""
        return self.background.spawn(work, "bus:background")

    @property
    def link(self) -> Link | None:
        """The present link; None: there is none that is of any use."""
        link = self.current
        return link if link is not None and link.usable else None

    async def wait_link(self, deadline: float) -> Link:
        """The present link; waits for one until `deadline` (loop time). Raises BusUnavailable."""
        while True:
            if self.stopped:
                raise BusUnavailable("the bus is stopped")
            link = self.current
            if link is not None and link.usable:
                return link
            try:
                async with asyncio.timeout_at(deadline):
                    if link is None:
                        await self.connected.wait()
                    else:
                        await asyncio.sleep(0)  # broken just now: the supervisor is about to notice
            except TimeoutError:
                raise BusUnavailable(f"no connection to the broker: {self.health.last_error}") from None

    async def publish_durable(
        self, exchange: str, key: str, data: bytes, properties: Basic.Properties, *, mandatory: bool = False
    ) -> None:
        """Publish until it is confirmed: over several links if need be, so it may arrive more than once."""
        deadline = asyncio.get_running_loop().time() + self.publish_wait_s
        began = time.perf_counter()
        refusals = 0
        self.publishing += 1
        self.idle.clear()
        try:
            while True:
                link = await self.wait_link(deadline)
                generation = link.generation
                try:
                    async with asyncio.timeout_at(deadline):
                        with self.renewing(link, generation):
                            await link.publish_confirmed(exchange, key, data, properties, mandatory=mandatory)
                        self.health.confirmed.add(time.perf_counter() - began)
                        return
                except TimeoutError:
                    raise BusUnavailable(f"not confirmed within {self.publish_wait_s:g} s") from None
                except NotStored:
                    if not await self.renewed(link, generation, deadline):
                        raise
                except LinkLost as error:
                    link.fail(f"publishing failed: {error}")
                except Refused as error:
                    link.fail(f"publishing was refused: {error}")
                    refusals += 1
                    if refusals >= REFUSALS:
                        raise NotAllowed(f"the broker refuses {exchange} {key!r}: {error}") from error
        except RoostError as error:
            self.health.unpublished.add(unpublished_as(error))
            raise
        finally:
            self.publishing -= 1
            if not self.publishing:
                self.idle.set()

    @contextmanager
    def renewing(self, link: Link, generation: int) -> Iterator[None]:
        """Have new channels on the link should a confirm not come soon."""
        loop = asyncio.get_running_loop()
        timer = loop.call_later(UNCONFIRMED_S, self._renew_soon, link, generation)
        try:
            yield
        finally:
            timer.cancel()

    def _renew_soon(self, link: Link, generation: int) -> asyncio.Task[None]:
        if self._renewal is None or self._renewal.done():
            # In a task of its own: who gives up waiting for an answer on a channel loses the channel, and the link.
            self._renewal = self.spawn(self._renew(link, generation))
        return self._renewal

    async def renewed(self, link: Link, generation: int, deadline: float) -> bool:
        """Have new channels on the link for those of this generation, which are refused. Returns whether there is time
        left to try them; `deadline` is loop time."""
        loop = asyncio.get_running_loop()
        await asyncio.wait({self._renew_soon(link, generation)}, timeout=max(0.0, deadline - loop.time()))
        return loop.time() < deadline

    async def _renew(self, link: Link, generation: int) -> None:
        if not link.usable:
            return
        try:
            await link.renew(generation)
        except (LinkLost, Refused) as error:
            link.fail(f"opening channels anew failed: {error}")

    async def freshen(self, link: Link) -> None:
        """Renew the channels of a link to a cluster that lost a node just now. What is published plainly is refused in
        silence, so nobody would know."""
        for wait in FRESHEN_AFTER_S:
            await asyncio.sleep(wait)
            await self._renew(link, link.generation)

    def envelope(self, body: Message, epoch: int | None = None, trace: str | None = None) -> Envelope:
        return Envelope(body, self.sender, self.new_id(), self.now(), epoch, trace)

    def properties(
        self,
        message_id: str,
        kind: str,
        *,
        durable: bool,
        expires_s: float | None = None,
        reply_to: str | None = None,
        correlation_id: str | None = None,
        headers: dict[str, Any] | None = None,
    ) -> Basic.Properties:
        return Basic.Properties(
            content_type=CONTENT_TYPE,
            headers=headers,
            delivery_mode=PERSISTENT if durable else TRANSIENT,
            correlation_id=correlation_id,
            reply_to=reply_to,
            expiration=None if expires_s is None else str(max(1, round(expires_s * 1000))),
            message_id=message_id,
            message_type=kind,
            user_id=self.user,  # the broker refuses what is not the user it knows us by
            app_id=self.sender,
        )
