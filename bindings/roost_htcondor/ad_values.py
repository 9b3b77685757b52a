"""What the modules of ads have in common: special values, syntaxes, exceptions, and Python's values as cells of ads."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

from shared.classad.ad import cell_of
from shared.classad.cells import as_expr
from shared.classad.expr import Expr, ListExpr, Literal
from shared.classad.values import ERROR, UNDEFINED, Error, Undefined


class Value(IntEnum):
    """Values of expressions that Python has no type for."""

    Error = 1
    Undefined = 2


class ParserType(IntEnum):
    """How the text of ads is written. Auto and FileAuto look at how it begins."""

    Auto = -1
    Old = 0
    XML = 1
    JSON = 2
    New = 3
    FileAuto = 4


class ClassAdException(Exception):
    """Something is wrong with an ad or an expression."""


class ClassAdParseError(ClassAdException, ValueError):
    """A text is no ad, or no expression."""


class ClassAdValueError(ClassAdException, ValueError):
    """A value can not be what is wanted of it."""


class ClassAdTypeError(ClassAdException, TypeError):
    """A value of another type is wanted."""


class ClassAdEvaluationError(ClassAdTypeError):
    """The value of an expression is not what is wanted."""


class ClassAdEnumError(ClassAdException, TypeError):
    """A constant of another kind is wanted."""


class ClassAdOSError(ClassAdException, OSError):
    """A file or the system."""


class ClassAdInternalError(ClassAdException, RuntimeError):
    """Roost's mistake."""


_SPECIAL: Final[dict[Value, Undefined | Error]] = {Value.Error: ERROR, Value.Undefined: UNDEFINED}


def expr_of(value: Any) -> Expr:
    """The expression that a value is inside an ad. Raises TypeError, ValueError, OverflowError."""
    inner = getattr(value, "_expr", None)  # an ExprTree or a ClassAd
    if inner is not None:
        found: Expr = inner() if callable(inner) else inner
        return found
    if isinstance(value, Value):
        return Literal(_SPECIAL[value])
    if isinstance(value, bytes):
        return as_expr(cell_of(value.decode()))
    if isinstance(value, datetime.datetime):
        return Literal(value.astimezone(datetime.UTC))  # without a zone it is local time
    if isinstance(value, Mapping):
        return as_expr(cell_of({name: expr_of(item) for name, item in value.items()}))
    if value is None or isinstance(value, bool | int | float | str):
        return as_expr(cell_of(value))
    if isinstance(value, datetime.timedelta):
        raise TypeError("an attribute can not hold a timedelta: give its total_seconds()")
    if isinstance(value, Iterable):
        return ListExpr(tuple(expr_of(item) for item in value))
    raise TypeError(
        f"an attribute can not hold a {type(value).__name__}: it takes None, a bool, int, float, str, datetime, "
        "ExprTree, ClassAd, Value, a mapping, or an iterable of these"
    )
