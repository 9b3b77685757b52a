"""Plans: expressions with every name resolved, which the columnar gear is made from.

A plan is what an expression comes to for a given *shape* of the two ads: which attributes are constants whose values
are known, which are plain values that differ from ad to ad, and which are expressions. Expressions are put in place
of the names that lead to them, seen from the side they stand on, so the rules of scope, of circles and of depth are
applied here, once, and not at every evaluation. What has no plan (`Unplannable`) is left to the plain evaluator:
nested ads, lists other than constant arguments, `eval` and its kin, names such as `parent`, and anything large.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, Protocol

from shared.classad import operators
from shared.classad.ad import ClassAd
from shared.classad.cells import Cell
from shared.classad.expr import (
    CURRENT_TIME,
    AttrRef,
    Binary,
    Call,
    Elvis,
    Expr,
    ListExpr,
    Literal,
    Parens,
    Ternary,
    Unary,
)
from shared.classad.functions import FUNCTIONS, Function
from shared.classad.values import ERROR, UNDEFINED, Value

CONST: Final = 0  # value: the constant
COLUMN: Final = 1  # side, value: the folded name; args: what it is where there is no such attribute
NOW: Final = 2  # the value of time()
UNARY: Final = 3  # value: the operator
BINARY: Final = 4  # value: the operator, but for && and ||
AND: Final = 5
OR: Final = 6
CHOICE: Final = 7  # condition, then, otherwise
ELVIS: Final = 8
CALL: Final = 9  # value: the strict Function

LEFT: Final = 0  # the side that the expression stands on
RIGHT: Final = 1

MAX_DEPTH: Final = 300  # well below the evaluator's, so that a plan never needs to count
MAX_NODES: Final = 2_000
MAX_LEVELS: Final = 60  # of a plan: what generated source and Python's own compiler bear
MAX_CALLS: Final = 48  # of functions; more of them are left to the evaluator, which counts what they cost
SLOW_S: Final = 0.001  # a function that takes longer is left to the evaluator, which counts its time

_SPECIAL: Final = frozenset(("my", "self", "target", "other", "parent", "root", "toplevel"))
_OWN: Final = frozenset(("my", "self"))
_OTHER: Final = frozenset(("target", "other"))
_ON_LISTS: Final = frozenset(("member", "identicalmember", "anycompare", "allcompare"))
_VOLATILE: Final = frozenset(("random", "usermap", "userhome"))  # not the same for ever


class Unplannable(Exception):
    """The expression is for the plain evaluator."""


class Node:
    """One node of a plan; immutable."""

    __slots__ = ("args", "levels", "op", "side", "value")

    def __init__(self, op: int, value: object = None, args: tuple[Node, ...] = (), side: int = LEFT) -> None:
        self.op: Final = op
        self.value: Final = value
        self.args: Final = args
        self.side: Final = side
        self.levels: Final[int] = 1 + max((arg.levels for arg in args), default=0)
        if self.levels > MAX_LEVELS:
            raise Unplannable("too many levels")

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for arg in self.args:
            yield from arg.walk()


NOTHING: Final = Node(CONST, UNDEFINED)
WRONG: Final = Node(CONST, ERROR)


class Side(Protocol):
    """What is known of one of the two ads."""

    def attribute(self, key: str) -> Cell | Node | None:
        """An attribute by its folded name: a constant or an expression to put in its place; a Node to read it where
        the plan runs; None if the ad has none, now and whenever the plan runs."""
        ...

    def lacks(self, key: str) -> bool:
        """Whether the ad has no attribute of this name whenever the plan runs."""
        ...


class Known:
    """An ad whose attributes do not change: constants become part of the plan."""

    def __init__(self, ad: ClassAd) -> None:
        if ad.outer is not None:
            raise Unplannable("a nested ad")
        self._ad = ad

    def attribute(self, key: str) -> Cell | Node | None:
        return self._ad.find(key)

    def lacks(self, key: str) -> bool:
        return self._ad.find(key) is None


class Planner:
    """Makes plans for one pair of sides. `my` and `target` are the sides LEFT and RIGHT; None where there is no ad."""

    def __init__(self, left: Side | None, right: Side | None) -> None:
        self._sides = (left, right)
        self._nodes = 0
        self._calls = 0

    def plan(
        self, expr: Expr, side: int = LEFT, depth: int = 0, marks: frozenset[tuple[int, str]] = frozenset()
    ) -> Node:
        """The plan of an expression that stands on `side`, below `depth` operators and inside the attributes `marks`.

        Raises Unplannable.
        """
        self._nodes += 1
        depth += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise Unplannable("too large")
        if isinstance(expr, Literal):
            return Node(CONST, expr.value)
        if isinstance(expr, AttrRef):
            return self._reference(expr, side, depth, marks)
        if isinstance(expr, Parens):
            return self.plan(expr.inner, side, depth, marks)
        if isinstance(expr, Binary):
            left = self.plan(expr.left, side, depth, marks)
            if expr.op in ("&&", "||"):
                if left.op == CONST:
                    decided = operators.logic_left(expr.op, left.value)  # type: ignore[arg-type]
                    if decided is not None:
                        return Node(CONST, decided)
                right = self.plan(expr.right, side, depth, marks)
                if left.op == CONST and right.op == CONST:
                    return Node(CONST, operators.logic(expr.op, left.value, right.value))  # type: ignore[arg-type]
                return Node(AND if expr.op == "&&" else OR, None, (left, right))
            right = self.plan(expr.right, side, depth, marks)
            if left.op == CONST and right.op == CONST:
                return Node(CONST, binary(expr.op, left.value, right.value))  # type: ignore[arg-type]
            return Node(BINARY, expr.op, (left, right))
        if isinstance(expr, Unary):
            operand = self.plan(expr.operand, side, depth, marks)
            if operand.op == CONST:
                return Node(CONST, operators.unary(expr.op, operand.value))  # type: ignore[arg-type]
            return Node(UNARY, expr.op, (operand,))
        if isinstance(expr, Ternary):
            return self._choice((expr.condition, expr.then, expr.otherwise), side, depth, marks)
        if isinstance(expr, Elvis):
            left = self.plan(expr.left, side, depth, marks)
            if left.op == CONST and left.value is not UNDEFINED:
                return left
            right = self.plan(expr.right, side, depth, marks)
            return right if left.op == CONST else Node(ELVIS, None, (left, right))
        if isinstance(expr, Call):
            return self._call(expr, side, depth, marks)
        raise Unplannable(f"a {type(expr).__name__}")

    def _choice(self, parts: tuple[Expr, ...], side: int, depth: int, marks: frozenset[tuple[int, str]]) -> Node:
        condition = self.plan(parts[0], side, depth, marks)
        if condition.op == CONST:
            flag = operators.truth(condition.value)  # type: ignore[arg-type]
            if flag is True or flag is False:
                return self.plan(parts[1] if flag else parts[2], side, depth, marks)
            return Node(CONST, flag)
        then = self.plan(parts[1], side, depth, marks)
        return Node(CHOICE, None, (condition, then, self.plan(parts[2], side, depth, marks)))

    def _call(self, expr: Call, side: int, depth: int, marks: frozenset[tuple[int, str]]) -> Node:
        function = FUNCTIONS.get(expr.key)
        if function is None or not function.accepts(len(expr.args)):
            return WRONG
        if expr.key == "ifthenelse":
            return self._choice(expr.args, side, depth, marks)
        if expr.key == "time":
            return Node(NOW)
        self._calls += 1
        if function.call is None or self._calls > MAX_CALLS:
            raise Unplannable(f"{function.name}(), or many calls")
        args = tuple(
            _constant_list(arg)
            if isinstance(arg, ListExpr) and expr.key in _ON_LISTS
            else self.plan(arg, side, depth, marks)
            for arg in expr.args
        )
        if expr.key not in _VOLATILE and all(arg.op == CONST for arg in args):
            return Node(CONST, call(function, [arg.value for arg in args]))  # type: ignore[misc]
        return Node(CALL, function, args)

    # Names

    def _reference(self, expr: AttrRef, side: int, depth: int, marks: frozenset[tuple[int, str]]) -> Node:
        if expr.absolute or expr.key in _SPECIAL:
            raise Unplannable("a special name")
        own = self._sides[side]
        other = 1 - side
        scope = expr.scope
        if scope is None:
            if own is None:
                return NOTHING
            return self._read(own, side, expr.key, depth, marks, None if self._sides[other] is None else other)
        word = scope.key if isinstance(scope, AttrRef) and scope.scope is None and not scope.absolute else ""
        if word not in _OWN and word not in _OTHER:
            raise Unplannable("a selection")
        if own is None:
            return NOTHING  # without an ad around it an expression sees no ad at all
        if not own.lacks(word):
            raise Unplannable(f"an attribute of the name {word}")
        if word in _OWN:
            return self._read(own, side, expr.key, depth, marks, None)
        there = self._sides[other]
        return NOTHING if there is None else self._read(there, other, expr.key, depth, marks, None)

    def _read(
        self, ad: Side, side: int, key: str, depth: int, marks: frozenset[tuple[int, str]], beyond: int | None
    ) -> Node:
        """The attribute `key` of an ad, or of the side `beyond` if the ad has none."""
        if key == CURRENT_TIME:
            if not ad.lacks(key):
                raise Unplannable(f"an attribute of the name {key}")
            return Node(NOW)
        found = ad.attribute(key)
        if isinstance(found, Node):
            if beyond is None or found.args:
                return found
            there = self._sides[beyond]
            assert there is not None
            otherwise = self._read(there, beyond, key, depth, marks, None)
            return found if otherwise is NOTHING else Node(found.op, found.value, (otherwise,), found.side)
        if found is None:
            there = None if beyond is None else self._sides[beyond]
            return NOTHING if there is None or beyond is None else self._read(there, beyond, key, depth, marks, None)
        if not isinstance(found, Expr):
            return Node(CONST, found)
        mark = (side, key)
        return NOTHING if mark in marks else self.plan(found, side, depth, marks | {mark})


def _constant_list(expr: ListExpr) -> Node:
    if all(isinstance(item, Literal) for item in expr.items):
        return Node(CONST, [item.value for item in expr.items if isinstance(item, Literal)])
    raise Unplannable("a list")


LONG_TEXT: Final = 4_096  # characters of an argument; the evaluator counts what longer ones cost
LONG_OPERAND: Final = 1_024  # characters of an operand: there are more operators in a plan than calls


def binary(op: str, left: Value, right: Value) -> Value:
    """`operators.binary`; Unplannable where the evaluator has to count what it costs."""
    if type(left) is str and len(left) > LONG_OPERAND and type(right) is str:
        raise Unplannable("a long text")
    return operators.binary(op, left, right)


def call(function: Function, arguments: list[Value]) -> Value:
    """The value of a call; Unplannable where the evaluator has to count what it costs, or a value is no scalar."""
    for argument in arguments:
        if type(argument) is str and len(argument) > LONG_TEXT:
            raise Unplannable("a long text")
    assert function.call is not None
    if function.costly:
        # Of this thread: a busy machine makes no call slow. Twice: the first call may compile a pattern.
        for attempt in range(2):
            began = time.thread_time()
            value = function.call(arguments)
            if time.thread_time() - began <= SLOW_S:
                break
            if attempt:
                raise Unplannable("a slow call")
    else:
        value = function.call(arguments)
    if isinstance(value, list | ClassAd):
        raise Unplannable("a call that makes a list or an ad")
    return value
