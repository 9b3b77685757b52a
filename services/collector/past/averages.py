"""The coarser levels of the pool's history: which there are, what becomes of the samples of one interval, and which
level answers a question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from services.collector.past.sample import RESOURCES, Row, Rows

#: Samples in one record of each level: with a sample every minute five minutes, and an hour.
LEVELS: Final = (1, 5, 60)
#: Records of the level that answers, for the finer ones: a week of five minutes has 2,016.
ENOUGH: Final = 3_000
#: The longest answer. Coarser than the last level there is nothing.
MOST: Final = 20_000


class TooLong(ValueError):
    """A time that would make too long an answer; the text names the mend."""


def level_for(start: float, end: float, sampled_every_s: float) -> int:
    """The finest level that tells of the time in no more than ENOUGH records. Raises TooLong."""
    for level, samples in enumerate(LEVELS):
        records = (end - start) / (sampled_every_s * samples)
        if records <= ENOUGH or (level == len(LEVELS) - 1 and records <= MOST):
            return level
    days = int(MOST * sampled_every_s * LEVELS[-1] // 86400)
    raise TooLong(f"{(end - start) / 86400:.0f} days are asked for: ask for {days} at most")


class Averaging:
    """Makes one record of all samples of an interval.

    Jobs and slots are counted on average over all samples, also those in which a name was not there. Of a slot the load
    is the average while it was there, and the state is the one it was in most often."""

    def __init__(self, kind: str, interval_s: float) -> None:
        self._kind = kind
        self._interval_s = interval_s
        self._interval: int | None = None
        self._samples = 0
        self._sums: dict[str, list[float]] = {}
        self._states: dict[str, Counter[float]] = {}

    def add(self, at: float, rows: Mapping[str, Row]) -> tuple[float, Rows] | None:
        """A sample. The record of the interval before it, with the time of its end, once a sample is beyond that."""
        interval = int(at // self._interval_s)
        done = None
        if self._interval is not None and interval != self._interval:
            done = (self._interval + 1) * self._interval_s, self._averages()
            self._samples, self._sums, self._states = 0, {}, {}
        self._interval = interval
        self._samples += 1
        if self._kind == RESOURCES.name:
            self._slots(rows)
        else:
            for name, row in rows.items():
                sums = self._sums.setdefault(name, [0.0] * len(row))
                for position, value in enumerate(row):
                    sums[position] += value
        return done

    def _slots(self, rows: Mapping[str, Row]) -> None:
        for name, (touched, load, state) in rows.items():
            sums = self._sums.setdefault(name, [0.0, 0.0, 0.0])  # touched last, sum of loads, times seen
            sums[0], sums[1], sums[2] = max(sums[0], touched), sums[1] + load, sums[2] + 1
            self._states.setdefault(name, Counter())[state] += 1

    def _averages(self) -> Rows:
        if self._kind == RESOURCES.name:
            return {
                name: (touched, round(load / seen, 2), self._states[name].most_common(1)[0][0])
                for name, (touched, load, seen) in self._sums.items()
            }
        return {name: tuple(round(one / self._samples, 2) for one in sums) for name, sums in self._sums.items()}
