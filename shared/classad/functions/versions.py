"""Version comparison: versioncmp, versionLT and their like, version_in_range (manual: "Predefined Functions")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shared.classad.functions.coerce import encode, to_text
from shared.classad.functions.registry import Function, table
from shared.classad.values import ERROR, UNDEFINED, Value

_DIGITS: Final = frozenset(b"0123456789")


def compare_versions(left: bytes, right: bytes) -> int:
    """Below, at or above zero as `left` is the earlier, the same or the later version.

    Numbers inside compare by value, and one with more leading zeros is the smaller: 000, 00, 01, 010, 09, 0, 1, 9,
    10. The size of the answer is the difference of what decides: leading zeros, digits, or the first differing bytes
    (with sign, as C's char).
    """
    first = 0
    while first < len(left) and first < len(right) and left[first] == right[first]:
        first += 1
    if first == len(left) == len(right):
        return 0
    start = first
    while start > 0 and left[start - 1] in _DIGITS:
        start -= 1
    a, b = _number(left, start), _number(right, start)
    if a and b:
        a_zeros, b_zeros = _leading_zeros(a), _leading_zeros(b)
        if a_zeros != b_zeros:
            return b_zeros - a_zeros
        if not a_zeros and len(a) != len(b):
            return len(a) - len(b)
    return _byte(left, first) - _byte(right, first)


def _number(text: bytes, start: int) -> bytes:
    """The digits from `start` on."""
    end = start
    while end < len(text) and text[end] in _DIGITS:
        end += 1
    return text[start:end]


def _leading_zeros(number: bytes) -> int:
    """How many zeros there are in front of a number; its last digit is not in front of it."""
    return len(number) - len(number[:-1].lstrip(b"0")) - 1


def _byte(text: bytes, place: int) -> int:
    """The byte at `place` as a signed number, 0 behind the end."""
    byte = text[place] if place < len(text) else 0
    return byte - 256 if byte > 127 else byte


def _comparison(name: str, answer: Callable[[int], Value]) -> Function:
    def call(arguments: list[Value]) -> Value:
        left, right = to_text(arguments[0]), to_text(arguments[1])
        if not isinstance(left, str) or not isinstance(right, str):
            return UNDEFINED if left is UNDEFINED or right is UNDEFINED else ERROR
        return answer(compare_versions(encode(left), encode(right)))

    return Function(name, 2, 2, call)


def version_in_range(arguments: list[Value]) -> Value:
    """version_in_range(version, lowest, highest)."""
    if arguments[1] is UNDEFINED or arguments[2] is UNDEFINED:
        return UNDEFINED
    texts = [text for text in map(to_text, arguments) if isinstance(text, str)]
    if len(texts) != 3:
        return ERROR
    version, lowest, highest = map(encode, texts)
    return compare_versions(lowest, version) <= 0 and compare_versions(version, highest) <= 0


FUNCTIONS: Final = table(
    _comparison("versioncmp", lambda sign: sign),
    _comparison("versionLT", lambda sign: sign < 0),
    _comparison("versionLE", lambda sign: sign <= 0),
    _comparison("versionGT", lambda sign: sign > 0),
    _comparison("versionGE", lambda sign: sign >= 0),
    _comparison("versionEQ", lambda sign: sign == 0),
    Function("version_in_range", 3, 3, version_in_range),
)
