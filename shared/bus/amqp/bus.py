"""The bus on RabbitMQ. Implements shared.bus.api.Bus.

A supervisor keeps one link (link.py) open and puts every subscription on each new one. Durable messages wait
for a link and for their confirm; transient ones are dropped while there is none, but for facts, which wait (facts.py).
A watchdog (watchdog.py) breaks a link that is connected but does not deliver.

Longer than most modules, why: the interface is wide, and what is left here shares one thing, the present link and
whether there is one. What could be told apart (link, consumer, facts, calls, acknowledgements, dead letters, watchdog)
lives in modules of its own.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog
from pamqp.commands import Queue as QueueMethods
from yarl import URL

from shared.backoff import Backoff
from shared.bus.amqp import dead_letters as dead_letter_queue
from shared.bus.amqp.callers import Callers
from shared.bus.amqp.calls import Calls
from shared.bus.amqp.consumer import Consumer
from shared.bus.amqp.delivery import (
    BURIED_BY_HEADER,
    PUBLISHER_HEADER,
    QUEUE_HEADER,
    SEAL_HEADER,
    Delivery,
)
from shared.bus.amqp.event_publisher import EventPublisher
from shared.bus.amqp.link import Link, LinkLost, Refused
from shared.bus.amqp.publisher import REFUSALS, Publisher
from shared.bus.amqp.watchdog import Pulse, Watchdog
from shared.bus.api import (
    BusHealth,
    BusUnavailable,
    DeadLetter,
    Exchange,
    Handler,
    NobodyThere,
    NotAllowed,
    Outgoing,
    Reject,
    RequestHandler,
)
from shared.bus.handling import (
    STOP_PATIENCE_S,
    TAKEN,
    Log,
    Outcome,
    RetryPolicy,
    answer_request,
    check_inbox,
    check_topic,
    explain,
    handle_message,
    one_way,
    packed_in_turns,
    report_gap,
)
from shared.bus.outbox import PendingEvent
from shared.bus.seen import Seen, seen_file
from shared.bus.senders import COPIED, GATEWAY, TABLE, Arrival, Senders, Table, vouched
from shared.bus.spool import EventSpool
from shared.bus.statements import UNSIGNED, Believer, Keys, Signer
from shared.bus.topology import (
    CONSUMER,
    FORMER_RPC,
    INBOX_DURABLE_WAIT_S,
    INBOX_TRANSIENT_WAIT_S,
    Queue,
    inbox_declaration,
    inbox_queue,
    private_declaration,
    role_of,
    work_queue,
    work_queue_declaration,
)
from shared.messages.base import CallEnded, Envelope, Message, Person, new_id
from shared.tls import ClientTls, TlsTrouble, explained

#: Confirms awaited at a time by publish_many.
WINDOW = 500
RECONNECT_FIRST_S = 0.05
#: Where there are several nodes each try is another one: all of them are tried within a few seconds.
RECONNECT_CAP_S = 2.0
#: One of several nodes has so long to greet us, twice as long in each further round of all of them: one that hangs must
#: not keep us from the others.
GREETING_S = 2.0
AMQPS_PORT = 5671
#: The broker is asked for so long who is there, and what waits.
LOOK_S = 5.0


class AmqpBus:
    """url: amqp[s]://user:password@host:port/vhost; several, with commas in between, are tried in turn. tls: for those
    of amqps://, unless they say otherwise; files that can not be used are waited for like a broker.
    sender: "<subsystem>.<name>", the inbox of the daemon. publish_wait_s: how long a durable message waits
    for a connection and its confirm. watch_s: how often the watchdog looks. heartbeat_s: AMQP's own, the
    second line. spool: a file that keeps events while there is no broker (shared.bus.spool). rows: who may send
    what. signer: of a gateway, for what it says of people. keys: of gateways: what a gateway says of people is believed
    only as these have signed it; None: nobody is."""

    def __init__(
        self,
        url: str,
        *,
        sender: str,
        retry: RetryPolicy | None = None,
        publish_wait_s: float = 30.0,
        watch_s: float = 5.0,
        heartbeat_s: int = 10,
        connect_timeout_s: float = 10.0,
        spool: Path | None = None,
        tls: ClientTls | None = None,
        rows: Table = TABLE,
        signer: Signer | None = None,
        keys: Keys | None = None,
        now: Callable[[], float] = time.time,
        new_id: Callable[[], str] = new_id,
        log: Log | None = None,
    ) -> None:
        self.urls = [part.strip() for part in url.split(",") if part.strip()]
        if not self.urls:
            raise ValueError("the URL of the broker is empty: want amqp://user:password@host:port/vhost")
        self._tls = tls or ClientTls()
        #: Several nodes: what outlives a connection must outlive a node.
        self.clustered = len(self.urls) > 1
        self._node = 0  # of the urls, the one to try first
        self.sender = sender
        self.retry = retry or RetryPolicy()
        self.watch_s = watch_s
        self.heartbeat_s = heartbeat_s
        self.connect_timeout_s = connect_timeout_s
        self.log: Log = log or structlog.get_logger().bind(sender=sender)
        user = URL(self.urls[0]).user or "guest"
        self._publisher = Publisher(
            sender=sender, user=user, publish_wait_s=publish_wait_s, now=now, new_id=new_id, spool=spool
        )
        self._health = self._publisher.health
        # Where daemons or roles have users of their own, the broker vouches for senders; else nobody does.
        self._verify = bool(role_of(user))
        self._keys = keys or Keys()
        self._senders = Senders(
            self._health,
            self.log,
            rows,
            Believer(self._keys, now, Seen(seen_file(spool) if spool is not None else None)),
        )
        self._consumers: list[Consumer] = []
        self._gap_callbacks: list[Callable[[], Awaitable[None]]] = []
        self._links = 0  # opened so far
        self._attaching = asyncio.Lock()
        self._supervisor: asyncio.Task[None] | None = None
        self._jitter = random.Random()
        self._watchdog = Watchdog(self.watch_s, soon=self.clustered)
        self._pulse = Pulse(self.watch_s)
        self._events = EventPublisher(self._publisher, EventSpool(spool) if spool is not None else None)
        self._calls = Calls(self._publisher, self._senders, signer, verify=self._verify)
        self._callers = Callers(self._publisher)

    @property
    def health(self) -> BusHealth:
        health = self._health
        connected = self._publisher.link is not None and self._publisher.connected.is_set()
        health.connected = connected
        health.expected_consumers = len(self._consumers)
        health.consumers = sum(consumer.attached for consumer in self._consumers) if connected else 0
        health.in_hand = sum(consumer.in_hand for consumer in self._consumers)
        health.calls_waiting = len(self._calls)
        health.details = dict(self._watchdog.complaints)
        if connected:
            health.waiting_for = "; ".join(f"{name}: {what}" for name, what in health.details.items())
        return health

    # Life

    async def start(self) -> None:
        if self._supervisor is None:
            self._publisher.stopped = False
            if not self._verify and role_of(self.sender):
                self.log.warning(
                    "bus.nobody_vouches",
                    user=self._publisher.user,
                    reason="this user of the broker is no role, so the broker can not tell whose messages these are, "
                    "and senders are believed; give each daemon a user of its own (python -m shared.bus.definitions)",
                )
            self._tell_of_keys()
            self._events.begin()
            self._supervisor = asyncio.get_running_loop().create_task(self._supervise(), name="bus:supervisor")
        ready = asyncio.ensure_future(self._publisher.connected.wait())
        try:
            await asyncio.wait({ready, self._supervisor}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self._supervisor is not None and self._supervisor.done():
            self._supervisor.result()

    def _tell_of_keys(self) -> None:
        """Say at the start what a daemon lacks to be obeyed, or to obey."""
        role = role_of(self.sender)
        if role and (reason := self._keys.why_empty()):
            self.log.warning("bus.nobody_is_obeyed", reason=reason)
        if role == GATEWAY and not self._calls.signs:
            self.log.warning("bus.gateway_signs_nothing", reason=UNSIGNED)

    async def stop_consuming(self) -> None:
        caller = asyncio.current_task()
        await asyncio.gather(*(consumer.cancel(caller) for consumer in self._consumers))

    async def stop(self) -> None:
        if self._supervisor is None:
            self._publisher.stopped = True
            return
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await self.stop_consuming()
        except TimeoutError:  # they are cancelled below, and their messages come again
            self.log.warning("bus.handlers_cut_short", messages=self.health.in_hand)
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await self._publisher.idle.wait()
                await self._events.finish()
        except TimeoutError:
            self.log.warning("bus.unconfirmed_at_stop", messages=self._publisher.publishing, facts=self._events.waiting)
        self._publisher.stopped = True
        supervisor, self._supervisor = self._supervisor, None
        pending = {supervisor, *self._publisher.background.others()}
        while pending:
            # More than once: asyncio.wait_for, which the client library uses, may swallow a cancellation that comes
            # just when its work is done (Python 3.11).
            for task in pending:
                task.cancel()
            _, pending = await asyncio.wait(pending, timeout=1.0)
        self._events.close()
        self._health.connected = False
        self._health.waiting_for = "start"

    async def _supervise(self) -> None:
        backoff = Backoff(RECONNECT_FIRST_S, RECONNECT_CAP_S, jitter=self._jitter.uniform)
        while True:
            try:
                link = await self._open(self.urls[self._node % len(self.urls)], self._greeting_s(backoff.failures))
            except (LinkLost, Refused, TimeoutError, BusUnavailable, TlsTrouble) as error:
                self._health.last_error = self._told(error)
                self._health.waiting_for = f"the broker: {self._health.last_error}"
                self._node += 1
                pause = backoff.next_s()
                self.log.warning("bus.unavailable", error=self._health.last_error, retry_in_s=round(pause, 2))
                await asyncio.sleep(pause)
                continue
            try:
                backoff.reset()
                if self._publisher.stopped:
                    return
                self.log.info("bus.connected", consumers=len(self._consumers))
                loop = asyncio.get_running_loop()
                beside = [
                    loop.create_task(self._watchdog.watch(link, self._consumers), name="bus:watchdog"),
                    loop.create_task(self._events.settle(link), name="bus:facts"),
                ]
                if self.clustered:
                    beside.append(loop.create_task(self._pulse.watch(link, self._consumers), name="bus:pulse"))
                    if self._links > 1:
                        beside.append(loop.create_task(self._publisher.freshen(link), name="bus:freshen"))
                try:
                    reason = await asyncio.shield(link.broken)
                finally:
                    # At once: whoever waits for a link would take this one again and again while the watchdog ends.
                    self._publisher.current = None
                    self._publisher.connected.clear()
                    for task in beside:
                        task.cancel()
                    await asyncio.gather(*beside, return_exceptions=True)
                self._health.last_error = reason
                self._health.waiting_for = f"a new connection: {reason}"
                self._node += 1  # a node that hangs would take a whole timeout before the next one is tried
                self.log.warning("bus.disconnected", reason=reason)
            finally:
                self._publisher.current = None
                self._publisher.connected.clear()
                self._events.broke()
                self._callers.broke(self._health.last_error)
                self._calls.fail("the connection was lost while waiting for the answer")
                for consumer in self._consumers:
                    await consumer.detach()
                await link.close()

    def _told(self, error: Exception) -> str:
        """One line about a connection that could not be opened."""
        server = URL(self.urls[self._node % len(self.urls)])
        return explained(error, f"{server.host}:{server.port or AMQPS_PORT}") or explain(error.__cause__ or error)

    def _greeting_s(self, failures: int) -> float:
        """How long a node may take to greet us, after so many that did not."""
        if not self.clustered:
            return self.connect_timeout_s
        return min(self.connect_timeout_s, GREETING_S * 2.0 ** min(failures // len(self.urls), 10))

    async def _open(self, url: str, greeting_s: float) -> Link:
        link = await Link.open(url, name=self.sender, heartbeat_s=self.heartbeat_s, timeout_s=greeting_s, tls=self._tls)
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                await link.declare_standing(clustered=self.clustered)
                await link.receive_answers(self._calls.answered)
                async with self._attaching:
                    for consumer in list(self._consumers):
                        await consumer.attach(link)
                    if not link.usable:
                        raise LinkLost(link.broken.result())
                    self._publisher.current = link
                    self._events.opened(again=self._links > 0)
                    self._publisher.connected.set()
        except BaseException:
            for consumer in self._consumers:
                await consumer.detach()
            await link.close()
            raise
        self._links += 1
        if self._links == 1:
            self._publisher.spawn(self._events.send())  # of the last life
        else:
            self._health.reconnects += 1
            self._publisher.spawn(self._events.repeat())
            for callback in self._gap_callbacks:
                self._publisher.spawn(report_gap(callback, self.retry, self.log))
        return link

    # Publishing

    async def publish(
        self,
        exchange: Exchange,
        key: str,
        body: Message,
        *,
        epoch: int | None = None,
        trace: str | None = None,
    ) -> None:
        check_topic(exchange, key)
        await self._publish(exchange, key, body, epoch, trace)

    async def publish_many(self, messages: Sequence[Outgoing]) -> None:
        for first in range(0, len(messages), WINDOW):
            await asyncio.gather(
                *(
                    self.publish(m.exchange, m.key, m.body, epoch=m.epoch, trace=m.trace)
                    for m in messages[first : first + WINDOW]
                )
            )

    async def send(self, inbox: str, body: Message, *, epoch: int | None = None) -> None:
        check_inbox(inbox)
        wait = INBOX_DURABLE_WAIT_S if body.durable else INBOX_TRANSIENT_WAIT_S
        try:
            await self._publish(Exchange.RPC, inbox, body, epoch, None, expires_s=wait, mandatory=True)
        except NobodyThere:
            raise NobodyThere(f"inbox {inbox!r} does not exist: its owner was never here") from None

    async def _publish(
        self,
        exchange: Exchange,
        key: str,
        body: Message,
        epoch: int | None,
        trace: str | None,
        *,
        expires_s: float | None = None,
        mandatory: bool = False,
    ) -> None:
        out = self._publisher
        envelope = out.envelope(body, epoch, trace)
        data = await packed_in_turns(envelope)
        properties = out.properties(envelope.id, body.type, durable=body.durable, expires_s=expires_s)
        if body.durable:
            await out.publish_durable(exchange, key, data, properties, mandatory=mandatory)
        elif body.kept and exchange == Exchange.EVENTS:
            await self._events.tell(PendingEvent(key, data, envelope.id, body.type, envelope.ts))
            return
        else:
            link = out.current
            if link is None or not link.usable:
                if out.stopped:
                    raise BusUnavailable("the bus is stopped")
                self._health.unpublished.add("dropped")
                return
            try:
                await link.publish_plain(exchange, key, data, properties)
            except (LinkLost, Refused) as error:
                link.fail(f"publishing failed: {error}")
                self._health.unpublished.add("dropped")
                return
        self._health.published += 1

    # Calls

    async def call(
        self,
        inbox: str,
        request: Message,
        *,
        timeout: float = 10.0,
        epoch: int | None = None,
        trace: str | None = None,
        person: Person | None = None,
    ) -> Message:
        check_inbox(inbox)
        return await self._calls.call(inbox, request, timeout=timeout, epoch=epoch, trace=trace, person=person)

    # Consuming

    async def consume(self, queue: str, handler: Handler, *, prefetch: int = 100) -> Consumer:
        exchange = work_queue(queue).exchange
        return await self._subscribe(
            work_queue_declaration(queue), self._taker(handler, exchange), prefetch=prefetch, in_order=False
        )

    async def listen(
        self, exchange: Exchange, patterns: Sequence[str], handler: Handler, *, prefetch: int = 500
    ) -> Consumer:
        check_topic(exchange)
        name = f"roost.listen.{self.sender}.{self._publisher.new_id()[-12:]}"
        queue = private_declaration(name, exchange, patterns)
        return await self._subscribe(queue, self._taker(handler, exchange, copy=True), prefetch=prefetch, in_order=True)

    async def subscribe(
        self,
        queue: Queue,
        handle: Callable[[Delivery], Awaitable[Outcome]],
        *,
        prefetch: int = 100,
        in_order: bool = True,
    ) -> Consumer:
        """Consume a queue that is no daemon's, message by message as they came: for those who read more than this
        release knows (roost.consumer). Raises like `consume`."""
        return await self._subscribe(queue, handle, prefetch=prefetch, in_order=in_order)

    async def depth(self, queue: str) -> int:
        """How many messages of a queue wait to be delivered. Raises BusUnavailable."""
        link = await self._publisher.wait_link(asyncio.get_running_loop().time() + self._publisher.publish_wait_s)
        try:
            return (await link.state(queue)).message_count or 0
        except (LinkLost, Refused) as error:
            raise BusUnavailable(f"queue {queue!r} can not be looked at: {error}") from error

    async def served(self, inboxes: Sequence[str]) -> dict[str, bool]:
        found = await self._states([inbox_queue(name) for name in inboxes])
        queues = {name: found.get(inbox_queue(name)) for name in inboxes}
        return {name: bool(state.consumer_count) for name, state in queues.items() if state is not None}

    async def waiting(self, queues: Sequence[str]) -> dict[str, int]:
        return {name: state.message_count or 0 for name, state in (await self._states(queues)).items()}

    async def _states(self, queues: Sequence[str]) -> dict[str, QueueMethods.DeclareOk]:
        """Of those queues that are there. Raises BusUnavailable."""
        try:
            async with asyncio.timeout(LOOK_S):
                link = await self._publisher.wait_link(asyncio.get_running_loop().time() + LOOK_S)
                return await link.states(queues)
        except TimeoutError:
            raise BusUnavailable(f"the broker did not tell of its queues within {LOOK_S:g} s") from None
        except (LinkLost, Refused) as error:
            raise BusUnavailable(f"the broker can not tell of its queues: {error}") from error

    async def serve(self, inbox: str, handler: RequestHandler, *, prefetch: int = 100, priority: int = 0) -> Consumer:
        check_inbox(inbox)
        take_one_way = self._taker(one_way(handler), Exchange.RPC, inbox=inbox)

        async def handle(delivery: Delivery) -> Outcome:
            if not delivery.reply_to:
                if delivery.kind == CallEnded.type:
                    return await self._end_call(delivery, inbox)
                return await take_one_way(delivery)
            if self._callers.gone(delivery):
                return TAKEN
            arrival = self._arrival(delivery, Exchange.RPC, inbox=inbox)
            with self._callers.answering(delivery) as wait:
                return await answer_request(delivery.data, handler, self.log, arrival, self._senders, wait)

        queue = inbox_declaration(inbox, clustered=self.clustered)
        return await self._subscribe(queue, handle, prefetch=prefetch, in_order=False, priority=priority)

    async def _end_call(self, delivery: Delivery, inbox: str) -> Outcome:
        async def end(envelope: Envelope) -> None:
            self._callers.ended(delivery.user_id, envelope)

        return await self._taker(end, Exchange.RPC, inbox=inbox)(delivery)

    def _taker(
        self, handler: Handler, exchange: Exchange, *, copy: bool = False, inbox: str = ""
    ) -> Callable[[Delivery], Awaitable[Outcome]]:
        async def take(delivery: Delivery) -> Outcome:
            arrival = self._arrival(delivery, exchange, copy=copy and exchange in COPIED, inbox=inbox)
            return await handle_message(
                delivery.data, delivery.deliveries, handler, self.retry, self.log, arrival, self._senders
            )

        return take

    def _arrival(self, delivery: Delivery, exchange: Exchange, *, copy: bool = False, inbox: str = "") -> Arrival:
        return Arrival(exchange, delivery.user_id if self._verify else None, copy, inbox, delivery.again)

    async def _reopen(self, delivery: Delivery) -> Outcome:
        """Handle a dead letter of ours that was put back: as what it was, from whom it came then, by whoever consumes
        the queue it came from."""
        if not self._publisher.seal.fits(delivery.seal, delivery.came_to, delivery.publisher, await delivery.digest()):
            return Outcome(
                dead=f"put back by {delivery.user_id!r}, and nobody vouches for who published it: {self.sender} did "
                f"not bury it, or lost its seal since ({delivery.buried_by!r} did, as it says); discard it"
            )
        for consumer in self._consumers:
            if consumer.source == delivery.came_to and consumer.open:
                return await consumer.handle(replace(delivery, seal="", user_id=delivery.publisher, reply_to=""))
        return Outcome(dead=f"put back for queue {delivery.came_to!r}, which {self.sender} reads no more; discard it")

    async def _subscribe(
        self,
        queue: Queue,
        handle: Callable[[Delivery], Awaitable[Outcome]],
        *,
        prefetch: int,
        in_order: bool,
        priority: int = 0,
    ) -> Consumer:
        tag = f"{self.sender}:{self._publisher.new_id()[-12:]}"
        consumer = Consumer(
            self._publisher,
            queue,
            handle,
            self._reopen if self._verify else None,
            prefetch=prefetch,
            in_order=in_order,
            priority=priority,
            tag=tag,
            log=self.log,
            ended=self._forget,
        )
        attaching = self._publisher.spawn(self._attach(consumer))
        try:
            await asyncio.wait({attaching})
        except asyncio.CancelledError:
            self._publisher.spawn(_undo(attaching, consumer))
            raise
        if attaching.cancelled():
            raise BusUnavailable("the bus is stopped")
        attaching.result()
        return consumer

    async def _attach(self, consumer: Consumer) -> None:
        """Put a new consumer on the link. In a task of its own: where somebody gives up waiting for an answer on a
        channel the library closes the channel, and the link with all that is on it would break."""
        queue = consumer.queue
        deadline = asyncio.get_running_loop().time() + self._publisher.publish_wait_s
        refusals = 0
        while True:
            link = await self._publisher.wait_link(deadline)
            try:
                async with self._attaching, asyncio.timeout_at(deadline):
                    if link is not self._publisher.current:
                        continue
                    await consumer.attach(link)
                    if not link.usable:  # it broke behind the broker's answer: nobody would take the consumer off it
                        raise LinkLost(link.broken.result())
                    self._consumers.append(consumer)
                    return
            except TimeoutError:
                link.fail(f"no answer to a subscription to {queue.name}")
                raise BusUnavailable(f"no answer to the subscription to {queue.name}") from None
            except LinkLost as error:
                link.fail(f"subscribing failed: {error}")
            except Refused as error:
                link.fail(f"subscribing was refused: {error}")
                refusals += 1
                if refusals >= REFUSALS:
                    raise NotAllowed(f"the broker refuses queue {queue.name!r}: {error}") from error
            await consumer.detach()

    def on_gap(self, callback: Callable[[], Awaitable[None]]) -> None:
        self._gap_callbacks.append(callback)

    def _forget(self, consumer: Consumer) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)

    # Dead letters

    async def dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        return await self._with_link(lambda link: dead_letter_queue.peek(link, limit))

    async def requeue(self, ids: Sequence[str]) -> list[str]:
        return await self._with_link(lambda link: dead_letter_queue.remove(link, ids, self._put_back))

    async def discard(self, ids: Sequence[str]) -> list[str]:
        async def forget(_: DeadLetter) -> None:
            return None

        return await self._with_link(lambda link: dead_letter_queue.remove(link, ids, forget))

    async def _put_back(self, letter: DeadLetter) -> None:
        if self._verify and not role_of(letter.by) and not of_consumer(letter):
            # What we publish is believed: who may only read events must not speak to daemons through us.
            raise Reject(
                f"dead letter {letter.id}: its user {letter.by!r} may not have anything put into queue "
                f"{letter.queue!r}; discard it"
            )
        if self._verify and not of_consumer(letter):
            await self._return(letter)
            return
        out = self._publisher
        properties = out.properties(out.new_id(), letter.type, durable=True)
        try:
            await out.publish_durable("", letter.queue, letter.data, properties, mandatory=True)
        except NobodyThere:
            if self._verify:
                return  # a consumer that is gone: others have had this event
            exchange = Exchange.RPC if letter.exchange == FORMER_RPC else letter.exchange
            await out.publish_durable(exchange, letter.key, letter.data, properties)

    async def _return(self, letter: DeadLetter) -> None:
        """Give a dead letter back to who buried it, who alone knows from whom it came. Raises Reject where that is not
        known, or gone."""
        if not letter.seal or not vouched(letter.by, letter.buried_by):
            raise Reject(
                f"dead letter {letter.id}: nobody vouches for who published it ({letter.by!r} buried it for "
                f"{letter.buried_by!r}, perhaps with an earlier release); discard it"
            )
        out = self._publisher
        headers = {
            SEAL_HEADER: letter.seal,
            PUBLISHER_HEADER: letter.publisher,
            QUEUE_HEADER: letter.queue,
            BURIED_BY_HEADER: letter.buried_by,
        }
        properties = out.properties(out.new_id(), letter.type, durable=True, headers=headers)
        # To its own inbox rather than into the queue: others may share that, and can not know the seal.
        for queue in dict.fromkeys((inbox_queue(letter.buried_by), letter.queue)):
            try:
                await out.publish_durable("", queue, letter.data, properties, mandatory=True)
            except NobodyThere:
                continue
            return
        raise Reject(f"dead letter {letter.id}: {letter.buried_by}, who buried it, is gone; discard it")

    async def _with_link(self, work: Callable[[Link], Awaitable[list[Any]]]) -> list[Any]:
        link = await self._publisher.wait_link(asyncio.get_running_loop().time() + self._publisher.publish_wait_s)
        try:
            return await work(link)
        except (LinkLost, Refused) as error:
            raise BusUnavailable(f"the dead letters can not be reached: {error}") from error


def of_consumer(letter: DeadLetter) -> bool:
    """Whether a dead letter was buried by a consumer of events, and came from a queue of its own."""
    own = letter.by.startswith(f"{CONSUMER}.")
    return own and (letter.queue == letter.by or letter.queue.startswith(f"{letter.by}."))


async def _undo(attaching: asyncio.Task[None], consumer: Consumer) -> None:
    """Whoever subscribed is gone."""
    await asyncio.wait({attaching})
    if not attaching.cancelled() and attaching.exception() is None:
        await consumer.cancel()
