"""How the builtins turn one kind of value into another.

Strings are sequences of bytes, as in the reference: lengths and offsets count UTF-8 bytes, and a byte that is not
part of a character lives in a Python string as a surrogate escape. Numbers that are too wide wrap or saturate as
C conversions on x86-64 do, because expressions that were written against the reference can depend on it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from time import thread_time
from typing import Final, TypeAlias

from shared.classad.lazy import ListValue as Listed
from shared.classad.unparse import unparse, unparse_time
from shared.classad.values import ERROR, Error, Undefined, Value

MAX_TEXT: Final = 1 << 17
"""The longest string a builtin makes, in characters; a longer result is ERROR."""

MAX_ITEMS: Final = 10_000
"""The longest list a builtin takes or makes; a longer one is ERROR."""

MAX_PRINTED: Final = 4_000
"""Items and attributes of a list or an ad of which a builtin makes a text; of more it is ERROR."""

PATIENCE_S: Final = 0.015
"""Processor seconds that a builtin may be busy with the items of a list; beyond that it is ERROR."""

_LOOK_EVERY: Final = 64  # items between looks at the clock

INT_MIN: Final = -(1 << 63)
INT32_MIN: Final = -(1 << 31)

Number: TypeAlias = "int | float"

_NUMBER: Final = re.compile(
    r"[ \t\n\v\f\r]*([+-]?)(?:(0[xX](?=\.?[0-9a-fA-F])[0-9a-fA-F]*\.?[0-9a-fA-F]*(?:[pP][+-]?[0-9]+)?)"
    r"|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|([iI][nN][fF])|([nN][aA][nN]))"
)


# As constants: a union written in place is built anew by every call.
_TEXT_OR_SPECIAL: Final = (str, Undefined, Error)
_NUMBERS: Final = (int, float)
_ATOMS: Final = (str, int, float, datetime, timedelta, Undefined, Error)


class TookTooLong(Exception):
    """A builtin was busy with a list for more than PATIENCE_S; its value is ERROR."""


def patiently(items: list[Value]) -> Iterator[Value]:
    """The items, one by one. Raises TookTooLong when what is done with them takes too long."""
    end = 0.0
    for number, item in enumerate(items, 1):
        yield item
        if number % _LOOK_EVERY == 0:
            now = thread_time()
            if not end:
                end = now + PATIENCE_S
            elif now > end:
                raise TookTooLong


def few(value: Value) -> bool:
    """Whether a value has at most MAX_PRINTED items and attributes, with those of lists inside it."""
    left, todo = MAX_PRINTED, [value]
    while todo:
        inside = todo.pop()
        if isinstance(inside, Listed):  # which prints as it was written
            left -= len(inside.source)
        elif isinstance(inside, list):
            left -= len(inside)
            todo += inside if left >= 0 else ()
        elif not isinstance(inside, _ATOMS):
            left -= len(inside)
        if left < 0:
            return False
    return True


def bounded(text: str) -> Value:
    """`text`, or ERROR if it is longer than MAX_TEXT."""
    return text if len(text) <= MAX_TEXT else ERROR


def encode(text: str) -> bytes:
    """The bytes of a string."""
    return text.encode("utf-8", "surrogateescape")


def decode(data: bytes) -> str:
    """The string of some bytes; any bytes, not only UTF-8."""
    return data.decode("utf-8", "surrogateescape")


def whole(text: str) -> str:
    """`text` with characters whose bytes have come together put together again."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return decode(encode(text))
    return text


def special(value: Value) -> Undefined | Error | None:
    """`value` if it is UNDEFINED or ERROR, else None."""
    return value if isinstance(value, Undefined | Error) else None


def to_text(value: Value) -> str | Undefined | Error:
    """The text of any value, as string() and strcat() make it; UNDEFINED and ERROR stay what they are."""
    if isinstance(value, _TEXT_OR_SPECIAL):
        return value
    if isinstance(value, int):
        return ("true" if value else "false") if isinstance(value, bool) else str(value)
    if isinstance(value, datetime):
        return unparse_time(value)
    if isinstance(value, timedelta):
        return interval_text(to_int32(value.total_seconds()))
    if not few(value):
        return ERROR
    text = unparse(value)
    return text if len(text) <= MAX_TEXT else ERROR


def interval_text(seconds: int) -> str:
    """Whole seconds as [-][days+][[hh:]mm:]ss."""
    minutes, second = divmod(abs(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    text = "-" if seconds < 0 else ""
    text += f"{days}+" if days else ""
    text += f"{hour:02}:" if hours else ""
    text += f"{minute:02}:" if minutes else ""
    return f"{text}{second:02}"


def leading_number(text: str) -> float | None:
    """The number a string starts with (C's strtod: blanks, sign, decimal, hexadecimal, inf, nan); None if none."""
    found = _NUMBER.match(text)
    if found is None:
        return None
    sign, hexadecimal, decimal, infinity, _ = found.groups()
    if decimal is not None:
        number = float(decimal)
    elif hexadecimal is not None:
        try:
            number = float.fromhex(hexadecimal)
        except OverflowError:
            number = math.inf
    else:
        number = math.inf if infinity is not None else math.nan
    return -number if sign == "-" else number


def to_int64(number: float) -> int:
    """A real cut to 64 bits: toward zero; the smallest integer for NaN and anything that does not fit."""
    if -9.223372036854775808e18 <= number < 9.223372036854775808e18:
        return int(number)
    return INT_MIN


def to_int32(number: float) -> int:
    """A real cut to 32 bits: toward zero; the smallest integer for NaN and anything that does not fit."""
    if INT32_MIN - 1 < number < 1 << 31:
        return int(number)
    return INT32_MIN


def low_32_bits(number: int) -> int:
    """An integer cut to its low 32 bits, with sign."""
    return ((number - INT32_MIN) & 0xFFFFFFFF) + INT32_MIN


def epoch_seconds(moment: datetime) -> int:
    return int(moment.timestamp())


def to_number(value: Value) -> Number | None:
    """The number that arithmetic builtins see: booleans as 1 and 0, times in whole seconds, strings by their
    leading number (always a real). None for whatever is no number."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, _NUMBERS):
        return value
    if isinstance(value, str):
        return leading_number(value)
    if isinstance(value, timedelta):
        return to_int32(value.total_seconds())
    if isinstance(value, datetime):
        return epoch_seconds(value)
    return None
