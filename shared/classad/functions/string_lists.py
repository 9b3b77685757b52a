"""Lists kept in one string, "a, b, c": the stringList family (manual: "Predefined Functions").

Items are separated by any of the delimiters (comma and blank if none are given); empty items do not count.
The reference cuts the string in three ways, and so does this module:

* `_trimmed`: blanks around an item are cut off (Size, Sum, Avg, Min, Max, regexpMember);
* `_spaced`: as before, and with the default delimiters every white space separates (Member, SubsetMatch);
* `_exact`: items are as they stand (stringListsIntersect, for which no delimiters are the default ones).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from shared.classad.functions.coerce import MAX_ITEMS, TookTooLong, leading_number, to_int64
from shared.classad.functions.pcre import Pattern, RegexError, Stopwatch, compile_pattern
from shared.classad.functions.registry import Function, table
from shared.classad.operators import fold_string
from shared.classad.values import ERROR, UNDEFINED, Undefined, Value

_DEFAULT: Final = ", "
_MANY: Final = 8  # delimiters that cost less all at once than one by one
_BLANKS: Final = " \t\n\v\f\r"
_WHOLE: Final = frozenset("+-0123456789")

# What the reference starts with when it looks for the smallest and the largest: the bounds of a C float.
_FLOAT_MAX: Final = 3.4028234663852886e38
_FLOAT_MIN: Final = 1.1754943508222875e-38


def _exact(text: str, delimiters: str) -> list[str]:
    if not delimiters:
        return [text] if text else []
    first = delimiters[0]
    if len(delimiters) > _MANY:
        text = text.translate(dict.fromkeys(map(ord, delimiters), first))
    else:
        for other in delimiters[1:]:
            text = text.replace(other, first)
    items = text.split(first, MAX_ITEMS)
    if len(items) > MAX_ITEMS:
        raise TookTooLong
    return [item for item in items if item]


def _trimmed(text: str, delimiters: str) -> list[str]:
    return [item for item in (piece.strip(_BLANKS) for piece in _exact(text, delimiters)) if item]


def _spaced(text: str, delimiters: str | None) -> list[str]:
    return _trimmed(text, ", \t\r\n" if delimiters is None else delimiters)


def _numbers(combine: Callable[[list[float], bool], Value]) -> Callable[[list[Value]], Value]:
    """A function of the numbers in a string; it is told whether all of them look like integers."""

    def call(arguments: list[Value]) -> Value:
        text = arguments[0]
        delimiters = arguments[1] if len(arguments) == 2 else _DEFAULT
        if not isinstance(text, str) or not isinstance(delimiters, str):
            return ERROR
        numbers: list[float] = []
        whole = True
        for item in _trimmed(text, delimiters):
            number = leading_number(item)
            if number is None:
                return ERROR
            whole = whole and _WHOLE.issuperset(item)
            numbers.append(number)
        return combine(numbers, whole)

    return call


def _as(number: float, whole: bool) -> Value:
    return to_int64(number) if whole else number


def _sum(numbers: list[float], whole: bool) -> Value:
    return _as(_total(numbers), whole) if numbers else 0.0


def _avg(numbers: list[float], whole: bool) -> Value:
    return _as(_total(numbers) / len(numbers), whole) if numbers else 0.0


def _total(numbers: list[float]) -> float:
    total = 0.0
    for number in numbers:  # not sum(): since Python 3.12 it rounds differently
        total += number
    return total


def _min(numbers: list[float], whole: bool) -> Value:
    least = _FLOAT_MAX
    for number in numbers:
        if number < least:
            least = number
    return _as(least, whole) if numbers else UNDEFINED


def _max(numbers: list[float], whole: bool) -> Value:
    most = _FLOAT_MIN  # so the largest of negative numbers is this: as the reference has it
    for number in numbers:
        if number > most:
            most = number
    return _as(most, whole) if numbers else UNDEFINED


def string_list_size(arguments: list[Value]) -> Value:
    """stringListSize(list[, delimiters])."""
    text = arguments[0]
    delimiters = arguments[1] if len(arguments) == 2 else _DEFAULT
    if not isinstance(text, str) or not isinstance(delimiters, str):
        return ERROR
    return len(_trimmed(text, delimiters))


def _texts(arguments: list[Value]) -> list[str | None] | None:
    """Strings as they are and UNDEFINED as None; None if there is anything else."""
    texts: list[str | None] = []
    for argument in arguments:
        if not isinstance(argument, str | Undefined):
            return None
        texts.append(argument if isinstance(argument, str) else None)
    return texts


def _member(name: str, fold: bool) -> Function:
    """stringListMember(item, list[, delimiters]): UNDEFINED for item or list is false, for both UNDEFINED."""

    def call(arguments: list[Value]) -> Value:
        texts = _texts(arguments)
        if texts is None:
            return ERROR
        item, text = texts[0], texts[1]
        delimiters = texts[2] if len(texts) == 3 else None
        if item is None or text is None:
            return UNDEFINED if item is text else False
        items = _spaced(text, delimiters)
        return fold_string(item) in map(fold_string, items) if fold else item in items

    return Function(name, 2, 3, call)


def _subset(name: str, fold: bool) -> Function:
    """stringListSubsetMatch(list1, list2[, delimiters]): whether every item of the first is in the second."""

    def call(arguments: list[Value]) -> Value:
        texts = _texts(arguments)
        if texts is None:
            return ERROR
        first, second = texts[0], texts[1]
        delimiters = texts[2] if len(texts) == 3 else None
        if first is None and second is None:
            return UNDEFINED
        items = set(_spaced(first or "", delimiters))
        if first and not items:
            return False  # nothing but delimiters: one empty item, which no list has
        among = set(_spaced(second or "", delimiters))
        if fold:
            items, among = set(map(fold_string, items)), set(map(fold_string, among))
        return items <= among

    return Function(name, 2, 3, call)


def string_lists_intersect(arguments: list[Value]) -> Value:
    """stringListsIntersect(list1, list2[, delimiters]): whether they have an item in common."""
    if any(argument is ERROR for argument in arguments):
        return ERROR
    if any(argument is UNDEFINED for argument in arguments):
        return UNDEFINED
    first, second = arguments[0], arguments[1]
    delimiters = arguments[2] if len(arguments) == 3 else _DEFAULT
    if not isinstance(first, str) or not isinstance(second, str) or not isinstance(delimiters, str):
        return ERROR
    marks = delimiters or _DEFAULT
    return not set(_exact(first, marks)).isdisjoint(_exact(second, marks))


def string_list_regexp_member(arguments: list[Value]) -> Value:
    """stringList_regexpMember(pattern, list[, delimiters[, options]]): whether an item matches; UNDEFINED if none."""
    if not all(isinstance(argument, str) for argument in arguments):
        return ERROR
    pattern, text, delimiters, options = (str(argument) for argument in (*arguments, _DEFAULT, "")[:4])
    if len(arguments) == 3:
        options = ""
    compiled = compile_pattern(pattern, options)
    if compiled is None:
        return ERROR
    items = _trimmed(text, delimiters)
    return _any_matches(compiled, items) if items else UNDEFINED


def _any_matches(pattern: Pattern, items: list[str]) -> Value:
    watch = Stopwatch()
    try:
        for item in items:
            if pattern.matches(item):
                return True
            watch.check()
    except RegexError:
        return ERROR
    return False


def _bounded(function: Function) -> Function:
    """The same, but that a string of more than MAX_ITEMS items makes ERROR."""
    inner = function.call
    assert inner is not None

    def call(arguments: list[Value]) -> Value:
        try:
            return inner(arguments)
        except TookTooLong:
            return ERROR

    return replace(function, call=call)


FUNCTIONS: Final = table(
    *map(
        _bounded,
        (
            Function("stringListSize", 1, 2, string_list_size),
            Function("stringListSum", 1, 2, _numbers(_sum)),
            Function("stringListAvg", 1, 2, _numbers(_avg)),
            Function("stringListMin", 1, 2, _numbers(_min)),
            Function("stringListMax", 1, 2, _numbers(_max)),
            _member("stringListMember", fold=False),
            _member("stringListIMember", fold=True),
            _subset("stringListSubsetMatch", fold=False),
            _subset("stringListISubsetMatch", fold=True),
            Function("stringListsIntersect", 2, 3, string_lists_intersect),
            Function("stringList_regexpMember", 2, 4, string_list_regexp_member, costly=True),
        ),
    )
)
