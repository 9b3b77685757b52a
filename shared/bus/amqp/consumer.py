"""One subscription on AMQP: its channel and consumer on the present link, the deliveries in hand, their
acknowledgement. It outlives links: attach() puts it on each new one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from shared.bus.amqp.acks import AckWindow
from shared.bus.amqp.dead_letters import headers
from shared.bus.amqp.delivery import Delivery
from shared.bus.amqp.link import DeliveredMessage, Link, LinkLost, RawChannel, Refused, guarded
from shared.bus.amqp.publisher import Publisher
from shared.bus.api import Exchange
from shared.bus.handling import UNSENDABLE, Log, Outcome, not_sent, packed, packed_in_turns, unreadable
from shared.bus.topology import Queue
from shared.cooperative import Yielder
from shared.errors import RoostError
from shared.messages.wire import type_of


class _Session:
    """A consumer on one link."""

    def __init__(self, link: Link, channel: RawChannel) -> None:
        self.link = link
        self.channel = channel
        self.tag = ""
        self.window = AckWindow()
        self.wake = asyncio.Event()
        self.acker: asyncio.Task[None] | None = None
        self.waiting: deque[Delivery] = deque()  # for those handled one after the other

    async def acknowledge(self) -> None:
        """Until the link breaks: acknowledge what was done since the last turn of the loop, together."""
        try:
            while True:
                await self.wake.wait()
                self.wake.clear()
                await self.flush()
        except (LinkLost, Refused) as error:
            self.link.fail(f"acknowledging failed: {error}")

    async def flush(self) -> None:
        for tag, multiple in self.window.take():
            await guarded(self.channel.basic_ack(tag, multiple, wait=False))


class Consumer:
    """A subscription; implements shared.bus.api.Subscription."""

    def __init__(
        self,
        publisher: Publisher,
        queue: Queue,
        handle: Callable[[Delivery], Awaitable[Outcome]],
        reopen: Callable[[Delivery], Awaitable[Outcome]] | None,
        *,
        prefetch: int,
        in_order: bool,
        priority: int,
        tag: str,
        log: Log,
        ended: Callable[[Consumer], None],
    ) -> None:
        """reopen: handles dead letters that were put back; None: as any message. ended: called once it
        consumes no more, and its handlers have finished."""
        self._publisher = publisher
        self._log = log
        self._ended = ended
        self.queue = queue
        self.handle = handle
        self._reopen = reopen
        self.prefetch = max(1, min(prefetch, 65535))
        self.in_order = in_order
        self._priority = priority
        self.name = tag
        self.count = 0  # deliveries ever, for the watchdog
        self.open = True
        self._session: _Session | None = None
        self._private_name = queue.name
        self._attachments = 0
        self._attaching = asyncio.Lock()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._ending: asyncio.Task[None] | None = None

    @property
    def source(self) -> str:
        """The queue as it was subscribed to: what dead letters name."""
        return self._private_name

    @property
    def attached(self) -> bool:
        return self._session is not None

    def consumes(self) -> bool:
        return self.open and self._session is not None

    @property
    def in_hand(self) -> int:
        """Deliveries that are not acknowledged yet."""
        return len(self._session.window) if self._session is not None else 0

    async def attach(self, link: Link) -> None:
        """Declare the queue and consume; does nothing once it was cancelled. Raises LinkLost or Refused."""
        async with self._attaching:
            if self.open:
                await self._attach(link)

    async def _attach(self, link: Link) -> None:
        self._attachments += 1
        if self.queue.exclusive and self._attachments > 1:
            # Not the name it had: when a node of a cluster is lost the others remove what its connections had to
            # themselves, and may do so seconds after we have declared it anew.
            self.queue = replace(self.queue, name=f"{self._private_name}.{self._attachments}")
        channel = await link.channel(f"consumer of {self.queue.name}")
        await link.declare(channel, self.queue)
        await guarded(channel.basic_qos(prefetch_count=self.prefetch))
        session = _Session(link, channel)
        channel.on_consumer_cancel_callbacks.add(
            lambda _: link.fail(f"the broker ended the consumer of {self.queue.name}")
        )
        self._session = session

        async def deliver(message: DeliveredMessage) -> None:
            self._deliver(session, message)

        consuming = channel.basic_consume(
            self.queue.name,
            deliver,
            arguments={"x-priority": self._priority} if self._priority else None,
            consumer_tag=self.name,
        )
        answer = await guarded(consuming)
        session.tag = answer.consumer_tag or self.name
        session.acker = asyncio.get_running_loop().create_task(
            session.acknowledge(), name=f"bus:acks:{self.queue.name}"
        )

    async def detach(self) -> None:
        """The link is gone. Handlers go on, but their messages come again: to us or to others."""
        session, self._session = self._session, None
        if session is not None and session.acker is not None:
            session.acker.cancel()
            await asyncio.wait({session.acker})

    def _deliver(self, session: _Session, message: DeliveredMessage) -> None:
        if session is not self._session:
            return
        self.count += 1
        delivery = Delivery.of(message, self.queue)
        session.window.arrived(delivery.tag)
        if not self.in_order:
            self._spawn(self._work(session, delivery))
            return
        session.waiting.append(delivery)
        if len(session.waiting) == 1:
            self._spawn(self._work_in_order(session))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"bus:{self.queue.name}")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _work_in_order(self, session: _Session) -> None:
        turn = Yielder()
        while session.waiting:
            await self._work(session, session.waiting[0])
            # What came while one took long would be handled in one turn. Before it is off the list: else what comes now
            # would find the list empty, and be handled beside it.
            await turn.yield_if_due()
            session.waiting.popleft()

    async def _work(self, session: _Session, delivery: Delivery) -> None:
        if session is not self._session or not session.link.usable or (not self.open and self.in_order):
            return  # lost, or cancelled before it was begun: it comes again
        health = self._publisher.health
        health.received += 1
        health.redelivered += delivery.again
        try:
            if delivery.uncounted:
                delivery.deliveries = self._publisher.redelivered.again(await delivery.digest())
            take = self._reopen if delivery.seal and self._reopen is not None else self.handle
            outcome = unreadable(delivery.odd) if delivery.odd else await take(delivery)
            if session is not self._session or outcome.later:
                return
            if outcome.dead or outcome.answer is not None:
                await self._settle(session.link, delivery, outcome)
            if delivery.uncounted:
                self._publisher.redelivered.done(await delivery.digest())
        except (LinkLost, Refused, RoostError) as error:
            session.link.fail(f"could not settle a message of {self.queue.name}: {error}")
            return
        session.window.done(delivery.tag)
        session.wake.set()

    async def _settle(self, link: Link, delivery: Delivery, outcome: Outcome) -> None:
        """Answer, and put to the dead letters, as the outcome says. Raises LinkLost, Refused or BusUnavailable: then
        the delivery is not acknowledged and comes again."""
        out = self._publisher
        if outcome.answer is not None and delivery.reply_to:
            try:
                data = await packed_in_turns(out.envelope(outcome.answer))
            except UNSENDABLE as error:
                data = packed(out.envelope(not_sent(outcome.answer, error, self._log)))
            properties = out.properties(
                out.new_id(), outcome.answer.type, durable=False, correlation_id=delivery.correlation_id
            )
            await link.publish_plain("", delivery.reply_to, data, properties)
        if outcome.dead:
            now = out.now()
            about = await headers(delivery, self._private_name, outcome.dead, by=out.sender, now=now, seal=out.seal)
            properties = out.properties(out.new_id(), type_of(delivery.data), durable=True, headers=about)
            await out.publish_durable(Exchange.DEAD, "", delivery.data, properties)
            out.health.dead_lettered += 1

    async def cancel(self, caller: asyncio.Task[Any] | None = None) -> None:
        """Stop consuming; handlers under way finish first (but for the one that calls this). Goes on by itself where
        its caller is cancelled: who gives up waiting for an answer on a channel loses the channel, and the link.
        caller: the task that waits for this, if it is not this one."""
        self.open = False
        caller = caller or asyncio.current_task()
        if self._ending is None:
            self._ending = self._publisher.spawn(self._end(caller))
        elif caller in self._tasks:
            return  # the end waits for us
        await asyncio.wait({self._ending})

    async def _end(self, caller: asyncio.Task[Any] | None) -> None:
        async with self._attaching:  # a link may be opened just now: half attached there is no name to cancel
            session = self._session
        if session is not None and session.link.usable:
            try:
                await guarded(session.channel.basic_cancel(session.tag))
            except (LinkLost, Refused) as error:
                session.link.fail(f"cancelling a consumer failed: {error}")
        under_way = [task for task in self._tasks if task is not caller]
        if under_way:
            await asyncio.gather(*under_way, return_exceptions=True)
        self._ended(self)
        if caller in self._tasks:
            # Called by a handler of ours: its own message is still to be acknowledged.
            self._publisher.spawn(self._finish(session, caller))
        else:
            await self._finish(session, None)

    async def _finish(self, session: _Session | None, last: asyncio.Task[None] | None) -> None:
        if last is not None:
            await asyncio.wait({last})
        await self.detach()
        if session is None or not session.link.usable:
            return
        try:
            await session.flush()
            await session.link.close_channel(session.channel)
        except (LinkLost, Refused) as error:
            session.link.fail(f"closing a consumer failed: {error}")
