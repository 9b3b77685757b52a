"""How fast jobs are started: JOB_START_COUNT at once, and so many again after each JOB_START_DELAY; with a pause after
a job that wants one (NextJobStartDelay)."""

from __future__ import annotations

from typing import Final

#: A start is booked so far ahead (s) at most. A slot that was not asked for is offered to others after 10 s.
AHEAD_S: Final = 5.0


class StartThrottle:
    """Books starts. Times are monotonic seconds."""

    def __init__(self, count: int = 1, delay_s: float = 0.0) -> None:
        """delay_s: 0: no bound."""
        self.set(count, delay_s)
        self._batch = float("-inf")  # when the last batch that was booked may start
        self._booked = 0  # of it
        self._pause_until = float("-inf")  # no start before this

    def set(self, count: int, delay_s: float) -> None:
        """Go by these from now on; what is booked stays so."""
        self._count, self._delay_s = max(1, count), max(0.0, delay_s)

    def wait_s(self, now: float) -> float:
        """How long a start that is booked now has to wait."""
        pause = max(0.0, self._pause_until - now)
        if not self._delay_s or now >= self._batch + self._delay_s:
            return pause
        batch = self._batch if self._booked < self._count else self._batch + self._delay_s
        return max(pause, batch - now)

    def room_in_s(self, now: float) -> float:
        """After how long another start can be booked; 0: now."""
        return max(0.0, self.wait_s(now) - AHEAD_S)

    def book(self, now: float, pause_s: float = 0.0) -> float:
        """One start: how long it has to wait. pause_s: how long after it no other comes."""
        wait = self.wait_s(now)
        if pause_s > 0:
            self._pause_until = now + wait + pause_s
        if self._delay_s:
            if now + wait >= self._batch + self._delay_s:
                self._batch, self._booked = now + wait, 0
            self._booked += 1
        return wait
