"""Matching: conditions and ranks over a whole table, with a cache of conjuncts.

    >>> from shared.classad import parse_ad
    >>> table = Table()
    >>> table.put("slot1@a", parse_ad("[ Memory = 1024; Requirements = TARGET.Owner != \\"eve\\" ]"))
    >>> table.put("slot1@b", parse_ad("[ Memory = 256; Requirements = true ]"))
    >>> _ = table.flush()
    >>> job = parse_ad("[ Owner = \\"ada\\"; RequestMemory = 512; Requirements = TARGET.Memory >= RequestMemory ]")
    >>> mask = Matching(table, now=0.0).match(job)
    >>> [key for key, matches in zip(table.keys, mask) if matches]
    ['slot1@a']

A condition `a && b && c` is true where all of its conjuncts are; each of them is evaluated once for each distinct set
of values that it reads from the other ad, over all rows at once, and kept. So a thousand jobs that differ in
RequestMemory and Owner only cost as much as their different values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from shared.classad.ad import ClassAd
from shared.classad.columnar.column import Column, Floats, Mask
from shared.classad.columnar.evaluation import Evaluation, as_rank
from shared.classad.columnar.frame import Frame
from shared.classad.columnar.meter import Meter
from shared.classad.columnar.other_ad import Array, Numbers, OtherAd, OtherAds
from shared.classad.columnar.plans import REQUIREMENTS, Plans
from shared.classad.columnar.probe import Probe
from shared.classad.columnar.ranks import Ranks
from shared.classad.columnar.results import ERA, Results
from shared.classad.columnar.table import Table
from shared.classad.columnar.terms import OTHER_SIDE, ROW_SIDE, Conjunct, Needs, Term, expression, text
from shared.classad.columnar.vector import Run
from shared.classad.compiled.plan import Unplannable
from shared.classad.expr import AttrRef, Expr
from shared.classad.match import is_true

CACHE_BYTES: Final = 256 << 20
_MAX_LIVE: Final = 256  # matches kept that hold until live columns change
_MATCH: Final = -1  # in the place of a term: whether both sides match
_RANK: Final = AttrRef("Rank", AttrRef("MY"))
T = TypeVar("T")


class Matching:
    """Evaluates over the rows of a table as of its last flush; results have one item a row, in the table's order, which
    a call can change (`table.keys` tells, `table.version` changes with it): ask what belongs together by `together`.

    `other` is the job (or whatever ad) that meets the rows: TARGET of an expression that stands in the rows, and the ad
    around one that stands on the job's side. Nothing that an ad can hold raises.

    Masks are read-only arrays, shared with the cache: copy before changing. `now` is what time() gives; set it anew for
    each cycle, which drops what depends on it. All else is kept, and where rows change, results are mended in these
    rows when they are asked for. Not for several threads at once.

    `patience` is called between the single evaluations of what has no vector form, which can take long over many rows;
    what it raises ends the question, and nothing else changes. `meter` leaves out rows of owners that are too dear:
    they match nothing, and their values are 0.
    """

    def __init__(self, table: Table | Frame, now: float, cache_bytes: int = CACHE_BYTES) -> None:
        self.table: Final = table
        self._evaluation = Evaluation(now)
        self._version, self._layout, self._meaning = table.version, table.layout, table.meaning
        self._results = Results(table, cache_bytes)
        self._live_epoch = 0
        self._live_matches: dict[tuple[object, ...], Mask] = {}
        self._changed: dict[int, Probe] = {}  # of rows that changed, by the identity of their array
        self._begin()

    def _begin(self) -> None:
        """With nothing known of ads, expressions and plans."""
        numbers = Numbers()
        self._ads = OtherAds(numbers)
        self._plans = Plans(self.table, numbers)
        self._ranks = Ranks(self._plans, self._results, self._evaluation)

    @property
    def now(self) -> float:
        return self._evaluation.now

    @now.setter
    def now(self, now: float) -> None:
        self._evaluation.now = now
        self._ads.pass_on()
        self._live_matches.clear()
        if self._evaluation.left_out:
            self.clear()
            return
        self._results.pass_on()
        self._ranks.pass_on()

    @property
    def patience(self) -> Callable[[], None] | None:
        return self._evaluation.patience

    @patience.setter
    def patience(self, patience: Callable[[], None] | None) -> None:
        self._evaluation.patience = patience

    @property
    def meter(self) -> Meter | None:
        return self._evaluation.meter

    @meter.setter
    def meter(self, meter: Meter | None) -> None:
        self._evaluation.meter = meter

    @property
    def cached_bytes(self) -> int:
        """What the arrays in the cache hold."""
        return self._results.bytes

    def clear(self) -> None:
        """Forget all results, and what was told by `hold`."""
        self._ads.release()
        self._results.clear()
        self._changed.clear()
        self._live_matches.clear()
        self._ranks.clear()
        self._evaluation.left_out = False

    def hold(self, ad: ClassAd) -> None:
        """Promise that an ad will not change until `now` is set or `clear` called, so that it need not be looked
        through at each question. One that came in the same bytes as an ad of the last time need not be at all."""
        self._start_over_if_full()
        self._ads.hold(ad)

    def is_live(self, expr: Expr, job: ClassAd | None = None, side: int = ROW_SIDE) -> bool:
        """Whether an expression reads live columns; else it is the same in all states of a row."""
        needs = self._plans.need(self._plans.root(expr, side), self._met(job, side))
        return needs.live or not needs.steady

    def reads(self, job: ClassAd, exprs: Iterable[tuple[Expr, int]]) -> frozenset[str] | None:
        """All names, folded, that a match with a job can read in either ad, and these expressions on their sides; None
        where that can not be told."""
        ad = self._met(job)
        roots = [self._plans.root(expr, side) for expr, side in exprs]
        roots += self._plans.sides(job) if job.find("requirements") is not None else ()
        needs = [self._plans.need(root, ad) for root in roots]
        if not all(each.steady for each in needs):
            return None
        return frozenset(name for each in needs for name in (*each.names, *each.columns))

    def probe(self, rows: NDArray[np.intp], live: Mapping[str, Column]) -> Probe:
        """Rows as they would stand with these live columns: see Probe."""
        return Probe(self._plans, self._ads, self._ranks, self._evaluation, rows, live)

    def prepare(self, jobs: Iterable[ClassAd], exprs: Iterable[Expr] = ()) -> None:
        """Have all planned that will be asked about some jobs: their matches, ranks, and these expressions of the rows.
        What is new to the table moves its rows now, and not at a later question."""
        kinds = {ad.shape: ad for ad in map(self._met, jobs)}  # plans depend on what is an expression, not on values
        theirs = [self._plans.root(expr, ROW_SIDE) for expr in exprs]

        def work() -> None:
            for ad in kinds.values():
                own, rank = ad.ad.find("requirements"), ad.ad.find("rank")
                for cell in (own, rank):
                    if cell is not None:
                        self._planned(self._plans.root(expression(cell), OTHER_SIDE), ad, cell is own)
                self._planned(self._plans.root(REQUIREMENTS, ROW_SIDE, "requirements"), ad, True)
                for term in theirs:
                    self._planned(term, ad, False)

        self._settled(work)

    def _planned(self, term: Term, ad: OtherAd, condition: bool) -> None:
        if condition:
            self._plans.plan(term, ad)
        elif (needs := self._plans.need(term, ad)).shapes:
            self.table.shape(needs.shapes)

    # What to ask

    def match(self, job: ClassAd) -> Mask:
        """(rows,) bool: where job and row match each other, as `symmetric_match` says."""
        ad = self._met(job)
        sides = ad.sides
        if sides is None:
            if job.find("requirements") is None:
                return np.zeros(len(self.table), np.bool_)
            sides = ad.sides = self._plans.sides(job)
        mine, theirs = sides
        if (known := self._known_of(ad, _MATCH)) is not None:
            return known

        def work() -> Mask:
            return self._conjunction(mine, ad) & self._conjunction(theirs, ad)

        def shared() -> Mask:
            """One for all jobs that have the same in what either side can read."""
            own, its = self._plans.need(mine, ad), self._plans.need(theirs, ad)
            if not (own.steady and its.steady):
                return work()
            key = ("match", id(mine), ad.sign(own), ad.sign(its))
            if not (own.live or its.live):
                columns, lasting = own.columns + its.columns, own.lasting and its.lasting
                mend = lambda rows: self._probe(rows).match(job, everything=True)  # noqa: E731

                def kept() -> Mask:
                    return self._results.keep(key, work, columns, lasting, mend)

                return self._remembered(ad, _MATCH, (own, its), kept) if lasting else kept()
            known = self._matches_now().get(key)
            if known is None:
                known = work()
                known.flags.writeable = False
                if len(self._live_matches) < _MAX_LIVE:
                    self._live_matches[key] = known
            return known

        return self._settled(shared)

    def _known_of(self, ad: OtherAd, which: int) -> Array | None:
        """A lasting result for an ad (of a term, by its identity, or _MATCH), if the table is the same since."""
        if (
            ad.era != self._results.moment // ERA
        ):  # now and then it is looked for in the cache, which so sees what is in use
            ad.era = self._results.moment // ERA
            ad.results.clear()
            return None
        known = ad.results.get(which)
        return None if known is None or known[0] != self.table.version else known[1]

    def _remembered(self, ad: OtherAd, which: int, needs: tuple[Needs, ...], make: Callable[[], Array]) -> Array:
        """A lasting result for an ad, which is that for the ad it is chained to where nothing else is read."""
        met = ad.read_by(needs)
        found = self._known_of(met, which)
        if found is None:
            found = make()
            met.results[which] = (self._version, found)
        ad.results[which] = (self._version, found)
        return found

    def _matches_now(self) -> dict[tuple[object, ...], Mask]:
        """Matches that are true until live columns change."""
        if self._live_epoch != self.table.epoch:
            self._live_epoch = self.table.epoch
            self._live_matches.clear()
        return self._live_matches

    def job_mask(self, job: ClassAd) -> Mask:
        """(rows,) bool: where the job's Requirements are true with the row as TARGET."""
        own = job.find("requirements")
        return np.zeros(len(self.table), np.bool_) if own is None else self.mask(expression(own), job, OTHER_SIDE)

    def row_mask(self, job: ClassAd) -> Mask:
        """(rows,) bool: where the row's Requirements are true with the job as TARGET."""
        ad, term = self._met(job), self._plans.root(REQUIREMENTS, ROW_SIDE, "requirements")
        return self._settled(lambda: self._conjunction(term, ad))

    def conjuncts(self, job: ClassAd, apart: bool = False, side: int | None = None) -> list[Conjunct]:
        """The conditions of both sides with their masks, the job's first; of one side only, if it is given. `match` is
        true in the rows in which all of them that cover the row are true.

        Costs next to nothing after `match`: the masks are those in its cache. What only the evaluator can do is
        evaluated anew, in the rows where all else holds, and counts as true elsewhere. With `apart` the job's
        conditions are all evaluated in all rows, each once, in the order in which they are written.
        """
        own = job.find("requirements")
        mine = None if own is None else self._plans.root(expression(own), OTHER_SIDE)
        theirs = self._plans.root(REQUIREMENTS, ROW_SIDE, "requirements")
        ad = self._met(job)

        def work() -> list[Conjunct]:
            if mine is None:
                size = len(self.table)
                first = [Conjunct(OTHER_SIDE, REQUIREMENTS.name, 0, size, np.zeros(size, np.bool_))]
            else:
                first = self._apart(mine, ad) if apart else self._as_planned(mine, ad)
            return first if side == OTHER_SIDE else first + self._as_planned(theirs, ad)

        return self._settled(work)

    def job_rank(self, job: ClassAd) -> Floats:
        """(rows,) float64: the job's Rank of each row; 0.0 where it is no number."""
        ad = self._met(job, OTHER_SIDE)
        if ad.rank is None:
            own = job.find("rank")
            ad.rank = self._plans.root(expression(0.0 if own is None else own), OTHER_SIDE)
        return self._values(ad.rank, ad)

    def row_rank(self, job: ClassAd) -> Floats:
        """(rows,) float64: each row's Rank of the job; NaN where it is no number."""
        return self._values(self._plans.root(_RANK, ROW_SIDE, "rank", math.nan), self._met(job))

    def mask(self, expr: Expr, other: ClassAd | None = None, side: int = ROW_SIDE) -> Mask:
        """(rows,) bool: where an expression is true, or a number that is not zero.

        It stands on the side ROW_SIDE (each row is its MY, `other` its TARGET) or OTHER_SIDE, which needs an `other`.
        Cached by conjunct: about 1 us for each and an AND when known, else some 10 to 50 us for 100,000 rows.
        """
        ad, term = self._met(other, side), self._plans.root(expr, side)
        return self._settled(lambda: self._conjunction(term, ad))

    def values(self, expr: Expr, other: ClassAd | None = None, side: int = ROW_SIDE, nothing: float = 0.0) -> Floats:
        """(rows,) float64: the value of an expression as a rank; `nothing` where it is no number (or NaN)."""
        return self._values(self._plans.root(expr, side, nothing=nothing), self._met(other, side))

    def _values(self, term: Term, ad: OtherAd) -> Floats:
        known = self._known_of(ad, id(term))
        if known is not None:
            return known

        def work() -> Floats:
            needs = self._plans.need(term, ad)
            if not needs.lasting:
                return self._number_of(term, ad)
            return self._remembered(ad, id(term), (needs,), lambda: self._number_of(term, ad))

        return self._settled(work)

    def together(self, work: Callable[[], T]) -> T:
        """The result of several questions asked by `work`, all in one order of the rows: asked again if one of them had
        the table put in another order. Can only happen for questions that are new to the table."""
        while True:
            version = self.table.version
            result = work()
            if self.table.version == version:
                return result

    def _settled(self, work: Callable[[], T]) -> T:
        """The result of work that may find that the table has to be put in another order, and is then done again."""
        while True:
            if self._version != self.table.version:
                self._forget()
            result = work()
            if self._version == self.table.version:
                return result

    def _forget(self) -> None:
        """The table is another: what holds for rows of before is mended when it is asked for; where rows have other
        places, or plans would be others, nothing holds."""
        layout, meaning = self.table.layout, self.table.meaning
        self._results.rows_changed()
        self._changed.clear()
        self._live_matches.clear()
        if (layout, meaning) != (self._layout, self._meaning):
            self.clear()
            self._plans.forget(meaning=meaning != self._meaning)
            self._ranks.forget()
        self._version, self._layout, self._meaning = self.table.version, layout, meaning

    def _met(self, ad: ClassAd | None, side: int = ROW_SIDE) -> OtherAd:
        if ad is None and side == OTHER_SIDE:
            raise ValueError("an expression on the other ad's side needs that ad")
        self._start_over_if_full()
        return self._ads.met(ad)

    def _start_over_if_full(self) -> None:
        if self._plans.full:
            self.clear()
            self._begin()
            self._forget()

    # Conjunctions

    def _apart(self, term: Term, ad: OtherAd) -> list[Conjunct]:
        """The conjuncts of a root on the other ad's side, in all rows."""
        size = len(self.table)
        found = []
        for each in self._plans.conjuncts(term, {}):
            mask = self._known(each, self._plans.need(each, ad), ad, False, 0, size)
            if mask is None:
                mask = self._by_rows(each, ad, False, 0, size, np.ones(size, np.bool_))
            found.append(Conjunct(term.side, text(each), 0, size, mask, each.expr))
        return found

    def _as_planned(self, term: Term, ad: OtherAd) -> list[Conjunct]:
        """The conjuncts of a root as `_conjunction` evaluates them."""
        found: list[Conjunct] = []
        lost: dict[tuple[int, int], list[Term]] = {}
        for stretch, terms in self._plans.plan(term, ad):
            start, stop = (0, len(self.table)) if stretch is None else (stretch.start, stretch.stop)
            for each, needs in terms:
                mask = self._known(each, needs, ad, False, start, stop)
                if mask is None:
                    lost.setdefault((start, stop), []).append(each)
                else:
                    found.append(Conjunct(term.side, text(each), start, stop, mask, each.expr))
        if lost:
            rest = np.ones(len(self.table), np.bool_)
            for known in found:
                rest[known.start : known.stop] &= known.mask
            for (start, stop), some in lost.items():
                asked = rest[start:stop]
                mask = self._by_rows(term, ad, False, start, stop, asked) | ~asked
                found.append(Conjunct(term.side, " && ".join(map(text, some)), start, stop, mask))
        return found

    def _conjunction(self, term: Term, ad: OtherAd) -> Mask:
        plan = self._plans.plan(term, ad)
        result: Mask | None = None
        owned = False
        lost: list[tuple[int, int]] = []
        for stretch, terms in plan:
            start, stop = (0, len(self.table)) if stretch is None else (stretch.start, stretch.stop)
            for each, needs in terms:
                mask = self._known(each, needs, ad, False, start, stop)
                if mask is None:
                    lost.append((start, stop))
                elif result is None:
                    result = mask
                else:
                    if not owned:
                        result, owned = result.copy(), True
                    part = result[start:stop]
                    np.logical_and(part, mask, out=part)
            if result is None:  # the first entry of a plan is for the whole table
                result, owned = np.ones(len(self.table), np.bool_), True
        if result is None:
            return np.ones(len(self.table), np.bool_)
        if lost:
            result = result.copy()
            for start, stop in dict.fromkeys(lost):
                result[start:stop] = self._by_rows(term, ad, False, start, stop, result[start:stop])
        return result

    def _number_of(self, term: Term, ad: OtherAd) -> Floats:
        size = len(self.table)
        needs = self._plans.need(term, ad)
        values = self._ranks.values(term, ad) if needs.shapes else None
        if values is None:
            values = self._known(term, needs, ad, True, 0, size)
        return self._by_rows(term, ad, True, 0, size, np.ones(size, np.bool_)) if values is None else values

    def _known(self, term: Term, needs: Needs, ad: OtherAd, numbers: bool, start: int, stop: int) -> Any:
        """The mask or the values of a term over rows start to stop; None if it is for the evaluator."""
        if not needs.steady:
            return None
        epoch = 0
        if needs.live:
            first = self.table.live_from
            if start < first < stop:
                parts = [self._known(term, needs, ad, numbers, *span) for span in ((start, first), (first, stop))]
                return None if any(part is None for part in parts) else np.concatenate(parts)
            epoch = self.table.epoch if stop > first else 0
        key = (id(term), start, stop, numbers, epoch, ad.sign(needs))
        kept = self._results.asked(key)
        if kept is not None:
            return kept.array
        mend = None if numbers else lambda rows: self._probe(rows).of_rows(term, needs, ad, start, stop)
        try:
            make = lambda: self._compute(term, needs, ad, numbers, start, stop)  # noqa: E731
            return self._results.keep(key, make, needs.columns, needs.lasting, mend, start, stop)
        except Unplannable:
            self._results.leave_to_the_evaluator(key)
            return None

    def _compute(self, term: Term, needs: Needs, ad: OtherAd, numbers: bool, start: int, stop: int) -> Array:
        if not needs.shapes:
            return self._over(term, needs, {}, ad, numbers, start, stop)
        if not self.table.shape(needs.shapes):
            raise Unplannable("too many shapes")
        parts = [
            self._over(term, needs, each.shape, ad, numbers, max(start, each.start), min(stop, each.stop))
            for each in self.table.stretches(needs.shapes)
            if each.start < stop and each.stop > start
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.float64 if numbers else np.bool_)

    def _over(
        self, term: Term, needs: Needs, shape: dict[str, Expr], ad: OtherAd, numbers: bool, start: int, stop: int
    ) -> Array:
        plan = self._plans.node(term, needs, ad, shape)
        table, evaluation = self.table, self._evaluation
        run = Run(table.columns, table.codes, start, stop, evaluation.now, evaluation.patience)
        work = (lambda: run.numbers(plan, term.nothing)) if numbers else (lambda: run.true(plan))
        found: Array | None = evaluation.of_rows(table.keys, start, stop, work)
        return _nothing(term, numbers, stop - start) if found is None else found

    def _by_rows(self, term: Term, ad: OtherAd, numbers: bool, start: int, stop: int, asked: Mask) -> Array:
        """By the evaluator: once for each distinct tuple of what the term, a root, can read, where `asked` is true."""
        result = _nothing(term, numbers, stop - start)
        rows = np.flatnonzero(asked)
        meter = self.meter
        if meter is not None and not meter.idle:
            keys = self.table.keys
            asked_for = len(rows)
            rows = np.array([row for row in rows.tolist() if not meter.is_out(keys[start + row])], np.intp)
            self._evaluation.left_out |= len(rows) < asked_for
        if not len(rows):
            return result
        needs = self._plans.need(term, ad)
        if needs.steady and needs.columns:
            run = Run(self.table.columns, self.table.codes, start, stop, self.now)
            _, inverse = run.distinct(list(needs.columns))
            _, first, which = np.unique(inverse[rows], return_index=True, return_inverse=True)
        else:
            first = which = np.arange(len(rows))
        values = [self._of_row(term, ad.ad, numbers, start + row) for row in rows[first].tolist()]
        result[rows] = np.array(values, dtype=result.dtype)[which]
        return result

    def _of_row(self, term: Term, ad: ClassAd, numbers: bool, row: int) -> float | bool:
        if self.patience is not None:
            self.patience()

        def work() -> float | bool:
            value = self._evaluation.value(term, ad, self.table.ad(row))
            return as_rank(value, term.nothing) if numbers else is_true(value)

        return self._evaluation.of_row(self.table.keys[row], work, term.nothing if numbers else False)

    def _probe(self, rows: NDArray[np.intp]) -> Probe:
        """Of rows that changed: results that changed in the same rows share it."""
        known = self._changed.get(id(rows))
        if known is None:
            known = self._changed[id(rows)] = self.probe(rows, {})
        return known


def _nothing(term: Term, numbers: bool, size: int) -> Array:
    """The answer of rows for which there is none: no match, or what is no number."""
    return np.full(size, term.nothing) if numbers else np.zeros(size, np.bool_)


class ColumnarExpr:
    """One expression over a table: see `compile_columnar`."""

    __slots__ = ("_matching", "_side", "expr")

    def __init__(self, expr: Expr, matching: Matching, side: int) -> None:
        self.expr: Final = expr
        self._matching = matching
        self._side = side

    def mask(self, other: ClassAd | None = None) -> Mask:
        """(rows,) bool: `Matching.mask`."""
        return self._matching.mask(self.expr, other, self._side)

    def values(self, other: ClassAd | None = None) -> Floats:
        """(rows,) float64: `Matching.values`."""
        return self._matching.values(self.expr, other, self._side)


def compile_columnar(expr: Expr, table: Table, now: float, side: int = ROW_SIDE) -> ColumnarExpr:
    """An expression over all rows of a table; it stands in the rows, or in the ad that meets them (OTHER_SIDE).

    It has a cache of its own; who has several expressions shares one with `Matching`.
    """
    return ColumnarExpr(expr, Matching(table, now), side)
