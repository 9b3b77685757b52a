"""The best of the slots that suit a request, in the order of the match list (spec row NEG-21)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
RowNumbers = NDArray[np.intp]
ShortRows = NDArray[np.int32]  # of tables of fewer than 2^31 rows


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


#: So many requests with the same sort keys are worth sorting all rows.
_WORTH_SORTING: Final = 3
#: Orders kept from cycle to cycle; each takes four bytes a row.
_MOST_ORDERS: Final = 128
#: Different values of a key that fit in sixteen bits, by which NumPy sorts twenty times as fast.
_SHORT: Final = 1 << 16
#: Rows of an order that are looked at together, at least.
_STEP: Final = 1024


class SortOrders:
    """All rows in the order of the match list, one order for all requests with the same sort keys. What a request gets
    is the beginning of its order, as far as a mask lets it.

    Arrays of keys are known by identity, so they must be shared ones, which do not change. Orders are kept from cycle
    to cycle, as long as their keys are: those that a cycle does not use are dropped at the next `begin`.
    """

    def __init__(self) -> None:
        self._place: NDArray[np.int64] = np.zeros(0, np.int64)
        self._orders: dict[tuple[int, ...], ShortRows] = {}
        self._keys: dict[tuple[int, ...], tuple[Floats, ...]] = {}  # so that no other array gets the identity of one
        self._used: set[tuple[int, ...]] = set()
        self._asked: dict[tuple[int, ...], tuple[int, tuple[Floats, ...]]] = {}  # of a cycle: how often, in what order
        self._left: dict[tuple[int, ...], tuple[int, ShortRows]] = {}  # of a cycle: what was not taken, of when

    @property
    def kept(self) -> int:
        """How many orders there are."""
        return len(self._orders)

    def begin(self, place: NDArray[np.int64]) -> None:
        """A cycle begins. place: (n,) of each row in the order of equals."""
        if place is not self._place:
            self._orders.clear()
        for sign in [sign for sign in self._orders if sign not in self._used]:
            del self._orders[sign]
        self._keys = {sign: keys for sign, keys in self._keys.items() if sign in self._orders}
        self._place = place
        self._used.clear()
        self._asked.clear()
        self._left.clear()

    def best(
        self, mask: Bools, keys: Sequence[Floats], k: int, own: Sequence[Floats], taken: int, left: Callable[[], Bools]
    ) -> tuple[RowNumbers, bool]:
        """The k best rows where `mask` is true, best first, and whether these are all.

        own: sort keys of this request only, which decide among rows that are equal by `keys`. taken: so many rows were
        given away by now in this cycle; left: (n,) bool, which rows are not. `mask` must be false in all others.
        """
        sign = tuple(map(id, keys))
        if sign not in self._orders:
            uses = self._asked.get(sign, (0, ()))[0] + 1
            self._asked[sign] = uses, tuple(keys)
            if uses < _WORTH_SORTING:
                rows = np.flatnonzero(mask)
                return best(rows, [*keys, *own], self._place, k), len(rows) <= k
        order = self._rest(sign, keys, taken, left)
        parts: list[ShortRows] = []
        found = start = 0
        step = max(2 * k, _STEP)
        while start < len(order) and found <= k:  # one more than asked, to know whether there is one
            part = order[start : start + step]
            part = part[mask[part]]
            if len(part):
                parts.append(part)
                found += len(part)
            start += step
            step *= 2
        if not parts:
            return np.zeros(0, np.intp), True
        rows = (np.concatenate(parts) if len(parts) > 1 else parts[0]).astype(np.intp)
        if not own:
            return rows[:k], found <= k
        if found > k:  # with all that are equal to the last one
            rows = self._with_equals(rows, order[start:], mask, keys, k)
        return self._among_equals(rows, keys, own)[:k], found <= k

    @staticmethod
    def _among_equals(rows: RowNumbers, keys: Sequence[Floats], own: Sequence[Floats]) -> RowNumbers:
        """Rows that are in order by the keys and their place, sorted by some more where they are equal by the keys."""
        equal = np.ones(len(rows) - 1, np.bool_)
        for key in keys:
            values = key[rows]
            equal &= values[1:] == values[:-1]
        at = np.flatnonzero(equal)
        if not len(at):
            return rows
        first, last = int(at[0]), int(at[-1]) + 2
        some = rows[first:last]
        group = np.zeros(len(some), np.intp)
        group[1:] = np.cumsum(~equal[first : last - 1])
        sorted_rows = rows.copy()
        sorted_rows[first:last] = some[np.lexsort((*(-key[some] for key in reversed(own)), group))]
        return sorted_rows

    @staticmethod
    def _with_equals(rows: RowNumbers, others: ShortRows, mask: Bools, keys: Sequence[Floats], k: int) -> RowNumbers:
        """The first k of some rows, and all after them that are equal to the last of these by the keys."""
        last = [key[rows[k - 1]] for key in keys]

        def equal(some: RowNumbers | ShortRows) -> int:
            """How many of these, from the first on, are equal to it."""
            differs = np.zeros(len(some), np.bool_)
            for key, value in zip(keys, last, strict=True):
                differs |= key[some] != value
            return int(np.argmax(differs)) if differs.any() else len(some)

        more = equal(rows[k:])
        if k + more < len(rows) or not len(others):
            return rows[: k + more]
        parts = [rows]
        for start in range(0, len(others), _STEP):
            part = others[start : start + _STEP]
            number = equal(part)
            parts.append(part[:number][mask[part[:number]]].astype(np.intp))
            if number < len(part):
                break
        return np.concatenate(parts)

    def _rest(self, sign: tuple[int, ...], keys: Sequence[Floats], taken: int, left: Callable[[], Bools]) -> ShortRows:
        """An order without most of what was given away: it is gone through again whenever a quarter of it may be."""
        known = self._left.get(sign)
        if known is not None and (taken - known[0]) * 4 <= len(known[1]):
            return known[1]
        order = self._order(sign, keys) if known is None else known[1]
        order = order[left()[order]]
        self._left[sign] = (taken, order)
        return order

    def _order(self, sign: tuple[int, ...], keys: Sequence[Floats]) -> ShortRows:
        self._used.add(sign)
        order = self._orders.get(sign)
        if order is None:
            if not keys:
                order = np.argsort(self._place).astype(np.int32)
            else:
                behind = self._order(sign[1:], keys[1:])
                order = behind[_falling(keys[0][behind])]
            if len(self._orders) >= _MOST_ORDERS:
                first = next(iter(self._orders))
                for known in (self._orders, self._keys, self._left):
                    known.pop(first, None)
            self._orders[sign] = order
            self._keys[sign] = tuple(keys)
        return order


def _falling(values: Floats) -> RowNumbers:
    """The places of some values from the highest to the lowest, equals as they come."""
    low, high = values.min(initial=math.inf), values.max(initial=-math.inf)
    if low >= high:
        return np.arange(len(values))
    whole = high - low < _SHORT and bool(np.all(values == np.floor(values)))
    if whole:
        return np.argsort((high - values).astype(np.uint16), kind="stable")
    distinct = np.unique(values)
    if len(distinct) <= _SHORT:
        codes = len(distinct) - 1 - np.searchsorted(distinct, values)
        return np.argsort(codes.astype(np.uint16), kind="stable")
    return np.argsort(-values, kind="stable")
