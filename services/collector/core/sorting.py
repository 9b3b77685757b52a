"""Orders answers by an attribute, for pages of a table that people look at. Pure.

Numbers (and booleans, which count as 0 and 1) come first, then strings regardless of case, then ads in which the
attribute is neither; a descending order reverses numbers and strings, and leaves the rest at the end. Ties are broken
by daemon and name, so the order is total, and a page begins after the last ad of the page before, whatever changed in
between.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shared.classad.columnar.column import BOOL, INT, REAL, STRING, Codes, Column

NUMBER: Final = 0
TEXT: Final = 1
NEITHER: Final = 2

Value: TypeAlias = "float | str | None"


class BadOrder(ValueError):
    """The text names the place and the mend."""


@dataclass(frozen=True, slots=True)
class SortOrder:
    """By which attribute (lower case), and which way."""

    by: str
    descending: bool = False

    @classmethod
    def of(cls, text: str) -> SortOrder:
        """From "Memory" or, descending, "-Memory". Raises BadOrder."""
        name = text.removeprefix("-").strip().lower()
        if not name.isidentifier():
            raise BadOrder(f"order: want an attribute, with - before it for descending, not {text[:80]!r}")
        return cls(name, text.startswith("-"))


@dataclass(frozen=True, slots=True)
class Position:
    """Where an ad stands."""

    kind: int
    value: Value
    key: str  # daemon NUL name

    def cursor(self) -> str:
        return json.dumps([self.kind, self.value, self.key])

    @classmethod
    def of_cursor(cls, text: str) -> Position:
        """Raises BadOrder."""
        try:
            kind, value, key = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            kind = value = key = None
        fits = (
            (
                kind == NUMBER
                and isinstance(value, int | float)
                and not isinstance(value, bool)
                and not _too_large(value)
            )
            or (kind == TEXT and isinstance(value, str))
            or (kind == NEITHER and value is None)
        )
        if not fits or not isinstance(kind, int) or not isinstance(key, str):
            raise BadOrder("after: want what the page before gave as next")
        return cls(kind, float(value) if kind == NUMBER else value, key)


def position_of(value: object, key: str) -> Position:
    """Of an ad whose attribute is this (an expression, a list, nothing: neither)."""
    if isinstance(value, bool | int | float) and not _too_large(value) and not math.isnan(value):
        return Position(NUMBER, float(value), key)
    return Position(TEXT, value, key) if isinstance(value, str) else Position(NEITHER, None, key)


def page(places: Sequence[Position], wish: SortOrder, after: Position | None, most: int) -> tuple[list[Position], bool]:
    """At most so many of these places that come after one, in order, and whether there are more."""
    ordered = sorted(places, key=lambda place: place.key)
    ordered.sort(key=lambda place: _folded(place.value), reverse=wish.descending)
    ordered.sort(key=lambda place: place.kind)
    if after is not None:
        ordered = [place for place in ordered if _comes_after(place, after, wish.descending)]
    return ordered[:most], len(ordered) > most


def rows(
    column: Column, codes: Codes, ranks: NDArray[np.intp], rank_of_key: float, wish: SortOrder, after: Position | None
) -> NDArray[np.intp]:
    """The same over a column: its rows in order, those after a place only. ranks: of each row's key among all keys;
    rank_of_key: of the place's own, a half less where no row has it any more."""
    kind = np.full(len(column.tag), NEITHER, np.int8)
    value = np.zeros(len(column.tag), np.float64)
    numbers = np.isin(column.tag, (INT, REAL, BOOL)) & ~np.isnan(column.number)
    kind[numbers] = NUMBER
    value[numbers] = np.broadcast_to(column.number, column.tag.shape)[numbers]
    strings = column.tag == STRING
    texts: list[tuple[float, str, str]] = []
    if strings.any():
        kind[strings] = TEXT
        used, inverse = np.unique(np.broadcast_to(column.code, column.tag.shape)[strings], return_inverse=True)
        spelt = [_folded(codes.texts[code]) for code in used.tolist()]
        texts = sorted(spelt)
        where = {text: number for number, text in enumerate(texts)}
        value[strings] = np.array([where[text] for text in spelt], np.float64)[inverse]
    if wish.descending:
        value = -value
    order: NDArray[np.intp] = np.lexsort((ranks, value, kind))
    if after is None:
        return order
    bound = 0.0
    if after.kind == NUMBER:
        assert isinstance(after.value, float)
        bound = after.value
    elif after.kind == TEXT:
        folded = _folded(after.value)
        bound = bisect_left(texts, folded)
        if bound == len(texts) or texts[int(bound)] != folded:
            bound -= 0.5
    if wish.descending:
        bound = -bound
    same = kind == after.kind
    later = (kind > after.kind) | (same & ((value > bound) | ((value == bound) & (ranks > rank_of_key))))
    chosen: NDArray[np.intp] = order[later[order]]
    return chosen


def _comes_after(place: Position, after: Position, descending: bool) -> bool:
    if place.kind != after.kind:
        return place.kind > after.kind
    mine, other = _folded(place.value), _folded(after.value)
    if mine != other:
        return (mine < other) if descending else (mine > other)
    return place.key > after.key


def _folded(value: Value) -> tuple[float, str, str]:
    return (0.0, value.casefold(), value) if isinstance(value, str) else (value or 0.0, "", "")


def _too_large(value: float) -> bool:
    return isinstance(value, int) and abs(value) > 2**1000
