"""The best rows, without sorting all of them (spec rows NEG-21, NEG-22)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.negotiator.board import Floats, RowNumbers


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
