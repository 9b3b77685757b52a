"""How long jobs waited that started lately, from `job.started`. Pure."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

#: Starts that are remembered, and for how long (seconds).
MOST: Final = 20_000
WINDOW_S: Final = 3600.0


class Waits:
    """The starts of the last hour, at most the last 20,000 of them."""

    def __init__(self) -> None:
        self._starts: deque[tuple[float, float]] = deque(maxlen=MOST)

    def started(self, at: float, waited_s: float) -> None:
        """A job started at `at` (s since 1970) after so long."""
        self._starts.append((at, max(0.0, waited_s)))

    def told(self, now: float) -> dict[str, Any]:
        """{count, window_s, p50, p90, p99}: seconds; null where nothing started."""
        while self._starts and self._starts[0][0] < now - WINDOW_S:
            self._starts.popleft()
        waited = sorted(wait for _, wait in self._starts)
        return {
            "count": len(waited),
            "window_s": WINDOW_S,
            **{f"p{part}": quantile(waited, part / 100.0) for part in (50, 90, 99)},
        }


def quantile(ordered: Sequence[float], part: float) -> float | None:
    """The smallest of these, in order, that so large a part is not above."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, max(0, math.ceil(part * len(ordered)) - 1))]
