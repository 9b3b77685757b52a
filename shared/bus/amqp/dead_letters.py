"""The dead letters on RabbitMQ: one quorum queue, looked at by taking messages and giving them back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from shared.bus.amqp.delivery import Delivery
from shared.bus.amqp.frames import ODD_HEADER
from shared.bus.amqp.link import DeliveredMessage, Link, guarded
from shared.bus.amqp.seal import Seal
from shared.bus.api import DeadLetter, Exchange
from shared.messages.wire import type_of

MAX_REASON = 2000


async def headers(delivery: Delivery, source: str, reason: str, *, by: str, now: float, seal: Seal) -> dict[str, Any]:
    """What a dead letter says of itself; its body is the message as it came. source: the queue it came from, as it was
    subscribed to; now: seconds since 1970; by: the sender of whoever could not take it, whose `seal` it is."""
    # One that came back and dies again stays under the seal that it has: it is the same message, from the same
    # publisher. Should that seal not fit, then nobody vouches for it any more than before.
    if delivery.seal:
        publisher, queue, sealed, by = delivery.publisher, delivery.came_to, delivery.seal, delivery.buried_by
    else:
        publisher, queue = delivery.user_id, source
        sealed = seal.of(queue, publisher, await delivery.digest())
    return {
        "publisher": publisher,
        "seal": sealed,
        "reason": reason[:MAX_REASON],
        "exchange": delivery.exchange,
        "key": delivery.key,
        "queue": queue,
        "at_ms": round(now * 1000),
        "by": by,
    }


async def peek(link: Link, limit: int) -> list[DeadLetter]:
    """The oldest ones. Raises LinkLost, Refused."""
    channel = await link.channel("dead letters", essential=False)
    try:
        found: list[DeadLetter] = []
        while len(found) < limit:
            message = await guarded(channel.basic_get(Exchange.DEAD))
            if message.message_count is None:  # the queue is empty
                break
            found.append(_letter(message))
        return found
    finally:
        await guarded(channel.close())  # gives them back, in order


async def remove(link: Link, ids: Sequence[str], dispose: Callable[[DeadLetter], Awaitable[None]]) -> list[str]:
    """Dispose of some and take them off the list. Returns the ids that were there. Raises LinkLost, Refused
    and what dispose raises; what was not disposed of stays."""
    wanted = dict.fromkeys(ids)
    done: list[str] = []
    channel = await link.channel("dead letters", essential=False)
    try:
        while len(done) < len(wanted):
            message = await guarded(channel.basic_get(Exchange.DEAD))
            if message.message_count is None:
                break
            letter = _letter(message)
            if letter.id in wanted:
                await dispose(letter)
                await guarded(channel.basic_ack(message.delivery_tag or 0))
                done.append(letter.id)
    finally:
        await guarded(channel.close())
    return [letter_id for letter_id in wanted if letter_id in done]


def _letter(message: DeliveredMessage) -> DeadLetter:
    headers = message.header.properties.headers or {}
    at = headers.get("at_ms")
    return DeadLetter(
        id=message.header.properties.message_id or "",
        reason=str(headers.get("reason") or headers.get(ODD_HEADER, "")),
        at=at / 1000 if isinstance(at, int) else 0.0,
        exchange=str(headers.get("exchange", "")),
        key=str(headers.get("key", "")),
        queue=str(headers.get("queue", "")),
        type=message.header.properties.message_type or type_of(message.body),
        data=message.body,
        by=message.header.properties.user_id or "",
        buried_by=str(headers.get("by", "")),
        publisher=str(headers.get("publisher", "")),
        seal=str(headers.get("seal", "")),
    )
