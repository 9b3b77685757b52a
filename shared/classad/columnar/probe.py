"""Probe: some rows of a table as they would stand if their live columns held other values.

Who carves a machine asks what it looks like after one job, after two, after three: the same row in several states, each
a line of a probe. Only what reads live columns is evaluated; the rest does not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.classad.ad import ClassAd
from shared.classad.columnar.column import BOOL, REAL, STRING, Column, Floats, Mask
from shared.classad.columnar.evaluation import Evaluation
from shared.classad.columnar.frame import Over
from shared.classad.columnar.other_ad import OtherAd, OtherAds
from shared.classad.columnar.plans import Plans
from shared.classad.columnar.ranks import Ranks
from shared.classad.columnar.results import between
from shared.classad.columnar.terms import Needs, Term
from shared.classad.columnar.vector import Run
from shared.classad.compiled.plan import RIGHT, Node, Unplannable
from shared.classad.expr import Expr, Literal
from shared.classad.match import is_true
from shared.classad.values import UNDEFINED, Value


class _Taken(Mapping[str, Column]):
    """Columns of some rows, read when they are asked for."""

    def __init__(self, columns: Mapping[str, Column], rows: NDArray[np.intp]) -> None:
        self._columns = columns
        self._rows = rows
        self._have: dict[str, Column] = {}

    def __getitem__(self, key: str) -> Column:
        found = self._have.get(key)
        if found is None:
            found = self._have[key] = self._columns[key].taken(self._rows)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class Probe:
    """`rows`: (m,) of the table, ascending, a row as often as there are states of it. `live`: by folded name, the live
    columns of these m lines."""

    def __init__(
        self,
        plans: Plans,
        ads: OtherAds,
        ranks: Ranks,
        evaluation: Evaluation,
        rows: NDArray[np.intp],
        live: Mapping[str, Column],
    ) -> None:
        self._plans = plans
        self._ads = ads
        self._ranks = ranks
        self._evaluation = evaluation
        self._table = plans.table
        self._rows = rows
        self._live = live
        self._columns = Over(live, _Taken(plans.table.columns, rows))
        self._known: dict[tuple[int, int, int, int], Mask] = {}  # of what reads no live column

    def of_rows(self, term: Term, needs: Needs, ad: OtherAd, start: int, stop: int) -> Mask:
        """Where a term is true, in the lines of these rows."""
        return self._true(term, needs, ad, *between(self._rows, start, stop))

    def match(self, job: ClassAd, everything: bool = False) -> Mask:
        """(m,) bool: where what reads live columns, in the Requirements of both sides, is true. With `everything` all
        of it: where job and line match."""
        if job.find("requirements") is None:
            return np.zeros(len(self._rows), np.bool_)
        rows, ad = self._rows, self._ads.met(job)
        result = np.ones(len(rows), np.bool_)
        for root in self._plans.sides(job):
            for stretch, terms in self._plans.plan(root, ad):
                first, last = 0, len(rows)
                if stretch is not None:
                    first, last = between(self._rows, stretch.start, stretch.stop)
                if first == last:
                    continue
                for term, needs in terms:
                    if everything or needs.live or not needs.steady:
                        result[first:last] &= self._true(term, needs, ad, first, last)
        return result

    def numbers(self, expr: Expr, job: ClassAd | None = None, side: int = RIGHT) -> tuple[Floats, Mask]:
        """(m,) float64 and bool: the value as a rank, 0.0 where it is no number, and where it is one."""
        ad, term = self._ads.met(job), self._plans.root(expr, side)
        needs = self._plans.need(term, ad)
        values = np.zeros(len(self._rows))
        valid = np.zeros(len(self._rows), np.bool_)
        for first, last, vector in self._vectors(term, needs, ad):
            number = np.asarray(vector.number, np.float64)
            tag = np.asarray(vector.tag)
            good = (tag >= BOOL) & (tag <= REAL) & ~np.isnan(number)
            values[first:last] = np.where(good, number, 0.0)
            valid[first:last] = good
        return values, valid

    def texts(self, expr: Expr, job: ClassAd, side: int) -> list[str | None]:
        """For each of the m lines the value, None where it is no string."""
        ad, term = self._ads.met(job), self._plans.root(expr, side)
        texts = self._table.codes.texts
        found: list[str | None] = []
        for first, last, vector in self._vectors(term, self._plans.need(term, ad), ad):
            codes = np.broadcast_to(np.where(np.asarray(vector.tag) == STRING, vector.code, -1), (last - first,))
            found += [texts[code] if code >= 0 else None for code in codes.tolist()]
        return found

    def _vectors(self, term: Term, needs: Needs, ad: OtherAd) -> Iterator[tuple[int, int, Any]]:
        apart = self._ranks.apart(term, ad) if needs.shapes and needs.steady else None
        if apart is not None:
            plan, columns = apart
            taken = {name: column.taken(self._rows) for name, column in columns.items()}
            size = len(self._rows)
            run = Run(Over(taken, self._columns), self._table.codes, 0, size, self._evaluation.now)
            try:
                yield 0, size, run.vector(plan)
                return
            except Unplannable:
                pass
        for first, last, shape in self._spans(needs, 0, len(self._rows)):
            try:
                yield first, last, self._run(first, last).vector(self._plan(term, needs, ad, shape))
            except Unplannable:
                values = [self._evaluated(term, ad, line) for line in range(first, last)]
                yield first, last, Column.of([_cell(value) for value in values], self._table.codes)

    def _true(self, term: Term, needs: Needs, ad: OtherAd, first: int, last: int) -> Mask:
        if self._live or not needs.steady:
            return self._found(term, needs, ad, first, last)
        key = (id(term), first, last, ad.sign(needs))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._found(term, needs, ad, first, last)
        return known

    def _found(self, term: Term, needs: Needs, ad: OtherAd, first: int, last: int) -> Mask:
        result = np.zeros(last - first, np.bool_)
        for start, stop, shape in self._spans(needs, first, last):
            try:
                mask = self._run(start, stop).true(self._plan(term, needs, ad, shape))
            except Unplannable:
                mask = np.array([is_true(self._evaluated(term, ad, line)) for line in range(start, stop)], np.bool_)
            result[start - first : stop - first] = mask
        return result

    def _spans(self, needs: Needs, first: int, last: int) -> Iterator[tuple[int, int, dict[str, Expr]]]:
        """Lines first to last, cut where the expressions that a term leads to change."""
        table = self._table
        if not needs.shapes or not needs.steady or not table.shape(needs.shapes):
            yield first, last, {}
            return
        stretches = table.stretches(needs.shapes)
        starts = np.searchsorted(self._rows[first:last], [each.start for each in stretches]) + first
        for each, start, stop in zip(stretches, starts.tolist(), [*starts[1:].tolist(), last], strict=True):
            if start < stop:
                yield start, stop, each.shape

    def _run(self, start: int, stop: int) -> Run:
        evaluation = self._evaluation
        return Run(self._columns, self._table.codes, start, stop, evaluation.now, evaluation.patience)

    def _plan(self, term: Term, needs: Needs, ad: OtherAd, shape: dict[str, Expr]) -> Node:
        if not needs.steady or (needs.shapes and not self._table.shape(needs.shapes)):
            raise Unplannable("for the evaluator")
        return self._plans.node(term, needs, ad, shape)

    def _evaluated(self, term: Term, ad: OtherAd, line: int) -> Value:
        key = self._table.keys[int(self._rows[line])]
        nothing: Value = UNDEFINED
        return self._evaluation.of_row(key, lambda: self._value(term, ad, line), nothing)

    def _value(self, term: Term, ad: OtherAd, line: int) -> Value:
        row = self._table.ad(int(self._rows[line]))
        for name, column in self._live.items():
            cell = column.cell(line, self._table.codes)
            if cell is not None:
                row[name] = cell
        return self._evaluation.value(term, ad.ad, row)


def _cell(value: Value) -> object:
    return value if isinstance(value, bool | int | float | str) else Literal(UNDEFINED)
