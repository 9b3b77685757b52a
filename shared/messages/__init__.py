"""Every message on the bus. Importing this package registers the whole catalogue."""

from shared.messages import (
    ads,
    analysis,
    base,
    claims,
    events,
    had,
    journal,
    negotiation,
    orders,
    pool_history,
    queue,
    registrar,
    visits,
)
from shared.messages.base import Ack, BadMessage, Envelope, Failure, Message, catalogue, message, new_id

__all__ = [
    "Ack",
    "BadMessage",
    "Envelope",
    "Failure",
    "Message",
    "ads",
    "analysis",
    "base",
    "catalogue",
    "claims",
    "events",
    "had",
    "journal",
    "message",
    "negotiation",
    "new_id",
    "orders",
    "pool_history",
    "queue",
    "registrar",
    "visits",
]
