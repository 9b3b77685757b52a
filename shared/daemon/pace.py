"""For how long changes that nobody waits for are gathered before they are told. Pure."""

from __future__ import annotations


class Pace:
    """first_s after a change; where changes come again and again, sooner after the last ones were told than those had
    waited, twice as long each time, up to longest_s. `now` is seconds of a clock that only goes forward."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self.first_s = first_s
        self.longest_s = longest_s
        self._wait_s = first_s
        self._told = float("-inf")

    def told(self, now: float) -> None:
        """What was gathered goes out."""
        self._told = now

    def wait_s(self, now: float) -> float:
        """There is a first change: so long others are waited for."""
        again = now - self._told < self._wait_s
        self._wait_s = min(2 * self._wait_s, self.longest_s) if again else self.first_s
        return self._wait_s
