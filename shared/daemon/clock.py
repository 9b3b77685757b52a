"""Time as daemons see it: an argument, so that tests and the simulation can supply another one."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970: what ads and logs carry."""

    def monotonic(self) -> float:
        """Seconds that never step back: for durations and timers."""

    def boottime(self) -> float:
        """Seconds since the machine was started, with those that it slept: what processes of one machine tell each
        other, and what a later life of a daemon goes on from."""

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def wait_for_event(event: asyncio.Event, clock: Clock, seconds: float) -> None:
    """Return when the event is set, or after so many seconds of the clock, whichever comes first."""
    waiting = asyncio.ensure_future(event.wait())
    sleeping = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((waiting, sleeping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        sleeping.cancel()
