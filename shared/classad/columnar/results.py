"""Results over the rows of a table, kept and mended.

A result holds for a version of the table. When it is asked for at a later one, it is mended in the rows in which a
column that it reads changed, if these are few.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.classad.columnar.frame import Frame
from shared.classad.columnar.other_ad import Array
from shared.classad.columnar.table import Table

ERA: Final = 8  # so many moments; results that were not asked for in one, or in the one before, are forgotten
_FEW: Final = 4  # of so many rows one may change, before a result is made anew rather than mended


@dataclass(slots=True)
class Kept:
    """array: None where the evaluator has to be asked. version: of the table, for which it holds; moment: when it was
    asked for last, counted in changes of `now`."""

    array: Array | None
    version: int
    moment: int


class Results:
    """`most_bytes`: what is beyond is forgotten, the oldest first."""

    def __init__(self, table: Table | Frame, most_bytes: int) -> None:
        self._table = table
        self.most_bytes = most_bytes
        self.bytes = 0  # that the arrays hold
        self.moment = 0
        self._kept: OrderedDict[tuple[object, ...], Kept] = OrderedDict()
        self._passing: list[tuple[object, ...]] = []  # keys of results that hold at this moment only
        self._changed: dict[tuple[int, tuple[str, ...]], NDArray[np.intp]] = {}  # rows, until others change

    def clear(self) -> None:
        self._kept.clear()
        self._passing.clear()
        self._changed.clear()
        self.bytes = 0

    def pass_on(self) -> None:
        """To another moment."""
        self.moment += 1
        for key in self._passing:
            self._drop(key)
        self._passing.clear()
        if not self.moment % ERA:
            oldest = self.moment - 2 * ERA
            for key in [key for key, kept in self._kept.items() if kept.moment < oldest]:
                self._drop(key)

    def rows_changed(self) -> None:
        """The table has another version."""
        self._changed.clear()

    def asked(self, key: tuple[object, ...]) -> Kept | None:
        """What was asked for at this moment, and holds."""
        kept = self._kept.get(key)
        return kept if kept is not None and kept.version == self._table.version and kept.moment == self.moment else None

    def leave_to_the_evaluator(self, key: tuple[object, ...]) -> None:
        """Until the next moment, or another version of the table."""
        self._put(key, None, False)

    def keep(
        self,
        key: tuple[object, ...],
        make: Callable[[], Array],
        columns: tuple[str, ...],
        lasting: bool,
        mend: Callable[[NDArray[np.intp]], Array] | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> Array:
        """What is kept under `key`; made if it is not there, or holds no more. columns: what it reads, in the rows
        start to stop; lasting: whether it holds at other moments too; mend: what it is in those of the
        rows that changed (ascending) that lie from start to stop, for what is worth it."""
        kept = self._kept.get(key)
        if kept is not None and kept.array is not None and self._renew(kept, columns, mend, start, stop):
            if kept.moment != self.moment:
                kept.moment = self.moment
                self._kept.move_to_end(key)
            return kept.array
        if kept is not None:
            self._drop(key)
        result = make()
        result.flags.writeable = False
        self._put(key, result, lasting)
        return result

    def _renew(
        self,
        kept: Kept,
        columns: tuple[str, ...],
        mend: Callable[[NDArray[np.intp]], Array] | None,
        start: int,
        stop: int | None,
    ) -> bool:
        """Have a result hold for the table as it is; False if it is to be made anew."""
        version = self._table.version
        if kept.version == version:
            return True
        rows = self._changed.get((kept.version, columns))
        if rows is None:
            rows = self._table.changed_rows(columns, kept.version)
            if rows is None or len(rows) * _FEW > len(self._table):
                return False
            self._changed[kept.version, columns] = rows
        first, last = between(rows, start, len(self._table) if stop is None else stop)
        if first < last:
            if mend is None:
                return False
            assert kept.array is not None
            mended = kept.array.copy()
            mended[rows[first:last] - start] = mend(rows)
            mended.flags.writeable = False
            kept.array = mended
        kept.version = version
        return True

    def _put(self, key: tuple[object, ...], array: Array | None, lasting: bool) -> None:
        self._kept[key] = Kept(array, self._table.version, self.moment)
        if array is None or not lasting:
            self._passing.append(key)
        self.bytes += 0 if array is None else array.nbytes
        while self.bytes > self.most_bytes and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[object, ...]) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None and kept.array is not None:
            self.bytes -= kept.array.nbytes


def between(rows: NDArray[np.intp], start: int, stop: int) -> tuple[int, int]:
    """Where the rows from start to stop stand in an ascending list of rows."""
    first, last = np.searchsorted(rows, (start, stop)).tolist()
    return first, last
