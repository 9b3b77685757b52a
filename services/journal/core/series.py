"""Series of numbers for graphs: reduces many samples to a few points. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

#: Lines in a picture; the others are added up.
MOST_LINES: Final = 12
OTHERS: Final = "others"


def times_of(start: float, end: float, points: int) -> list[float]:
    """The ends of so many equal parts of an interval."""
    step = (end - start) / points
    return [start + step * (number + 1) for number in range(points)]


def averaged(
    samples: Iterable[tuple[float, str, float]], start: float, end: float, points: int
) -> dict[str, list[float | None]]:
    """By label: the mean of the samples (at, label, value) in each part; None where there is none. Within a part, a
    label that a moment does not tell counts 0 then: states that no slot has are not told."""
    step = (end - start) / points
    sums: dict[str, dict[int, float]] = {}
    moments: dict[int, set[float]] = {}
    for at, label, value in samples:
        part = min(points - 1, int((at - start) / step))
        if part >= 0:
            moments.setdefault(part, set()).add(at)
            line = sums.setdefault(label, {})
            line[part] = line.get(part, 0.0) + value
    return {
        label: [line.get(part, 0.0) / len(moments[part]) if part in moments else None for part in range(points)]
        for label, line in sorted(sums.items())
    }


def held(
    changes: Iterable[tuple[float, str, float]], start: float, end: float, points: int
) -> dict[str, list[float | None]]:
    """By label: the value at the end of each part, where (at, label, value) says that it is so from then on. None
    before the first."""
    times = times_of(start, end, points)
    found: dict[str, list[float | None]] = {}
    now: dict[str, float] = {}
    ordered = sorted(changes)
    place = 0
    for number, time in enumerate(times):
        while place < len(ordered) and ordered[place][0] <= time:
            now[ordered[place][1]] = ordered[place][2]
            place += 1
        for label, value in now.items():
            found.setdefault(label, [None] * points)[number] = value
    return found


def quantiles(
    values: Iterable[tuple[float, float]], start: float, end: float, points: int, which: Mapping[str, float]
) -> dict[str, list[float | None]]:
    """By label: that quantile of the values (at, value) of each part."""
    step = (end - start) / points
    parts: dict[int, list[float]] = {}
    for at, value in values:
        part = min(points - 1, int((at - start) / step))
        if part >= 0:
            parts.setdefault(part, []).append(value)
    found: dict[str, list[float | None]] = {label: [None] * points for label in which}
    for part, listed in parts.items():
        listed.sort()
        for label, quantile in which.items():
            found[label][part] = listed[min(len(listed) - 1, int(quantile * len(listed)))]
    return found


def largest(lines: Mapping[str, Sequence[float | None]], most: int = MOST_LINES) -> dict[str, list[float | None]]:
    """The lines with the most under them; the rest added up as `others`."""
    order = sorted(lines, key=lambda label: (-sum(value or 0.0 for value in lines[label]), label))
    found = {label: list(lines[label]) for label in order[:most]}
    rest = order[most:]
    if rest:
        columns = zip(*(lines[label] for label in rest), strict=True)
        found[OTHERS] = [_sum(column) for column in columns]
    return found


def _sum(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) if there else None


def thinned(points: Sequence[Any], most: int) -> list[Any]:
    """At most so many of them, spread evenly, first and last among them."""
    if len(points) <= most:
        return list(points)
    return [points[round(number * (len(points) - 1) / (most - 1))] for number in range(most)]
