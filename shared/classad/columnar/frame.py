"""Frame: a table with some of its attributes replaced, as who decides something step by step needs it.

    frame = Frame(table)
    frame.replace({"cpus": free_cpus}, live=True, start=first_machine)   # in rows before `start` nothing ever changes
    matching = Matching(frame, now)
    ...
    free_cpus.number[rows] -= 1
    frame.changed()                                                      # what depends on it is evaluated anew

The table itself stays as it is. Replaced columns hold plain values only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from shared.classad.ad import ClassAd
from shared.classad.columnar.column import Codes, Column
from shared.classad.columnar.table import Stretch, Table
from shared.classad.expr import Expr


class Over(Mapping[str, Column]):
    """Some columns before others."""

    def __init__(self, first: Mapping[str, Column], rest: Mapping[str, Column]) -> None:
        self._first = first
        self._rest = rest

    def __getitem__(self, key: str) -> Column:
        found = self._first.get(key)
        return self._rest[key] if found is None else found

    def __iter__(self) -> Iterator[str]:
        return iter({**self._rest, **self._first})

    def __len__(self) -> int:
        return len({**self._rest, **self._first})


class Frame:
    """A table with some of its columns replaced. Has what `Matching` asks a Table for; rows and their order are the
    table's.

    live: folded names of the columns that change while results are kept; epoch: how often they did; live_from: the
    first row in which they can.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.live: frozenset[str] = frozenset()
        self.live_from = 0
        self.epoch = 0
        self._own: dict[str, Column] = {}
        self._replaced = 0
        self.columns: Mapping[str, Column] = Over(self._own, table.columns)

    def replace(self, columns: Mapping[str, Column], live: Iterable[str] = (), live_from: int = 0) -> None:
        """Have these columns (by folded name) instead of the table's, and none of those replaced before. `live`: those
        that `changed` will be called for, in rows from `live_from` on. What a Matching has found out is to be cleared.
        """
        after = frozenset(live), live_from if live else 0
        if columns.keys() != self._own.keys() or after != (self.live, self.live_from):
            self._replaced += 1
        self._own.clear()
        self._own.update(columns)
        self.live, self.live_from = after
        self.epoch += 1

    def changed(self) -> None:
        """The arrays of live columns were written to."""
        self.epoch += 1

    @property
    def replaced(self) -> Set[str]:
        """Folded names of the columns that are not the table's."""
        return self._own.keys()

    def changed_rows(self, names: Iterable[str], since: int) -> NDArray[np.intp] | None:
        """As `Table.changed_rows`, of columns that are the table's."""
        return self.table.changed_rows(names, since - self._replaced)

    # What a table has

    @property
    def version(self) -> int:
        return self.table.version + self._replaced

    @property
    def layout(self) -> int:
        return self.table.layout + self._replaced

    @property
    def meaning(self) -> int:
        return self.table.meaning + self._replaced

    @property
    def codes(self) -> Codes:
        return self.table.codes

    @property
    def special(self) -> bool:
        return self.table.special

    @property
    def keys(self) -> Sequence[str]:
        return self.table.keys

    def __len__(self) -> int:
        return len(self.table)

    def row(self, key: str) -> int:
        return self.table.row(key)

    def ad(self, row: int) -> ClassAd:
        """The ad of a row as it stands now, as a new object."""
        ad = self.table.ad(row)
        for name, column in self._own.items():
            cell = column.cell(row, self.codes)
            if cell is not None:
                ad[name] = cell
            else:
                ad.pop(name, None)
        return ad

    def want(self, names: Iterable[str]) -> None:
        self.table.want(name for name in names if name not in self._own)

    def names(self, expr: Expr) -> frozenset[str]:
        return self.table.names(expr)

    def expressions(self, name: str) -> list[Expr]:
        return [] if name in self._own else self.table.expressions(name)

    def shape(self, names: Iterable[str]) -> bool:
        return self.table.shape([name for name in names if name not in self._own])

    def stretches(self, names: Iterable[str]) -> list[Stretch]:
        return self.table.stretches([name for name in names if name not in self._own])


def numbers(values: NDArray[np.float64], tag: NDArray[np.uint8]) -> Column:
    """A column of numbers: `tag` says BOOL, INT, REAL, or ABSENT where there is no attribute."""
    none = np.full(len(values), -1, np.int32)
    column = Column(tag, values, none, none, None, 0)
    column.count()
    return column
