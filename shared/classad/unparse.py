"""Trees and values to text, as the reference prints them in each syntax.

New syntax: reals as %1.15E (0.0 as such), strings with escapes and every byte above 126 in octal, `is` and `isnt`.
Old syntax: reals as %.16G with a point, strings with only the quote escaped, `=?=` and `=!=`. Unary operators
have a blank in front, lists are `{ 1,2 }`, ads `[ a = 1; b = 2 ]` with the shorter names first.
What is printed parses back to the same tree: where the reference forgets the quotes of an odd name behind a dot or
in front of an argument list, they are printed here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias
from typing import Literal as OneOf

from shared.classad.expr import (
    IS,
    ISNT,
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
from shared.classad.values import Error, Undefined, Value

if TYPE_CHECKING:
    from shared.classad.ad import ClassAd

Syntax: TypeAlias = OneOf["new", "old"]

_WORDS: Final = frozenset(("true", "false", "undefined", "error", "is", "isnt"))
RESERVED: Final = _WORDS | {"parent"}
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SPECIAL: Final = re.compile(r"[^ !#-&(-\[\]-~]")  # told by what is not special: 3 ms less to compile
_CONTROL: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\",
}  # fmt: skip
_NEW_WORDS: Final = {IS: "is", ISNT: "isnt"}


_SCALAR: Final = (str, int, float, datetime, timedelta, Undefined, Error)

# The texts of trees printed before, by syntax: ads share trees, and these are printed again and again.
_TEXTS: Final[tuple[dict[Expr, str], dict[Expr, str]]] = ({}, {})
_EXACT_TEXTS: Final[dict[Expr, str]] = {}
_KEPT: Final = 20_000
_LONGEST_KEPT: Final = 2_000  # characters


def attribute_order(name: str) -> tuple[int, str]:
    """The sort key of the reference for printed attributes: shorter (in bytes) first, then by name without case."""
    length = len(name) if name.isascii() else len(name.encode("utf-8", "surrogateescape"))
    return length, fold(name)


def unparse(expr: Expr | ClassAd | Value, syntax: Syntax = "new") -> str:
    """The text of an expression, an ad or a value. Linear time, any depth."""
    old = syntax == "old"
    if isinstance(expr, _SCALAR):
        return unparse_scalar(expr, old)
    if not isinstance(expr, Expr):
        return _unparse_tree(node_of(expr), old)
    known = _TEXTS[old].get(expr)
    if known is None:
        known = _unparse_tree(expr, old)
        _keep(_TEXTS[old], expr, known)
    return known


def unparse_exact(expr: Expr) -> str:
    """The text of an expression in new syntax with reals in full, so that reading it back loses nothing."""
    known = _EXACT_TEXTS.get(expr)
    if known is None:
        known = _unparse_tree(expr, old=False, exact=True)
        _keep(_EXACT_TEXTS, expr, known)
    return known


def _keep(texts: dict[Expr, str], expr: Expr, text: str) -> None:
    if len(text) < _LONGEST_KEPT:
        if len(texts) >= _KEPT:
            texts.clear()
        texts[expr] = text


def _unparse_tree(expr: Expr, old: bool, exact: bool = False) -> str:
    done: list[str] = []
    todo: list[str | Expr] = [expr]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            done.append(item)
        elif exact and type(item) is Literal and isinstance(item.value, float) and not math.isnan(item.value):
            done.append(repr(item.value).replace("inf", "1e999"))
        else:
            todo.extend(reversed(pieces(item, old)))
    return "".join(done)


def node_of(value: object) -> Expr:
    """An expression that prints as `value` does: any Value, or what is an expression already."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, list):
        source = getattr(value, "source", None)
        return ListExpr(tuple(node_of(item) for item in (value if source is None else source)))
    if isinstance(value, _SCALAR):
        return Literal(value)
    cells = getattr(value, "cells", None)
    if cells is None:
        raise TypeError(f"not a ClassAd expression or value: {type(value).__name__}")
    return AdExpr({fold(name): (name, node_of(cell)) for name, cell in cells()})


def pieces(node: Expr, old: bool = False) -> list[str | Expr]:
    """What `node` prints as: finished text, and the nodes between."""
    if isinstance(node, Interval):
        return [f'relTime("{unparse_interval(node.seconds)}")']
    if isinstance(node, Literal):
        return [unparse_scalar(node.value, old)]
    if isinstance(node, AttrRef):
        if node.scope is not None:
            return [node.scope, "." + quote_name(node.name, old, _WORDS)]
        return ["." * node.absolute + quote_name(node.name, old)]
    if isinstance(node, Binary):
        op = node.op if old else _NEW_WORDS.get(node.op, node.op)
        return [node.left, f" {op} ", node.right]
    if isinstance(node, Unary):
        return [f" {node.op}", node.operand]
    if isinstance(node, Parens):
        return ["(", node.inner, ")"]
    if isinstance(node, Call):
        return [quote_name(node.name, old, _WORDS) + "(", *_between(node.args, ","), ")"]
    if isinstance(node, Ternary):
        return [node.condition, " ? ", node.then, " : ", node.otherwise]
    if isinstance(node, Elvis):
        return [node.left, " ?: ", node.right]
    if isinstance(node, Subscript):
        return [node.base, "[", node.index, "]"]
    if isinstance(node, ListExpr):
        return ["{ ", *_between(node.items, ","), " }"]
    if isinstance(node, AdExpr):
        found: list[str | Expr] = ["[ "]
        for name, value in sorted(node.attrs.values(), key=lambda pair: attribute_order(pair[0])):
            found += (("; " if len(found) > 1 else "") + quote_name(name, old) + " = ", value)
        return [*found, " ]"]
    raise TypeError(f"not a ClassAd expression: {type(node).__name__}")


def _between(items: Iterable[Expr], separator: str) -> list[str | Expr]:
    found: list[str | Expr] = []
    for item in items:
        found += (separator, item)
    return found[1:]


def unparse_scalar(value: Value, old: bool = False) -> str:
    """The text of a value that is neither a list nor an ad, as a literal of the language."""
    if isinstance(value, str):
        return '"' + value.replace('"', '\\"') + '"' if old else quote_string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return unparse_real(value, old)
    if isinstance(value, Undefined):
        return "undefined"
    if isinstance(value, Error):
        return "error"
    if isinstance(value, datetime):
        return f'absTime("{unparse_time(value)}")'
    if isinstance(value, timedelta):
        return f'relTime("{unparse_interval(value)}")'
    raise TypeError(f"not a scalar ClassAd value: {type(value).__name__}")


def unparse_real(value: float, old: bool = False) -> str:
    """A real as it is printed: 1.500000000000000E+00 (new) or 1.5 (old); 0.0 in both."""
    if not math.isfinite(value):
        return 'real("NaN")' if math.isnan(value) else 'real("INF")' if value > 0 else 'real("-INF")'
    if value == 0.0:
        return "-0.0" if math.copysign(1.0, value) < 0 else "0.0"
    if not old:
        return f"{value:1.15E}"
    text = f"{value:.16G}"
    return text if "." in text or "E" in text else text + ".0"


def unparse_time(value: datetime) -> str:
    """An absolute time in ISO 8601 with its offset: 2020-01-01T00:00:00-00:00 (whole seconds)."""
    offset = value.utcoffset()
    seconds = 0 if offset is None else int(offset.total_seconds())
    hours, minutes = divmod(abs(seconds) // 60, 60)
    sign = "+" if seconds > 0 else "-"
    return f"{value:%Y-%m-%dT%H:%M:%S}{sign}{hours:02}:{minutes:02}"


def unparse_interval(value: timedelta | float) -> str:
    """A relative time (or its seconds) as [-][days+][[hh:]mm:]ss[.fraction]."""
    total = value.total_seconds() if isinstance(value, timedelta) else value
    whole = int(abs(total))
    fraction = abs(total) - whole
    minutes, seconds = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    front = f"{days}+" if days else ""
    front += f"{hours:02}:{minutes:02}:" if days or hours else f"{minutes:02}:" if minutes else ""
    rest = f"{seconds + fraction:g}" if fraction else f"{seconds:02}"
    return ("-" if total < 0 else "") + front + rest


def quote_string(value: str) -> str:
    """A new-syntax string literal."""
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'
    return '"' + _escape(value, '"') + '"'


def quote_name(name: str, old: bool = False, reserved: frozenset[str] = RESERVED) -> str:
    """An attribute name, in single quotes unless it is a plain word with no meaning of its own."""
    if _WORD.match(name) and fold(name) not in reserved:
        return name
    if old:
        return "'" + name.replace("'", "\\'") + "'"
    return "'" + _escape(name, "'") + "'"


def _escape(text: str, quote: str) -> str:
    def one(found: re.Match[str]) -> str:
        char = found[0]
        if char in "\"'":
            return "\\" + char if char == quote else char
        short = _CONTROL.get(char)
        if short is not None:
            return short
        return "".join(f"\\{byte:03o}" for byte in char.encode("utf-8", "surrogateescape"))

    return _SPECIAL.sub(one, text)
