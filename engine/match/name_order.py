"""Names in natural order (slot2 before slot10), and a number for each by which it can be sorted.

A pool of partitionable slots has slots that come and go in every cycle: a name that comes gets a number between its
neighbours', so that all others keep theirs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.natural_sort import natural_key

#: Between neighbours as they are numbered at first: room for 2**32 names in one gap, or 32 that halve the same one.
GAP: Final = 1 << 32
#: All are sorted anew where more than one in so many came or went.
FEW: Final = 20


def _in_order(name: str) -> tuple[str, str]:
    """What to sort a name by; names that differ in leading zeros only go by the plain name."""
    return natural_key(name), name


class NameOrder:
    """Its names change with `update` only."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}

    def update(self, fresh: Collection[str], gone: Collection[str]) -> None:
        """Names that come, and names that go; some may have done so before. O(names) where many do, else some 50 us
        each."""
        if (len(fresh) + len(gone)) * FEW > len(self._names):
            kept = set(self._names).difference(gone).union(fresh)
            self._names = sorted(kept, key=_in_order)
            self._number_all()
            return
        for name in gone:
            if self._numbers.pop(name, None) is not None:
                del self._names[bisect_left(self._names, _in_order(name), key=_in_order)]
        for name in fresh:
            if name not in self._numbers:
                self._insert(name)

    def numbers(self, names: Iterable[str]) -> NDArray[np.int64]:
        """(n,) int64: the number of each. Raises KeyError."""
        return np.array(list(map(self._numbers.__getitem__, names)), np.int64)

    def _insert(self, name: str) -> None:
        names, numbers = self._names, self._numbers
        at = bisect_left(names, _in_order(name), key=_in_order)
        before = numbers[names[at - 1]] if at else None
        after = numbers[names[at]] if at < len(names) else None
        names.insert(at, name)
        if before is None or after is None:
            numbers[name] = before + GAP if before is not None else after - GAP if after is not None else 0
        elif after - before > 1:
            numbers[name] = (before + after) // 2
        else:
            self._number_all()

    def _number_all(self) -> None:
        self._numbers = dict(zip(self._names, range(0, len(self._names) * GAP, GAP), strict=True))
