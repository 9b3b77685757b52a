"""What a daemon knows of those whose calls it is answering: for how long they wait, and that one has gone.

A gateway's callers are people and programs, who come and go. Of each of its calls that takes longer than TAKEN_AFTER_S
it is told who works on it (several daemons may read one inbox), and it tells that one when nobody waits any more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from shared.bus.amqp.delivery import Delivery
from shared.bus.amqp.link import Link, LinkLost, Refused
from shared.bus.amqp.publisher import Publisher
from shared.bus.handling import packed
from shared.caller import Wait
from shared.messages.base import CallEnded, CallTaken, Envelope, Message

#: Seconds after which such a caller is told that its call is being worked on. Most calls are answered before.
TAKEN_AFTER_S: Final = 0.2


class Callers:
    """Those of one daemon."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        # By the user of the broker who asked, and the request's id: nobody ends another's calls.
        self._waiting: dict[tuple[str, str], Wait] = {}

    @contextmanager
    def answering(self, delivery: Delivery) -> Iterator[Wait]:
        """How long its caller waits, while a request is answered."""
        wait = Wait(delivery.waits_s)
        if not delivery.tells_end:
            yield wait
            return
        key = (delivery.user_id, delivery.correlation_id)
        self._waiting[key] = wait
        timer = asyncio.get_running_loop().call_later(TAKEN_AFTER_S, self._tell, delivery)
        try:
            yield wait
        finally:
            timer.cancel()
            self._waiting.pop(key, None)

    def ended(self, user: str, envelope: Envelope) -> None:
        """A caller says that it waits no longer. user: whom the broker knows it as."""
        if isinstance(envelope.body, CallEnded) and (wait := self._waiting.get((user, envelope.body.call))) is not None:
            wait.end()

    def _tell(self, delivery: Delivery) -> None:
        body = CallTaken()
        self._publisher.spawn(say(self._publisher, "", delivery.reply_to, body, delivery.correlation_id))


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
