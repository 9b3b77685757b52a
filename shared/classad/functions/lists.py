"""Lists: sum, avg, min, max, member, anyCompare and their like (manual: "Predefined Functions")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shared.classad.expr import IS, ISNT
from shared.classad.functions.coerce import TookTooLong, patiently
from shared.classad.functions.registry import Function, table
from shared.classad.operators import binary, fold_string
from shared.classad.values import ERROR, UNDEFINED, Error, Undefined, Value

_OPERATORS: Final = {
    "<": "<", "<=": "<=", "==": "==", "!=": "!=", ">": ">", ">=": ">=", "is": IS, "isnt": ISNT,
}  # fmt: skip


def _aggregate(name: str, combine: Callable[[list[int | float]], Value]) -> Function:
    """A function of the numbers of one list; UNDEFINED items are left out, other items make ERROR."""

    def call(arguments: list[Value]) -> Value:
        items = arguments[0]
        if items is UNDEFINED:
            return UNDEFINED
        if not isinstance(items, list):
            return ERROR
        numbers: list[int | float] = []
        for item in items:
            if item is UNDEFINED:
                continue
            if not isinstance(item, int | float):
                return ERROR
            numbers.append(item)
        return combine(numbers)

    return Function(name, 1, 1, call)


def _sum(numbers: list[int | float]) -> Value:
    total: Value = numbers[0] if numbers else 0
    for number in numbers[1:]:
        total = binary("+", total, number)
    return total


def _avg(numbers: list[int | float]) -> Value:
    return binary("/", _sum(numbers), float(len(numbers))) if numbers else 0


def _extreme(better: Callable[[float, float], bool]) -> Callable[[list[int | float]], Value]:
    """The best number: an integer among integers, a real if any of the numbers is one."""

    def combine(numbers: list[int | float]) -> Value:
        if not numbers:
            return UNDEFINED
        best = numbers[0]
        for number in numbers[1:]:
            kind = float if isinstance(best, float) or isinstance(number, float) else int
            best, number = kind(best), kind(number)
            if better(number, best):
                best = number
        return best

    return combine


def _membership(name: str, op: str) -> Function:
    """member(x, list): whether an item equals x; a comparison that is ERROR or UNDEFINED counts as no."""

    def call(arguments: list[Value]) -> Value:
        item, items = arguments
        if items is UNDEFINED or (op != IS and item is UNDEFINED):
            return UNDEFINED
        if items is ERROR or (op != IS and item is ERROR):
            return ERROR
        if not isinstance(items, list) or _is_compound(item):
            return ERROR
        try:
            if op != IS and isinstance(item, str):
                folded = fold_string(item)  # once: a text may be long
                return any(isinstance(other, str) and fold_string(other) == folded for other in patiently(items))
            return any(binary(op, other, item) is True for other in patiently(items))
        except TookTooLong:
            return ERROR

    return Function(name, 2, 2, call)


def _is_compound(value: Value) -> bool:
    return isinstance(value, list) or hasattr(value, "table")


def _comparison(name: str, found: bool) -> Function:
    """anyCompare(op, list, x) (`found` is True) and allCompare (False).

    The first comparison that is ERROR makes ERROR; one that is UNDEFINED makes the whole false.
    """

    def call(arguments: list[Value]) -> Value:
        word, items, value = arguments
        if isinstance(word, Undefined | Error):
            return word
        op = _OPERATORS.get(word) if isinstance(word, str) else None
        if op is None:
            return ERROR
        if isinstance(items, Undefined | Error):
            return items
        if not isinstance(items, list):
            return ERROR
        try:
            for item in patiently(items):
                result = binary(op, item, value)
                if result is ERROR:
                    return ERROR
                if result is UNDEFINED:
                    return False
                if result is found:
                    return found
        except TookTooLong:
            return ERROR
        return not found

    return Function(name, 3, 3, call)


FUNCTIONS: Final = table(
    _aggregate("sum", _sum),
    _aggregate("avg", _avg),
    _aggregate("min", _extreme(lambda number, best: number < best)),
    _aggregate("max", _extreme(lambda number, best: number > best)),
    _membership("member", "=="),
    _membership("identicalMember", IS),
    _comparison("anyCompare", found=True),
    _comparison("allCompare", found=False),
)
