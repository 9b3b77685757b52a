"""What an ad stores under a name, and the packed form of ads.

A cell is a plain value (bool, int, float, str) or an expression; in a table there may also be the packed text of an
expression that nobody has asked for yet. A packed ad is a msgpack map of attribute to literal (msgpack's own
types) or expression text (an extension type, code TEXT_CODE, UTF-8).
"""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Any, Final, TypeAlias

import msgpack

from shared.classad.budget import present
from shared.classad.expr import (
    FOLDED,
    AdExpr,
    AttrRef,
    Binary,
    Call,
    Elvis,
    Expr,
    Interval,
    ListExpr,
    Literal,
    Parens,
    Subscript,
    Ternary,
    Unary,
    fold,
)
from shared.classad.lexer import ParseError
from shared.classad.parser import parse_expr
from shared.classad.unparse import unparse_exact

TEXT_CODE: Final = 1

Cell: TypeAlias = "bool | int | float | str | Expr"
Stored: TypeAlias = "Cell | PackedText"
Table: TypeAlias = "dict[str, tuple[str, Stored]]"  # folded name to name and cell


def as_expr(cell: Cell) -> Expr:
    """A cell as an expression."""
    return cell if isinstance(cell, Expr) else Literal(cell)


def simplest(expr: Expr) -> Cell:
    """The cell of an expression: a plain constant is stored as itself."""
    if type(expr) is Literal and isinstance(expr.value, bool | int | float | str):
        return expr.value
    return expr


class PackedError(ValueError):
    """Bytes that are not a packed ad, or hold an expression that can not be read."""


class PackedText:
    """The text of an expression as it came packed, not parsed yet."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


_TEXTS: Final[dict[bytes, Cell]] = {}
_TEXTS_LIMIT: Final = 50_000


def is_known_text(data: bytes) -> bool:
    """Whether the packed text of an expression was read before, and can be."""
    return data in _TEXTS


#: Bytes of the text of one expression in a packed ad, and operators, brackets and commas in it: reading so many takes
#: some 20 ms.
LONGEST_TEXT: Final = 32_768
MOST_SIGNS: Final = 5_000
_NO_SIGNS: Final = bytes(code for code in range(256) if code not in b"+-*/%<>=!&|^~?:;,()[]{}")


def parse_text(data: bytes) -> Cell:
    """The cell of a packed expression text; equal texts share one tree. Raises PackedError, also for what is too long,
    and where the open budget (shared.classad.budget) is spent."""
    cell = _TEXTS.get(data)
    if cell is None:
        text = data[:LONGEST_TEXT].decode("utf-8", "surrogateescape")
        if len(data) > LONGEST_TEXT:
            raise PackedError(
                f"a packed ad holds an expression of {len(data)} bytes, {text[:60]!r}...; "
                f"at most {LONGEST_TEXT} are read"
            )
        if len(data) > MOST_SIGNS and (signs := len(data.translate(None, _NO_SIGNS))) > MOST_SIGNS:
            raise PackedError(
                f"a packed ad holds an expression with {signs} operators, brackets and commas, {text[:60]!r}...; "
                f"at most {MOST_SIGNS} are read"
            )
        budget, began = present(), thread_time()
        if budget is not None and not budget.check():
            raise PackedError(f"{budget.what}: their expressions take too long ({budget.spent}): they are not read")
        try:
            cell = simplest(parse_expr(text))
        except ParseError as fault:
            raise PackedError(f"a packed ad holds {text[:200]!r}, which is no expression: {fault}") from fault
        finally:
            if budget is not None:
                budget.charge(0, 0, thread_time() - began)
        if len(data) < 4096:
            if len(_TEXTS) >= _TEXTS_LIMIT:
                _TEXTS.clear()
            _TEXTS[data] = cell
    return cell


def extension(code: int, data: bytes) -> Stored:
    """msgpack's ext_hook for cells. Raises PackedError."""
    if code != TEXT_CODE:
        raise PackedError(f"an attribute has the unknown extension type {code}")
    known = _TEXTS.get(data)
    return PackedText(data) if known is None else known


#: Attributes of a packed ad: reading so many takes some 10 ms.
MOST_ATTRIBUTES: Final = 5_000


def unpack_flat(packed: bytes, ext_hook: Callable[[int, bytes], object] = msgpack.ExtType, **options: Any) -> Any:
    """What bytes say that should be a packed ad: a map with no other one in it, nor lists, which stand in expressions
    there, nor bytes. Two million empty maps in one ad would hold the loop of each daemon that reads it for 190 ms.
    options: more of msgpack's. Raises ValueError and what msgpack raises besides."""
    maps = 0

    def take(found: dict[str, Any]) -> dict[str, Any]:
        nonlocal maps
        maps += 1
        if maps > 1:
            raise ValueError("a map in a map: lists and nested ads are packed as the text of an expression")
        return found

    return msgpack.unpackb(
        packed,
        ext_hook=ext_hook,
        object_hook=take,
        unicode_errors="surrogateescape",
        max_map_len=MOST_ATTRIBUTES,
        max_array_len=0,
        max_bin_len=0,
        **options,
    )


def read_packed(packed: bytes) -> Table:
    """The table of a packed ad. Raises PackedError if it is none."""
    try:
        body = unpack_flat(packed, extension)
    except (ValueError, RecursionError, msgpack.UnpackException) as fault:
        raise PackedError(f"not a packed ad: {fault}") from fault
    if type(body) is not dict:
        raise PackedError(f"not a packed ad: a {type(body).__name__}, not a map")
    if not (set(map(type, body)) <= _NAME_TYPE and set(map(type, body.values())) <= _CELL_TYPES):
        raise PackedError("not a packed ad: an attribute has no name or is neither a literal nor an expression")
    return {FOLDED[name] if name in FOLDED else fold(name): (name, cell) for name, cell in body.items()}


_NAME_TYPE: Final = frozenset((str,))
_CELL_TYPES: Final = frozenset(
    (bool, int, float, str, PackedText, Literal, Interval, AttrRef, Unary, Binary, Ternary, Elvis, Parens)
) | {Subscript, Call, ListExpr, AdExpr}


def packable(cell: Stored) -> object:
    """What msgpack is given for a cell."""
    if isinstance(cell, PackedText):
        return msgpack.ExtType(TEXT_CODE, cell.data)
    if isinstance(cell, Expr):
        return msgpack.ExtType(TEXT_CODE, unparse_exact(cell).encode("utf-8", "surrogateescape"))
    return cell
