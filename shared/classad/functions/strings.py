"""Strings: strcat, join, substr, strcmp, split and their like (manual: "Predefined Functions").

The first exceptional argument of strcat() decides: `strcat(undefined, error)` is UNDEFINED. Elsewhere UNDEFINED goes
before ERROR. Case is ASCII case.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from shared.classad.functions.coerce import (
    MAX_ITEMS,
    MAX_TEXT,
    decode,
    encode,
    low_32_bits,
    to_text,
    whole,
)
from shared.classad.functions.registry import Function, table
from shared.classad.operators import fold_string
from shared.classad.values import ERROR, UNDEFINED, Error, Undefined, Value

_BLANKS: Final = frozenset(" \t\n\v\f\r")
_ASCII_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def strcat(arguments: list[Value]) -> Value:
    """strcat(...): the texts of all arguments, one behind the other (spec row CLA-15)."""
    parts: list[str] = []
    length = 0
    for argument in arguments:
        text = to_text(argument)
        if not isinstance(text, str):
            return text
        parts.append(text)
        length += len(text)
    return whole("".join(parts)) if length <= MAX_TEXT else ERROR


def join(arguments: list[Value]) -> Value:
    """join(separator, ...), join(separator, list), join(list): UNDEFINED items are left out, a lone one stays.

    No separator stands before the first text that is not empty, as in the reference.
    """
    if not arguments:
        return ""
    if len(arguments) == 1:
        only = arguments[0]
        if isinstance(only, list):
            return _joined("", only)
        return only if isinstance(only, Undefined | Error) else ""
    separator = to_text(arguments[0])
    if isinstance(separator, Error):
        return ERROR
    items = arguments[1:]
    only = items[0]
    if len(items) == 1 and isinstance(only, list):
        items = only
    if isinstance(separator, Undefined):
        return _joined("", items) if items else UNDEFINED
    return _joined(separator, items)


def _joined(separator: str, items: list[Value]) -> Value:
    parts: list[str] = []
    length = 0
    for item in items:
        text = to_text(item)
        if isinstance(text, Error):
            return ERROR
        if isinstance(text, Undefined):
            continue
        if length:
            parts.append(separator)
            length += len(separator)
        parts.append(text)
        length += len(text)
        if length > MAX_TEXT:
            return ERROR
    if not parts and items and all(item is UNDEFINED for item in items):
        return UNDEFINED
    return whole("".join(parts))


def substr(arguments: list[Value]) -> Value:
    """substr(text, offset[, length]): a negative offset counts from the end, a negative length leaves that much off.

    Offset and length count bytes, by their low 32 bits.
    """
    if any(argument is UNDEFINED for argument in arguments):
        return UNDEFINED
    text, offset = arguments[0], arguments[1]
    length = arguments[2] if len(arguments) == 3 else 0
    if not isinstance(text, str) or not _is_integer(offset) or not _is_integer(length):
        return ERROR
    assert isinstance(offset, int)
    assert isinstance(length, int)
    data = text if text.isascii() else encode(text)
    size = len(data)
    start = low_32_bits(offset)
    start = max(start + size, 0) if start < 0 else min(start, size)
    end = size
    if len(arguments) == 3:
        count = low_32_bits(length)
        end = min(start + count, size) if count >= 0 else size + count
    part = data[start : max(start, end)]
    return part if isinstance(part, str) else decode(part)


def _is_integer(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def size(arguments: list[Value]) -> Value:
    """size(x): the bytes of a string, the items of a list, the attributes of an ad."""
    value = arguments[0]
    if isinstance(value, Undefined | Error):
        return value
    if isinstance(value, str):
        return len(value) if value.isascii() else len(encode(value))
    if isinstance(value, int | float | datetime | timedelta):
        return ERROR
    return len(value)


def to_upper(arguments: list[Value]) -> Value:
    text = to_text(arguments[0])
    if not isinstance(text, str):
        return text
    return text.upper() if text.isascii() else text.translate(_ASCII_UPPER)


def to_lower(arguments: list[Value]) -> Value:
    text = to_text(arguments[0])
    return fold_string(text) if isinstance(text, str) else text


def strcmp(arguments: list[Value]) -> Value:
    """strcmp(a, b): -1, 0 or 1, by bytes."""
    return _compare(arguments, fold=False)


def stricmp(arguments: list[Value]) -> Value:
    """stricmp(a, b): as strcmp, without case."""
    return _compare(arguments, fold=True)


def _compare(arguments: list[Value], fold: bool) -> Value:
    left, right = to_text(arguments[0]), to_text(arguments[1])
    if not isinstance(left, str) or not isinstance(right, str):
        return UNDEFINED if left is UNDEFINED or right is UNDEFINED else ERROR
    if fold:
        left, right = fold_string(left), fold_string(right)
    first, second = encode(left), encode(right)
    return (first > second) - (first < second)


def split(arguments: list[Value]) -> Value:
    """split(text[, delimiters]): the pieces between delimiters; blanks and commas if none are given."""
    text = arguments[0]
    delimiters = arguments[1] if len(arguments) == 2 else ", \t"
    if not isinstance(text, str) or not isinstance(delimiters, str):
        return ERROR
    pieces: list[Value] = list(pieces_of(text, delimiters, MAX_ITEMS))
    return pieces if len(pieces) <= MAX_ITEMS else ERROR


def pieces_of(text: str, delimiters: str, most: int) -> list[str]:
    """The pieces of `text` as split() makes them; of more than `most` the first ones, and one more.

    In front of a piece, delimiters are skipped: any blanks, and others as long as they change; one that is the
    same as the last ends an empty piece.
    """
    marks = frozenset(delimiters)
    blanks = marks & _BLANKS
    pieces: list[str] = []
    at, end, last = 0, len(text), ""
    while True:
        at = _skip(text, at, blanks)
        while at < end and text[at] in marks and text[at] != last:
            last = text[at]
            at = _skip(text, at + 1, blanks)
        if at >= end or len(pieces) > most:
            return pieces
        start = at
        while at < end and text[at] not in marks:
            at += 1
        pieces.append(text[start:at])
        if at < end and text[at] not in blanks:
            last = text[at]
        at += 1


def _skip(text: str, at: int, marks: frozenset[str]) -> int:
    while at < len(text) and text[at] in marks:
        at += 1
    return at


def split_user_name(arguments: list[Value]) -> Value:
    """splitUserName(text): what stands before and behind the first `@`; without one the second part is empty."""
    text = arguments[0]
    if not isinstance(text, str):
        return ERROR
    before, _, behind = text.partition("@")
    return [before, behind]


def split_slot_name(arguments: list[Value]) -> Value:
    """splitSlotName(text): as splitUserName, but without an `@` the first part is empty."""
    text = arguments[0]
    if not isinstance(text, str):
        return ERROR
    before, at, behind = text.partition("@")
    return [before, behind] if at else ["", before]


FUNCTIONS: Final = table(
    Function("strcat", 0, None, strcat),
    Function("join", 0, None, join),
    Function("substr", 2, 3, substr),
    Function("size", 1, 1, size),
    Function("toUpper", 1, 1, to_upper),
    Function("toLower", 1, 1, to_lower),
    Function("strcmp", 2, 2, strcmp),
    Function("stricmp", 2, 2, stricmp),
    Function("split", 1, 2, split),
    Function("splitUserName", 1, 1, split_user_name),
    Function("splitSlotName", 1, 1, split_slot_name),
)
