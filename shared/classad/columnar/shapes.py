"""Policy shapes: expressions that differ in their constants only are one shape.

A pool with an owner's name in the START of every machine has thousands of policies and one shape: the constants that
differ are taken out and become hidden columns, which are read as `MY.` attributes of impossible names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from shared.classad.expr import (
    AttrRef,
    Binary,
    Call,
    Elvis,
    Expr,
    Literal,
    Parens,
    Ternary,
    Unary,
)
from shared.classad.unparse import unparse_exact

FEW: Final = 8  # expressions that are better left as they are, since their conjuncts are shared with other policies
HIDDEN: Final = "\0"  # in the names of hidden columns, as no attribute of an ad can have it
_DEEPEST: Final = 200  # levels; what lies below is left as it is
_LIFTED: Final = frozenset((bool, int, float, str))
_MY: Final = AttrRef("MY")


@dataclass(frozen=True, slots=True)
class Lifted:
    """`shapes`: the expressions to evaluate; `shape_of`: for each expression given, which of them; `hidden`: by the
    name of a hidden column, its value for each expression given (None where the expression has another shape)."""

    shapes: list[Expr]
    shape_of: list[int]
    hidden: dict[str, list[Any]]


def lifted(name: str, exprs: Sequence[Expr]) -> Lifted:
    """The shapes of the expressions that the attribute `name` has in different rows."""
    if len(exprs) <= FEW:
        texts: dict[str, int] = {}
        shapes: list[Expr] = []
        shape_of = []
        for expr in exprs:
            text = unparse_exact(expr)
            if text not in texts:
                texts[text] = len(shapes)
                shapes.append(expr)
            shape_of.append(texts[text])
        return Lifted(shapes, shape_of, {})
    groups: dict[tuple[Any, ...], list[int]] = {}
    constants: list[list[Any]] = []
    for index, expr in enumerate(exprs):
        values: list[Any] = []
        groups.setdefault(_structure(expr, values, 0), []).append(index)
        constants.append(values)
    shapes = []
    shape_of = [0] * len(exprs)
    hidden: dict[str, list[Any]] = {}
    for members in groups.values():
        parameters: dict[int, AttrRef] = {}
        for place, value in enumerate(constants[members[0]]):
            if any(not _same(constants[index][place], value) for index in members):
                ref = AttrRef(f"{HIDDEN}{name}:{len(shapes)}:{place}", _MY)
                parameters[place] = ref
                hidden[ref.key] = [None] * len(exprs)
                for index in members:
                    hidden[ref.key][index] = constants[index][place]
        for index in members:
            shape_of[index] = len(shapes)
        shapes.append(_Rebuilt(parameters).rebuild(exprs[members[0]], 0) if parameters else exprs[members[0]])
    return Lifted(shapes, shape_of, hidden)


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and repr(a) == repr(b)


def _structure(expr: Expr, values: list[Any], depth: int) -> tuple[Any, ...]:
    """What is left of an expression without its constants, which are added to `values` in order."""
    if depth > _DEEPEST:
        return ("text", unparse_exact(expr))
    if isinstance(expr, Literal):
        if type(expr.value) in _LIFTED:
            values.append(expr.value)
            return ("constant",)
        return ("text", unparse_exact(expr))
    if isinstance(expr, Unary):
        return ("unary", expr.op, _structure(expr.operand, values, depth + 1))
    if isinstance(expr, Binary):
        left = _structure(expr.left, values, depth + 1)
        return ("binary", expr.op, left, _structure(expr.right, values, depth + 1))
    if isinstance(expr, Ternary | Elvis | Parens):
        return (type(expr).__name__, *[_structure(child, values, depth + 1) for child in expr.children()])
    if isinstance(expr, Call):
        return ("call", expr.key, *[_structure(child, values, depth + 1) for child in expr.args])
    return ("text", unparse_exact(expr))


class _Rebuilt:
    """Copies a tree with some of its constants replaced, counted as `_structure` meets them."""

    def __init__(self, parameters: dict[int, AttrRef]) -> None:
        self._parameters = parameters
        self._place = 0

    def rebuild(self, expr: Expr, depth: int) -> Expr:
        if depth > _DEEPEST:
            return expr
        if isinstance(expr, Literal):
            if type(expr.value) not in _LIFTED:
                return expr
            found = self._parameters.get(self._place)
            self._place += 1
            return expr if found is None else found
        depth += 1
        if isinstance(expr, Unary):
            return Unary(expr.op, self.rebuild(expr.operand, depth))
        if isinstance(expr, Binary):
            left = self.rebuild(expr.left, depth)
            return Binary(expr.op, left, self.rebuild(expr.right, depth))
        if isinstance(expr, Ternary):
            parts = [self.rebuild(child, depth) for child in expr.children()]
            return Ternary(parts[0], parts[1], parts[2])
        if isinstance(expr, Elvis):
            first = self.rebuild(expr.left, depth)
            return Elvis(first, self.rebuild(expr.right, depth))
        if isinstance(expr, Parens):
            return Parens(self.rebuild(expr.inner, depth))
        if isinstance(expr, Call):
            return Call(expr.name, tuple(self.rebuild(child, depth) for child in expr.args))
        return expr
