"""What a builtin function that evaluates its own arguments may ask of the evaluation it runs in.

A strict function gets the values of its arguments and never sees a context. A lazy one
(`ifThenElse`, `eval`, `unparse`, `countMatches`, ...) gets this context and its argument expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from shared.classad.ad import ClassAd
    from shared.classad.expr import Expr
    from shared.classad.values import Value


class Context(Protocol):
    """One evaluation in progress.

    `my` is the ad whose side is being evaluated (what MY. names), `target` the other ad of a match, `scope`
    the innermost ad around the expression (a nested ad, or `my` itself); each is None where there is none.
    `now` is the moment of the evaluation in seconds since the epoch, the same all through one evaluation.
    """

    my: ClassAd | None
    target: ClassAd | None
    scope: ClassAd | None
    now: float

    def evaluate(self, expr: Expr) -> Value:
        """The value of `expr` at this place; ERROR beyond the depth bound (never RecursionError)."""
        ...

    def evaluate_in(self, expr: Expr, my: ClassAd) -> Value:
        """The value of `expr` with `my` as the ad around it, with the other ad of the match unchanged."""
        ...

    def lookup(self, name: str) -> Expr | None:
        """The expression an unscoped `name` refers to here, unevaluated (scope, MY, then TARGET)."""
        ...
