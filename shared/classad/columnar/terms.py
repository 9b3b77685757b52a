"""What is asked of a table's rows: expressions as terms, and what each of them can read.

A term is an expression with the side of a match on which it stands. Terms are compared by identity: `Plans` makes one
object for one thing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from shared.classad.ad import ClassAd
from shared.classad.cells import Cell
from shared.classad.columnar.column import Mask
from shared.classad.columnar.shapes import HIDDEN
from shared.classad.columnar.table import Stretch
from shared.classad.compiled.plan import LEFT, RIGHT
from shared.classad.expr import CURRENT_TIME, AttrRef, Expr, Literal
from shared.classad.unparse import unparse

OTHER_SIDE: Final = LEFT  # the ad that meets the table: the job
ROW_SIDE: Final = RIGHT
#: In the place of the other ad, for an expression that needs none.
NOBODY: Final = ClassAd()
_OWN: Final = frozenset(("my", "self"))
_TARGET: Final = frozenset(("target", "other"))
_SPECIAL: Final = _OWN | _TARGET | {"parent", "root", "toplevel", CURRENT_TIME}
_HIDDEN_CONSTANT: Final = re.compile(rf"MY\.'{HIDDEN}[^']*'")

Marks: TypeAlias = "frozenset[tuple[int, str]]"


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """An expression to evaluate over rows: where it stands, and inside which attributes (see Planner.plan). A term with
    an `attribute` is that attribute of each row itself; its expr is the name. As a rank it is `nothing` where its value
    is no number (or NaN)."""

    expr: Expr
    side: int
    marks: Marks = frozenset()
    depth: int = 0
    attribute: str | None = None
    nothing: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Conjunct:
    """One of the conditions that must all be true for a match, over the rows start to stop: what stands in some rows'
    policies only, or reads attributes that are expressions in some rows, comes once for each stretch of rows.

    `side`: OTHER_SIDE for the job's Requirements, ROW_SIDE for the rows'. `text`: the condition, for people; `...` is a
    constant that differs from row to row. `mask`: (stop - start,) bool, where it is true; read-only. `expr`: the
    condition, to ask more about on that side of this Matching; None where it is known by its result only.
    """

    side: int
    text: str
    start: int
    stop: int
    mask: Mask
    expr: Expr | None = None


@dataclass(frozen=True, slots=True)
class Needs:
    """What a term can read: names in the other ad (in order), columns, and those columns that are expressions."""

    names: tuple[str, ...]
    columns: tuple[str, ...]
    shapes: tuple[str, ...]
    steady: bool  # whether that is all and always gives the same
    number: int  # the same for the same names
    live: bool  # whether one of the columns changes while results are kept
    lasting: bool  # whether it gives the same at another moment, and no column is a replaced one


#: Stretches of rows (None: all) with the terms that must be true there.
Plan: TypeAlias = "list[tuple[Stretch | None, tuple[tuple[Term, Needs], ...]]]"


def expression(cell: Cell) -> Expr:
    return cell if isinstance(cell, Expr) else Literal(cell)


@lru_cache(maxsize=10_000)
def text(term: Term) -> str:
    """A term for people."""
    if term.attribute is not None:
        return term.attribute.capitalize()
    text = unparse(term.expr, "old")
    return _HIDDEN_CONSTANT.sub("...", text) if HIDDEN in text else text


def places(node: AttrRef, side: int) -> tuple[int, ...]:
    """On which sides a name may be looked up."""
    if isinstance(node.scope, AttrRef):
        word = _word(node.scope)
        if word in _OWN:
            return (side,)
        if word in _TARGET:
            return (1 - side,)
    return LEFT, RIGHT


def own_attribute(term: Term) -> str | None:
    """The attribute of the row that a term is nothing but the name of."""
    expr = term.expr
    if term.side != ROW_SIDE or not isinstance(expr, AttrRef) or expr.absolute or expr.key in _SPECIAL:
        return None
    scope = expr.scope
    own = scope is None or (isinstance(scope, AttrRef) and _word(scope) in _OWN)
    return expr.key if own else None


def _word(scope: AttrRef) -> str:
    return "" if scope.scope is not None or scope.absolute else scope.key
