"""Partial evaluation: what an expression comes to when one ad is known and the other is not.

The result means the same as the expression in every match of the ad: nothing is reordered, and `true && x` is not x
(x may be a number). Attributes of the ad are put in place of their names, their expressions in parentheses; calls
that look at the clock, at chance or at the ads are left alone.
"""

from __future__ import annotations

from typing import Final

from shared.classad import operators
from shared.classad.ad import ClassAd
from shared.classad.cells import as_expr
from shared.classad.depth import with_room
from shared.classad.evaluate import Evaluation
from shared.classad.expr import (
    AdExpr,
    AttrRef,
    Binary,
    Call,
    Elvis,
    Expr,
    ListExpr,
    Literal,
    Parens,
    Subscript,
    Ternary,
    Unary,
)
from shared.classad.functions import FUNCTIONS
from shared.classad.lazy import TooMuch
from shared.classad.values import ERROR, UNDEFINED, Value

MAX_DEPTH: Final = 2_000  # levels of the tree; below them nothing is changed
MAX_NODES: Final = 200_000  # of the result: attributes put in place of names can multiply
_VOLATILE: Final = frozenset(("random", "time", "currenttime", "debug"))
_BOOLEAN: Final = frozenset(("==", "!=", "<", "<=", ">", ">=", "=?=", "=!=", "&&", "||"))


def flatten(expr: Expr, my: ClassAd | None = None) -> Expr:
    """The expression with everything evaluated that `my` (None: no ad at all) decides."""
    return with_room(lambda: _Flattener(my).flat(expr, 0))


class _Flattener:
    def __init__(self, my: ClassAd | None) -> None:
        self.my = my
        self._open: list[str] = []
        self._circular: set[str] = set()
        self._nodes = 0

    def flat(self, node: Expr, depth: int) -> Expr:
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            return node
        depth += 1
        if isinstance(node, AttrRef):
            return self._attr(node, depth)
        if isinstance(node, Parens):
            inner = self.flat(node.inner, depth)
            return inner if isinstance(inner, Literal | AttrRef | Parens | Call) else Parens(inner)
        if isinstance(node, Binary):
            return self._binary(node, depth)
        if isinstance(node, Unary):
            operand = self.flat(node.operand, depth)
            if isinstance(operand, Literal):
                return Literal(operators.unary(node.op, operand.value))
            return Unary(node.op, operand)
        if isinstance(node, Ternary):
            return self._ternary(node, depth)
        if isinstance(node, Elvis):
            left = self.flat(node.left, depth)
            if isinstance(left, Literal):
                return self.flat(node.right, depth) if left.value is UNDEFINED else left
            right = self.flat(node.right, depth)
            return Elvis(_operand(left), _operand(right))
        if isinstance(node, Subscript):
            return Subscript(_operand(self.flat(node.base, depth)), self.flat(node.index, depth))
        if isinstance(node, Call):
            return self._call(node, depth)
        if isinstance(node, ListExpr):
            return ListExpr(tuple(self.flat(item, depth) for item in node.items))
        return node

    def _attr(self, node: AttrRef, depth: int) -> Expr:
        my = self.my
        scope = node.scope
        if my is None or node.absolute:
            return node
        if scope is not None:
            own = isinstance(scope, AttrRef) and scope.scope is None and not scope.absolute and scope.key == "my"
            if not own or my.find("my") is not None:
                return node
        cell = my.find(node.key)
        if cell is None:
            return node
        if node.key in self._open:
            self._circular.update(self._open[self._open.index(node.key) :])
            return node
        if isinstance(cell, AdExpr | ListExpr):
            return node  # its names are looked up inside it first
        self._open.append(node.key)
        inner = self.flat(as_expr(cell), depth)
        self._open.pop()
        if node.key in self._circular:
            return node  # its value depends on where the circle is entered
        return inner if isinstance(inner, Literal | AttrRef | Parens | Call) else Parens(inner)

    def _binary(self, node: Binary, depth: int) -> Expr:
        op = node.op
        left = self.flat(node.left, depth)
        if isinstance(left, Literal) and op in ("&&", "||"):
            decided = operators.logic_left(op, left.value)
            if decided is not None:
                return Literal(decided)
        right = self.flat(node.right, depth)
        if isinstance(left, Literal):
            if isinstance(right, Literal):
                logic = operators.logic if op in ("&&", "||") else operators.binary
                return Literal(logic(op, left.value, right.value))
            neutral = op == "&&" and operators.truth(left.value) is True
            neutral = neutral or (op == "||" and operators.truth(left.value) is False)
            if neutral and _is_boolean(right):
                return right
        return Binary(op, left, right)

    def _ternary(self, node: Ternary, depth: int) -> Expr:
        condition = self.flat(node.condition, depth)
        if isinstance(condition, Literal):
            flag = operators.truth(condition.value)
            if flag is True:
                return self.flat(node.then, depth)
            return self.flat(node.otherwise, depth) if flag is False else Literal(flag)
        return Ternary(condition, self.flat(node.then, depth), self.flat(node.otherwise, depth))

    def _call(self, node: Call, depth: int) -> Expr:
        function = FUNCTIONS.get(node.key)
        if function is None or not function.accepts(len(node.args)):
            return Literal(ERROR)
        if node.key == "ifthenelse":
            arguments = (self.flat(node.args[0], depth), *node.args[1:])
            condition = arguments[0]
            if isinstance(condition, Literal) and operators.truth(condition.value) in (True, False):
                return self.flat(node.args[1 if operators.truth(condition.value) is True else 2], depth)
            return Call(node.name, (condition, *(self.flat(item, depth) for item in node.args[1:])))
        if function.call is None or node.key in _VOLATILE:
            return node
        arguments = tuple(self.flat(item, depth) for item in node.args)
        call = Call(node.name, arguments)
        if not all(isinstance(item, Literal) for item in arguments):
            return call
        value = _value_of(call)
        return call if value is None else Literal(value)


def _value_of(call: Call) -> Value | None:
    """The value of a call of constants; None if it has none that a literal can hold."""
    try:
        value = Evaluation(None, None, 0.0).visit(call)
    except TooMuch:
        return ERROR
    return None if isinstance(value, list | ClassAd) else value


def _is_boolean(expr: Expr) -> bool:
    """Whether an expression can be nothing but a boolean, UNDEFINED or ERROR."""
    while isinstance(expr, Parens):
        expr = expr.inner
    if isinstance(expr, Literal):
        return isinstance(expr.value, bool)
    return (isinstance(expr, Binary) and expr.op in _BOOLEAN) or (isinstance(expr, Unary) and expr.op == "!")


def _operand(expr: Expr) -> Expr:
    """`expr` as something that may stand beside `?:` or in front of a subscript."""
    return Parens(expr) if isinstance(expr, Binary | Unary | Ternary) else expr
