"""How slow something was of late: what adapts its patience to the load goes by it."""

from __future__ import annotations

from dataclasses import dataclass

#: After so many seconds a delay counts half.
HALF_LIFE_S = 30.0


@dataclass(frozen=True, slots=True)
class Delay:
    """The longest delay of late, in seconds: it fades. `at`: a monotonic clock's."""

    length_s: float = 0.0
    at: float = float("-inf")

    def left(self, now: float) -> float:
        """What it counts for by now."""
        return self.length_s * 0.5 ** ((now - self.at) / HALF_LIFE_S) if self.length_s else 0.0

    def seen(self, length_s: float, now: float) -> Delay:
        """Another one."""
        return Delay(length_s, now) if length_s > self.left(now) else self
