"""What an explanation wants to know of a condition: what it reads, and whether it is a bound on something."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from shared.classad.columnar import OTHER_SIDE
from shared.classad.depth import with_room
from shared.classad.expr import (
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
    walk,
)

_OWN: Final = frozenset(("my", "self"))
_TARGET: Final = frozenset(("target", "other"))
#: An operator as seen from the other operand.
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "=?=": "=?="}
_BOUNDS: Final = frozenset(("<", "<=", ">", ">="))
MAX_DEPTH: Final = 500  # levels of a tree; what lies below is left as it is

#: Whether the job has an attribute of that (folded) name.
Has = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Reads:
    """Folded names that a condition reads in the job and in the slot."""

    job: frozenset[str]
    slot: frozenset[str]


@dataclass(frozen=True, slots=True)
class Bound:
    """`attribute op value`: what a job asks for, bounded by an expression over the slot alone."""

    attribute: str  # folded
    op: str  # <, <=, > or >=
    value: Expr


@dataclass(frozen=True, slots=True)
class Comparison:
    """`slot op constant`: an expression over the slot alone, compared with a constant."""

    slot: Expr
    op: str  # <, <=, >, >=, == or =?=
    constant: Literal


def bare(expr: Expr) -> Expr:
    """Without parentheses around it."""
    while isinstance(expr, Parens):
        expr = expr.inner
    return expr


def in_slot(node: AttrRef, side: int, job_has: Has) -> bool:
    """Whether a name in a condition on that side is the slot's. One without a scope is the condition's own side's, or
    the other's where that has none; which is told by the job alone."""
    scope = node.scope
    if isinstance(scope, AttrRef) and scope.scope is None:
        if scope.key in _OWN:
            return side != OTHER_SIDE
        if scope.key in _TARGET:
            return side == OTHER_SIDE
    return not (side == OTHER_SIDE and job_has(node.key))


def reads(expr: Expr, side: int, job_has: Has) -> Reads:
    """What an expression reads."""
    job: set[str] = set()
    slot: set[str] = set()
    todo = [expr]
    while todo:
        node = todo.pop()
        if not isinstance(node, AttrRef):
            todo.extend(node.children())
            continue
        (slot if in_slot(node, side, job_has) else job).add(node.key)
        if node.scope is not None and not (isinstance(node.scope, AttrRef) and node.scope.key in _OWN | _TARGET):
            todo.append(node.scope)
    return Reads(frozenset(job), frozenset(slot))


def bound(expr: Expr, side: int, job_has: Has) -> Bound | None:
    """The bound that a condition is, if it is one: `TARGET.Memory >= RequestMemory` on the job's side, or
    `(TARGET.RequestCpus ?: 1) <= MY.Cpus` on the slot's."""
    expr = bare(expr)
    if not isinstance(expr, Binary) or expr.op not in _BOUNDS:
        return None
    for asked, value, op in ((expr.left, expr.right, expr.op), (expr.right, expr.left, _TURNED[expr.op])):
        name = _asked(asked, side, job_has)
        if name is not None and not reads(value, side, job_has).job:
            return Bound(name, op, value)
    return None


def _asked(expr: Expr, side: int, job_has: Has) -> str | None:
    """The job's attribute that an expression is, perhaps with a default."""
    expr = bare(expr)
    if isinstance(expr, Elvis) and isinstance(bare(expr.right), Literal):
        expr = bare(expr.left)
    if not isinstance(expr, AttrRef) or in_slot(expr, side, job_has):
        return None
    # Without a scope, on the slot's side, the slot's own attribute comes first.
    return expr.key if expr.scope is not None or side == OTHER_SIDE else None


def comparison(expr: Expr, side: int, job_has: Has) -> Comparison | None:
    """The comparison with a constant that a condition is, if it is one."""
    expr = bare(expr)
    if not isinstance(expr, Binary) or expr.op not in _TURNED:
        return None
    for slot, constant, op in ((expr.left, expr.right, expr.op), (expr.right, expr.left, _TURNED[expr.op])):
        constant = _constant(constant)
        found = reads(slot, side, job_has)
        if isinstance(constant, Literal) and found.slot and not found.job:
            return Comparison(bare(slot), op, constant)
    return None


def _constant(expr: Expr) -> Expr:
    expr = bare(expr)
    if isinstance(expr, Unary) and expr.op == "-":
        inner = bare(expr.operand)
        if isinstance(inner, Literal) and type(inner.value) in (int, float):
            return Literal(-inner.value)  # type: ignore[operator]  # a number
    return expr


def renamed(expr: Expr, names: dict[str, str], side: int, job_has: Has) -> Expr:
    """The expression with some of the slot's attributes (folded name -> other name) called otherwise; the same object
    where it reads none of them."""
    if not any(isinstance(node, AttrRef) and node.key in names for node in walk(expr)):
        return expr

    def change(node: AttrRef) -> Expr:
        name = names.get(node.key)
        if name is None or not in_slot(node, side, job_has):
            return node
        return AttrRef(name, node.scope, node.absolute)

    return with_room(lambda: _rewrite(expr, change, 0))


def _rewrite(expr: Expr, change: Callable[[AttrRef], Expr], depth: int) -> Expr:
    depth += 1
    if depth > MAX_DEPTH:
        return expr
    if isinstance(expr, AttrRef):
        return change(expr)

    def below(nodes: Iterable[Expr]) -> list[Expr]:
        return [_rewrite(node, change, depth) for node in nodes]

    if isinstance(expr, Binary):
        return Binary(expr.op, *below((expr.left, expr.right)))
    if isinstance(expr, Parens):
        return Parens(*below((expr.inner,)))
    if isinstance(expr, Unary):
        return Unary(expr.op, *below((expr.operand,)))
    if isinstance(expr, Elvis):
        return Elvis(*below((expr.left, expr.right)))
    if isinstance(expr, Ternary):
        return Ternary(*below((expr.condition, expr.then, expr.otherwise)))
    if isinstance(expr, Call):
        return Call(expr.name, tuple(below(expr.args)))
    if isinstance(expr, ListExpr):
        return ListExpr(tuple(below(expr.items)))
    if isinstance(expr, Subscript):
        return Subscript(*below((expr.base, expr.index)))
    return expr


def all_of(exprs: Iterable[Expr]) -> Expr:
    """Their conjunction; true if there are none."""
    whole: Expr | None = None
    for expr in exprs:
        whole = expr if whole is None else Binary("&&", whole, expr)
    return Literal(True) if whole is None else whole
