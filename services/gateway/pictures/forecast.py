"""When two submitters will have the same effective priority, should both go on as they are (spec rows ACC-02, ACC-08).

A real priority (RUP) goes towards what is in use, half of the way in each PRIORITY_HALFLIFE, and never below 0.5; the
effective one (EUP) is that times the factor. With x = 2^(-t / half-life) each EUP is made of two straight lines in x,
so they meet where straight lines do, and nothing need be searched. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

#: No real priority is below this.
MINIMUM: Final = 0.5
#: What is further away than this many half-lives, nobody waits for: the two only come closer.
LONGEST: Final = 40.0


@dataclass(frozen=True, slots=True)
class Standing:
    """A submitter. priority: real, not effective. in_use: weighted slots."""

    name: str
    priority: float
    factor: float
    in_use: float


@dataclass(frozen=True, slots=True)
class Parity:
    """in_s: seconds from now until they are equal, None: they never are. ahead: who has the better (smaller) effective
    priority now, empty when both have the same. points: (seconds from now, EUP of the first, of the second)."""

    in_s: float | None
    ahead: str
    points: list[tuple[float, float, float]]


def effective_after(who: Standing, seconds: float, half_life: float) -> float:
    """The EUP at that time."""
    return _at(who, 2.0 ** (-seconds / half_life) if half_life > 0.0 else 0.0)


def parity(first: Standing, second: Standing, half_life: float, samples: int = 60) -> Parity:
    """See Parity. half_life: seconds, PRIORITY_HALFLIFE; 0 or less: priorities are what is in use at once."""
    now_first, now_second = _at(first, 1.0), _at(second, 1.0)
    ahead = "" if _equal(now_first, now_second) else first.name if now_first < now_second else second.name
    if half_life <= 0.0:
        equal = _equal(_at(first, 0.0), _at(second, 0.0))
        return Parity(0.0 if equal else None, ahead, [(0.0, _at(first, 0.0), _at(second, 0.0))])
    meets = 0.0 if not ahead else _meeting(first, second, half_life)
    until = min(LONGEST, max(2.0, 2.0 * (meets or 0.0) / half_life)) * half_life
    moments = [until * number / (samples - 1) for number in range(samples)]
    return Parity(
        meets,
        ahead,
        [(t, effective_after(first, t, half_life), effective_after(second, t, half_life)) for t in moments],
    )


def _meeting(first: Standing, second: Standing, half_life: float) -> float | None:
    """Seconds until both lines meet the first time, which is where x is largest below 1."""
    corners = sorted({1.0, 0.0, *(x for who in (first, second) if (x := _corner(who)) is not None)}, reverse=True)
    for upper, lower in pairwise(corners):
        before = _at(first, upper) - _at(second, upper)
        after = _at(first, lower) - _at(second, lower)
        if before * after > 0.0 or before == after:
            continue
        x = lower + (upper - lower) * (after / (after - before))
        seconds = half_life * math.log2(1.0 / x) if x > 0.0 else math.inf
        return seconds if seconds <= LONGEST * half_life else None
    return None


def _corner(who: Standing) -> float | None:
    """The x from which on the priority is the least there is."""
    if who.in_use >= MINIMUM or who.priority <= MINIMUM:
        return None
    return (MINIMUM - who.in_use) / (who.priority - who.in_use)


def _at(who: Standing, x: float) -> float:
    return who.factor * max(MINIMUM, who.in_use + (who.priority - who.in_use) * x)


def _equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9)
