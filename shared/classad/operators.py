"""What the operators do with values: one table of meaning for all evaluators.

ERROR wins over UNDEFINED, and both over a mismatch of types; a mismatch is ERROR. Booleans count as 1 and 0 in
arithmetic and comparison, numbers as booleans in logic; a relative time is a real to every operator. Integers are
64 bits wide and wrap; a real result of plus infinity is ERROR (spec rows CLA-04 to CLA-10; the reference where the
manual is silent).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from shared.classad.expr import IS, ISNT
from shared.classad.values import ERROR, UNDEFINED, Value

_SIGN: Final = 1 << 63
_WRAP: Final = 1 << 64
_IDENTITY: Final = frozenset((IS, ISNT))
_ASCII_FOLD: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def wrap(number: int) -> int:
    """`number` as a signed 64-bit integer."""
    return number if -_SIGN <= number < _SIGN else (number + _SIGN) % _WRAP - _SIGN


def real(number: float) -> Value:
    """A real result: plus infinity is ERROR, minus infinity and NaN are values."""
    return ERROR if number == math.inf else number


def fold_string(text: str) -> str:
    """`text` with ASCII letters in lower case, which is all the case the language knows."""
    return text.lower() if text.isascii() else text.translate(_ASCII_FOLD)


def truth(value: Value) -> Value:
    """`value` as a boolean: numbers by not being zero, UNDEFINED as it is, anything else is ERROR."""
    if value is True or value is False:
        return bool(value)
    if value is UNDEFINED:
        return UNDEFINED
    if isinstance(value, int | float):
        return value != 0
    return ERROR


def logic_left(op: str, left: Value) -> Value | None:
    """The value of `left && ...` or `left || ...` if the left side decides; None if the right side is needed."""
    flag = truth(left)
    return flag if flag is ERROR or flag is (op == "||") else None


def logic(op: str, left: Value, right: Value) -> Value:
    """The value of `left && right` or `left || right` when the left side does not decide."""
    flag = truth(right)
    if flag is ERROR or flag is (op == "||"):
        return flag
    return UNDEFINED if left is UNDEFINED else flag


def unary(op: str, value: Value) -> Value:
    """`-value`, `+value`, `!value` or `~value`."""
    if value is ERROR or value is UNDEFINED:
        return value
    if op == "!":
        flag = truth(value)
        return flag if flag is ERROR else not flag
    if op == "~":
        return ~value if isinstance(value, int) and not isinstance(value, bool) else ERROR
    if isinstance(value, bool):
        return ERROR
    if op == "+":
        return value if isinstance(value, int | float | timedelta) else ERROR
    if isinstance(value, int):
        return wrap(-value)
    if isinstance(value, float | timedelta):
        return -value
    return ERROR


def binary(op: str, left: Value, right: Value) -> Value:
    """`left op right` for every binary operator but && and ||."""
    if op in _IDENTITY:
        same = identical(left, right)
        return same if same is ERROR or op == IS else not same
    if left is ERROR or right is ERROR:
        return ERROR
    if left is UNDEFINED or right is UNDEFINED:
        return UNDEFINED
    if op in _COMPARE:
        return _compare(_COMPARE[op], left, right)
    if op in _BITS:
        return _BITS[op](left, right)
    return _arithmetic(op, left, right)


def identical(left: Value, right: Value) -> Value:
    """`left =?= right`: same type and same value; two lists or two ads can not be told (ERROR)."""
    if left is right and (left is UNDEFINED or left is ERROR):
        return True
    if not isinstance(left, _SCALAR) or not isinstance(right, _SCALAR):
        return ERROR if _shape(left) is _shape(right) else False
    if isinstance(left, datetime):
        return isinstance(right, datetime) and left == right and left.utcoffset() == right.utcoffset()
    return type(left) is type(right) and bool(left == right)


_SCALAR: Final = (str, int, float, datetime, timedelta)


def _shape(value: Value) -> object:
    """What a value that is no scalar is: a list (of any kind), an ad, UNDEFINED or ERROR; scalars are none of these."""
    if isinstance(value, _SCALAR):
        return value
    if value is UNDEFINED or value is ERROR:
        return value
    return dict if hasattr(value, "find") else list


def _compare(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> Value:
    kind = type(left)
    if kind is type(right):
        if kind is str:
            return compare(fold_string(left), fold_string(right))
        if kind is int or kind is float:
            return compare(left, right)
    if isinstance(left, int | float) and isinstance(right, int | float):
        if isinstance(left, float) or isinstance(right, float):
            return compare(float(left), float(right))
        return compare(int(left), int(right))
    if isinstance(left, datetime) and isinstance(right, datetime):
        return compare(left, right)
    if isinstance(left, timedelta) and isinstance(right, timedelta):
        return compare(left, right)
    return ERROR


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


def _arithmetic(op: str, left: Any, right: Any) -> Value:
    if isinstance(left, int | float) and isinstance(right, int | float):
        if isinstance(left, float) or isinstance(right, float):
            return _real_arithmetic(op, left, right)
        return _int_arithmetic(op, int(left), int(right))
    if isinstance(left, timedelta | datetime) or isinstance(right, timedelta | datetime):
        try:
            return _time_arithmetic(op, left, right)
        except (OverflowError, ValueError, ZeroDivisionError):
            return ERROR  # beyond what Python's times can hold
    return ERROR


def _time_arithmetic(op: str, left: Any, right: Any) -> Value:
    """Sums and differences of times, and relative times by numbers; an absolute time moves by whole seconds."""
    if isinstance(left, timedelta) and isinstance(right, timedelta):
        return left + right if op == "+" else left - right if op == "-" else ERROR
    if isinstance(left, datetime) and isinstance(right, datetime):
        return left - right if op == "-" else ERROR
    if isinstance(left, timedelta) and isinstance(right, datetime) and op == "+":
        left, right = right, left
    if isinstance(left, datetime) and isinstance(right, timedelta) and op in "+-":
        whole = timedelta(seconds=int(right.total_seconds()))
        return left + whole if op == "+" else left - whole
    if op == "*" and isinstance(left, int | float):
        left, right = right, left
    if isinstance(left, timedelta) and type(right) in (int, float):
        return left * right if op == "*" else left / right if op == "/" else ERROR
    return ERROR


def _int_arithmetic(op: str, left: int, right: int) -> Value:
    if op == "+":
        return wrap(left + right)
    if op == "-":
        return wrap(left - right)
    if op == "*":
        return wrap(left * right)
    if right == 0:
        return ERROR
    quotient = abs(left) // abs(right)
    if (left < 0) != (right < 0):
        quotient = -quotient
    return wrap(quotient) if op == "/" else left - quotient * right


def _real_arithmetic(op: str, left: float, right: float) -> Value:
    left, right = float(left), float(right)
    if op == "+":
        return real(left + right)
    if op == "-":
        return real(left - right)
    if op == "*":
        return real(left * right)
    if op == "%":
        return ERROR
    return real(divide(left, right))


def divide(left: float, right: float) -> float:
    """IEEE division, by zero too."""
    if right != 0.0:
        return left / right
    if left == 0.0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _bitwise(integers: Callable[[int, int], int]) -> Callable[[Any, Any], Value]:
    def apply(left: Any, right: Any) -> Value:
        if type(left) is int and type(right) is int:
            return wrap(integers(left, right))
        return ERROR

    return apply


def _shift(integers: Callable[[int, int], int]) -> Callable[[Any, Any], Value]:
    def apply(left: Any, right: Any) -> Value:
        if type(left) is int and type(right) is int:
            return wrap(integers(left, right))
        return ERROR

    return apply


def _shift_left(left: int, right: int) -> int:
    return left << (right & 63)


def _shift_right(left: int, right: int) -> int:
    """With the sign. A negative number is shifted by the count as it is, any other by its low six bits."""
    return left >> (right & 63) if left >= 0 else left >> min(max(right, 0), 63)


def _shift_right_unsigned(left: int, right: int) -> int:
    """With zeros. A negative number shifted by nothing is 0 (as in the reference)."""
    count = right & 63
    if left < 0 and count == 0:
        return 0
    return (left % _WRAP) >> count


_BITS: Final[dict[str, Callable[[Any, Any], Value]]] = {
    "&": _bitwise(lambda a, b: a & b),
    "|": _bitwise(lambda a, b: a | b),
    "^": _bitwise(lambda a, b: a ^ b),
    "<<": _shift(_shift_left),
    ">>": _shift(_shift_right),
    ">>>": _shift(_shift_right_unsigned),
}
