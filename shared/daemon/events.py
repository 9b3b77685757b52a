"""Publishes events about the pool for whoever listens."""

from __future__ import annotations

from shared.bus.api import Exchange
from shared.daemon.context import Context
from shared.errors import RetryableError
from shared.messages.events import Event


async def announce(context: Context, event: Event) -> None:
    """Publish it; that nobody can hear it now stops nothing, and is logged."""
    try:
        await context.bus.publish(Exchange.EVENTS, event.type, event)
    except RetryableError as error:
        context.log.info("event_not_sent", type=event.type, reason=str(error))
