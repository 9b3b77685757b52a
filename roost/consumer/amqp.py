"""Events from RabbitMQ itself, with a user that may read events and nothing else (docs/consumers.md tells how to make
one).

A durable consumer has a queue of its name, which holds what is said while it is away. What it takes is acknowledged,
what it gives up goes to the pool's dead letters, and what it was busy with when it died comes again. Any other consumer
has a queue that goes with its connection, and is told of every Gap.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final

import msgpack
import structlog
from yarl import URL

from roost.consumer.source import Closed, Delivered, Gap, Item, Received, closed_early
from roost.errors import ClientError
from roost.events import event_of
from shared.bus.amqp import AmqpBus
from shared.bus.amqp.delivery import Delivery
from shared.bus.api import BusUnavailable, NotAllowed
from shared.bus.handling import LATER, TAKEN, Outcome
from shared.bus.topology import CONSUMER, consumer_declaration
from shared.messages.base import ENVELOPE_VERSION, new_id

LOG = logging.getLogger("roost.consumer")
#: A message that was delivered so often, and never taken nor given up, kills whoever reads it. Large, since what was
#: fetched ahead counts as delivered too.
POISON: Final = 50
#: How often a durable queue is looked at for having been full.
LOOK_S: Final = 30.0
STOP_S: Final = 10.0
#: How the broker says no to a user, a password, a virtual host; and for how long until it is believed, seconds.
_REFUSALS: Final = ("ACCESS_REFUSED", "NOT_ALLOWED", "AuthenticationError")
REFUSED_S: Final = 3.0


class AmqpSource:
    """url: amqp://user:password@host:port/vhost, several with commas in between. name: of the consumer. patterns: topic
    patterns of types. max_length: events that the queue holds. ahead: events fetched before they are asked for."""

    def __init__(
        self,
        url: str,
        name: str,
        patterns: tuple[str, ...],
        *,
        durable: bool,
        max_length: int = 100_000,
        ahead: int = 100,
        patience_s: float = 30.0,
    ) -> None:
        self.buries = durable
        self.queue = consumer_declaration(
            queue_name(url, name) if durable else f"{queue_name(url, name)}.{new_id()[-12:]}",
            patterns,
            durable=durable,
            max_length=max_length,
        )
        self._max_length = max_length
        self._ahead = ahead
        self._patience_s = patience_s
        self._waiting: asyncio.Queue[Delivered | Gap | BaseException] = asyncio.Queue()
        self._in_hand: set[asyncio.Future[Outcome]] = set()
        self._last = ""
        self._was_full = False
        self._closed = False
        self._watch: asyncio.Task[None] | None = None
        self._bus = AmqpBus(url, sender=self.queue.name[:200], log=_log(), publish_wait_s=patience_s)

    @property
    def connected(self) -> bool:
        # Connected alone, its queue may not be there yet.
        health = self._bus.health
        return health.connected and 0 < health.consumers == health.expected_consumers and not self._closed

    @property
    def waiting_for(self) -> str:
        return "closed" if self._closed else self._bus.health.waiting_for

    async def open(self) -> None:
        if not self.queue.durable:
            self._bus.on_gap(self._on_gap)
        try:
            async with asyncio.timeout(self._patience_s):
                await self._started()
            if self.queue.durable:
                with contextlib.suppress(BusUnavailable):  # there is no such queue yet
                    await self._look()
            await self._bus.subscribe(self.queue, self._handle, prefetch=self._ahead, in_order=False)
        except TimeoutError:
            waiting = self._bus.health.waiting_for
            await self.close()
            raise ClientError(f"no connection within {self._patience_s:g} s: {waiting}", "unavailable", True) from None
        except NotAllowed as error:
            await self.close()
            raise ClientError(
                f"{error}; a consumer's user may only use queues that begin with its own name, and a queue keeps the "
                "length it was made with: take the same `name` and `max_length`, or delete the queue",
                "denied",
            ) from error
        except BusUnavailable as error:
            await self.close()
            raise ClientError(str(error), "unavailable", retryable=True) from error
        if self.queue.durable:
            self._watch = asyncio.get_running_loop().create_task(self._look_again(), name="consumer:watch")

    async def _started(self) -> None:
        """Until there is a connection. Raises ClientError denied where the broker refuses user, password or virtual
        host for REFUSED_S: that does not mend itself. (One that is just starting may not know them yet.)"""
        starting = asyncio.ensure_future(self._bus.start())
        loop = asyncio.get_running_loop()
        since: float | None = None
        try:
            while not (await asyncio.wait({starting}, timeout=0.1))[0]:
                error = self._bus.health.last_error
                if not any(one in error for one in _REFUSALS):
                    since = None
                elif since is None:
                    since = loop.time()
                elif loop.time() - since >= REFUSED_S:
                    await self.close()
                    raise ClientError(f"the broker refuses this consumer: {error}; look at its URL", "denied")
            await starting
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    async def next(self) -> Delivered:
        if self._closed:
            raise Closed
        found = await self._waiting.get()
        if isinstance(found, BaseException):
            self._waiting.put_nowait(found)  # for whoever asks again
            raise closed_early(found) if not isinstance(found, Closed) else found
        return Delivered(found, lambda _: None) if isinstance(found, Gap) else found

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._waiting.put_nowait(Closed())
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
        for future in self._in_hand:
            if not future.done():
                future.set_result(LATER)
        try:
            async with asyncio.timeout(STOP_S):
                await self._bus.stop()
        except TimeoutError:
            LOG.warning("the connection of %s did not close within %g s", self.queue.name, STOP_S)

    # From the broker

    async def _handle(self, delivery: Delivery) -> Outcome:
        if delivery.deliveries >= POISON:
            return Outcome(dead=f"given up after {delivery.deliveries} deliveries: each ended with its consumer")
        try:
            item = _received(delivery)
        except ValueError as error:
            LOG.warning("%s gets a message that is no event: %s", self.queue.name, error)
            return Outcome(dead=str(error)) if self.buries else TAKEN
        if self._closed:
            return LATER
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(reason: str) -> None:
            if not future.done():
                self._last = item.id
                future.set_result(Outcome(dead=reason) if reason and self.buries else TAKEN)

        self._in_hand.add(future)
        try:
            self._waiting.put_nowait(Delivered(item, done))
            return await future
        finally:
            self._in_hand.discard(future)

    async def _on_gap(self) -> None:
        self._waiting.put_nowait(Gap("the connection to the broker was lost: events may have been missed", self._last))

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._look()
            except BusUnavailable as error:
                LOG.info("%s", error)

    async def _look(self) -> None:
        """The broker does not tell that it dropped the oldest events of a full queue: but a queue that is full does."""
        full = await self._bus.depth(self.queue.name) >= self._max_length
        if full and not self._was_full:
            reason = f"queue {self.queue.name} is full ({self._max_length} events): the oldest ones were dropped"
            self._waiting.put_nowait(Gap(reason, self._last))
        self._was_full = full


def queue_name(url: str, name: str) -> str:
    """consumer.<name>; without a name that of the broker's user, which is allowed no other."""
    user = URL(url.partition(",")[0]).user or ""
    if not name:
        return user if user.startswith(f"{CONSUMER}.") else f"{CONSUMER}.unnamed"
    if name.startswith(f"{CONSUMER}."):
        return name
    # The user of one program with several consumers: consumer.bill may have consumer.bill.hourly.
    return f"{CONSUMER}.{name}"


def _received(delivery: Delivery) -> Received:
    """Raises ValueError for what is no message of ours; an event of any type and version is one."""
    try:
        raw: Any = msgpack.unpackb(delivery.data, strict_map_key=False)
    except Exception as error:
        raise ValueError(f"not a msgpack envelope: {error}") from error
    if not isinstance(raw, dict) or raw.get("v") != ENVELOPE_VERSION:
        raise ValueError(f"not an envelope of version {ENVELOPE_VERSION}")
    name, version, body = raw.get("type"), raw.get("tv"), raw.get("body")
    if not (isinstance(name, str) and isinstance(version, int) and isinstance(body, dict)):
        raise ValueError("an envelope without type, version or body")
    sender, ident = raw.get("sender"), raw.get("id")
    return Received(
        ident if isinstance(ident, str) and ident else delivery.message_id,
        event_of(name, {str(key): value for key, value in body.items()}, version),
        sender if isinstance(sender, str) else "",
        redelivered=delivery.deliveries > 0,
    )


def _log() -> structlog.stdlib.BoundLogger:
    """The bus speaks to the program's own log, not to its standard output."""
    return structlog.wrap_logger(  # type: ignore[no-any-return]
        logging.getLogger("roost.consumer.bus"),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


__all__ = ["AmqpSource", "Item"]
