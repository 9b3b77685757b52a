"""Curves of a machine from what a collector's history has of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

#: Points farther apart than so many times the usual have a gap between them: nobody looked, or the machine was away.
GAP: Final = 2.5
#: Name of a curve, the column it is of, and the column of the whole.
CURVES: Final = (
    ("Load per cpu", "LoadAvg", "Cpus"),
    ("Cpus claimed", "ClaimedCpus", "Cpus"),
    ("Memory claimed", "ClaimedMemory", "Memory"),
)


def curves(columns: Sequence[str], points: Sequence[Sequence[Any]], every_s: float) -> dict[str, Any]:
    """{times, series}: parts of what the machine has, None where it is not known. points: [time, ...], oldest first,
    behind the time what `columns` say; every_s: seconds between two of them."""
    places = {name: place for place, name in enumerate(columns, 1)}
    times: list[float] = []
    series: dict[str, list[float | None]] = {name: [] for name, _, _ in CURVES}
    for point in points:
        if times and every_s > 0 and point[0] - times[-1] > GAP * every_s:
            times.append(times[-1] + every_s)
            for line in series.values():
                line.append(None)
        times.append(point[0])
        for name, part, whole in CURVES:
            series[name].append(_share(point, places.get(part), places.get(whole)))
    return {"times": times, "series": series}


def _share(point: Sequence[Any], part: int | None, whole: int | None) -> float | None:
    if part is None or whole is None or max(part, whole) >= len(point) or not point[whole]:
        return None
    return round(float(point[part]) / float(point[whole]), 4)
