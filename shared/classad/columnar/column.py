"""Columns: one attribute of many ads as NumPy arrays.

A column of n rows has
    tag    (n,) uint8    what kind of value it is: one of the tags below
    number (n,) float64  the value of a boolean, integer or real; NaN for anything else
    code   (n,) int32    the exact text's code (strings), or the expression's (OTHER); -1 for anything else
    folded (n,) int32    the code of the text in lower case; -1 for anything else
    exact  (n,) int64    the integers, only if one of them is not exact as a real (2^53 and beyond); else None
that is 17 bytes a row, less where one of them is the same in all rows: numbers have no codes, strings no number. Such
an array is one value repeated, and not to be written to. Strings and expressions are numbered by a `Codes` of the
table, so equal texts of different columns have equal codes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shared.classad.cells import Cell, PackedText, as_expr, parse_text
from shared.classad.compiled.plan import Unplannable
from shared.classad.expr import Expr, Literal
from shared.classad.operators import fold_string
from shared.classad.unparse import unparse
from shared.classad.values import ERROR, UNDEFINED, Value

UNDEF: Final = 0
WRONG: Final = 1
BOOL: Final = 2
INT: Final = 3
REAL: Final = 4
STRING: Final = 5
OTHER: Final = 6  # an expression, a list, an ad or a time
ABSENT: Final = 7  # no such attribute, which is not the same as an attribute that is UNDEFINED
NUMBERS: Final = (1 << BOOL) | (1 << INT) | (1 << REAL)
EXACT_LIMIT: Final = 1 << 53

_TAGS: Final[dict[type, int]] = {bool: BOOL, int: INT, float: REAL, type(None): ABSENT}
_NUMERIC: Final = frozenset(_TAGS)
_TEXTUAL: Final = frozenset((str, type(None)))

Mask: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Codes32: TypeAlias = NDArray[np.int32]


class Codes:
    """Numbers for texts and for expressions, given once and for ever."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.folded: list[int] = []  # by the code of a text, the code of its lower case
        self.exprs: list[Expr] = []
        self._expr_texts: dict[int, str] = {}
        self._text_codes: dict[str, int] = {}
        self._expr_codes: dict[int, int] = {}

    def text(self, text: str) -> int:
        """The code of a text."""
        code = self._text_codes.get(text)
        if code is None:
            code = self._text_codes[text] = len(self.texts)
            self.texts.append(text)
            self.folded.append(code)
            low = fold_string(text)
            if low != text:
                self.folded[code] = self.text(low)
        return code

    def of_texts(self, cells: Sequence[Any]) -> list[int]:
        """The codes of many texts, of which most are known; -1 for None."""
        known = self._text_codes
        for text in dict.fromkeys(cells):
            if text is not None and text not in known:
                self.text(text)
        return list(map(known.get, cells, repeat(-1)))

    def keep(self, cell: Cell) -> None:
        """Give the next number to an expression, whether or not it has one."""
        expr = as_expr(cell)
        self._expr_codes.setdefault(id(expr), len(self.exprs))
        self.exprs.append(expr)

    def expr_text(self, code: int) -> str:
        """An expression for people."""
        text = self._expr_texts.get(code)
        if text is None:
            text = self._expr_texts[code] = unparse(self.exprs[code])
        return text

    def expr(self, expr: Expr) -> int:
        """The code of an expression (of this very tree)."""
        code = self._expr_codes.get(id(expr))
        if code is None:
            code = self._expr_codes[id(expr)] = len(self.exprs)
            self.exprs.append(expr)
        return code


@dataclass(slots=True)
class Vector:
    """Values of n rows, or one value for all of them (then the fields are plain numbers). `tags` has bit t set if tag t
    may occur. ABSENT never does: it becomes UNDEF where a plan reads a column."""

    tags: int
    tag: Any
    number: Any = np.nan
    code: Any = -1
    folded: Any = -1
    exact: Any = None


@dataclass(slots=True)
class Column:
    """One attribute of many ads, as arrays. `tags` has bit t set if tag t occurs."""

    tag: NDArray[np.uint8]
    number: Floats
    code: Codes32
    folded: Codes32
    exact: NDArray[np.int64] | None
    tags: int

    @classmethod
    def of(cls, cells: Iterable[Any], codes: Codes) -> Column:
        """A column of cells as tables hold them (None: absent) or of values."""
        cells = cells if isinstance(cells, list | tuple) else list(cells)
        return cls._alike(cells, codes) or cls._one_by_one(cells, codes)

    @classmethod
    def _alike(cls, cells: Sequence[Any], codes: Codes) -> Column | None:
        """The same where all are numbers or all are strings, as in most columns, in a fifth of the time; None where
        they are not."""
        types = set(map(type, cells))
        if not types or not (types <= _NUMERIC or types <= _TEXTUAL):
            return None
        size = len(cells)
        number = repeated(np.nan, size, np.float64)
        code = folded = repeated(-1, size, np.int32)
        if str in types:
            code = np.array(codes.of_texts(cells), dtype=np.int32)
            folded = np.array(codes.folded, dtype=np.int32)[code]
            tag = np.full(size, STRING, np.uint8)
            if len(types) > 1:
                absent = code < 0
                tag[absent], folded[absent] = ABSENT, -1
        elif cells[0] is None and len(types) == 1:
            tag = np.full(size, ABSENT, np.uint8)
        else:
            number = np.array(cells, dtype=np.float64)  # None becomes NaN
            if int in types and not (np.isnan(number) | (np.abs(number) < EXACT_LIMIT)).all():
                return None
            if len(types) == 1:
                tag = np.full(size, _TAGS[types.pop()], np.uint8)
            else:
                tag = np.fromiter(map(_TAGS.__getitem__, map(type, cells)), np.uint8, size)
            if np.isnan(number).all():
                number = repeated(np.nan, size, np.float64)
        column = cls(tag, number, code, folded, None, 0)
        column.count()
        return column

    @classmethod
    def _one_by_one(cls, cells: Sequence[Any], codes: Codes) -> Column:
        tags: list[int] = []
        numbers: list[float] = []
        texts: list[int] = []
        large: dict[int, int] = {}
        nan = float("nan")
        for cell in cells:
            kind = type(cell)
            if kind is int:
                tags.append(INT)
                numbers.append(cell)
                texts.append(-1)
                if not -EXACT_LIMIT < cell < EXACT_LIMIT:
                    large[len(tags) - 1] = cell
            elif kind is str:
                tags.append(STRING)
                numbers.append(nan)
                texts.append(codes.text(cell))
            elif kind is float:
                tags.append(REAL)
                numbers.append(cell)
                texts.append(-1)
            elif cell is None:
                tags.append(ABSENT)
                numbers.append(nan)
                texts.append(-1)
            elif kind is bool:
                tags.append(BOOL)
                numbers.append(cell)
                texts.append(-1)
            else:
                tag, code = _unusual(cell, codes)
                tags.append(tag)
                numbers.append(nan)
                texts.append(code)
        tag_array = np.array(tags, dtype=np.uint8)
        number = np.array(numbers, dtype=np.float64)
        coded = np.array(texts, dtype=np.int32)
        folded = repeated(-1, len(tags), np.int32)
        strings = tag_array == STRING
        if strings.any():
            folded = np.full(len(tags), -1, dtype=np.int32)
            folded[strings] = np.array(codes.folded, dtype=np.int32)[coded[strings]]
        if len(tags) and coded.max() < 0:
            coded = repeated(-1, len(tags), np.int32)
        if len(tags) and np.isnan(number).all():
            number = repeated(np.nan, len(tags), np.float64)
        column = cls(tag_array, number, coded, folded, None, 0)
        if large:
            column.widen()
            assert column.exact is not None
            for row, value in large.items():
                column.exact[row] = value
        column.count()
        return column

    def widen(self) -> None:
        """Keep integers exactly from now on."""
        if self.exact is None:
            fits = (self.tag == INT) & (np.abs(self.number) < EXACT_LIMIT)  # the others are written by who knows them
            self.exact = np.where(fits, self.number, 0.0).astype(np.int64)

    def count(self) -> None:
        """Find out which tags occur."""
        self.tags = sum(1 << tag for tag in np.flatnonzero(np.bincount(self.tag, minlength=8)).tolist())

    def differs(self, rows: NDArray[np.intp], new: Column) -> Mask:
        """(m,) bool: where some rows of this column and the m rows of another are not the same, bit by bit."""
        if (self.exact is None) != (new.exact is None):
            return np.ones(len(rows), np.bool_)
        tag = self.tag[rows]
        other: Mask = tag != new.tag
        if not (_is_repeated(self.code) and _is_repeated(new.code)):
            other |= self.code[rows] != new.code
        if not (_is_repeated(self.number) and _is_repeated(new.number)):
            other |= _bits(self.number[rows]) != _bits(new.number)
        if self.exact is not None and new.exact is not None:
            other |= (self.exact[rows] != new.exact) & (tag == INT)
        return other

    def put(self, rows: NDArray[np.intp], new: Column) -> None:
        """Write the rows of another column over some rows of this one. O(rows), and O(n) to count the tags where they
        change."""
        same = np.array_equal(self.tag[rows], new.tag)
        self.tag[rows] = new.tag
        self.number = _put(self.number, rows, new.number)
        self.code = _put(self.code, rows, new.code)
        self.folded = _put(self.folded, rows, new.folded)
        if new.exact is not None:
            self.widen()
        if self.exact is not None:
            new.widen()
            assert new.exact is not None
            self.exact[rows] = new.exact
        if not same:
            self.count()

    def taken(self, rows: NDArray[np.intp]) -> Column:
        """The rows in another order, or fewer."""
        exact = None if self.exact is None else self.exact[rows]
        column = Column(
            self.tag[rows],
            _taken(self.number, rows),
            _taken(self.code, rows),
            _taken(self.folded, rows),
            exact,
            self.tags,
        )
        column.count()
        return column

    def first(self, rows: int) -> Column:
        """So many first rows, not to be written to."""
        if rows == len(self.tag):
            return self
        exact = None if self.exact is None else self.exact[:rows]
        column = Column(self.tag[:rows], self.number[:rows], self.code[:rows], self.folded[:rows], exact, 0)
        column.count()
        return column

    def joined(self, other: Column) -> Column:
        """This column with another one behind it."""
        exact = None
        if self.exact is not None or other.exact is not None:
            self.widen()
            other.widen()
            assert self.exact is not None
            assert other.exact is not None
            exact = np.concatenate((self.exact, other.exact))
        parts = (
            (self.tag, other.tag),
            (self.number, other.number),
            (self.code, other.code),
            (self.folded, other.folded),
        )
        arrays: list[Any] = [_joined(*pair) for pair in parts]
        return Column(arrays[0], arrays[1], arrays[2], arrays[3], exact, self.tags | other.tags)

    def vector(self, start: int, stop: int) -> Vector:
        """Rows start to stop, as they are (ABSENT included)."""
        whole = stop - start == len(self.tag)
        if whole:
            return Vector(self.tags, self.tag, self.number, self.code, self.folded, self.exact)
        tag = self.tag[start:stop]
        exact = None if self.exact is None else self.exact[start:stop]
        return Vector(self.tags, tag, self.number[start:stop], self.code[start:stop], self.folded[start:stop], exact)

    def cell(self, row: int, codes: Codes) -> Cell | None:
        """The cell of one row, None where it is absent; UNDEFINED and ERROR as literals."""
        tag = int(self.tag[row])
        if tag == INT:
            return int(self.number[row] if self.exact is None else self.exact[row])
        if tag == REAL:
            return float(self.number[row])
        if tag == BOOL:
            return bool(self.number[row])
        if tag == STRING:
            return codes.texts[int(self.code[row])]
        if tag == OTHER:
            return codes.exprs[int(self.code[row])]
        return None if tag == ABSENT else Literal(ERROR if tag == WRONG else UNDEFINED)

    def identities(self) -> NDArray[np.int64]:
        """(n,) int64: equal for rows of the same type and value, and only for these (a NaN is itself)."""
        values = (
            np.ascontiguousarray(self.number).view(np.int64)
            if self.exact is None
            else np.where(self.tag == INT, self.exact, np.ascontiguousarray(self.number).view(np.int64))
        )
        values = np.where(self.code >= 0, self.code, values)
        _, ids = np.unique(values, return_inverse=True)
        return ids.astype(np.int64) * 8 + self.tag


def repeated(value: Any, size: int, kind: Any) -> NDArray[Any]:
    """An array of one value, which takes no room and can not be written to."""
    return np.broadcast_to(np.array(value, kind), (size,))


def _bits(number: Floats) -> NDArray[np.int64]:
    """So that NaN is itself, and 0.0 is not -0.0."""
    return np.ascontiguousarray(number).view(np.int64)


def _is_repeated(array: NDArray[Any]) -> bool:
    return array.strides == (0,)


def _put(array: NDArray[Any], rows: NDArray[np.intp], new: NDArray[Any]) -> NDArray[Any]:
    if _is_repeated(array):
        if _is_repeated(new) or not len(new):
            return array
        array = array.copy()
    array[rows] = new
    return array


def _taken(array: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[Any]:
    return repeated(array[0], len(rows), array.dtype) if _is_repeated(array) and len(array) else array[rows]


def _joined(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    if not len(first) or not len(second):
        return second if len(second) else first
    if _is_repeated(first) and _is_repeated(second):
        return repeated(first[0], len(first) + len(second), first.dtype)
    return np.concatenate((first, second))


def _unusual(cell: Any, codes: Codes) -> tuple[int, int]:
    if isinstance(cell, PackedText):
        cell = parse_text(cell.data)
    if type(cell) is Literal:
        cell = cell.value
    if cell is UNDEFINED:
        return UNDEF, -1
    if cell is ERROR:
        return WRONG, -1
    if isinstance(cell, Expr):
        return OTHER, codes.expr(cell)
    return OTHER, codes.expr(Literal(cell))


def constant(value: Value, codes: Codes) -> Vector:
    """One value for all rows. Raises Unplannable for times, lists and ads."""
    kind = type(value)
    if kind is int:
        assert isinstance(value, int)
        return Vector(1 << INT, INT, float(value), exact=value)
    if kind is float:
        return Vector(1 << REAL, REAL, value)
    if kind is bool:
        return Vector(1 << BOOL, BOOL, float(bool(value)))
    if isinstance(value, str):
        code = codes.text(value)
        return Vector(1 << STRING, STRING, np.nan, code, codes.folded[code])
    if value is UNDEFINED:
        return Vector(1 << UNDEF, UNDEF)
    if value is ERROR:
        return Vector(1 << WRONG, WRONG)
    raise Unplannable("a value that has no column")


def gathered(values: Sequence[Value], inverse: NDArray[np.intp], codes: Codes) -> Vector:
    """Row i has values[inverse[i]]. Raises Unplannable for times, lists and ads."""
    column = Column.of((Literal(value) if value is UNDEFINED else value for value in values), codes)
    if column.tags & (1 << OTHER):
        raise Unplannable("a value that has no column")
    column = column.taken(inverse)
    return column.vector(0, len(inverse))
