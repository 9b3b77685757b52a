"""What benchmarks have measured so far: the attributes Mips, KFlops and LastBenchmark. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.classad import ClassAd

#: What was measured before counts so many times as much as a new value (CRN-13: a weighted average).
WEIGHT = 3


class Scores:
    """See the module. `last`: when a set of benchmarks was over, wall clock, seconds; 0: never (CRN-14)."""

    def __init__(self) -> None:
        self.last = 0
        self._values: dict[str, Any] = {}

    def put(self, measured: ClassAd) -> None:
        """A program has printed this. Numbers are averaged, anything else is replaced."""
        for name in measured:
            value: Any = measured.eval(name)
            before: Any = self._values.get(name)
            if _is_number(value) and _is_number(before):
                average = (before * WEIGHT + value) / (WEIGHT + 1)
                value = round(average) if isinstance(value, int) else average
            self._values[name] = value

    def over(self, now: float) -> None:
        """A set of benchmarks is over."""
        self.last = int(now)

    def attributes(self) -> Mapping[str, Any]:
        return self._values | {"LastBenchmark": self.last}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
