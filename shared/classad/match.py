"""Matching: two ads, each with its Requirements seen from its own side (spec rows CLA-23 to CLA-25).

Requirements of true or of a number that is not zero is satisfied; UNDEFINED, ERROR, strings and no Requirements at
all are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shared.classad.ad import ClassAd
from shared.classad.values import Value

REQUIREMENTS: Final = "Requirements"
RANK: Final = "Rank"


def is_true(value: Value) -> bool:
    """Whether a value satisfies a condition: true, or a number that is not zero."""
    return isinstance(value, bool | int | float) and value != 0


def half_match(ad: ClassAd, candidate: ClassAd, attribute: str = REQUIREMENTS, now: float | None = None) -> bool:
    """Whether `ad`'s own Requirements accept `candidate`; what the candidate requires is not asked."""
    return is_true(ad.eval(attribute, candidate, now)) if attribute in ad else False


def symmetric_match(a: ClassAd, b: ClassAd, now: float | None = None) -> bool:
    """Whether each ad's Requirements accept the other."""
    return half_match(a, b, now=now) and half_match(b, a, now=now)


def rank(ad: ClassAd, candidate: ClassAd, attribute: str = RANK, now: float | None = None) -> float:
    """How much `ad` likes `candidate`: its Rank as a real; 0.0 when that is no number (true is 1.0)."""
    value = ad.eval(attribute, candidate, now)
    return float(value) if isinstance(value, bool | int | float) else 0.0


def best_match(ad: ClassAd, candidates: Iterable[ClassAd], now: float | None = None) -> ClassAd | None:
    """The candidate that matches `ad` both ways and that it ranks highest, the first of equals; else None."""
    best: ClassAd | None = None
    best_rank = 0.0
    for candidate in candidates:
        if symmetric_match(ad, candidate, now):
            value = rank(ad, candidate, now=now)
            if best is None or value > best_rank:
                best, best_rank = candidate, value
    return best
