"""The in-process transport: for the personal pool and for the simulation.

It behaves as the AMQP transport does, as the contract suite tests: every message is packed and unpacked,
consumers compete, inboxes wait while their owner is away, calls time out, what no handler takes is
dead-lettered. All time is the event loop's, so a loop with virtual time makes it a simulation; given a seeded
loop and `new_id` it is deterministic. Nothing outlives the process: daemons that live in one process end
together, and their protocols make good on the next start what was under way.

Longer than 500 lines because queue, consumer, hub and bus call each other both ways: apart, each would need the
others' innards.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from shared import tracing
from shared.bus.api import (
    BusHealth,
    BusUnavailable,
    CallTimeout,
    DeadLetter,
    Exchange,
    Handler,
    NobodyThere,
    Outgoing,
    RequestHandler,
)
from shared.bus.handling import (
    STOP_PATIENCE_S,
    UNSENDABLE,
    Log,
    Outcome,
    RetryPolicy,
    answer_request,
    check_inbox,
    check_topic,
    handle_message,
    not_sent,
    one_way,
    packed,
    packed_for,
    reconnected,
    report_gap,
    result_of,
    saying,
    tells_end,
)
from shared.bus.outbox import Outbox, PendingEvent
from shared.bus.senders import ANSWER, COPIED, TABLE, Arrival, Senders, Table
from shared.bus.statements import Believer, Keys, Signer
from shared.bus.topics import matches
from shared.bus.topology import (
    INBOX_DURABLE_WAIT_S,
    INBOX_TRANSIENT_WAIT_S,
    KINDS,
    MAX_DEAD_LETTERS,
    SHARED_INBOXES,
    inbox_queue,
    work_queue,
)
from shared.caller import Wait
from shared.messages.base import BadMessage, Envelope, Message, Person, new_id
from shared.messages.wire import type_of
from shared.tasks import TaskSet

#: How many messages a busy consumer takes before others get their turn, should its handler never wait for
#: anything.
TURN = 32
ROUTES_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class Fate:
    """What the hook of a simulation does to one copy of a message. delays: one entry for each copy delivered,
    in seconds. confirmed: whether the publisher of a durable message learns that it arrived (else
    BusUnavailable)."""

    delays: tuple[float, ...] = (0.0,)
    confirmed: bool = True


DELIVER = Fate()
DROP = Fate(delays=(), confirmed=False)
DUPLICATE = Fate(delays=(0.0, 0.0))
UNCONFIRMED = Fate(confirmed=False)


def delay(seconds: float) -> Fate:
    return Fate(delays=(seconds,))


@dataclass(slots=True)
class Item:
    """A message in a queue. Hooks read it."""

    data: bytes
    exchange: str  # empty for the answer to a call
    key: str
    queue: str  # where this copy goes; for an answer: who called
    sender: str
    body: Message
    deadline: float | None = None  # loop time after which it is not delivered any more
    caller: _Call | None = None
    deliveries: int = 0  # how often it was handed to a consumer that went away without taking it


@dataclass(slots=True)
class _Call:
    bus: MemoryBus
    future: asyncio.Future[bytes]
    wait: Wait


class _Queue:
    def __init__(self, name: str, exchange: Exchange, *, max_length: int = 0, ttl_s: float | None = None) -> None:
        self.name = name
        self.exchange = exchange
        self.max_length = max_length
        self.ttl_s = ttl_s
        self.items: deque[Item] = deque()
        self.consumers: deque[_Consumer] = deque()
        self.ranked = False  # some consumers come before others

    def push(self, item: Item) -> None:
        for _ in range(len(self.consumers)):
            consumer = self.consumers[0]
            self.consumers.rotate(-1)
            if consumer.has_room() and (not self.ranked or consumer.priority == self._highest()):
                consumer.begin(item)
                return
        self.items.append(item)
        if self.max_length and len(self.items) > self.max_length:
            self.items.popleft()

    def _highest(self) -> int:
        """The highest priority among consumers that have room."""
        return max(consumer.priority for consumer in self.consumers if consumer.has_room())

    def next(self, now: float) -> Item | None:
        """The oldest message somebody still waits for."""
        while self.items:
            item = self.items.popleft()
            if item.deadline is None or item.deadline > now:
                return item
        return None

    def give_back(self, items: Sequence[Item]) -> None:
        """Put unfinished messages back to the front, for the next consumer."""
        self.items.extendleft(reversed(items))
        for _ in range(len(self.consumers)):
            self.consumers[0].fill()
            self.consumers.rotate(-1)


class _Consumer:
    """A subscription. Up to `limit` workers run at a time; each goes on while there are messages."""

    def __init__(
        self,
        bus: MemoryBus,
        queue: _Queue,
        handle: Callable[[Item], Awaitable[Outcome]],
        limit: int,
        private: tuple[Exchange, Sequence[str]] | None,
        priority: int = 0,
    ) -> None:
        self.bus = bus
        self.queue = queue
        self.handle = handle
        self.limit = max(1, limit)
        self.priority = priority
        self.private = private
        # What each worker has in hand (None: nothing for the moment). Dicts, since their order is the same in
        # every run.
        self.workers: dict[asyncio.Task[None], Item | None] = {}
        self.orphans: dict[asyncio.Task[None], None] = {}  # still handling what a lost connection gave to others
        self.later: list[Item] = []  # for whoever consumes after us
        self.open = True
        self.attached = False

    def has_room(self) -> bool:
        return len(self.workers) < self.limit

    def attach(self) -> None:
        if self.open and not self.attached:
            self.attached = True
            if self.private is not None:
                self.bus.hub.bind(self.queue, *self.private)
            self.queue.consumers.append(self)
            self.fill()

    def detach(self) -> None:
        if self.attached:
            self.attached = False
            self.queue.consumers.remove(self)
            if self.private is not None:
                self.bus.hub.unbind(self.queue, self.private[0])

    def fill(self) -> None:
        now = self.bus.hub.loop_time()
        while self.attached and self.has_room() and (item := self.queue.next(now)) is not None:
            self.begin(item)

    def begin(self, item: Item) -> None:
        task = asyncio.get_running_loop().create_task(self._work(item), name=f"bus:{self.queue.name}")
        self.workers[task] = item
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.orphans.pop(task, None)
        self.workers.pop(task, None)
        self.fill()

    async def _work(self, first: Item) -> None:
        task = asyncio.current_task()
        assert task is not None
        item: Item | None = first
        turn = 0
        while item is not None:
            self.workers[task] = item
            self.bus.arrived(item)
            outcome = await self.handle(item)
            if task not in self.workers:
                return  # the connection was lost meanwhile: the message is delivered again, to whoever is there
            if outcome.later:
                self.later.append(item)
            if outcome.answer is not None and item.caller is not None:
                self.bus.reply(item.caller, outcome.answer)
            if outcome.dead:
                self.bus.health.dead_lettered += 1
                self.bus.hub.bury(item, outcome.dead)
            self.workers[task] = None
            turn += 1
            if turn % TURN == 0:
                await asyncio.sleep(0)
            item = self.queue.next(self.bus.hub.loop_time()) if self.attached else None
        self.workers.pop(task, None)

    async def cancel(self, caller: asyncio.Task[Any] | None = None) -> None:
        """caller: the task that waits for this, if it is not this one."""
        self.open = False
        self.detach()
        current = caller or asyncio.current_task()
        under_way = [task for task in (*self.workers, *self.orphans) if task is not current]
        if under_way:
            await asyncio.wait(under_way)
        self._give_back([])
        self.bus.forget(self)

    async def cut_short(self, current: asyncio.Task[Any] | None) -> None:
        """End handlers that do not end by themselves; somebody else has their messages already."""
        orphans = [task for task in self.orphans if task is not current]
        for task in orphans:
            task.cancel()
        await asyncio.gather(*orphans, return_exceptions=True)

    def abandon(self, *, crash: bool) -> None:
        """What becomes of a consumer whose connection is lost: others get its unfinished messages. Its
        handlers go on, though their success counts for nothing, unless the whole process crashed."""
        self.detach()
        unfinished = [item for item in self.workers.values() if item is not None]
        self.orphans.update(dict.fromkeys(self.workers))
        self.workers.clear()
        if crash:
            for task in self.orphans:
                task.cancel()
        self._give_back(unfinished)

    def _give_back(self, unfinished: list[Item]) -> None:
        unfinished, self.later = [*self.later, *unfinished], []
        if self.private is None:
            for item in unfinished:
                item.deliveries += 1
            self.queue.give_back(unfinished)
        else:
            self.queue.items.clear()


class MemoryHub:
    """What a broker is to AMQP. All buses of one pool share a hub; create it and its buses in one event loop.

    on_route: asked about every copy of a message on its way to a queue, and about every answer; for
    simulations."""

    def __init__(
        self,
        *,
        now: Callable[[], float] = time.time,
        new_id: Callable[[], str] = new_id,
        on_route: Callable[[Item], Fate] | None = None,
    ) -> None:
        self.now = now
        self.new_id = new_id
        self.on_route = on_route
        self._queues: dict[str, _Queue] = {}
        self._bindings: dict[Exchange, list[tuple[str, _Queue]]] = {exchange: [] for exchange in Exchange}
        self._routes: dict[tuple[Exchange, str], tuple[_Queue, ...]] = {}
        self._dead: OrderedDict[str, DeadLetter] = OrderedDict()
        for name in SHARED_INBOXES:
            self.inbox(name)

    @staticmethod
    def loop_time() -> float:
        return asyncio.get_running_loop().time()

    # Queues and bindings

    def inbox(self, name: str) -> _Queue:
        """The queue of an inbox; made when it is not there yet."""
        queue = self._queues.get(inbox_queue(name))
        if queue is None:
            queue = self._queues[inbox_queue(name)] = _Queue(inbox_queue(name), Exchange.RPC)
            self.bind(queue, Exchange.RPC, (name,))
        return queue

    def served(self, inboxes: Sequence[str]) -> dict[str, bool]:
        queues = {name: self._queues.get(inbox_queue(name)) for name in inboxes}
        return {name: bool(queue.consumers) for name, queue in queues.items() if queue is not None}

    def waiting(self, queues: Sequence[str]) -> dict[str, int]:
        found = {name: len(queue.items) for name in queues if (queue := self._queues.get(name)) is not None}
        return found | ({Exchange.DEAD: len(self._dead)} if Exchange.DEAD in queues else {})

    def work_queue(self, name: str) -> _Queue:
        declared = work_queue(name)
        queue = self._queues.get(name)
        if queue is None:
            queue = _Queue(name, declared.exchange, max_length=declared.max_length, ttl_s=declared.ttl_s)
            self._queues[name] = queue
            self.bind(queue, declared.exchange, declared.patterns)
        return queue

    def bind(self, queue: _Queue, exchange: Exchange, patterns: Sequence[str]) -> None:
        self._bindings[exchange].extend((pattern, queue) for pattern in patterns)
        self._routes.clear()

    def unbind(self, queue: _Queue, exchange: Exchange) -> None:
        self._bindings[exchange] = [entry for entry in self._bindings[exchange] if entry[1] is not queue]
        self._routes.clear()

    def _queues_for(self, exchange: Exchange, key: str) -> tuple[_Queue, ...]:
        found = self._routes.get((exchange, key))
        if found is None:
            topic = KINDS[exchange] == "topic" and exchange is not Exchange.RPC  # inboxes are bound by their whole name
            chosen = {  # a queue gets one copy, however many of its patterns match
                id(queue): queue
                for pattern, queue in self._bindings[exchange]
                if (matches(pattern, key) if topic else pattern == key)
            }
            found = tuple(chosen.values())
            if len(self._routes) >= ROUTES_CACHED:
                self._routes.clear()
            self._routes[exchange, key] = found
        return found

    # Messages

    def route(self, item: Item, exchange: Exchange) -> tuple[bool, bool]:
        """Put copies into all queues it belongs to. Returns whether there was any, and whether all were
        confirmed."""
        queues = self._queues_for(exchange, item.key)
        confirmed = True
        for queue in queues:
            copy = Item(
                item.data,
                item.exchange,
                item.key,
                queue.name,
                item.sender,
                item.body,
                item.deadline,
                item.caller,
            )
            if queue.ttl_s is not None:
                copy.deadline = self.loop_time() + queue.ttl_s
            fate = self.on_route(copy) if self.on_route is not None else DELIVER
            confirmed = confirmed and fate.confirmed
            for seconds in fate.delays:
                if seconds > 0:
                    self.after(seconds, queue.push, copy)
                else:
                    queue.push(copy)
        return bool(queues), confirmed

    def after(self, seconds: float, deliver: Callable[..., object], *arguments: object) -> None:
        """Deliver what is under way, after that time."""
        asyncio.get_running_loop().call_later(seconds, deliver, *arguments)

    def bury(self, item: Item, reason: str) -> None:
        """Put a message to the dead letters."""
        letter = DeadLetter(
            id=self.new_id(),
            reason=reason,
            at=self.now(),
            exchange=item.exchange,
            key=item.key,
            queue=item.queue,
            type=item.body.type or type_of(item.data),
            data=item.data,
        )
        self._dead[letter.id] = letter
        if len(self._dead) > MAX_DEAD_LETTERS:
            self._dead.popitem(last=False)

    def dead_letters(self, limit: int) -> list[DeadLetter]:
        return [letter for letter, _ in zip(self._dead.values(), range(limit), strict=False)]

    def take_dead_letter(self, letter_id: str) -> DeadLetter | None:
        return self._dead.pop(letter_id, None)

    def inject(self, exchange: Exchange, key: str, data: bytes, *, queue: str = "") -> None:
        """Route bytes as they are, to one queue only where its name is given and it is there. What was
        dead-lettered comes back this way; tests send garbage."""
        try:
            envelope = Envelope.unpack(data)
            sender, body = envelope.sender, envelope.body
        except BadMessage:
            sender, body = "", Message()
        item = Item(data, exchange, key, queue, sender, body)
        for candidate in self._queues_for(exchange, key):
            if candidate.name == queue:
                candidate.push(item)
                return
        self.route(item, exchange)


class MemoryBus:
    """One daemon's connection to a hub. Implements shared.bus.api.Bus.

    sender: "<subsystem>.<name>", the inbox of the daemon. publish_wait_s: how long durable messages wait for
    a connection (which only simulations cut). rows: who may send what. signer, keys: as AmqpBus takes them; without
    keys what a gateway says of people is believed, as only this process can speak here."""

    def __init__(
        self,
        hub: MemoryHub,
        *,
        sender: str,
        retry: RetryPolicy | None = None,
        publish_wait_s: float = 30.0,
        rows: Table = TABLE,
        signer: Signer | None = None,
        keys: Keys | None = None,
        log: Log | None = None,
    ) -> None:
        self.hub = hub
        self._signer = signer
        self.sender = sender
        self.retry = retry or RetryPolicy()
        self.publish_wait_s = publish_wait_s
        self._log: Log = log or structlog.get_logger().bind(sender=sender)
        self._health = BusHealth(waiting_for="start")
        self._senders = Senders(self._health, self._log, rows, Believer(keys, hub.now) if keys is not None else None)
        self._consumers: list[_Consumer] = []
        self._gap_callbacks: list[Callable[[], Awaitable[None]]] = []
        self._background = TaskSet()
        self._calls: dict[asyncio.Future[bytes], None] = {}
        self._connected = asyncio.Event()
        self._stopped = False
        self._turn = 0
        self._outbox = Outbox()
        self._away_since = 0.0

    @property
    def health(self) -> BusHealth:
        health = self._health
        health.in_hand = sum(item is not None for one in self._consumers for item in one.workers.values())
        health.calls_waiting = len(self._calls)
        health.expected_consumers = len(self._consumers)
        health.consumers = len(self._consumers) if health.connected else 0
        return health

    async def start(self) -> None:
        self._stopped = False
        self._connect()

    async def stop_consuming(self) -> None:
        caller = asyncio.current_task()
        await asyncio.gather(*(consumer.cancel(caller) for consumer in self._consumers))

    async def stop(self) -> None:
        self._stopped = True
        current = asyncio.current_task()
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await self.stop_consuming()
        except TimeoutError:
            self._log.warning("bus.handlers_cut_short", messages=self.health.in_hand)
        stuck = self._consumers
        self.disconnect()
        for consumer in stuck:
            await consumer.cut_short(current)
        self._consumers = []
        self._health.waiting_for = "start"
        await self._background.cancel()

    # What a simulation does to a daemon's connection

    def disconnect(self, *, crash: bool = False) -> None:
        """Cut the connection: unfinished messages go back to their queues, calls under way fail, broadcasts
        are missed. With `crash` the handlers end too, as when the daemon's process is killed."""
        if self._connected.is_set():
            self._away_since = self.hub.now()
        if crash:
            self._outbox = Outbox()
        self._connected.clear()
        self._health.connected = False
        self._health.waiting_for = "connection to the hub"
        for consumer in self._consumers:
            consumer.abandon(crash=crash)
        for future in list(self._calls):
            if not future.done():
                future.set_exception(BusUnavailable("the connection was lost while waiting for the answer"))

    def reconnect(self) -> None:
        """Come back after disconnect(): consumers go on, callbacks of on_gap run."""
        if not self._connected.is_set():
            self._connect()
            self._health.reconnects += 1
            self._repeat()
            for callback in self._gap_callbacks:
                self._background.spawn(report_gap(callback, self.retry, self._log), "bus:gap")

    def _connect(self) -> None:
        if self._connected.is_set():
            return
        self._connected.set()
        self._health.connected = True
        self._health.waiting_for = ""
        for consumer in self._consumers:
            consumer.attach()

    def _repeat(self) -> None:
        """Send what was said without a connection, and tell how that was."""
        told = reconnected(self.sender, self.hub.now(), self._away_since, self._outbox)
        while (event := self._outbox.next()) is not None:
            self._outbox.mark_sent(event, 0.0)
            assert isinstance(event.item, Item)
            self._route(event.item, Exchange.EVENTS, 0.0)
        self._outbox = Outbox()
        if told is not None:
            if told.lost:
                self._health.unpublished.add("dropped", count=told.lost)
            self._route(self._item(Exchange.EVENTS, told.type, told, None, None), Exchange.EVENTS, 0.0)

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
        began = time.perf_counter()
        item = self._item(exchange, key, body, epoch, trace)
        if body.kept and exchange is Exchange.EVENTS and not self._connected.is_set():
            if self._stopped:
                raise BusUnavailable("the bus is stopped")
            self._outbox.add(PendingEvent(key, item.data, "", body.type, self.hub.now(), item=item))
            return
        if await self._may_send(body):
            self._route(item, exchange, began)

    async def publish_many(self, messages: Sequence[Outgoing]) -> None:
        for m in messages:
            await self.publish(m.exchange, m.key, m.body, epoch=m.epoch, trace=m.trace)

    async def send(self, inbox: str, body: Message, *, epoch: int | None = None) -> None:
        check_inbox(inbox)
        began = time.perf_counter()
        item = self._item(Exchange.RPC, inbox, body, epoch, None)
        wait = INBOX_DURABLE_WAIT_S if body.durable else INBOX_TRANSIENT_WAIT_S
        if await self._may_send(body):
            item.deadline = self.hub.loop_time() + wait
            self._route(item, Exchange.RPC, began)

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
        envelope = self._envelope(request, epoch, trace or tracing.current())
        said = saying(self._signer, person, inbox, request, self._senders.rows)
        data = packed(envelope) if said is None else await packed_for(envelope, said)
        item = Item(data, Exchange.RPC, inbox, "", self.sender, request)
        loop = asyncio.get_running_loop()
        wait = Wait(timeout)
        item.deadline = wait.until
        if not self._connected.is_set():
            await self._wait_connected(timeout)
        future: asyncio.Future[bytes] = loop.create_future()
        item.caller = _Call(self, future, wait)
        there, _ = self.hub.route(item, Exchange.RPC)
        if not there:
            raise NobodyThere(f"inbox {inbox!r} does not exist: its owner was never here")
        self._health.published += 1
        self._calls[future] = None
        timer = loop.call_at(item.deadline, _expire, future, inbox, request.type, timeout)
        began = time.perf_counter()
        try:
            return await result_of(await future, ANSWER, self._senders)
        except asyncio.CancelledError:
            if tells_end(self.sender):
                wait.end()
            raise
        finally:
            timer.cancel()
            del self._calls[future]
            self._health.called.add(request.type, time.perf_counter() - began)

    def reply(self, caller: _Call, body: Message) -> None:
        """Answer a call that came to one of our inboxes."""
        if not self._connected.is_set():
            return
        try:
            data = self._packed(body)
        except UNSENDABLE as error:
            data = self._packed(not_sent(body, error, self._log))
        item = Item(data, "", "", caller.bus.sender, self.sender, body)
        fate = self.hub.on_route(item) if self.hub.on_route is not None else DELIVER
        for seconds in fate.delays:
            if seconds > 0:
                self.hub.after(seconds, _resolve, caller, item.data)
            else:
                _resolve(caller, item.data)

    def _packed(self, body: Message, epoch: int | None = None, trace: str | None = None) -> bytes:
        return packed(self._envelope(body, epoch, trace))

    def _envelope(self, body: Message, epoch: int | None, trace: str | None) -> Envelope:
        return Envelope(body, self.sender, self.hub.new_id(), self.hub.now(), epoch, trace)

    def _item(self, exchange: Exchange, key: str, body: Message, epoch: int | None, trace: str | None) -> Item:
        return Item(self._packed(body, epoch, trace), exchange, key, "", self.sender, body)

    def _route(self, item: Item, exchange: Exchange, began: float) -> None:
        there, confirmed = self.hub.route(item, exchange)
        if item.body.durable:
            if not there and exchange is Exchange.RPC:
                self._health.unpublished.add("nobody-there")
                raise NobodyThere(f"inbox {item.key!r} does not exist: its owner was never here")
            if not confirmed:
                self._health.unpublished.add("unavailable")
                raise BusUnavailable(f"{item.body.type} to {exchange} {item.key!r} was not confirmed")
            self._health.confirmed.add(time.perf_counter() - began)
        self._health.published += 1

    async def _may_send(self, body: Message) -> bool:
        self._turn += 1
        if self._turn % TURN == 0:
            await asyncio.sleep(0)  # a sender that never waits for anything else must not keep the loop for itself
        if self._connected.is_set():
            return True
        if not body.durable:
            self._health.unpublished.add("dropped")
            return False
        try:
            await self._wait_connected(self.publish_wait_s)
        except BusUnavailable:
            self._health.unpublished.add("unavailable")
            raise
        return True

    async def _wait_connected(self, seconds: float) -> None:
        if self._stopped:
            raise BusUnavailable("the bus is stopped")
        try:
            async with asyncio.timeout(seconds):
                await self._connected.wait()
        except TimeoutError:
            raise BusUnavailable(f"no connection within {seconds:g} s") from None

    # Consuming

    async def consume(self, queue: str, handler: Handler, *, prefetch: int = 100) -> _Consumer:
        source = self.hub.work_queue(queue)
        return self._subscribe(source, self._taker(handler, source.exchange), prefetch)

    async def listen(
        self, exchange: Exchange, patterns: Sequence[str], handler: Handler, *, prefetch: int = 500
    ) -> _Consumer:
        check_topic(exchange)
        queue = _Queue(f"{self.sender}:{self.hub.new_id()}", exchange)
        # One worker: messages are handled in order of arrival, so prefetch means nothing here.
        return self._subscribe(queue, self._taker(handler, exchange, copy=True), 1, (exchange, tuple(patterns)))

    async def serve(self, inbox: str, handler: RequestHandler, *, prefetch: int = 100, priority: int = 0) -> _Consumer:
        take_one_way = self._taker(one_way(handler), Exchange.RPC, inbox=inbox)

        async def handle(item: Item) -> Outcome:
            if item.caller is None:
                return await take_one_way(item)
            arrival = Arrival(Exchange.RPC, inbox=inbox, again=item.deliveries > 0)
            return await answer_request(item.data, handler, self._log, arrival, self._senders, item.caller.wait)

        queue = self.hub.inbox(inbox)
        queue.ranked = queue.ranked or priority != 0
        return self._subscribe(queue, handle, prefetch, priority=priority)

    async def served(self, inboxes: Sequence[str]) -> dict[str, bool]:
        if not self._connected.is_set():
            raise BusUnavailable("there is no connection to the hub")
        return self.hub.served(inboxes)

    async def waiting(self, queues: Sequence[str]) -> dict[str, int]:
        if not self._connected.is_set():
            raise BusUnavailable("there is no connection to the hub")
        return self.hub.waiting(queues)

    def _taker(
        self, handler: Handler, exchange: Exchange, *, copy: bool = False, inbox: str = ""
    ) -> Callable[[Item], Awaitable[Outcome]]:
        # The hub takes messages of its own process only, each from its bus: there is nobody to vouch for.
        plain, senders = Arrival(exchange, copy=copy and exchange in COPIED, inbox=inbox), self._senders

        def take(item: Item) -> Awaitable[Outcome]:
            arrival = replace(plain, again=True) if item.deliveries else plain
            return handle_message(item.data, item.deliveries, handler, self.retry, self._log, arrival, senders)

        return take

    def _subscribe(
        self,
        queue: _Queue,
        handle: Callable[[Item], Awaitable[Outcome]],
        limit: int,
        private: tuple[Exchange, Sequence[str]] | None = None,
        priority: int = 0,
    ) -> _Consumer:
        consumer = _Consumer(self, queue, handle, limit, private, priority)
        self._consumers.append(consumer)
        if self._connected.is_set():
            consumer.attach()
        return consumer

    def arrived(self, item: Item) -> None:
        self._health.received += 1
        self._health.redelivered += item.deliveries > 0

    def forget(self, consumer: _Consumer) -> None:
        if consumer in self._consumers:
            self._consumers.remove(consumer)

    def on_gap(self, callback: Callable[[], Awaitable[None]]) -> None:
        self._gap_callbacks.append(callback)

    # Dead letters

    async def dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        return self.hub.dead_letters(limit)

    async def requeue(self, ids: Sequence[str]) -> list[str]:
        done = []
        for letter_id in ids:
            letter = self.hub.take_dead_letter(letter_id)
            if letter is not None:
                self.hub.inject(Exchange(letter.exchange), letter.key, letter.data, queue=letter.queue)
                done.append(letter_id)
        return done

    async def discard(self, ids: Sequence[str]) -> list[str]:
        return [letter_id for letter_id in ids if self.hub.take_dead_letter(letter_id) is not None]


def _resolve(caller: _Call, data: bytes) -> None:
    if not caller.future.done():
        caller.future.set_result(data)


def _expire(future: asyncio.Future[bytes], inbox: str, kind: str, timeout: float) -> None:
    if not future.done():
        future.set_exception(CallTimeout(f"no answer from {inbox!r} to {kind} within {timeout:g} s"))
