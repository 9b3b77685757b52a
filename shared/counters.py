"""Counts and durations that a daemon keeps of itself: plain numbers, cheap on busy paths, and bounded whatever comes.

What is shown of them at /metrics is made of them only when somebody asks (shared.daemon.metrics)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

#: Upper bounds of durations within a daemon, seconds: handlers, transactions, cycles.
QUICK_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
#: Upper bounds of what is between the two: files that travel, slots that are asked for, jobs that are started, seconds.
WORK_S: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
#: Upper bounds of what jobs wait or run, seconds: up to a week.
LONG_S: Final = (0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0, 259200.0, 604800.0)
#: What stands for all names beyond those that fit.
OTHER: Final = "other"


class Durations:
    """How many durations (s) were at most each of some bounds, and their sum."""

    __slots__ = ("bounds", "counts", "sum_s")

    def __init__(self, bounds: Sequence[float] = QUICK_S) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)  # the last: longer than all
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Negative ones (a clock that was set back) count as 0."""
        seconds = max(0.0, seconds)
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_s += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: each bound with how many were at most that."""
        found, so_far = [], 0
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            so_far += count
            found.append(("+Inf" if bound is None else repr(float(bound)), float(so_far)))
        return found


class Probe:
    """How many values there were, their sum, the least and the greatest."""

    __slots__ = ("count", "least", "most", "total")

    def __init__(self) -> None:
        self.count, self.total = 0, 0.0
        self.least, self.most = 0.0, 0.0

    def add(self, value: float) -> None:
        self.least = value if not self.count else min(self.least, value)
        self.most = value if not self.count else max(self.most, value)
        self.count += 1
        self.total += value


class DurationsBy:
    """Durations by a name; `most` names at most, those after them are one: `other`."""

    __slots__ = ("bounds", "by_name", "most")

    def __init__(self, most: int = 200, bounds: Sequence[float] = QUICK_S) -> None:
        self.by_name: dict[str, Durations] = {}
        self.most = most
        self.bounds = bounds

    def add(self, name: str, seconds: float) -> None:
        found = self.by_name.get(name)
        if found is None:
            if len(self.by_name) >= self.most:
                name = OTHER
            found = self.by_name.setdefault(name, Durations(self.bounds))
        found.add(seconds)


class CountsBy:
    """Counts by one name or several; `most` different ones at most, those after them are one, all `other`."""

    __slots__ = ("by_name", "most")

    def __init__(self, most: int = 200) -> None:
        self.by_name: dict[tuple[str, ...], int] = {}
        self.most = most

    def add(self, *names: str, count: int = 1) -> None:
        if names not in self.by_name and len(self.by_name) >= self.most:
            names = (OTHER,) * len(names)
        self.by_name[names] = self.by_name.get(names, 0) + count
