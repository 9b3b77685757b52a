"""Measures how late the event loop is, which is how long one piece of work keeps all others waiting."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from shared.counters import Durations

#: Seconds between two looks. What keeps the loop for longer than this is always seen, shorter work by chance.
EVERY_S: Final = 0.25


class LoopLag:
    """Measures, from `start` to `stop`, how much later than asked for a timer comes. It costs 4 timers a second."""

    def __init__(self) -> None:
        self.late = Durations()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """On the running loop."""
        self._timer = asyncio.get_running_loop().call_later(EVERY_S, self._look, time.perf_counter() + EVERY_S)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, due: float) -> None:
        self.late.add(time.perf_counter() - due)
        self.start()
