"""Long work that lets others have their turn: leases, heartbeats and other questions share the loop with it."""

from __future__ import annotations

import asyncio
import time
from typing import Final

#: Seconds of work between two looks at other messages.
TURN_S: Final = 0.005


class Turns:
    """One for each piece of work: `await turns.give_way()` wherever others may see what is done so far."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + TURN_S

    async def give_way(self) -> None:
        """Let others have their turn, once this one has lasted long enough. Costs next to nothing before that."""
        if time.perf_counter() > self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + TURN_S
