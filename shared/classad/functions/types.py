"""Which type a value has, and conversions from one type to another (manual: "Predefined Functions")."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from shared.classad.functions.coerce import to_int32, to_int64, to_number, to_text
from shared.classad.functions.registry import Function, table
from shared.classad.values import ERROR, UNDEFINED, Error, Undefined, Value

if TYPE_CHECKING:
    from collections.abc import Mapping


def _predicate(name: str, test: Callable[[Value], bool]) -> Function:
    return Function(name, 1, 1, lambda arguments: test(arguments[0]))


def _is_ad(value: Value) -> bool:
    return not isinstance(value, str | int | float | list | datetime | timedelta | Undefined | Error)


def int_(arguments: list[Value]) -> Value:
    """int(x): reals and the leading number of a string are cut toward zero; UNDEFINED stays (spec row CLA-13)."""
    value = arguments[0]
    if value is UNDEFINED:
        return UNDEFINED
    number = to_number(value)
    if number is None:
        return ERROR
    return to_int64(number) if isinstance(number, float) else number


def real(arguments: list[Value]) -> Value:
    """real(x)."""
    value = arguments[0]
    if value is UNDEFINED:
        return UNDEFINED
    number = to_number(value)
    return ERROR if number is None else float(number)


def string(arguments: list[Value]) -> Value:
    """string(x)."""
    return to_text(arguments[0])


def bool_(arguments: list[Value]) -> Value:
    """bool(x): numbers by not being zero, "true" and "false" in any case; another string is UNDEFINED."""
    value = arguments[0]
    if isinstance(value, bool | Undefined | Error):
        return value
    if isinstance(value, int | float):
        return value != 0
    if isinstance(value, timedelta):
        return to_int32(value.total_seconds()) != 0
    if isinstance(value, str):
        return _WORDS.get(value.lower(), UNDEFINED)
    return ERROR


_WORDS: Final[Mapping[str, Value]] = {"true": True, "false": False}

FUNCTIONS: Final = table(
    _predicate("isUndefined", lambda value: value is UNDEFINED),
    _predicate("isError", lambda value: value is ERROR),
    _predicate("isString", lambda value: isinstance(value, str)),
    _predicate("isInteger", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    _predicate("isReal", lambda value: isinstance(value, float)),
    _predicate("isBoolean", lambda value: isinstance(value, bool)),
    _predicate("isList", lambda value: isinstance(value, list)),
    _predicate("isClassAd", _is_ad),
    _predicate("isAbsTime", lambda value: isinstance(value, datetime)),
    _predicate("isRelTime", lambda value: isinstance(value, timedelta)),
    Function("int", 1, 1, int_),
    Function("real", 1, 1, real),
    Function("string", 1, 1, string),
    Function("bool", 1, 1, bool_),
)
