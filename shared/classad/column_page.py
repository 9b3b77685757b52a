"""Ads of a few attributes as columns: 100,000 of them are read in a twentieth of the time that as many ads take.

On the wire a page of them is a msgpack map: `rows`, how many ads; `names` of attributes; `columns`, for each of these a
list of what the ads have there: nil for no such attribute, everything else as in a packed ad (shared.classad.cells).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, overload

import msgpack

from shared.classad.ad import ClassAd
from shared.classad.cells import PackedError, PackedText, Stored, extension, parse_text, read_packed
from shared.classad.expr import AttrRef, Call, Expr, fold, walk

Cells = list["Stored | None"]


def page(rows: int, columns: Sequence[tuple[str, Sequence[Any]]]) -> bytes:
    """A page as it travels: the names of attributes with their cells, which msgpack must know how to pack."""
    body = {"rows": rows, "names": [name for name, _ in columns], "columns": [cells for _, cells in columns]}
    packed: bytes = msgpack.packb(body, unicode_errors="surrogateescape")
    return packed


class Sheet(Sequence[ClassAd]):
    """Ads in columns, which are made one by one only when they are asked for; such an ad is for reading."""

    def __init__(self) -> None:
        self._size = 0
        self._columns: dict[str, tuple[str, Cells]] = {}  # by folded name: name, cells of all rows
        self._ads: dict[int, ClassAd] = {}

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> ClassAd: ...

    @overload
    def __getitem__(self, place: slice) -> list[ClassAd]: ...

    def __getitem__(self, place: int | slice) -> ClassAd | list[ClassAd]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(self._size))]
        number = place + self._size if place < 0 else place
        if not 0 <= number < self._size:
            raise IndexError(place)
        ad = self._ads.get(number)
        if ad is None:
            table = {
                key: (name, cell) for key, (name, cells) in self._columns.items() if (cell := cells[number]) is not None
            }
            ad = self._ads[number] = ClassAd.from_table(table)
        return ad

    def __iter__(self) -> Iterator[ClassAd]:
        return map(self.__getitem__, range(self._size))

    def cells(self, key: str) -> Cells:
        """What the ads have under this folded name: None where there is no such attribute."""
        found = self._columns.get(key)
        return [None] * self._size if found is None else found[1]

    def cell(self, key: str, place: int) -> object:
        """What one ad has under this folded name; None: there is no such attribute."""
        found = self._columns.get(key)
        return None if found is None else found[1][place]

    def names(self) -> list[str]:
        """The attributes that any of the ads has, as they are written."""
        return [name for name, _ in self._columns.values()]

    def put(self, name: str, cells: Cells) -> None:
        """Have these cells under a name. Raises ValueError where they are more or fewer than the ads."""
        if len(cells) != self._size:
            raise ValueError(f"{name}: {len(cells)} cells for {self._size} ads")
        self._columns[fold(name)] = (name, cells)
        self._ads.clear()

    def taken(self, places: Sequence[int]) -> Sheet:
        """These ads in this order."""
        sheet = Sheet()
        sheet._size = len(places)
        for key, (name, cells) in self._columns.items():
            sheet._columns[key] = (name, [cells[place] for place in places])
        return sheet

    def narrowed(self, keys: Iterable[str]) -> Sheet:
        """The same ads with nothing but these folded names, which takes less to make; all of it where some of these are
        expressions, which may name others."""
        sheet = Sheet()
        sheet._size = self._size
        sheet._columns = {key: self._columns[key] for key in keys if key in self._columns}
        plain = all(set(map(type, cells)) <= _PLAIN for _, cells in sheet._columns.values())
        return sheet if plain else self

    def alike(self, keys: Iterable[str]) -> list[int]:
        """For each ad the first one that has the same under these folded names, type and digits included, so that what
        only these decide is worked out once. An expression that names attributes is like no other."""
        columns = [_marks(self.cells(key)) for key in keys]
        looks: Sequence[Any] = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        if not columns:
            return [0] * self._size
        first = dict(zip(reversed(looks), range(self._size - 1, -1, -1), strict=True))
        return list(map(first.__getitem__, looks))

    def add(self, found: object) -> None:
        """Take the ads of one page, as read by `reader`: a map as above, or a list of packed ads. Raises
        PackedError."""
        if isinstance(found, list):
            tables = [read_packed(packed) for packed in found]
            names = {key: name for table in tables for key, (name, _) in table.items()}
            self._append(
                len(tables),
                {
                    key: (name, [None if (entry := table.get(key)) is None else entry[1] for table in tables])
                    for key, name in names.items()
                },
            )
            return
        try:
            rows, names_, columns = found["rows"], found["names"], found["columns"]  # type: ignore[index]
            pairs = {fold(name): (name, cells) for name, cells in zip(names_, columns, strict=True)}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PackedError(f"no page of ads: {error}") from error
        if not isinstance(rows, int) or any(
            type(cells) is not list or len(cells) != rows for _, cells in pairs.values()
        ):
            raise PackedError("no page of ads: its columns are not of one length")
        self._append(rows, pairs)

    def _append(self, rows: int, columns: dict[str, tuple[str, Cells]]) -> None:
        for key, (name, cells) in columns.items():
            known = self._columns.get(key)
            if known is None:
                known = self._columns[key] = (name, [None] * self._size)
            known[1].extend(cells)
        self._size += rows
        for key in self._columns.keys() - columns.keys():
            self._columns[key][1].extend([None] * rows)


_PLAIN: Final = frozenset((str, int, float, bool, type(None)))


def _marks(cells: Cells) -> Sequence[Any]:
    """Of each cell something that is equal for equal cells only."""
    types = set(map(type, cells)) - {type(None)}
    if types <= {str} or types <= {int} or types <= {bool}:
        return cells
    if types <= {float}:
        return list(map(repr, cells))  # 0.0 and -0.0, and a NaN is itself
    known: dict[int | bytes, bool] = {}

    def mark(place: int, cell: Stored | None) -> Any:
        if cell is None or cell.__class__ is str:
            return cell
        if isinstance(cell, PackedText | Expr):
            key = cell.data if isinstance(cell, PackedText) else id(cell)
            steady = known.get(key)
            if steady is None:
                steady = known[key] = _is_steady(cell)
            return (PackedText, key) if steady else (None, place)
        return (cell.__class__, repr(cell))

    return [mark(place, cell) for place, cell in enumerate(cells)]


def _is_steady(cell: PackedText | Expr) -> bool:
    """Whether an expression has the same value in every ad."""
    try:
        found = parse_text(cell.data) if isinstance(cell, PackedText) else cell
    except PackedError:
        return False
    return not isinstance(found, Expr) or not any(isinstance(node, AttrRef | Call) for node in walk(found))


def reader() -> Any:
    """An unpacker of pages: feed it, and iterate for `Sheet.add`."""
    return msgpack.Unpacker(max_buffer_size=1 << 30, ext_hook=extension, unicode_errors="surrogateescape")
