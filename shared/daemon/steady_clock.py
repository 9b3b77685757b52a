"""The clock of negotiators and startds: the wall clock, but for the moments at which that is set.

Whoever charges, or ends jobs, by a clock that jumps does so for the jump. So what is charged, and since when slots and
claims are what they are, is noted by a clock that goes on evenly when the wall clock is set. When it is time the daemon
moves all that it noted to the new time, at once, and has this clock follow.
"""

from __future__ import annotations

from typing import Final

from shared.daemon.clock import Clock

#: A wall clock that is so many seconds from where the time that passed would have it was set.
SET_S: Final = 1.0


class SteadyClock(Clock):
    """Seconds since 1970 that go on evenly, until `follow`. ahead: of the machine's own clock (`Clock.boottime`), as
    an earlier life noted; None: as it is now."""

    def __init__(self, clock: Clock, ahead: float | None = None) -> None:
        self._clock = clock
        self._ahead = clock.now() - clock.boottime() if ahead is None else ahead

    @property
    def ahead(self) -> float:
        """How many seconds it is ahead of the machine's own clock."""
        return self._ahead

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
