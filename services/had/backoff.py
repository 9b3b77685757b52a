"""Which HAD is held back because its negotiator keeps dying (spec row HA-12).

A negotiator that crashes whenever it leads, and is started again each time, would take the lead over and over: its
schedds would never see a whole cycle. After each loss of the lead for that reason its HAD stands behind all others for
a while, each time longer. Where there is no other it leads at once: nobody gains by waiting.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: MASTER_HAD_BACKOFF_CONSTANT at first, MASTER_BACKOFF_FACTOR times as long after each further failure,
    MASTER_BACKOFF_CEILING at most."""

    constant_s: float
    factor: float
    ceiling_s: float


@dataclass(frozen=True, slots=True)
class Backoff:
    """Times are a monotonic clock's."""

    failures: int = 0
    length_s: float = 0.0
    until: float = float("-inf")

    def holds(self, now: float) -> bool:
        """Whether the HAD is held back."""
        return now < self.until

    def failed(self, now: float, limits: Limits) -> Backoff:
        """The negotiator went silent while it led. Failures are forgotten once all was well for as long again as the
        HAD was held back."""
        failures = 1 if now >= self.until + self.length_s else self.failures + 1
        length = min(limits.ceiling_s, limits.constant_s * limits.factor ** min(failures - 1, 64))
        return Backoff(failures, length, now + length)
