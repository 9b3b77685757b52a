"""An expression taken apart into numbered conditions, as `q -better-analyze` shows them: how many ads of the other side
satisfy each, and which of them say nothing new.

A condition is a comparison, what stands beside `&&` and `||`, or what stands in parentheses. `!` is looked through, as
HTCondor does: the count is that of what is negated. What no attribute of the other side decides is always or never
true, and what it makes idle is left out; so is a part of `&&` that rejects nothing which its other part would accept,
and a part of `||` that adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from shared.classad import ClassAd, evaluate, references, unparse
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
    fold,
)

_COMPARISONS: Final = frozenset(("==", "!=", "=?=", "=!=", "<", "<=", ">", ">="))
_LOGIC: Final = ("&&", "||")
INLINE: Final = ("START", "WithinResourceLimits")  # a slot's attributes whose conditions count as those of Requirements
_NOW: Final = "currenttime"


@dataclass(slots=True)
class Step:
    """One condition.

    parts: numbers of the conditions that it is made of. constant: what it is for every ad, None where that depends;
    fleeting: it may be so only now; touched: some part of it tells the time. same_as: number of the condition that says
    the same. idle: it makes no difference. marked: its text tells which parts are constant.
    """

    expr: Expr
    op: str = ""
    parts: tuple[int, ...] = ()
    constant: bool | None = None
    same_as: int = -1
    fleeting: bool = False
    touched: bool = False
    idle: bool = False
    marked: bool = False
    matched: int = 0


class Conditions:
    """The conditions of one expression of one ad, counted over the ads of the other side."""

    def __init__(self, expr: Expr, ad: ClassAd, others: Sequence[ClassAd], inline: Sequence[str] = ()) -> None:
        """inline: attributes of the ad that are taken apart where they are named."""
        self._ad, self._others = ad, others
        self._inline = {fold(name): found for name in inline if (found := ad.lookup(name)) is not None}
        self.steps: list[Step] = []
        if self._take(expr, False) < 0:
            self._put(Step(expr))
        for step in self.steps:
            if step.op:
                self._fold(step)
                continue
            step.touched = _tells_time(step.expr)
            if not references(step.expr, my=ad).external:
                step.constant = evaluate(step.expr, ad) is True
                step.fleeting = step.touched
        for step in self.steps:
            if step.op:
                meant = tuple(self._meant(part) for part in step.parts)
                step.marked = meant == step.parts
                step.parts = meant
        for step in self.steps:
            if step.idle or step.same_as >= 0 or step.constant is not None:
                continue
            step.matched = sum(evaluate(step.expr, ad, other) is True for other in others)
            if step.op:
                self._compare(step)

    def rows(self) -> Iterator[tuple[int, str, str]]:
        """(number, how many satisfy it, the condition) of those that say something."""
        for number, step in enumerate(self.steps):
            if step.idle or step.same_as >= 0:
                continue
            if step.fleeting:
                count = "now" if step.constant else "not now"
            else:
                count = str(step.matched) if step.constant is None else "always" if step.constant else "never"
            yield number, count, self._text(step)

    def _text(self, step: Step) -> str:
        if not step.op:
            return unparse(step.expr)
        left, right = (f"[{part}]" + (self._mark(part) if step.marked else "") for part in step.parts)
        return f"{left} {step.op} {right}"

    def _mark(self, number: int) -> str:
        constant = self.steps[number].constant
        mark = "" if constant is None else "T" if constant else "F"
        return mark.lower() if self.steps[number].fleeting else mark

    # --- taking apart

    def _put(self, step: Step) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def _take(self, expr: Expr, wanted: bool) -> int:
        """The number of an expression among the conditions, -1 if it is none. wanted: it is one in any case."""
        op = expr.op if isinstance(expr, Binary) else ""
        logic = op in _LOGIC
        inside = logic or isinstance(expr, Parens) or (isinstance(expr, Unary) and expr.op == "!")
        parts: list[int] = []
        if isinstance(expr, Binary | Unary | Ternary | Elvis | Parens | Subscript):
            parts = [self._take(child, inside) for child in expr.children()]
        elif isinstance(expr, AttrRef) and expr.scope is not None and not expr.absolute:
            parts = [self._take(expr.scope, False)]
        elif isinstance(expr, AttrRef) and expr.scope is None and expr.key in self._inline:
            found = self._inline.pop(expr.key)  # it may name itself
            parts = [self._take(found, False)]
            self._inline[expr.key] = found
        if len(parts) == 1 and parts[0] >= 0:
            return parts[0]
        if logic:  # both of its parts are conditions, whatever they are
            parts = [
                number if number >= 0 else self._put(Step(child))
                for number, child in zip(parts, expr.children(), strict=True)
            ]
        if not (wanted or logic or op in _COMPARISONS) or self._is_default(_bare(expr)):
            return -1
        return self._put(Step(expr, op if logic else "", tuple(parts)))

    def _is_default(self, expr: Expr) -> bool:
        """Whether it is an attribute of the ad itself with a constant for where there is none: no condition at all."""
        if not isinstance(expr, Elvis):
            return False
        left, right = _bare(expr.left), _bare(expr.right)
        if isinstance(right, Unary) and right.op in ("-", "+"):
            right = right.children()[0]
        if not isinstance(left, AttrRef) or not isinstance(right, Literal):
            return False
        if left.scope is None:
            return left.key in self._ad
        return isinstance(left.scope, AttrRef) and left.scope.scope is None and left.scope.key == "my"

    # --- what is decided without the other side

    def _fold(self, step: Step) -> None:
        left, right = step.parts
        one, two = self.steps[left], self.steps[right]
        decides = step.op == "||"  # the value of a part that decides the whole
        step.touched = one.touched or two.touched
        step.fleeting = one.fleeting or two.fleeting
        for part, other in ((left, right), (right, left)):
            if self.steps[part].constant is decides:
                step.constant = decides
                if decides:
                    step.fleeting = one.fleeting and two.fleeting
                hard = not self.steps[part].fleeting
                if decides and self.steps[other].constant is False:
                    hard = hard or not self.steps[other].fleeting
                return self._only(step, part, other, hard)
        if one.constant is not None and two.constant is not None:
            step.constant = not decides
            return None
        step.fleeting = False
        for part, other in ((left, right), (right, left)):
            if self.steps[part].constant is not None:
                return self._only(step, other, part, not (self.steps[part].fleeting if decides else step.touched))
        return None

    def _only(self, step: Step, part: int, other: int, hard: bool = True) -> None:
        """A condition comes to one of its parts; the other is idle, unless that is so only now."""
        step.same_as = self._meant(part)
        if hard:
            self._drop(other)

    def _meant(self, number: int) -> int:
        same = self.steps[number].same_as if number >= 0 else -1
        return number if same < 0 else same

    def _drop(self, number: int) -> None:
        if number < 0:
            return
        self.steps[number].idle = True
        for part in self.steps[number].parts:
            self._drop(part)

    # --- what the counts say

    def _compare(self, step: Step) -> None:
        left, right = step.parts
        a, b, both = self.steps[left].matched, self.steps[right].matched, step.matched
        if step.op == "||":
            every = len(self._others)
            for part, other, only in ((left, right, a == every or a > b == 0), (right, left, b == every or b > a == 0)):
                if only:
                    self._only(step, part, other)
                    break
            step.parts = (self._meant(left), self._meant(right))
            return
        if 0 in (a, b):
            step.same_as = self._meant(left if a == 0 else right)
        else:
            step.parts = (self._meant(left), self._meant(right))
        for part, mine, other, theirs in ((left, a, right, b), (right, b, left, a)):
            if mine == both:
                step.same_as = self._meant(part)
                if theirs > both:
                    self.steps[other].idle = True
                return


def _bare(expr: Expr) -> Expr:
    """It without parentheses around it."""
    while isinstance(expr, Parens):
        expr = expr.children()[0]
    return expr


def _tells_time(expr: Expr) -> bool:
    """Whether an expression names the time itself, not by an attribute that does."""
    if isinstance(expr, AttrRef) and expr.scope is None:
        return expr.key == _NOW
    if isinstance(expr, Call | ListExpr | AdExpr):
        return isinstance(expr, Call) and expr.key == "time"
    return any(_tells_time(child) for child in expr.children())
