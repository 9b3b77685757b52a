"""Exponential back-off: the waits between failed attempts grow up to a cap, with jitter where many might try at once.

    backoff = Backoff(first_s=0.1, cap_s=5.0)
    while True:
        try:
            await attempt()
        except RetryableError:
            await context.clock.sleep(backoff.next_s())
        else:
            backoff.reset()

Nothing here sleeps: the caller does, by its clock, so that tests and the simulation have time in their hand. The growth
is tenacity's. Where a whole call is repeated and nothing else happens between attempts, use tenacity itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tenacity import RetryCallState, Retrying, wait_exponential

#: With jitter a wait takes from this part to all of its length.
LEAST_PART: Final = 0.5
#: Failures beyond this many make no wait longer.
_MAX_FAILURES: Final = 1000


def wait_s(failures: int, first_s: float, cap_s: float, factor: float = 2.0) -> float:
    """Seconds to wait after so many failures in a row: first_s after the first, `factor` times as long after each
    further one, cap_s at most. 0 without a failure. Pure."""
    if failures <= 0:
        return 0.0
    state = RetryCallState(_RETRYING, None, (), {})
    state.attempt_number = min(failures, _MAX_FAILURES)
    return float(wait_exponential(multiplier=first_s, max=cap_s, exp_base=factor)(state))


_RETRYING: Final = Retrying()


class Backoff:
    """The waits of one thing that is tried again. jitter: `uniform` of some source of random
    numbers; None: no jitter."""

    __slots__ = ("cap_s", "factor", "failures", "first_s", "jitter")

    def __init__(
        self,
        first_s: float,
        cap_s: float,
        *,
        factor: float = 2.0,
        jitter: Callable[[float, float], float] | None = None,
    ) -> None:
        self.first_s = first_s
        self.cap_s = cap_s
        self.factor = factor
        self.jitter = jitter
        self.failures = 0

    def next_s(self) -> float:
        """Count a failure. Returns the seconds to wait before the next attempt."""
        self.failures += 1
        wait = wait_s(self.failures, self.first_s, self.cap_s, self.factor)
        return wait if self.jitter is None else wait * self.jitter(LEAST_PART, 1.0)

    def reset(self) -> None:
        """An attempt succeeded: the next failure is the first again."""
        self.failures = 0
