"""Plans of questions over a table: what a term reads, which conditions it is made of, and how it is evaluated."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from shared.classad.ad import ClassAd
from shared.classad.cells import Cell
from shared.classad.columnar.column import ABSENT, OTHER
from shared.classad.columnar.frame import Frame
from shared.classad.columnar.other_ad import Numbers, OtherAd
from shared.classad.columnar.table import Table
from shared.classad.columnar.terms import (
    OTHER_SIDE,
    ROW_SIDE,
    Marks,
    Needs,
    Plan,
    Term,
    expression,
    own_attribute,
    places,
)
from shared.classad.compiled.plan import COLUMN, Known, Node, Planner
from shared.classad.depth import with_room
from shared.classad.expr import CURRENT_TIME, AttrRef, Binary, Call, Expr, Literal, Parens, Subscript, walk
from shared.classad.values import UNDEFINED

MAX_CONJUNCTS: Final = 200  # of one condition; what is beyond stays together
MAX_KNOWN: Final = 100_000  # expressions, shapes of ads, and plans
REQUIREMENTS: Final = AttrRef("Requirements", AttrRef("MY"))
# Calls that give another value at another moment, or when a map or the configuration was read anew.
_OF_THE_MOMENT: Final = frozenset(("time", "usermap", "userhome"))
# Calls that give another value every time, or that read names which can not be seen.
_UNSTEADY: Final = frozenset(
    ("random", "debug", "eval", "unparse", "unresolved", "evalineachcontext", "countmatches")
) | {"currenttime", "daytime", "timezoneoffset", "abstime", "formattime"}
_NOTHING: Final = Literal(UNDEFINED)


class RowSide:
    """The rows of a stretch as a side of a plan."""

    def __init__(self, table: Table | Frame, shape: dict[str, Expr]) -> None:
        self._table = table
        self._shape = shape

    def attribute(self, key: str) -> Cell | Node | None:
        found = self._shape.get(key)
        if found is not None:
            return found
        return None if self._table.columns[key].tags == 1 << ABSENT else Node(COLUMN, key, (), ROW_SIDE)

    def lacks(self, key: str) -> bool:
        return not self._table.special


class Plans:
    """Kept for as long as the table's columns mean the same, and `splits` for as long as its rows keep their places.
    The same term is one object."""

    def __init__(self, table: Table | Frame, numbers: Numbers) -> None:
        self.table: Final = table
        self._numbers = numbers
        self._roots: dict[tuple[int, int, str | None, float | None], Term] = {}
        self._inner: dict[tuple[int, int, Marks, int], Term] = {}
        self._attributes: dict[str, Term] = {}
        self._splits: dict[tuple[int, int], Plan] = {}
        self._needs: dict[tuple[int, int], Needs] = {}
        self._nodes: dict[tuple[object, ...], tuple[Node, tuple[Expr, ...]]] = {}

    @property
    def full(self) -> bool:
        """Whether so much is known that it is better to begin again."""
        return max(len(self._numbers), len(self._inner)) > MAX_KNOWN

    def forget(self, *, meaning: bool) -> None:
        """Rows have other places; `meaning`: their columns mean something else, too."""
        self._splits.clear()
        if meaning:
            self._needs.clear()
            self._nodes.clear()

    def root(self, expr: Expr, side: int, attribute: str | None = None, nothing: float = 0.0) -> Term:
        key = (self._numbers.of_expr(expr), side, attribute, None if math.isnan(nothing) else nothing)
        known = self._roots.get(key)
        if known is None:
            known = self._roots[key] = Term(expr, side, attribute=attribute, nothing=nothing)
        return known

    def root_of(self, key: str) -> Term:
        """The term of an attribute of the rows."""
        known = self._attributes.get(key)
        if known is None:
            known = self._attributes[key] = self.root(AttrRef(key, AttrRef("MY")), ROW_SIDE, key)
        return known

    def sides(self, job: ClassAd) -> tuple[Term, Term]:
        """The Requirements of a job that has some, and those of the rows."""
        own = job.find("requirements")
        assert own is not None
        return self.root(expression(own), OTHER_SIDE), self.root(REQUIREMENTS, ROW_SIDE, "requirements")

    def need(self, term: Term, ad: OtherAd) -> Needs:
        needs = self._needs.get((id(term), ad.shape))
        if needs is None:
            needs = self._needs[id(term), ad.shape] = self._look_through(term, ad.ad)
        return needs

    def epoch_of(self, term: Term, ad: OtherAd) -> int:
        """A number that changes with the rows as far as a root reads them."""
        return self.table.epoch if self.need(term, ad).live else 0

    def node(self, term: Term, needs: Needs, ad: OtherAd, shape: dict[str, Expr]) -> Node:
        """The plan of a term, in rows of this shape. Kept for as long as the columns mean the same. Raises
        Unplannable."""
        parts = tuple((name, id(expr)) for name, expr in shape.items())
        key = (id(term), parts, ad.sign(needs))
        known = self._nodes.get(key)
        if known is None:
            if len(self._nodes) > MAX_KNOWN:
                self._nodes.clear()
            expr = term.expr
            if term.attribute is not None and not self.table.special:
                expr = shape.get(term.attribute, expr)

            def make() -> Node:
                return Planner(Known(ad.ad), RowSide(self.table, shape)).plan(expr, term.side, term.depth, term.marks)

            # With the expressions, so that no other gets the identity of one of them.
            known = self._nodes[key] = (with_room(make), tuple(shape.values()))
        return known[0]

    def plan(self, term: Term, ad: OtherAd) -> Plan:
        plan = self._splits.get((id(term), ad.shape))
        if plan is None:
            plan = self._splits[id(term), ad.shape] = self._split(term, ad)
        return plan

    def _split(self, term: Term, ad: OtherAd) -> Plan:
        """First what is the same in all rows, then stretch by stretch what is not."""
        needs = self.need(term, ad)
        if not needs.steady:
            return [(None, ((term, needs),))]  # random numbers are drawn once for each row
        if not needs.shapes or not self.table.shape(needs.shapes):
            return [(None, self._with_needs(self.conjuncts(term, {}), ad))]
        stretches = self.table.stretches(needs.shapes)
        split = [(stretch, self._with_needs(self.conjuncts(term, stretch.shape), ad)) for stretch in stretches]
        rows: dict[int, int] = {}
        for stretch, terms in split:
            for number in {id(each) for each, its in terms if not its.shapes}:
                rows[number] = rows.get(number, 0) + stretch.stop - stretch.start
        common = {number for number, count in rows.items() if count == len(self.table)}
        first = {id(pair[0]): pair for _, terms in split for pair in terms if id(pair[0]) in common}
        plan: Plan = [(None, tuple(first.values()))]
        for stretch, terms in split:
            rest = tuple(pair for pair in terms if id(pair[0]) not in common)
            if rest:
                plan.append((stretch, rest))
        return plan

    def _with_needs(self, terms: Iterable[Term], ad: OtherAd) -> tuple[tuple[Term, Needs], ...]:
        return tuple((each, self.need(each, ad)) for each in terms)

    def conjuncts(self, term: Term, shape: dict[str, Expr]) -> tuple[Term, ...]:
        """The terms of which all must be true; attributes of the rows are followed into."""
        done: list[Term] = []
        todo = [term]
        while todo:
            each = todo.pop()
            expr = each.expr
            if len(done) + len(todo) > MAX_CONJUNCTS or each.depth > MAX_CONJUNCTS:
                done.append(each)
            elif isinstance(expr, Parens):
                todo.append(self._below(each, expr.inner, each.marks))
            elif isinstance(expr, Binary) and expr.op == "&&":
                todo.append(self._below(each, expr.right, each.marks))
                todo.append(self._below(each, expr.left, each.marks))
            else:
                key = each.attribute or own_attribute(each)
                inner = None if key is None or self.table.special else shape.get(key)
                if inner is None or key is None:
                    done.append(each)
                elif each.attribute is not None:
                    todo.append(self._below(each, inner, each.marks))  # the evaluation starts here, inside no attribute
                elif (ROW_SIDE, key) in each.marks:
                    todo.append(self._below(each, _NOTHING, each.marks))
                else:
                    todo.append(self._below(each, inner, each.marks | {(ROW_SIDE, key)}))
        return tuple(dict.fromkeys(done))

    def _below(self, term: Term, expr: Expr, marks: Marks) -> Term:
        """The same object for the same thing, as terms are compared by identity."""
        key = (self._numbers.of_expr(expr), term.side, marks, term.depth + 1)
        known = self._inner.get(key)
        if known is None:
            known = self._inner[key] = Term(expr, term.side, marks, term.depth + 1)
        return known

    def _look_through(self, term: Term, ad: ClassAd) -> Needs:
        names: set[str] = set()
        columns: set[str] = set()
        steady = lasting = True
        seen: set[tuple[int, int]] = set()
        todo: list[tuple[Expr, int]] = [(term.expr, term.side)]
        while todo:
            expr, side = todo.pop()
            if (id(expr), side) in seen:
                continue
            seen.add((id(expr), side))
            found: list[tuple[int, str]] = []
            for node in walk(expr):
                if isinstance(node, AttrRef):
                    found.extend((place, node.key) for place in places(node, side))
                    lasting = lasting and node.key != CURRENT_TIME
                elif isinstance(node, Subscript) or (isinstance(node, Call) and node.key in _UNSTEADY):
                    steady = False
                elif isinstance(node, Call) and node.key in _OF_THE_MOMENT:
                    lasting = False
            self.table.want(key for place, key in found if place == ROW_SIDE)
            for place, key in found:
                if place == ROW_SIDE:
                    if key not in columns:
                        columns.add(key)
                        todo.extend((each, ROW_SIDE) for each in self.table.expressions(key))
                elif key not in names:
                    names.add(key)
                    cell = ad.find(key)
                    if isinstance(cell, Expr):
                        todo.append((cell, OTHER_SIDE))
        shapes = tuple(sorted(key for key in columns if self.table.columns[key].tags & (1 << OTHER)))
        order = tuple(sorted(names))
        number = self._numbers.of(("names", order))
        live = not self.table.live.isdisjoint(columns)
        lasting = lasting and steady and not live and columns.isdisjoint(self.table.replaced)
        return Needs(order, tuple(sorted(columns)), shapes, steady, number, live, lasting)
