"""How many machines a round may begin to drain, from DEFRAG_DRAINING_MACHINES_PER_HOUR and DEFRAG_INTERVAL (DFR-01).

Every round has the whole machines that its interval comes to. What is left of that is made up by the first round of an
hour, as far as it comes to whole machines there, and the rest by the first round of a day; hours and days are UTC's.
What a defrag that was away did not do is not made up for: the draining of a pool must not come in a burst.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

HOUR: Final = 3600
DAY: Final = 86400
#: What a product of floats may lack of a whole number.
_TINY: Final = 1e-5


@dataclass(frozen=True, slots=True)
class Allowance:
    """Machines: of every round, besides of every hour, and (a fraction, too) of every day."""

    each_round: int
    hourly: int
    daily: float


def allowance(per_hour: float, interval_s: int) -> Allowance:
    """Split a rate. interval_s: between rounds, at least 1."""
    if per_hour <= 0:
        return Allowance(0, 0, 0.0)
    a_round = per_hour * interval_s / HOUR
    each_round = math.floor(a_round + _TINY)
    left = max(0.0, (a_round - each_round) * HOUR / interval_s)  # machines per hour
    hourly = math.floor(left + _TINY) if interval_s <= HOUR else 0
    daily = max(0.0, (left - hourly) * DAY / HOUR)
    return Allowance(each_round, hourly, daily if daily > _TINY else 0.0)


def due(allowed: Allowance, before: float, now: float, interval_s: int) -> int:
    """Machines that a round may begin to drain. before: when the last round was; 0: there was none. Times are seconds
    since 1970."""
    found = allowed.each_round
    if now // HOUR != before // HOUR:
        found += round_half_up(allowed.hourly * _left(now, HOUR, interval_s))
    today = int(now // DAY)
    # Of the days since then only those that one interval can pass over: more were lost, and stay so.
    first = max(int(before // DAY) + 1, today - math.ceil(interval_s / DAY) + 1)
    for day in range(first, today + 1):
        share = _left(now, DAY, interval_s) if day == today else 1.0
        found += round_half_up(
            share * (math.floor(allowed.daily * (day + 1) + _TINY) - math.floor(allowed.daily * day + _TINY))
        )
    return found


def round_half_up(number: float) -> int:
    return math.floor(number + 0.5)


def _left(now: float, period_s: int, interval_s: int) -> float:
    """How much of the period that began last is to come yet: all of it, if a round could not come sooner."""
    return min(1.0, (period_s - now % period_s + interval_s) / period_s)
