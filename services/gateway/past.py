"""Questions to the journal."""

from __future__ import annotations

import asyncio
from typing import Final

from shared.bus.api import Bus, CallTimeout
from shared.messages.base import Message
from shared.messages.journal import INBOX, AskLeaders

#: Seconds after which a journal that says nothing is asked whether it answers anything at all.
PATIENCE_S: Final = 5.0


async def ask_journal(bus: Bus, question: Message, timeout_s: float) -> Message:
    """The answer; a question may look at a month of a large pool. What is sent to a journal that is off or down waits
    for it on the broker: that is found out within twice PATIENCE_S. Raises what `bus.call` raises."""
    asked = asyncio.ensure_future(bus.call(INBOX, question, timeout=timeout_s))
    try:
        if not (await asyncio.wait((asked,), timeout=PATIENCE_S))[0]:
            try:
                await bus.call(INBOX, AskLeaders(limit=1), timeout=PATIENCE_S)
            except CallTimeout:
                if not asked.done():
                    raise
        return await asked
    finally:
        asked.cancel()
