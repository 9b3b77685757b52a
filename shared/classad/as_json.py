"""Ads as JSON, both ways, as `condor_q -json` and `condor_status -json` have them.

UNDEFINED is null, a list an array, a nested ad an object; anything that JSON has no type for is a string
`"\\/Expr(...)\\/"` with the text of the expression. The escaped slash is what tells it from a plain string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from shared.classad.ad import ClassAd, cell_of
from shared.classad.cells import Cell, as_expr
from shared.classad.depth import with_room
from shared.classad.expr import AdExpr, Expr, ListExpr, Literal, fold
from shared.classad.lexer import ParseError, error_at, is_text
from shared.classad.operators import wrap
from shared.classad.parser import MAX_DEPTH, parse_expr
from shared.classad.unparse import attribute_order, unparse, unparse_real
from shared.classad.values import UNDEFINED

_MARK: Final = "\udfff"  # stands for an escaped slash at the start of a string; no ClassAd string can hold it
_SPECIAL: Final = re.compile(r'[\x00-\x1f"\\]')
_BRACKET: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]')
_SHORT: Final = {
    '"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t",
}  # fmt: skip


def to_json(ad: ClassAd, one_line: bool = False, names: Sequence[str] | None = None) -> str:
    """The ad as a JSON object: an attribute a line, shorter names first, or all in one line. names: these attributes,
    in this order."""
    if names is not None:
        return with_room(_named, ad, names, None if one_line else 0)
    return with_room(_object, list(ad.cells()), None if one_line else 0)


def ads_to_json(ads: Iterable[ClassAd]) -> str:
    """Ads as a JSON array, as the tools print it."""
    return "[\n" + ",\n".join(to_json(ad) for ad in ads) + "\n]\n"


def _named(ad: ClassAd, names: Sequence[str], indent: int | None) -> str:
    inner = None if indent is None else indent + 2
    found = ((name, ad.find(fold(name))) for name in names)
    return _block("{}", [f"{_quote(name)}: {_value(cell, inner)}" for name, cell in found if cell is not None], indent)


def _object(cells: Iterable[tuple[str, Cell]], indent: int | None) -> str:
    inner = None if indent is None else indent + 2
    pairs = sorted(cells, key=lambda pair: attribute_order(pair[0]))
    return _block("{}", [f"{_quote(name)}: {_value(cell, inner)}" for name, cell in pairs], indent)


def _block(brackets: str, items: list[str], indent: int | None) -> str:
    if indent is None:
        return brackets[0] + ",".join(items) + brackets[1]
    lead = "\n" + " " * (indent + 2)
    return brackets[0] + ",".join(lead + item for item in items) + "\n" + " " * indent + brackets[1]


def _value(cell: Cell, indent: int | None) -> str:
    value: object = cell.value if isinstance(cell, Literal) else cell
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and value - value == 0:
        return unparse_real(value, old=True)
    if value is UNDEFINED:
        return "null"
    if isinstance(value, ListExpr):
        return _block("[]", [_value(item, None if indent is None else indent + 2) for item in value.items], indent)
    if isinstance(value, AdExpr):
        return _object(value.attrs.values(), indent)
    return '"\\/Expr(' + _quote(unparse(cell))[1:-1] + ')\\/"'


def _quote(text: str) -> str:
    return '"' + _SPECIAL.sub(lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04X}", text) + '"'


def from_json(text: str) -> ClassAd:
    """The ad that a JSON object is. Raises ParseError."""
    value = _decode(text)
    if not isinstance(value, AdExpr):
        raise ParseError("the text is no JSON object", 1, 1, "'{'")
    return ClassAd.of(value)


def ads_from_json(text: str) -> Iterator[ClassAd]:
    """The ads of a JSON array of objects, or of one object. Raises ParseError."""
    value = _decode(text)
    for item in value.items if isinstance(value, ListExpr) else (value,):
        if not isinstance(item, AdExpr):
            raise ParseError("an item of the array is no JSON object", 1, 1, "'{'")
        yield ClassAd.of(item)


def _decode(text: str) -> Expr:
    marked = text.replace('"\\/Expr(', f'"{_MARK}Expr(')
    try:
        try:
            return _expr(_load(marked))
        except RecursionError:
            _check_depth(text)  # json recurses on the C stack, so there is room for what is not too deep only
            return with_room(lambda: _expr(_load(marked)))
    except json.JSONDecodeError as fault:
        raise ParseError(f"not JSON: {fault.msg}", fault.lineno, fault.colno) from None


def _load(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_pairs, parse_int=_integer, parse_constant=_constant, strict=False)


def _check_depth(text: str) -> None:
    depth = 0
    for found in _BRACKET.finditer(text):
        if found[0] in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise error_at(text, found.start(), f"nested deeper than {MAX_DEPTH} levels", "fewer levels")
        elif found[0] in "]}":
            depth -= 1


def _integer(text: str) -> int:
    number = int(text) if len(text) < 21 else 1 << 64
    return number if wrap(number) == number else 0  # as a literal that does not fit


def _constant(text: str) -> float:
    raise ParseError(f"{text} is no JSON value", 1, 1, "a number")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    attrs: dict[str, tuple[str, Any]] = {}
    for name, value in pairs:
        name = name.replace(_MARK, "/")
        if not name or not is_text(name):
            raise ParseError(f"an attribute can not have the name {name!r}", 1, 1, "a name")
        known = attrs.get(fold(name))
        attrs[fold(name)] = (name if known is None else known[0], value)
    return dict(attrs.values())


def _expr(value: Any) -> Expr:
    if value is None:
        return Literal(UNDEFINED)
    if isinstance(value, list):
        return ListExpr(tuple(_expr(item) for item in value))
    if isinstance(value, dict):
        return as_expr(cell_of({name: _expr(item) for name, item in value.items()}))
    if isinstance(value, str):
        if value.startswith(_MARK + "Expr(") and value.endswith(")/"):
            return parse_expr(value[6:-2])
        value = value.replace(_MARK, "/")
        if not is_text(value):
            raise ParseError(f"{value[:40]!r} can not be a string", 1, 1, "a string without NUL and half characters")
    return Literal(value)
