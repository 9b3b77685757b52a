"""One connection to the broker with the channels the bus needs, from its opening to its first trouble.

A link is never mended. Whatever goes wrong with the connection or any of its channels breaks the link, and
the bus opens another one and puts everything on it again. aio-pika's own robust connection is not used: it
restores channels and consumers one by one, holds them weakly, and has been seen connected without consuming;
here there is one state to restore and one way to do it.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import struct
import termios
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, cast

import aio_pika
from aiormq.abc import DeliveredMessage
from aiormq.channel import Channel as RawChannel
from aiormq.connection import TCPTransportFactory, TLSTransportFactory
from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    DeliveryError,
    PublishError,
)
from pamqp.commands import Basic
from pamqp.commands import Queue as QueueMethods
from yarl import URL

from shared.backoff import Backoff
from shared.bus.amqp.frames import FrameReader
from shared.bus.amqp.pieces import Pieces, publish
from shared.bus.api import BusUnavailable, Exchange, NobodyThere
from shared.bus.handling import explain
from shared.bus.topology import KINDS, Queue, standing_queues
from shared.tls import ClientTls

T = TypeVar("T")

REPLY_TO = "amq.rabbitmq.reply-to"
#: Every so many unconfirmed messages the socket is drained, so that a slow broker slows the publisher.
DRAIN_EVERY = 32
CLOSE_TIMEOUT_S = 5.0
#: Seconds before publishing channels are opened anew: at first, at most where one follows the other, and after how
#: many seconds it is the first again.
RENEW_FIRST_S, RENEW_CAP_S, RENEWED_S = 0.1, 2.0, 20.0
#: Channels that others have taken the place of stay open for so long: what was published on them is still confirmed,
#: and answers to requests come on the channel of the request. Longer than any call waits.
REPLACED_S = 90.0


class LinkLost(Exception):
    """The link broke while it was used."""


class NotStored(BusUnavailable):
    """The broker would not store a message (nack). Where its queue had no leader just then, RabbitMQ 3.10 refuses
    whatever is published to that queue on the same channel from then on: see Link.renew."""


class Refused(Exception):
    """The broker closed the channel over something on it: maybe what we asked, maybe what somebody else
    did."""


class NoSuchQueue(Refused):
    """The queue that was asked about is not there."""


class _Tcp(TCPTransportFactory):
    """Looks at frames before the library does, and keeps the socket at hand, so that a connection to a frozen broker
    can be dropped at once."""

    writer: asyncio.StreamWriter | None = None

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, self.writer = await super().create(url, **kwargs)
        return cast("asyncio.StreamReader", FrameReader(reader)), self.writer


class _Tls(TLSTransportFactory):
    writer: asyncio.StreamWriter | None = None

    async def create(self, url: URL, **kwargs: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, self.writer = await super().create(url, **kwargs)
        return cast("asyncio.StreamReader", FrameReader(reader)), self.writer


class _Connection(aio_pika.Connection):
    def __init__(self, url: URL, **kwargs: Any) -> None:
        super().__init__(url, **kwargs)
        self.socket = _Tls() if self.url.scheme == "amqps" else _Tcp()
        self.kwargs["transport_factory"] = self.socket

    def abort(self) -> None:
        if self.socket.writer is not None:
            with suppress(AttributeError):  # so Python 3.11.2 (Debian 12) says that TLS has ended already
                self.socket.writer.transport.abort()

    async def open(self) -> None:
        """Connect; what fails half-way, or is given up, is closed again. Raises what the library raises."""
        try:
            await self.connect()
        except BaseException:
            # The library may have opened the socket and lost it, as when the broker greets us with "blocked".
            self.abort()
            await self.close()
            raise

    def __del__(self) -> None:
        """The library's would close the connection in a task of its own, from wherever the garbage is collected: in a
        thread without an event loop it makes a coroutine that nobody awaits, elsewhere a task that nobody knows. There
        is nothing to do here: `open` and `Link.close` close every connection."""


async def guarded(work: Awaitable[T]) -> T:
    """Await something of the client library; whatever a broken connection makes of it becomes LinkLost."""
    try:
        return await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The library ends its futures with this error when the connection goes.
        raise LinkLost("the connection was closed") from None
    except ChannelNotFoundEntity as error:
        raise NoSuchQueue(explain(error)) from error
    except (ChannelAccessRefused, ChannelPreconditionFailed) as error:
        raise Refused(explain(error)) from error
    except PublishError as error:
        raise NobodyThere("no queue takes this message") from error
    except DeliveryError as error:
        raise NotStored("the broker could not store the message (nack)") from error
    except (AMQPError, ChannelInvalidStateError, OSError, RuntimeError) as error:
        raise LinkLost(explain(error)) from error


async def patiently(
    work: Awaitable[T], seconds: float, *, lives: Callable[[], bool] = lambda: False, longest_s: float | None = None
) -> T:
    """Await with a timeout that a busy event loop does not use up: time counts only while the loop turns.
    lives: whether there was another sign of life since it was last asked; then the time begins anew, up to longest_s in
    all. Raises TimeoutError."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(_seen)  # it may end with an error as we are cancelled
    step = seconds / 10
    silent = waited = 0
    try:
        while silent < 10 and waited * step < (longest_s or seconds):
            done, _ = await asyncio.wait({task}, timeout=step)
            if done:
                return task.result()
            waited += 1
            silent = 0 if lives() else silent + 1
        raise TimeoutError(f"no answer within {waited * step:g} s")
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=1.0)


def _seen(task: asyncio.Future[Any]) -> None:
    """The outcome is of no interest any more, also when it is an error."""
    if not task.cancelled():
        task.exception()


class Link:
    """An open connection. `broken` is done, with the reason, as soon as anything is wrong with it."""

    def __init__(self, connection: _Connection) -> None:
        self.connection = connection
        self.broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.refused = ""  # the broker's words when it closed a channel over what we did
        self._channels: list[aio_pika.abc.AbstractChannel] = []  # strong references: the library's are weak
        self._closing = False
        self._unconfirmed = 0
        self.generation = 0  # of the publishing channels
        self._renewing = asyncio.Lock()
        self._renewals = Backoff(RENEW_FIRST_S, RENEW_CAP_S)
        self._answered: Callable[[DeliveredMessage], None] | None = None
        self._probe: RawChannel | None = None  # that may be closed over a queue that is not there
        self._asking = asyncio.Lock()
        self._replaced: deque[tuple[float, RawChannel]] = deque()  # since when (loop time)
        self.confirming: RawChannel
        self.plain: RawChannel
        self.calling: RawChannel
        self.control: RawChannel

    @classmethod
    async def open(
        cls, url: str, *, name: str, heartbeat_s: int, timeout_s: float, tls: ClientTls | None = None
    ) -> Link:
        """Connect and open the channels. Raises LinkLost, TimeoutError or TlsTrouble."""
        _quiet_library()
        context = None
        if url.partition(":")[0].lower() == "amqps":
            tls, url = (tls or ClientTls()).for_url(url)
            context = tls.context()
        target = URL(url)
        if "heartbeat" not in target.query:
            target = target.update_query(heartbeat=heartbeat_s)
        async with asyncio.timeout(timeout_s):
            connection = _Connection(target, ssl_context=context, client_properties={"connection_name": name})
            await guarded(connection.open())
            link = cls(connection)
            try:
                connection.close_callbacks.add(link._connection_closed)
                await link._open_publishing()
                link.control = await link.channel("control")
            except BaseException:
                await link.close()
                raise
        return link

    async def _open_publishing(self) -> None:
        confirming = await self.channel("publishing", confirms=True)
        plain = await self.channel("transient publishing")
        calling = await self.channel("calls", confirms=True)
        for one in (confirming, plain, calling):
            Pieces.of(one)
        if self._answered is not None:
            await self._take_answers(calling, self._answered)
        self.confirming, self.plain, self.calling = confirming, plain, calling

    async def renew(self, generation: int) -> None:
        """Put new channels in the place of those that messages are published on, unless that was done since
        `generation`: a channel that met a queue without a leader stays with what it took it for. Raises LinkLost,
        Refused."""
        async with self._renewing:
            if self.generation != generation:
                return
            now = asyncio.get_running_loop().time()
            if self._replaced and now - self._replaced[-1][0] > RENEWED_S:
                self._renewals.reset()
            await asyncio.sleep(self._renewals.next_s())
            self._replaced += ((now, raw) for raw in (self.confirming, self.plain, self.calling))
            await self._open_publishing()
            self.generation += 1

    async def close_replaced(self) -> None:
        """Close what others have long taken the place of. Raises LinkLost, Refused."""
        now = asyncio.get_running_loop().time()
        while self._replaced and now - self._replaced[0][0] > REPLACED_S:
            await self.close_channel(self._replaced.popleft()[1])

    @property
    def backlog(self) -> int:
        """Bytes that wait here to be sent, or to be acknowledged by the broker's machine."""
        writer = self.connection.socket.writer
        if writer is None or writer.transport.is_closing():
            return 0
        socket = writer.get_extra_info("socket")
        (unsent,) = struct.unpack("i", fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4)))
        return int(unsent) + writer.transport.get_write_buffer_size()

    def fail(self, reason: str) -> None:
        if not self.broken.done():
            self.broken.set_result(reason)

    @property
    def usable(self) -> bool:
        return not self.broken.done()

    def _connection_closed(self, _: object, error: BaseException | None = None) -> None:
        self.fail(f"connection closed: {explain(error)}" if error else "connection closed")

    async def channel(self, purpose: str, *, confirms: bool = False, essential: bool = True) -> RawChannel:
        """Open a channel. When an essential one closes, by whoever's fault, the link is broken."""
        if self.connection.is_closed or self.connection.transport is None:
            raise LinkLost("the connection is closed")
        channel = self.connection.channel(publisher_confirms=confirms, on_return_raises=confirms)
        await guarded(channel.initialize())
        raw = await guarded(channel.get_underlay_channel())
        assert isinstance(raw, RawChannel)
        if essential:
            self._channels.append(channel)
            raw.closing.add_done_callback(lambda closing: self._channel_closed(purpose, raw, closing))
        return raw

    def _channel_closed(self, purpose: str, raw: RawChannel, closing: asyncio.Future[Any]) -> None:
        known = any(channel.number == raw.number for channel in self._channels)
        error = None if closing.cancelled() else closing.exception()
        if known and not self._closing:
            self.fail(f"channel for {purpose} closed: {explain(error) if error else 'no reason given'}")

    async def close_channel(self, raw: RawChannel) -> None:
        """Close one of ours in good order; what it has not acknowledged goes back to its queue."""
        self._channels = [channel for channel in self._channels if channel.number != raw.number]
        await guarded(raw.close())

    async def close(self) -> None:
        """Close in good order if the broker answers, else drop the connection: also where nobody waits any more."""
        self._closing = True
        healthy = self.usable
        self.fail("closed")
        if not healthy:
            self.connection.abort()
        closing = asyncio.ensure_future(self.connection.close())
        try:
            await asyncio.wait({closing}, timeout=CLOSE_TIMEOUT_S)
            if not closing.done():
                self.connection.abort()
                await asyncio.wait({closing}, timeout=CLOSE_TIMEOUT_S)
        finally:
            if not closing.done():
                self.connection.abort()
            closing.add_done_callback(_seen)
            closing.cancel()

    # Publishing

    async def publish_confirmed(
        self, exchange: str, key: str, data: bytes, properties: Basic.Properties, *, mandatory: bool = False
    ) -> None:
        """Return when the broker has it safely. Raises NobodyThere, NotStored, LinkLost, Refused."""
        await guarded(publish(self.confirming, data, exchange, key, properties, mandatory=mandatory))

    async def publish_plain(self, exchange: str, key: str, data: bytes, properties: Basic.Properties) -> None:
        self._unconfirmed += 1
        wait = self._unconfirmed % DRAIN_EVERY == 0 or len(data) > 65536
        await guarded(publish(self.plain, data, exchange, key, properties, wait=wait))

    async def settled(self) -> None:
        """Returns when the broker has taken all that was published plainly before: it does what a channel asks in
        order. Raises LinkLost."""
        await guarded(self.plain.basic_qos(prefetch_count=0))

    async def request(self, key: str, data: bytes, properties: Basic.Properties) -> None:
        """Publish a request. Raises like publish_confirmed."""
        await guarded(publish(self.calling, data, Exchange.RPC, key, properties, mandatory=True))

    async def receive_answers(self, callback: Callable[[DeliveredMessage], None]) -> None:
        """RabbitMQ's direct reply-to: answers come on the channel the requests are published on."""
        self._answered = callback
        await self._take_answers(self.calling, callback)

    async def _take_answers(self, channel: RawChannel, callback: Callable[[DeliveredMessage], None]) -> None:
        await guarded(channel.basic_consume(REPLY_TO, _consumer(callback), no_ack=True))

    # Topology

    async def declare_standing(self, *, clustered: bool) -> None:
        """Exchanges and standing queues. Where a deployment has declared them our user need not be allowed
        to."""
        if await self._exists(partial(_find_all, standing_queues(clustered=clustered))):
            return  # one channel for all: whoever reconnects, with a thousand others, waits for few answers
        anew = False
        for exchange, kind in KINDS.items():
            if not await self._exists(partial(_find_exchange, exchange)):
                await guarded(self.control.exchange_declare(exchange, exchange_type=kind, durable=True))
                anew = True
        for queue in standing_queues(clustered=clustered):
            # A queue of an earlier version lacks its binding to an exchange of this one.
            if anew or not await self._exists(partial(_find_queue, queue.name)):
                await self.declare(self.control, queue)

    async def _exists(self, declare: Callable[[RawChannel], Awaitable[None]]) -> bool:
        probe = await self.channel("probe", essential=False)
        try:
            await declare(probe)
        except ChannelNotFoundEntity:
            return False
        except (AMQPError, ChannelInvalidStateError, OSError, RuntimeError) as error:
            raise LinkLost(explain(error)) from error
        await guarded(probe.close())
        return True

    async def state(self, queue: str) -> QueueMethods.DeclareOk:
        """A queue's messages that wait to be delivered, and its consumers. Raises Refused where there is none. The
        channel is kept for the next question: to open one and to close it is dearer for the broker than to answer."""
        async with self._asking:
            probe, self._probe = self._probe, None
            if probe is None or probe.is_closed:
                probe = await self.channel("probe", essential=False)
            state = await guarded(probe.queue_declare(queue, passive=True))
            self._probe = probe  # not where the broker or the library has closed it over this
            return state

    async def states(self, queues: Sequence[str]) -> dict[str, QueueMethods.DeclareOk]:
        """The messages of these queues that wait to be delivered, and their consumers; queues that are not there are
        left out. Raises LinkLost, Refused."""
        found: dict[str, QueueMethods.DeclareOk] = {}
        for queue in queues:
            with suppress(NoSuchQueue):
                found[queue] = await self.state(queue)
        return found

    async def declare(self, channel: RawChannel, queue: Queue) -> None:
        """Declare a queue with its bindings. Raises Refused where it exists with other arguments."""
        await guarded(
            channel.queue_declare(
                queue.name,
                durable=queue.durable,
                exclusive=queue.exclusive,
                auto_delete=queue.auto_delete,
                arguments=dict(queue.arguments),
            )
        )
        for exchange, key in queue.bindings:
            await guarded(channel.queue_bind(queue.name, exchange, key))


async def _find_exchange(name: str, channel: RawChannel) -> None:
    await channel.exchange_declare(name, passive=True)


async def _find_all(queues: Sequence[Queue], channel: RawChannel) -> None:
    for exchange in KINDS:
        await _find_exchange(exchange, channel)
    for queue in queues:
        await _find_queue(queue.name, channel)


async def _find_queue(name: str, channel: RawChannel) -> None:
    await channel.queue_declare(name, passive=True)


def _consumer(callback: Callable[[DeliveredMessage], None]) -> Callable[[DeliveredMessage], Coroutine[Any, Any, None]]:
    async def consume(message: DeliveredMessage) -> None:
        callback(message)

    return consume


def _quiet_library() -> None:
    # Both log a traceback for every lost connection; the bus says so itself, in one line.
    for name in ("aiormq", "aio_pika"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.CRITICAL)


__all__ = ["DeliveredMessage", "Link", "LinkLost", "NotStored", "RawChannel", "Refused", "guarded", "patiently"]
