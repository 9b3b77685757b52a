"""What a daemon knows of those whose calls it is answering: for how long they wait, and that one has gone.

A gateway's callers are people and programs, who come and go. Of each of its calls that takes longer than TAKEN_AFTER_S
it is told who works on it (several daemons may read one inbox), and it tells that one when nobody waits any more."""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from shared.bus.amqp.delivery import Delivery
from shared.bus.amqp.link import REPLY_TO, Link, LinkLost, Refused
from shared.bus.amqp.publisher import Publisher
from shared.bus.handling import packed
from shared.caller import Wait
from shared.messages.base import CallEnded, CallTaken, Envelope, Message

#: Seconds after which such a caller is told that its call is being worked on. Most calls are answered before.
TAKEN_AFTER_S: Final = 0.2
#: What the broker says as it closes a connection over a fault of its own.
CRASHED: Final = "INTERNAL_ERROR"
#: An answer that crashed it was sent so many seconds before at most; its caller is taken for gone for so many.
CRASH_S: Final = 2.0
GONE_S: Final = 60.0
_TEXT, _ATOMS = 131, {100: 2, 118: 2, 119: 1}  # of Erlang's external terms: atoms, and the bytes of their length


class Callers:
    """Those of one daemon."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        # By the user of the broker who asked, and the request's id: nobody ends another's calls.
        self._waiting: dict[tuple[str, str], Wait] = {}
        self._answered: dict[str, float] = {}  # when callers on a node of the broker were answered last (monotonic)
        self._gone: dict[str, float] = {}  # until when callers on a node of the broker are taken for gone

    @contextmanager
    def answering(self, delivery: Delivery) -> Iterator[Wait]:
        """How long its caller waits, while a request is answered."""
        wait = Wait(delivery.waits_s)
        self._answered[node_of(delivery.reply_to)] = time.monotonic()
        if not delivery.tells_end:
            yield wait
            self._answered[node_of(delivery.reply_to)] = time.monotonic()
            return
        key = (delivery.user_id, delivery.correlation_id)
        self._waiting[key] = wait
        timer = asyncio.get_running_loop().call_later(TAKEN_AFTER_S, self._tell, delivery)
        try:
            yield wait
        finally:
            timer.cancel()
            self._waiting.pop(key, None)
            self._answered[node_of(delivery.reply_to)] = time.monotonic()

    def broke(self, reason: str) -> None:
        """The connection is lost. RabbitMQ 3.10 crashes it over an answer to a caller whose node of the cluster is
        gone, and delivers the request again, whose answer would do the same."""
        now = time.monotonic()
        self._gone = {node: until for node, until in self._gone.items() if until > now}
        if CRASHED in reason:
            self._gone |= {node: now + GONE_S for node, at in self._answered.items() if now - at < CRASH_S}
        self._answered.clear()

    def gone(self, delivery: Delivery) -> bool:
        """Whether a request was answered before, as far as can be, and its answer must not be sent again."""
        return delivery.again and self._gone.get(node_of(delivery.reply_to), 0.0) > time.monotonic()

    def ended(self, user: str, envelope: Envelope) -> None:
        """A caller says that it waits no longer. user: whom the broker knows it as."""
        if isinstance(envelope.body, CallEnded) and (wait := self._waiting.get((user, envelope.body.call))) is not None:
            wait.end()

    def _tell(self, delivery: Delivery) -> None:
        body = CallTaken()
        self._publisher.spawn(say(self._publisher, "", delivery.reply_to, body, delivery.correlation_id))


def node_of(reply_to: str) -> str:
    """The node of the broker that a caller is connected to, by its address for direct answers, in which RabbitMQ wrote
    its channel's process; what can not be read is a node of its own."""
    try:
        term = b64decode(reply_to.removeprefix(f"{REPLY_TO}.").partition(".")[0], validate=True)
        if term[0] != _TEXT:
            return reply_to
        start = 3 + _ATOMS[term[2]]
        return term[start : start + int.from_bytes(term[3:start], "big")].decode()
    except (ValueError, KeyError, IndexError):
        return reply_to


async def say(publisher: Publisher, exchange: str, key: str, body: Message, correlation_id: str | None = None) -> None:
    """Publish what is worth nothing without a connection."""
    link: Link | None = publisher.link
    if link is None:
        return
    envelope = publisher.envelope(body)
    properties = publisher.properties(envelope.id, body.type, durable=False, correlation_id=correlation_id)
    try:
        await link.publish_plain(exchange, key, packed(envelope), properties)
    except (LinkLost, Refused) as error:
        link.fail(f"publishing failed: {error}")
