"""Ranks over a table whose rows have attributes that are expressions, such as the RANK of a slot in a sort key.

A key like `10000000 * MY.Rank - Cpus` would have to be evaluated apart for each RANK text of the pool. Instead the
attribute is evaluated first, as a column: for one job it is mostly a constant in all rows with the same text. Jobs for
which the constants are the same share that column, and with it everything that is made from it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shared.classad.ad import ClassAd
from shared.classad.cells import Cell
from shared.classad.columnar.column import EXACT_LIMIT, OTHER, Column, Vector, constant
from shared.classad.columnar.evaluation import Evaluation
from shared.classad.columnar.frame import Over
from shared.classad.columnar.other_ad import OtherAd
from shared.classad.columnar.plans import Plans, RowSide
from shared.classad.columnar.results import Results
from shared.classad.columnar.terms import Term, places
from shared.classad.columnar.vector import Run
from shared.classad.compiled.plan import COLUMN, CONST, LEFT, RIGHT, Known, Node, Planner, Unplannable
from shared.classad.depth import with_room
from shared.classad.expr import AttrRef, Expr, walk

MAX_COLUMNS: Final = 128  # kept, each some 17 bytes a row
MAX_KNOWN: Final = 10_000  # constants kept of one shape


@dataclass(slots=True)
class _Part:
    """Rows in which an attribute, and all it leads to, has one shape. `names`: what it reads there of the other ad.
    `known`: by what these names hold, the value if it is a constant, else None."""

    shape: dict[str, Expr]
    spans: list[tuple[int, int]]
    names: tuple[str, ...] = ()
    known: dict[tuple[object, ...], Vector | None] = field(default_factory=dict)


@dataclass(slots=True)
class _Made:
    """An attribute as a column of values, and a number that no other such column has. version: of the table, for which
    it was made last or found to hold; lasting: whether it holds at other moments."""

    column: Column
    serial: int
    version: int
    lasting: bool


@dataclass(frozen=True, slots=True)
class _Outer:
    """What an expression reads by itself: `inner`: attributes of the rows that are expressions in some rows; `names` in
    the other ad."""

    inner: tuple[str, ...]
    names: tuple[str, ...]


class _Rows:
    """The rows with values in the place of expressions."""

    def __init__(self, made: dict[str, Column], rest: RowSide) -> None:
        self._made = made
        self._rest = rest

    def attribute(self, key: str) -> Cell | Node | None:
        return Node(COLUMN, key, (), RIGHT) if key in self._made else self._rest.attribute(key)

    def lacks(self, key: str) -> bool:
        return self._rest.lacks(key)


class Ranks:
    """`forget` when the table's layout changes."""

    def __init__(self, plans: Plans, results: Results, evaluation: Evaluation) -> None:
        self._plans = plans
        self._table = plans.table
        self._results = results
        self._evaluation = evaluation
        self._outers: dict[tuple[int, int], _Outer | None] = {}
        self._parts: dict[tuple[str, int], list[_Part] | None] = {}
        self._columns: OrderedDict[tuple[object, ...], _Made] = OrderedDict()
        self._outer_plans: dict[tuple[object, ...], Node] = {}
        self._serial = 0

    def clear(self) -> None:
        """Forget what was evaluated."""
        self._columns.clear()

    def forget(self) -> None:
        """Rows have other places, or other shapes."""
        self._outers.clear()
        self._parts.clear()
        self._columns.clear()
        self._outer_plans.clear()

    def pass_on(self) -> None:
        """Forget what holds at one moment only."""
        for key in [key for key, made in self._columns.items() if not made.lasting]:
            del self._columns[key]

    def values(self, term: Term, ad: OtherAd) -> NDArray[np.float64] | None:
        """(rows,) float64: the value of a root as a rank; None if it has to be found in another way."""
        plans = self._plans
        if self._table.special:
            return None
        if term.attribute is not None:
            made = self._column(term.attribute, ad)
            if made is None:
                return None
            number = made.column.number
            return self._results.keep(
                (made.serial, id(term)), lambda: np.where(np.isnan(number), term.nothing, number), (), made.lasting
            )
        found = self._found(term, ad)
        if found is None:
            return None
        outer, columns, serials = found

        def work() -> NDArray[np.float64]:
            plan = self._outer_plan(term, ad, columns)
            table = self._table
            now, patience = self._evaluation.now, self._evaluation.patience
            run = Run(Over(columns, table.columns), table.codes, 0, len(table), now, patience)
            return run.numbers(plan, term.nothing)

        needs = plans.need(term, ad)
        key = (id(term), *serials, plans.epoch_of(term, ad), *map(ad.digest, outer.names))
        try:
            return self._results.keep(key, lambda: with_room(work), needs.columns, needs.lasting)
        except Unplannable:
            self._outers[id(term), ad.shape] = None
            return None

    def apart(self, term: Term, ad: OtherAd) -> tuple[Node, dict[str, Column]] | None:
        """For who evaluates a root over rows of his own: its plan, and the columns in which it has the place of
        expressions. None if that is not possible, or if one of these columns changes."""
        plans = self._plans
        if self._table.special or term.attribute is not None:
            return None
        found = self._found(term, ad)
        if found is None:
            return None
        outer, columns, _ = found
        if any(plans.epoch_of(plans.root_of(name), ad) for name in outer.inner):
            return None
        key = (id(term), *map(ad.digest, outer.names))
        plan = self._outer_plans.get(key)
        if plan is None:
            try:
                plan = self._outer_plans[key] = with_room(lambda: self._outer_plan(term, ad, columns))
            except Unplannable:
                return None
        return plan, columns

    def _found(self, term: Term, ad: OtherAd) -> tuple[_Outer, dict[str, Column], list[int]] | None:
        known = (id(term), ad.shape)
        if known not in self._outers:
            self._outers[known] = self._look(term, ad)
        outer = self._outers[known]
        if outer is None:
            return None
        columns: dict[str, Column] = {}
        serials = []
        for name in outer.inner:
            made = self._column(name, ad)
            if made is None:
                return None
            columns[name] = made.column
            serials.append(made.serial)
        return outer, columns, serials

    def _outer_plan(self, term: Term, ad: OtherAd, columns: dict[str, Column]) -> Node:
        return Planner(Known(ad.ad), _Rows(columns, RowSide(self._table, {}))).plan(term.expr, term.side)

    def _look(self, term: Term, ad: OtherAd) -> _Outer | None:
        table = self._table
        if not self._plans.need(term, ad).steady:
            return None
        inner: set[str] = set()
        names: set[str] = set()
        seen: set[tuple[int, int]] = set()
        todo: list[tuple[Expr, int]] = [(term.expr, term.side)]
        while todo:
            expr, side = todo.pop()
            if (id(expr), side) in seen:
                continue
            seen.add((id(expr), side))
            for node in walk(expr):
                if not isinstance(node, AttrRef):
                    continue
                for place in places(node, side):
                    if place == RIGHT:
                        if table.columns[node.key].tags & (1 << OTHER):
                            inner.add(node.key)
                    elif node.key not in names:
                        names.add(node.key)
                        cell = ad.ad.find(node.key)
                        if isinstance(cell, Expr):
                            todo.append((cell, LEFT))
        # An attribute that leads back to an expression of the other ad that leads to it is another thing alone.
        between = {name for name in names if isinstance(ad.ad.find(name), Expr)}
        plans = self._plans
        if any(not between.isdisjoint(plans.need(plans.root_of(key), ad).names) for key in inner):
            return None
        return _Outer(tuple(sorted(inner)), tuple(sorted(names))) if inner else None

    def _column(self, key: str, ad: OtherAd) -> _Made | None:
        """The attribute `key` of the rows as values, as this ad makes them."""
        plans = self._plans
        if (key, ad.shape) not in self._parts:
            self._parts[key, ad.shape] = self._part(key, ad)
        parts = self._parts[key, ad.shape]
        if parts is None:
            return None
        values: list[Vector | None] = []
        sign: list[object] = [key, plans.epoch_of(plans.root_of(key), ad)]
        for part in parts:
            digests = tuple(map(ad.digest, part.names))
            if digests not in part.known:
                if len(part.known) > MAX_KNOWN:
                    part.known.clear()
                part.known[digests] = self._constant(key, part, ad.ad)
            value = part.known[digests]
            values.append(value)
            sign.append(digests if value is None else (value.tags, repr(value.number), value.code))
        needs = plans.need(plans.root_of(key), ad)
        version = self._table.version
        made = self._columns.get(tuple(sign))
        if made is not None and made.version != version:
            changed = self._table.changed_rows(needs.columns, made.version)
            if changed is None or len(changed):
                made = None
            else:
                made.version = version
        if made is None:
            try:
                column = self._make(key, parts, values, ad.ad)
            except Unplannable:
                self._parts[key, ad.shape] = None
                return None
            self._serial += 1
            made = self._columns[tuple(sign)] = _Made(column, self._serial, version, needs.lasting)
            if len(self._columns) > MAX_COLUMNS:
                self._columns.popitem(last=False)
        else:
            self._columns.move_to_end(tuple(sign))
        return made

    def _is_circular(self, key: str, ad: OtherAd) -> bool:
        """Whether an attribute leads to itself: then it is another thing by itself than inside something."""
        side = self._table
        todo = list(side.expressions(key))
        seen: set[str] = set()
        while todo:
            for name in side.names(todo.pop()) - seen:
                if name == key:
                    return True
                seen.add(name)
                if name in side.columns:
                    todo += side.expressions(name)
                cell = ad.ad.find(name)
                if isinstance(cell, Expr):
                    todo.append(cell)
        return False

    def _part(self, key: str, ad: OtherAd) -> list[_Part] | None:
        plans, table = self._plans, self._table
        term = plans.root_of(key)
        shapes = plans.need(term, ad).shapes
        if not plans.need(term, ad).steady or not table.shape(shapes) or self._is_circular(key, ad):
            return None
        parts: dict[tuple[tuple[str, int], ...], _Part] = {}
        for each in table.stretches(shapes):
            if key in each.shape:
                number = tuple((name, id(expr)) for name, expr in each.shape.items())
                part = parts.get(number)
                if part is None:
                    part = parts[number] = _Part(each.shape, [], self._names(each.shape[key], each.shape, ad.ad))
                part.spans.append((each.start, each.stop))
        return list(parts.values())

    def _names(self, expr: Expr, shape: dict[str, Expr], ad: ClassAd) -> tuple[str, ...]:
        names: set[str] = set()
        seen: set[tuple[int, int]] = set()
        todo: list[tuple[Expr, int]] = [(expr, RIGHT)]
        while todo:
            expr, side = todo.pop()
            if (id(expr), side) in seen:
                continue
            seen.add((id(expr), side))
            for node in walk(expr):
                if isinstance(node, AttrRef):
                    for place in places(node, side):
                        if place == RIGHT:
                            cell: object = shape.get(node.key)
                        else:
                            names.add(node.key)
                            cell = ad.find(node.key)
                        if isinstance(cell, Expr):
                            todo.append((cell, place))
        return tuple(sorted(names))

    def _constant(self, key: str, part: _Part, ad: ClassAd) -> Vector | None:
        try:
            plan = self._plan(key, part, ad)
            return constant(plan.value, self._table.codes) if plan.op == CONST else None  # type: ignore[arg-type]
        except Unplannable:
            return None

    def _plan(self, key: str, part: _Part, ad: ClassAd) -> Node:
        side = RowSide(self._table, part.shape)
        return with_room(lambda: Planner(Known(ad), side).plan(part.shape[key], RIGHT))

    def _make(self, key: str, parts: list[_Part], values: list[Vector | None], ad: ClassAd) -> Column:
        table = self._table
        base = table.columns[key]
        if base.exact is not None:
            raise Unplannable("integers of 2^53 and beyond")
        column = Column(base.tag.copy(), base.number.copy(), base.code.copy(), base.folded.copy(), None, 0)
        for part, value in zip(parts, values, strict=True):
            plan = None if value is not None else self._plan(key, part, ad)
            for start, stop in part.spans:
                vector = value
                if vector is None:
                    assert plan is not None
                    vector = Run(table.columns, table.codes, start, stop, self._evaluation.now).vector(plan)
                _write(column, start, stop, vector)
        column.count()
        return column


def _write(column: Column, start: int, stop: int, vector: Vector) -> None:
    exact: Any = vector.exact
    if isinstance(exact, np.ndarray) or (isinstance(exact, int) and not -EXACT_LIMIT < exact < EXACT_LIMIT):
        raise Unplannable("integers of 2^53 and beyond")
    column.tag[start:stop] = vector.tag
    column.number[start:stop] = vector.number
    column.code[start:stop] = vector.code
    column.folded[start:stop] = vector.folded
