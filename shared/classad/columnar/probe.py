"""Probe: some rows of a table as they would stand if their live columns held other values.

Who carves a machine asks what it looks like after one job, after two, after three: the same row in several states, each
a line of a probe. Only what reads live columns is evaluated; the rest does not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import thread_time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shared.classad.ad import ClassAd
from shared.classad.columnar.column import BOOL, REAL, STRING, Column, Floats, Mask
from shared.classad.columnar.frame import Over
from shared.classad.columnar.vector import Run
from shared.classad.compiled.plan import LEFT, RIGHT, Node, Unplannable
from shared.classad.evaluate import evaluate
from shared.classad.expr import Expr, Literal
from shared.classad.match import is_true
from shared.classad.values import UNDEFINED, Value

if TYPE_CHECKING:
    from shared.classad.columnar.matching import Matching, Term, _Needs, _Other


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

    def __init__(self, matching: Matching, rows: NDArray[np.intp], live: Mapping[str, Column]) -> None:
        self._matching = matching
        self._rows = rows
        self._live = live
        self._columns = Over(live, _Taken(matching.table.columns, rows))
        self._known: dict[tuple[int, int, int, int], Mask] = {}  # of what reads no live column

    @property
    def rows(self) -> NDArray[np.intp]:
        return self._rows

    def between(self, start: int, stop: int | None) -> tuple[int, int]:
        """The lines of the rows start to stop; None: to the end."""
        if not start and stop is None:
            return 0, len(self._rows)
        first, last = np.searchsorted(self._rows, (start, len(self._matching.table) if stop is None else stop)).tolist()
        return first, last

    def of_rows(self, term: Term, needs: _Needs, ad: _Other, start: int, stop: int) -> Mask:
        """Where a term is true, in the lines of these rows."""
        return self._true(term, needs, ad, *self.between(start, stop))

    def match(self, job: ClassAd, everything: bool = False) -> Mask:
        """(m,) bool: where what reads live columns, in the Requirements of both sides, is true. With `everything` all
        of it: where job and line match."""
        if job.find("requirements") is None:
            return np.zeros(len(self._rows), np.bool_)
        matching, rows = self._matching, self._rows
        ad = matching.met(job)
        result = np.ones(len(rows), np.bool_)
        for root in matching.sides(job):
            for stretch, terms in matching.plan_of(root, ad):
                first, last = 0, len(rows)
                if stretch is not None:
                    first, last = self.between(stretch.start, stretch.stop)
                if first == last:
                    continue
                for term, needs in terms:
                    if everything or needs.live or not needs.steady:
                        result[first:last] &= self._true(term, needs, ad, first, last)
        return result

    def is_live(self, expr: Expr, job: ClassAd | None = None, side: int = RIGHT) -> bool:
        """Whether an expression reads live columns; else it is the same in all states of a row."""
        matching = self._matching
        needs = matching.need(matching.root(expr, side), matching.met(job))
        return needs.live or not needs.steady

    def numbers(self, expr: Expr, job: ClassAd | None = None, side: int = RIGHT) -> tuple[Floats, Mask]:
        """(m,) float64 and bool: the value as a rank, 0.0 where it is no number, and where it is one."""
        matching = self._matching
        ad = matching.met(job)
        term = matching.root(expr, side)
        needs = matching.need(term, ad)
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
        matching = self._matching
        ad = matching.met(job)
        term = matching.root(expr, side)
        texts = matching.table.codes.texts
        found: list[str | None] = []
        for first, last, vector in self._vectors(term, matching.need(term, ad), ad):
            codes = np.broadcast_to(np.where(np.asarray(vector.tag) == STRING, vector.code, -1), (last - first,))
            found += [texts[code] if code >= 0 else None for code in codes.tolist()]
        return found

    def _vectors(self, term: Term, needs: _Needs, ad: _Other) -> Iterator[tuple[int, int, Any]]:
        apart = self._matching.ranks.apart(term, ad) if needs.shapes and needs.steady else None
        if apart is not None:
            plan, columns = apart
            taken = {name: column.taken(self._rows) for name, column in columns.items()}
            table, now = self._matching.table, self._matching.now
            try:
                size = len(self._rows)
                yield 0, size, Run(Over(taken, self._columns), table.codes, 0, size, now).vector(plan)
                return
            except Unplannable:
                pass
        for first, last, shape in self._spans(needs, 0, len(self._rows)):
            try:
                yield first, last, self._run(first, last).vector(self._plan(term, needs, ad, shape))
            except Unplannable:
                values = [self._evaluated(term, ad, line) for line in range(first, last)]
                yield first, last, Column.of([_cell(value) for value in values], self._matching.table.codes)

    def _true(self, term: Term, needs: _Needs, ad: _Other, first: int, last: int) -> Mask:
        if self._live or not needs.steady:
            return self._found(term, needs, ad, first, last)
        key = (id(term), first, last, ad.sign(needs))
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._found(term, needs, ad, first, last)
        return known

    def _found(self, term: Term, needs: _Needs, ad: _Other, first: int, last: int) -> Mask:
        result = np.zeros(last - first, np.bool_)
        for start, stop, shape in self._spans(needs, first, last):
            try:
                mask = self._run(start, stop).true(self._plan(term, needs, ad, shape))
            except Unplannable:
                mask = np.array([is_true(self._evaluated(term, ad, line)) for line in range(start, stop)], np.bool_)
            result[start - first : stop - first] = mask
        return result

    def _spans(self, needs: _Needs, first: int, last: int) -> Iterator[tuple[int, int, dict[str, Expr]]]:
        """Lines first to last, cut where the expressions that a term leads to change."""
        table = self._matching.table
        if not needs.shapes or not needs.steady or not table.shape(needs.shapes):
            yield first, last, {}
            return
        stretches = table.stretches(needs.shapes)
        starts = np.searchsorted(self._rows[first:last], [each.start for each in stretches]) + first
        for each, start, stop in zip(stretches, starts.tolist(), [*starts[1:].tolist(), last], strict=True):
            if start < stop:
                yield start, stop, each.shape

    def _run(self, start: int, stop: int) -> Run:
        matching = self._matching
        return Run(self._columns, matching.table.codes, start, stop, matching.now, matching.patience)

    def _plan(self, term: Term, needs: _Needs, ad: _Other, shape: dict[str, Expr]) -> Node:
        if not needs.steady or (needs.shapes and not self._matching.table.shape(needs.shapes)):
            raise Unplannable("for the evaluator")
        return self._matching.node(term, needs, ad, shape)

    def _evaluated(self, term: Term, ad: _Other, line: int) -> Value:
        meter = self._matching.meter
        if meter is None:
            return self._value(term, ad, line)
        key = self._matching.table.keys[int(self._rows[line])]
        if not meter.idle and meter.is_out(key):
            self._matching.leave_out()
            return UNDEFINED
        began = thread_time()
        try:
            return self._value(term, ad, line)
        finally:
            meter.add((key,), thread_time() - began)

    def _value(self, term: Term, ad: _Other, line: int) -> Value:
        row = self._matching.table.ad(int(self._rows[line]))
        for name, column in self._live.items():
            cell = column.cell(line, self._matching.table.codes)
            if cell is not None:
                row[name] = cell
        now = self._matching.now
        if term.attribute is not None:
            return row.eval(term.attribute, ad.ad, now)
        return evaluate(term.expr, ad.ad, row, now) if term.side == LEFT else evaluate(term.expr, row, ad.ad, now)


def _cell(value: Value) -> object:
    return value if isinstance(value, bool | int | float | str) else Literal(UNDEFINED)
