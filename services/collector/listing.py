"""Ads of a few attributes, packed or in columns, made from columns: five attributes of all slots cost 3 us an ad
(less in columns), where reading each ad whole costs 60. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np
from numpy.typing import NDArray

from shared.classad.columnar.column import ABSENT, INT, OTHER, REAL, STRING, UNDEF, WRONG, Codes, Column

#: Kinds of cells that columns do not keep as they came: the text of an expression may have other spaces.
ODD: Final = (1 << OTHER) | (1 << UNDEF) | (1 << WRONG)
#: So many texts are looked at to see whether all differ, as names do.
LOOKED_AT: Final = 64


def bodies(
    columns: Sequence[tuple[str, Column]], rows: NDArray[np.intp], codes: Codes, more: int
) -> list[bytes | None]:
    """Of each of these rows a packed ad that lacks its end: `more` further attributes, which the caller adds. Columns
    come with the names of their attributes. None where a value is an expression, or none: to be read from the ad."""
    size = len(rows)
    count = np.full(size, more, np.intp)
    odd = np.zeros(size, np.bool_)
    parts: list[list[bytes]] = []
    for name, column in columns:
        if column.tags == 1 << ABSENT:
            continue
        taken = column.taken(rows)
        count += taken.tag != ABSENT
        if taken.tags & ODD:
            odd |= np.isin(taken.tag, (OTHER, UNDEF, WRONG))
        parts.append(_parts(_pack(name), taken, codes))
    counts = count.tolist()
    heads = {number: _head(number) for number in set(counts)}
    made: list[bytes | None] = list(map(b"".join, zip([heads[number] for number in counts], *parts, strict=True)))
    for row in np.flatnonzero(odd).tolist():
        made[row] = None
    return made


@dataclass(slots=True)
class Listed:
    """Attributes of some ads in columns. `odd`: rows with a value that is an expression, or none: to be read from the
    ad."""

    columns: list[tuple[str, list[Any]]]
    odd: list[int]


def listed(columns: Sequence[tuple[str, Column]], rows: NDArray[np.intp], codes: Codes) -> Listed:
    """The cells of these rows by attribute: None where there is no such attribute."""
    odd = np.zeros(len(rows), np.bool_)
    found = []
    for name, column in columns:
        taken = column.taken(rows)
        if taken.tags & ODD:
            odd |= np.isin(taken.tag, (OTHER, UNDEF, WRONG))
        found.append((name, _cells(taken, codes)))
    return Listed(found, np.flatnonzero(odd).tolist())


def _cells(column: Column, codes: Codes) -> list[Any]:
    if column.tags == 1 << REAL:
        return list(column.number.tolist())
    if column.tags == 1 << INT and column.exact is None:
        return list(column.number.astype(np.int64).tolist())
    if column.tags == 1 << STRING:
        texts = codes.texts
        return [texts[code] for code in column.code.tolist()]
    _, first, which = np.unique(column.identities(), return_index=True, return_inverse=True)
    cells = [column.cell(row, codes) for row in first.tolist()]
    table = [cell if isinstance(cell, str | int | float) else None for cell in cells]
    return [table[number] for number in which.tolist()]


def _parts(name: bytes, column: Column, codes: Codes) -> list[bytes]:
    """Name and value of each row; nothing where there is none."""
    if column.tags == 1 << REAL:
        return [name + _pack(number) for number in column.number.tolist()]
    if column.tags == 1 << STRING:
        texts, used = codes.texts, column.code.tolist()
        if len(set(used[:LOOKED_AT])) == min(len(used), LOOKED_AT):
            return [name + _pack(texts[code]) for code in used]
        known = {code: name + _pack(texts[code]) for code in set(used)}
        return [known[code] for code in used]
    _, first, which = np.unique(column.identities(), return_index=True, return_inverse=True)
    cells = [column.cell(row, codes) for row in first.tolist()]
    table = [name + _pack(cell) if isinstance(cell, str | int | float) else b"" for cell in cells]
    return [table[number] for number in which.tolist()]


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(value, unicode_errors="surrogateescape")
    return packed


def _head(attributes: int) -> bytes:
    """The beginning of a packed ad of so many attributes."""
    return bytes((0x80 | attributes,)) if attributes < 16 else b"\xde" + attributes.to_bytes(2, "big")
