"""The negotiator's clock: the wall clock, but for the moments at which that is set.

Whoever charges by a clock that jumps charges for the jump. So all that is charged, and all that ads and claims say, is
noted by a clock that goes on evenly when the wall clock is set. When it is time the daemon moves all that it noted to
the new time, at once, and has this clock follow.
"""

from __future__ import annotations

from typing import Final

from shared.daemon.clock import Clock

#: A wall clock that is so many seconds from where the time that passed would have it was set.
SET_S: Final = 1.0


class SteadyClock(Clock):
    """Seconds since 1970 that go on evenly, until `follow`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = clock.now() - clock.boottime()

    def now(self) -> float:
        return self._clock.boottime() + self._ahead

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def boottime(self) -> float:
        return self._clock.boottime()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    def set_by(self) -> float:
        """By how many seconds the wall clock was set since it was followed last; 0 if it was not."""
        apart = self._clock.now() - self.now()
        return apart if abs(apart) > SET_S else 0.0

    def follow(self, seconds: float) -> None:
        """Go on by a wall clock that was set by so much."""
        self._ahead += seconds
