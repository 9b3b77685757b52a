"""Arithmetic builtins: floor, ceiling, round, pow, quantize, random (manual: "Predefined Functions").

Where the arithmetic of the reference is odd, it is odd here too: pow() of integers goes through a double and adds
a half before cutting, so pow(-2, 3) is -7; quantize() of integers divides toward zero and wraps.
"""

from __future__ import annotations

import math
import random as generator
from collections.abc import Callable
from typing import Final

from shared.classad.functions.coerce import low_32_bits, to_int64, to_number
from shared.classad.functions.registry import Function, Strict, table
from shared.classad.operators import divide, wrap
from shared.classad.values import ERROR, Value


def _rounded(name: str, cut: Callable[[float], int]) -> Function:
    """A function from any number to an integer; integers stay as they are."""

    def call(arguments: list[Value]) -> Value:
        number = to_number(arguments[0])
        if number is None:
            return ERROR
        if isinstance(number, int):
            return number
        return to_int64(float(cut(number))) if math.isfinite(number) else to_int64(number)

    return Function(name, 1, 1, call)


def power(base: float, exponent: float) -> float:
    """C's pow(): never an exception."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        odd = float(exponent).is_integer() and exponent % 2 == 1
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        if base != 0:
            return math.nan
        odd = float(exponent).is_integer() and exponent % 2 == 1
        return math.copysign(math.inf, base) if odd else math.inf


def pow_(arguments: list[Value]) -> Value:
    """pow(base, exponent): an integer for an integer base and a whole, not negative exponent."""
    left, right = arguments
    base, exponent = to_number(left), to_number(right)
    if base is None or exponent is None:
        return ERROR
    if type(left) is int and type(right) is int and right >= 0:
        return to_int64(power(float(left), float(right)) + 0.5)
    return power(float(base), float(exponent))


_NO_STEP: Final = 1e-8


def quantize(arguments: list[Value]) -> Value:
    """quantize(a, b): a rounded up to a multiple of b (spec row CLA-14).

    A list in place of b: its first item that is at least a, as it stands; beyond the last, the last's multiple.
    """
    value, step = arguments
    amount = to_number(value)
    if amount is None:
        return ERROR
    if not isinstance(step, list):
        return _multiple(value, step)
    if not step:
        return value
    for item in step:
        candidate = to_number(item)
        if candidate is None:
            return ERROR
        if float(amount) <= float(candidate) if float in (type(amount), type(candidate)) else amount <= candidate:
            return item
    return _multiple(value, step[-1])


def _multiple(value: Value, step: Value) -> Value:
    """`value` rounded up to a multiple of `step`; a step of next to zero gives it back."""
    amount, unit = to_number(value), to_number(step)
    if amount is None or unit is None:
        return ERROR
    if abs(unit) <= _NO_STEP:
        return value
    if type(value) is int and type(step) is int:
        ahead = wrap(value + step - 1)
        quotient = abs(ahead) // abs(step)
        return wrap((-quotient if (ahead < 0) != (step < 0) else quotient) * step)
    quotient_real = divide(float(amount), float(unit))
    if math.isfinite(quotient_real):
        whole = math.ceil(quotient_real)
        quotient_real = math.copysign(float(whole), quotient_real) if whole == 0 else float(whole)
    return quotient_real * float(unit)


def random(arguments: list[Value]) -> Value:
    """random(x): from 0 up to but not including x, of x's type; random() is a real below 1.

    An integer counts by its low 32 bits, as in the reference; x must be above zero.
    """
    if not arguments:
        return generator.random()
    limit = arguments[0]
    if isinstance(limit, bool):
        return ERROR
    if isinstance(limit, int):
        width = low_32_bits(limit)
        return generator.randrange(width) if width > 0 else ERROR
    if isinstance(limit, float) and not limit <= 0:
        return generator.random() * limit if math.isfinite(limit) else limit
    return ERROR


_strict: Final[tuple[tuple[str, int, int, Strict], ...]] = (
    ("pow", 2, 2, pow_),
    ("quantize", 2, 2, quantize),
    ("random", 0, 1, random),
)

FUNCTIONS: Final = table(
    _rounded("floor", math.floor),
    _rounded("ceiling", math.ceil),
    _rounded("ceil", math.ceil),
    _rounded("round", round),
    *(Function(*row) for row in _strict),
)
