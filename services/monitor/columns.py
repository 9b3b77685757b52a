"""Values of an expression in many ads at once. What only a few attributes decide is worked out once for each
combination of them: of 100,000 slots a few dozen differ in State and Activity."""

from __future__ import annotations

from typing import Any, Final

from shared.classad import ERROR, UNDEFINED, Expr, PackedError, evaluate
from shared.classad.expr import AttrRef, Literal, Parens, attr, fold
from shared.classad.references import decided_by
from shared.classad.sheet import Cells, Sheet

_PLAIN: Final = frozenset((str, int, float, bool, type(None)))


def values(sheet: Sheet, expr: Expr, now: float) -> list[Any]:
    """What the expression comes to in each of the ads, in which its names are looked up; ERROR where it can not be
    worked out. now: seconds since 1970, for expressions that ask for the time."""
    size = len(sheet)
    while isinstance(expr, Parens):
        expr = expr.inner
    if isinstance(expr, Literal):
        return [expr.value] * size
    if isinstance(expr, AttrRef) and _is_own(expr):
        plain = plain_cells(sheet.cells(expr.key))
        if plain is not None:
            return plain
    keys = decided_by(expr)
    if keys is None:
        return [_value(sheet, place, expr, now) for place in range(size)]
    narrow = sheet.narrowed(keys)
    known: dict[int, Any] = {}
    found = []
    for first in sheet.alike(sorted(keys)):
        if first not in known:
            known[first] = _value(narrow, first, expr, now)
        found.append(known[first])
    return found


def value_of(sheet: Sheet, place: int, name: str, now: float) -> Any:
    """What one of the ads has under a name."""
    cell = sheet.cell(fold(name), place)
    if cell is None:
        return UNDEFINED
    return cell if cell.__class__ in _PLAIN else _value(sheet, place, attr(name), now)


def plain_cells(cells: Cells) -> list[Any] | None:
    """The values in a column without expressions; None for one with some."""
    if not set(map(type, cells)) <= _PLAIN:
        return None
    return [UNDEFINED if cell is None else cell for cell in cells]


def _is_own(expr: AttrRef) -> bool:
    """Whether it is the name of an attribute of the ad: `Name`, or `MY.Name`."""
    scope = expr.scope
    if expr.absolute:
        return False
    return scope is None or (isinstance(scope, AttrRef) and scope.scope is None and scope.key == "my")


def _value(sheet: Sheet, place: int, expr: Expr, now: float) -> Any:
    try:
        return evaluate(expr, sheet[place], None, now)
    except (PackedError, ValueError):
        return ERROR
