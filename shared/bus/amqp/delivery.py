"""A message as RabbitMQ delivered it."""

from __future__ import annotations

from dataclasses import dataclass

from shared.bus.amqp.link import DeliveredMessage
from shared.bus.topology import Queue

#: Header that counts deliveries of one-way messages in classic queues, which do not count them.
DELIVERIES_HEADER = "x-roost-deliveries"
#: Header of what was published a second time by somebody else than its sender, who checked it then.
REQUEUED_HEADER = "x-roost-requeued-by"


@dataclass(slots=True)
class Delivery:
    """A message as it came."""

    data: bytes
    tag: int
    exchange: str
    key: str
    queue: str
    message_id: str
    reply_to: str  # empty: nobody waits for an answer
    correlation_id: str
    user_id: str
    deliveries: int  # how often it was handed to a consumer that went away without taking it
    again: bool  # somebody had it before
    uncounted: bool  # it was delivered before, and the broker does not count
    expiration: str | None
    requeued_by: str  # the user who put it back into its queue, when the broker vouches for that; else empty

    @classmethod
    def of(cls, message: DeliveredMessage, queue: Queue) -> Delivery:
        properties = message.header.properties
        headers = properties.headers or {}
        counter = headers.get("x-delivery-count" if queue.counted else DELIVERIES_HEADER)
        redelivered = bool(message.redelivered)
        reply_to = properties.reply_to or ""
        user_id = properties.user_id or ""
        return cls(
            data=message.body,
            tag=message.delivery_tag or 0,
            exchange=message.exchange or "",
            key=message.routing_key or "",
            queue=queue.name,
            message_id=properties.message_id or "",
            reply_to=reply_to,
            correlation_id=properties.correlation_id or "",
            user_id=user_id,
            deliveries=counter if isinstance(counter, int) and counter >= 0 else 0,
            again=redelivered,
            uncounted=redelivered and not queue.counted and not queue.exclusive and not reply_to,
            expiration=properties.expiration,
            requeued_by=user_id if user_id and headers.get(REQUEUED_HEADER) == user_id else "",
        )
