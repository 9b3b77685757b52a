"""A message as RabbitMQ delivered it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shared.bus.amqp.frames import ODD_HEADER
from shared.bus.amqp.link import DeliveredMessage
from shared.bus.statements import digest_of
from shared.bus.topology import Queue

#: Headers of a dead letter that was put back into the queue it came from: whose reader buried it (a sender), whom the
#: broker knew its publisher as then, and the seal of who buried it, who alone knows that again (shared.bus.amqp.seal).
BURIED_BY_HEADER: Final = "x-roost-buried-by"
PUBLISHER_HEADER: Final = "x-roost-publisher"
QUEUE_HEADER: Final = "x-roost-queue"
SEAL_HEADER: Final = "x-roost-seal"
#: Header of a request whose caller says when it waits no longer.
TELLS_END_HEADER: Final = "x-roost-tells-end"


@dataclass(slots=True)
class Delivery:
    """A message as it came."""

    data: bytes
    tag: int
    exchange: str
    key: str
    queue: str
    message_id: str
    kind: str  # the type of the message, as its publisher says
    reply_to: str  # empty: nobody waits for an answer
    correlation_id: str
    user_id: str
    deliveries: int  # how often it was handed to a consumer that went away without taking it
    again: bool  # somebody had it before
    uncounted: bool  # it was delivered before, and the broker does not count
    expiration: str | None
    seal: str  # not empty: a dead letter that was put back, `user_id` is who did that
    publisher: str  # of such a letter: whom the broker knew its publisher as, should the seal fit
    came_to: str  # of such a letter: the queue it came from
    buried_by: str  # of such a letter: the sender who could not take it
    tells_end: bool  # its caller says when it waits no longer
    odd: str  # not empty: why it is not taken (shared.bus.amqp.frames)

    async def digest(self) -> bytes:
        """SHA-256 of the message."""
        return await digest_of(self.data)

    @property
    def waits_s(self) -> float | None:
        """Seconds for which its caller waits, from when it was sent; None: it does not expire."""
        try:
            return None if self.expiration is None else int(self.expiration) / 1000
        except ValueError:
            return None

    @classmethod
    def of(cls, message: DeliveredMessage, queue: Queue) -> Delivery:
        properties = message.header.properties
        headers = properties.headers or {}
        counter = headers.get("x-delivery-count") if queue.counted else 0
        redelivered = bool(message.redelivered)
        reply_to = properties.reply_to or ""
        return cls(
            data=message.body,
            tag=message.delivery_tag or 0,
            exchange=message.exchange or "",
            key=message.routing_key or "",
            queue=queue.name,
            message_id=properties.message_id or "",
            kind=properties.message_type or "",
            reply_to=reply_to,
            correlation_id=properties.correlation_id or "",
            user_id=properties.user_id or "",
            deliveries=counter if isinstance(counter, int) and counter >= 0 else 0,
            again=redelivered,
            uncounted=redelivered and not queue.counted and not queue.exclusive and not reply_to,
            expiration=properties.expiration,
            seal=_text(headers.get(SEAL_HEADER)),
            publisher=_text(headers.get(PUBLISHER_HEADER)),
            came_to=_text(headers.get(QUEUE_HEADER)),
            buried_by=_text(headers.get(BURIED_BY_HEADER)),
            tells_end=bool(headers.get(TELLS_END_HEADER)),
            odd=_text(headers.get(ODD_HEADER)),
        )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
