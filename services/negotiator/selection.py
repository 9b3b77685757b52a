"""The best rows, without sorting all of them (spec rows NEG-21, NEG-22)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.negotiator.board import Bools, Floats, RowNumbers

#: So many requests with the same sort keys are worth sorting all rows.
_WORTH_SORTING: Final = 12


def best(rows: RowNumbers, keys: Sequence[Floats], place: NDArray[np.int64], k: int) -> RowNumbers:
    """The k best of some rows, best first: by each key in turn, higher is better, equals by place.

    keys: (n,) float64 each, by row, without NaN. Time O(rows) for each key until k rows are left, and sorting k.
    """
    chosen: list[RowNumbers] = []
    rest = rows
    for key in keys:
        if len(rest) <= k:
            break
        values = key[rest]
        least = np.partition(values, len(rest) - k)[len(rest) - k]
        above = values > least
        better = rest[above]
        if len(better):
            chosen.append(better)
            k -= len(better)
        rest = rest[values == least]
    if len(rest) > k:
        rest = rest[np.argpartition(place[rest], k - 1)[:k]] if k else rest[:0]
    found = np.concatenate([*chosen, rest]) if chosen else rest
    return found[np.lexsort((place[found], *(-key[found] for key in reversed(keys))))]


class Orders:
    """All rows in the order of the match list, for sort keys that many requests share. The arrays of keys are known by
    identity, so they must be shared ones, which do not change."""

    def __init__(self, place: NDArray[np.int64]) -> None:
        self._place = place
        self._uses: dict[tuple[int, ...], int] = {}
        self._orders: dict[tuple[int, ...], RowNumbers] = {}
        self._alive: list[Floats] = []  # so that no other array gets the identity of one of them

    def best(self, mask: Bools, keys: Sequence[Floats], k: int) -> tuple[RowNumbers, bool]:
        """The k best rows where `mask` is true, best first, and whether these are all."""
        sign = tuple(map(id, keys))
        order = self._orders.get(sign)
        if order is None:
            uses = self._uses.get(sign, 0)
            if not uses:
                self._alive += keys
            self._uses[sign] = uses + 1
            if uses < _WORTH_SORTING:
                rows = np.flatnonzero(mask)
                return best(rows, keys, self._place, k), len(rows) <= k
            order = np.lexsort((self._place, *(-key for key in reversed(keys))))
            self._orders[sign] = order
        parts: list[RowNumbers] = []
        found = start = 0
        step = max(4 * k, 2048)
        while start < len(order) and found <= k:  # one more than asked, to know whether there is one
            part = order[start : start + step]
            part = part[mask[part]]
            parts.append(part)
            found += len(part)
            start += step
            step *= 2
        rows = np.concatenate(parts) if parts else order[:0]
        return rows[:k], found <= k
