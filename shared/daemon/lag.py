"""Measures how late the event loop is, which is how long one piece of work keeps all others waiting."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from shared.counters import Durations

#: Seconds between two looks. What keeps the loop for longer than twice this is always seen, shorter work by chance.
EVERY_S: Final = 0.02
#: Processor seconds for which one piece of work may keep the loop; longer ones are remembered.
LONG_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Held:
    """A stretch in which the loop took no turn. `at`: monotonic, when it ended; seconds on the clock and of the loop's
    thread on a processor."""

    at: float
    seconds: float
    processor_s: float


class LoopLag:
    """Measures, from `start` to `stop`, how much later than asked for a timer comes (`late`), and how much of that time
    the loop's own thread was on a processor (`held`): a busy machine makes the one long, and only work the other. It
    costs 50 timers a second, less than a thousandth of a processor."""

    def __init__(self) -> None:
        self.late = Durations()
        self.held = Durations()
        self.long = 0  # stretches of more than LONG_S of processor time
        self.last: Held | None = None  # the last of them
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """On the running loop."""
        due, spent = time.perf_counter() + EVERY_S, time.thread_time()
        self._timer = asyncio.get_running_loop().call_later(EVERY_S, self._look, due, spent)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, due: float, spent: float) -> None:
        now = time.perf_counter()
        late = now - due
        # What was done before the timer was due counts too, as nobody knows where in it the long work began.
        held = min(late, time.thread_time() - spent)
        self.late.add(late)
        self.held.add(held)
        if held > LONG_S:
            self.long += 1
            self.last = Held(now, late, held)
        self.start()
