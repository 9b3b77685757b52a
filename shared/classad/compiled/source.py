"""From a plan to the source of one Python function.

The source holds a fast path for the types that occur (integer against integer, string against string) and hands
everything else to `shared.classad.operators`, so that there is one meaning. An ad that
holds an expression where the plan expects a plain value raises Deoptimized, and the caller looks for another plan.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from shared.classad import operators
from shared.classad.cells import PackedText, parse_text
from shared.classad.compiled.plan import (
    AND,
    BINARY,
    CALL,
    CHOICE,
    COLUMN,
    CONST,
    ELVIS,
    LEFT,
    LONG_OPERAND,
    NOW,
    OR,
    UNARY,
    Node,
    Unplannable,
    binary,
    call,
)
from shared.classad.expr import IS, ISNT, Expr, Literal
from shared.classad.values import ERROR, UNDEFINED, Error, Undefined, Value

MAX_LINES: Final = 4_000
MAX_INDENT: Final = 80  # levels; Python's tokenizer takes 100

_PLAIN: Final = frozenset((bool, int, float, str, Undefined, Error, datetime, timedelta))
_ORDER: Final = frozenset(("==", "!=", "<", "<=", ">", ">="))
_SUMS: Final = frozenset(("+", "-", "*"))
_FIXED: Final = (bool, int, str)
_INT_MIN: Final = -(1 << 63)
_INT_MAX: Final = (1 << 63) - 1


class Deoptimized(Exception):
    """An ad does not have the shape that the plan was made for."""


def settle(value: Any) -> Value:
    """The value of a cell that is no plain value. Raises Deoptimized for an expression."""
    if isinstance(value, PackedText):
        value = parse_text(value.data)
    if isinstance(value, Expr):
        if not isinstance(value, Literal):
            raise Deoptimized
        return value.value
    result: Value = value
    return result


def _settled(value: Any) -> Any:
    return value if value.__class__ in _PLAIN else settle(value)


def _binary(op: str, left: Any, right: Any) -> Value:
    if left.__class__ not in _PLAIN:
        left = settle(left)
    if right.__class__ not in _PLAIN:
        right = settle(right)
    return binary(op, left, right)


def _fold(text: str) -> str:
    if len(text) > LONG_OPERAND:
        raise Unplannable("a long text")
    return operators.fold_string(text)


def _unary(op: str, value: Any) -> Value:
    return operators.unary(op, _settled(value))


def _truth(value: Any) -> Value:
    return operators.truth(_settled(value))


def _call(function: Any, *arguments: Any) -> Value:
    return call(function, [_settled(each) for each in arguments])


_GLOBALS: Final[dict[str, Any]] = {
    "U": UNDEFINED,
    "E": ERROR,
    "PLAIN": _PLAIN,
    "Deoptimized": Deoptimized,
    "settle": settle,
    "binary": _binary,
    "unary": _unary,
    "truth": _truth,
    "call": _call,
    "fold": _fold,
    "wrap": operators.wrap,
    "clock": time.time,
}

Text = str


class Writer:
    """Writes the body of `def run(L, R, now)`; L and R are the `get` of the tables of both ads, or None."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._indent = 1
        self._names: dict[str, Any] = dict(_GLOBALS)
        self._count = 0
        self._timed = False
        self._loaded: dict[tuple[int, str], str] = {}  # columns read so far, on every way here

    def function(self) -> Callable[..., Any]:
        """The function of all that was written. Raises Unplannable if it is too large."""
        if len(self._lines) > MAX_LINES:
            raise Unplannable("too much source")
        begin = " if now is None: now = clock()\n" if self._timed else ""
        source = f"def run(L, R, now):\n{begin}" + "\n".join(self._lines)
        exec(compile(source, "<classad>", "exec"), self._names)  # numbers, quoted strings and names from here
        function: Callable[..., Any] = self._names["run"]
        return function

    # Text

    def line(self, text: str) -> None:
        self._lines.append(" " * self._indent + text)

    def _fresh(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def _name(self, value: Any) -> str:
        self._count += 1
        name = f"k{self._count}"
        self._names[name] = value
        return name

    def _block(self, header: str) -> dict[tuple[int, str], str]:
        self.line(header)
        self._indent += 1
        if self._indent > MAX_INDENT:
            raise Unplannable("too many levels")
        loaded, self._loaded = self._loaded, dict(self._loaded)
        return loaded

    def _end(self, loaded: dict[tuple[int, str], str]) -> None:
        self._indent -= 1
        self._loaded = loaded

    def _constant(self, value: Any) -> str:
        if value is UNDEFINED:
            return "U"
        if value is ERROR:
            return "E"
        if type(value) in _FIXED or (type(value) is float and math.isfinite(value)):
            return f"({value!r})"
        return self._name(value)

    # Values

    def value(self, node: Node) -> Text:
        """The name of a variable, or a constant, that holds the value: clean, or a cell of an ad as it is stored."""
        if node.op == CONST:
            return self._constant(node.value)
        if node.op == COLUMN:
            return self._column(node)
        result = self._fresh()
        if node.op == BINARY:
            if str(node.value) in _SUMS:
                self._sum(node, result)
            else:
                text = self._comparison(node)
                self.line(f"{result} = {text}")
        elif node.op in (AND, OR):
            self._logic(node, result)
        elif node.op == UNARY:
            operand = self.value(node.args[0])
            fast = f"False if {operand} is True else True if {operand} is False else " if node.value == "!" else ""
            self.line(f"{result} = {fast}unary({node.value!r}, {operand})")
        elif node.op == CHOICE:
            flag = self._flag(node.args[0])
            before = self._block(f"if {flag} is True:")
            self.line(f"{result} = {self.value(node.args[1])}")
            self._end(before)
            before = self._block(f"elif {flag} is False:")
            self.line(f"{result} = {self.value(node.args[2])}")
            self._end(before)
            self.line(f"else: {result} = {flag}")
        elif node.op == ELVIS:
            self.line(f"{result} = {self.clean(node.args[0])}")
            before = self._block(f"if {result} is U:")
            self.line(f"{result} = {self.value(node.args[1])}")
            self._end(before)
        elif node.op == CALL:
            arguments = [self.value(arg) for arg in node.args]
            self.line(f"{result} = call({', '.join([self._name(node.value), *arguments])})")
        else:
            assert node.op == NOW
            self._timed = True
            self.line(f"{result} = int(now)")
        return result

    def clean(self, node: Node) -> Text:
        """As `value`, but never a cell that is not a value yet."""
        value = self.value(node)
        if node.op in (COLUMN, CHOICE, ELVIS):
            self.line(f"if {value}.__class__ not in PLAIN: {value} = settle({value})")
        return value

    def _column(self, node: Node) -> Text:
        key = str(node.value)
        known = self._loaded.get((node.side, key))
        if known is not None and not node.args:
            return known
        table = "L" if node.side == LEFT else "R"
        result = self._fresh()
        if not node.args:
            self.line(f"{result} = U if (e := {table}({key!r})) is None else e[1]")
            self._loaded[node.side, key] = result
            return result
        self.line(f"e = {table}({key!r})")
        before = self._block("if e is None:")
        self.line(f"{result} = {self.value(node.args[0])}")
        self._end(before)
        self.line(f"else: {result} = e[1]")
        return result

    def _flag(self, node: Node) -> Text:
        """The value as a boolean, UNDEFINED or ERROR."""
        if node.op == CONST:
            return self._constant(operators.truth(node.value))  # type: ignore[arg-type]
        value = self.value(node)
        if _is_flag(node):
            return value
        result = self._fresh()
        self.line(f"{result} = {value} if {value} is True or {value} is False else truth({value})")
        return result

    def _logic(self, node: Node, result: str) -> None:
        decisive = "False" if node.op == AND else "True"
        left = self._flag(node.args[0])
        self.line(f"{result} = {left}")
        before = self._block(f"if {left} is not {decisive} and {left} is not E:")
        right = self._flag(node.args[1])
        self.line(f"if {left} is not U or {right} is {decisive} or {right} is E: {result} = {right}")
        self._end(before)

    def _sum(self, node: Node, result: str) -> None:
        left, right = (self.value(arg) for arg in node.args)
        op = str(node.value)
        tests = [
            f"{text}.__class__ is int"
            for arg, text in ((node.args[0], left), (node.args[1], right))
            if not _is_int(arg)
        ]
        if any(arg.op == CONST and not _is_int(arg) for arg in node.args):
            self.line(f"{result} = binary({op!r}, {left}, {right})")
            return
        self.line(f"if {' and '.join(tests)}:")
        self.line(f" {result} = {left} {op} {right}")
        self.line(f" if not {_INT_MIN} <= {result} <= {_INT_MAX}: {result} = wrap({result})")
        self.line(f"else: {result} = binary({op!r}, {left}, {right})")

    def _comparison(self, node: Node) -> Text:
        """An expression of Python for `left op right`, with fast paths for what is common."""
        op = str(node.value)
        first, second = node.args
        if op in (IS, ISNT):
            left, right = self.clean(first), self.clean(second)
            if second.op == CONST and (second.value is UNDEFINED or second.value is ERROR):
                return f"{left} is {'' if op == IS else 'not '}{right}"
            if second.op == CONST and type(second.value) in _FIXED:
                same = f"{left}.__class__ is {type(second.value).__name__} and {left} == {right}"
                return same if op == IS else f"not ({same})"
            return f"binary({op!r}, {left}, {right})"
        left, right = self.value(first), self.value(second)
        slow = f"binary({op!r}, {left}, {right})"
        if op not in _ORDER:
            return slow
        if _is_int(first) or _is_int(second):
            other = right if _is_int(first) else left
            return f"{left} {op} {right} if {other}.__class__ is int else {slow}"
        for constant, other in ((first, right), (second, left)):
            if constant.op == CONST and type(constant.value) is str and op in ("==", "!="):
                folded = operators.fold_string(constant.value)
                same = f"({other} == {constant.value!r} or fold({other}) == {folded!r})"
                return f"{'not ' if op == '!=' else ''}{same} if {other}.__class__ is str else {slow}"
        if first.op == CONST or second.op == CONST:
            return slow
        return f"{left} {op} {right} if {left}.__class__ is int and {right}.__class__ is int else {slow}"


def _is_int(node: Node) -> bool:
    return node.op == CONST and type(node.value) is int


def _is_flag(node: Node) -> bool:
    """Whether a plan's value is never anything but a boolean, UNDEFINED or ERROR."""
    if node.op in (AND, OR):
        return True
    return (node.op == BINARY and str(node.value) in _ORDER | {IS, ISNT}) or (node.op == UNARY and node.value == "!")
