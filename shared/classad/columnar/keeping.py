"""A table's columns as bytes, so that whoever starts again need not read all ads anew.

Only what was read is kept: the ads themselves are given when it is read back, by who knows which rows still hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgpack
import numpy as np
from numpy.typing import NDArray

from shared.classad.cells import parse_text
from shared.classad.columnar.column import ABSENT, OTHER, STRING, Codes, Column, repeated
from shared.classad.columnar.shapes import HIDDEN
from shared.classad.columnar.table import Source, Table
from shared.classad.unparse import unparse_exact

VERSION: Final = 1
_FIELDS: Final = (
    ("tag", np.uint8),
    ("number", np.float64),
    ("code", np.int32),
    ("folded", np.int32),
    ("exact", np.int64),
)


def kept(table: Table) -> dict[str, Any]:
    """What `restored` takes: plain values and bytes, for msgpack."""
    columns = {name: column for name, column in table.columns.items() if HIDDEN not in name}
    return {
        "v": VERSION,
        "keys": list(table.keys),
        "special": table.special,
        "texts": list(table.codes.texts),
        "exprs": [unparse_exact(expr).encode("utf-8", "surrogateescape") for expr in table.codes.exprs],
        "columns": {name: _packed(column) for name, column in columns.items()},
    }


def restored(table: Table, held: Mapping[str, Any], sources: Mapping[str, Source | bytes]) -> None:
    """Fill a new table with the rows of these keys; others of the kept ones are left out. Raises ValueError for what
    is no such thing, and leaves the table as it was."""
    try:
        if held["v"] != VERSION:
            raise ValueError(f"version {held['v']!r}")
        keys, codes = list(held["keys"]), Codes()
        for text in held["texts"]:
            codes.text(text)
        if codes.texts != held["texts"]:
            raise ValueError("texts in another order")
        for data in held["exprs"]:
            codes.keep(parse_text(data))
        special = bool(held["special"])
        columns = {str(name): _column(fields, len(keys), codes) for name, fields in held["columns"].items()}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no columns: {type(error).__name__} {error}") from error
    rows = np.array([row for row, key in enumerate(keys) if key in sources], np.intp)
    names = [keys[row] for row in rows.tolist()]
    table.fill(
        names,
        [sources[name] for name in names],
        {name: column.taken(rows) for name, column in columns.items()},
        codes,
        special=special,
    )


def pack(held: Mapping[str, Any]) -> bytes:
    packed: bytes = msgpack.packb(held, unicode_errors="surrogateescape")
    return packed


def unpack(data: bytes) -> dict[str, Any]:
    """Raises ValueError."""
    try:
        held = msgpack.unpackb(data, unicode_errors="surrogateescape")
    except Exception as error:
        raise ValueError(f"no columns: {type(error).__name__} {error}") from error
    if not isinstance(held, dict):
        raise ValueError(f"no columns: a {type(held).__name__}")
    return held


def _packed(column: Column) -> list[Any]:
    """Each array as bytes; one value in a list where all are the same."""
    fields: list[Any] = []
    for name, _ in _FIELDS:
        array: NDArray[Any] | None = getattr(column, name)
        if array is None:
            fields.append(None)
        elif array.strides == (0,) and len(array):
            fields.append([array[:1].tobytes()])
        else:
            fields.append(array.tobytes())
    return fields


def _column(fields: Sequence[Any], size: int, codes: Codes) -> Column:
    arrays: list[Any] = []
    for (_, kind), data in zip(_FIELDS, fields, strict=True):
        if data is None:
            arrays.append(None)
        elif isinstance(data, list):
            arrays.append(repeated(np.frombuffer(data[0], kind)[0], size, kind))
        else:
            arrays.append(np.frombuffer(data, kind).copy())
    tag, number, code, folded, exact = arrays
    if any(array is None or len(array) != size for array in (tag, number, code, folded)):
        raise ValueError("a column of another length")
    if (exact is not None and len(exact) != size) or (size and tag.max() > ABSENT):
        raise ValueError("a column of another length, or kind")
    for values, which, most in ((code, STRING, len(codes.texts)), (code, OTHER, len(codes.exprs))):
        used = values[tag == which]
        if used.size and not 0 <= used.min() <= used.max() < most:
            raise ValueError("a code that is nobody's")
    if size and not -1 <= folded.min() <= folded.max() < max(1, len(codes.texts)):
        raise ValueError("a code that is nobody's")
    column = Column(tag, number, code, folded, exact, 0)
    column.count()
    return column
