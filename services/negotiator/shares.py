"""How the pool is divided: pie slices (spec rows NEG-08 to NEG-13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def order(submitters: Sequence[str], eup: Mapping[str, float]) -> list[str]:
    """Best (lowest) effective priority first; equal ones by name (NEG-07)."""
    return sorted(submitters, key=lambda name: (eup[name], name))


def fractions(submitters: Sequence[str], eup: Mapping[str, float]) -> dict[str, float]:
    """Each submitter's part of the whole, inverse to its EUP; they add up to 1 (NEG-08)."""
    inverse = {name: 1.0 / eup[name] for name in submitters}
    total = sum(inverse.values())
    if not total > 0.0:  # all of them have used beyond measure
        return dict.fromkeys(submitters, 1.0 / max(1, len(submitters)))
    return {name: value / total for name, value in inverse.items()}


def slice_left(
    fraction: float, pool_weight: float, in_use: float, *, free_weight: float, spin: int, ceiling: float = -1.0
) -> float:
    """Weight that a submitter may still take in this spin.

    First spin: its part of the whole pool less what it uses, never below 0 (NEG-09). Later spins divide what is still
    free among those who still ask, in the same ratio (NEG-10; the manual's 40 to 20, worked example W-13). A ceiling
    bounds both (NEG-12); -1 means none.
    """
    left = fraction * pool_weight - in_use if spin == 1 else fraction * free_weight
    if ceiling >= 0.0:
        left = min(left, ceiling - in_use)
    return max(0.0, left)
