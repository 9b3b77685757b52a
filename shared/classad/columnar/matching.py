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

Longer than most modules: the cache, the shapes of policies and the order of rows must change together, so they are kept
in one place.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from time import thread_time
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from shared.classad.ad import ClassAd
from shared.classad.cells import Cell
from shared.classad.columnar.column import ABSENT, OTHER, Floats, Mask
from shared.classad.columnar.frame import Frame
from shared.classad.columnar.meter import DEAR_S, Meter
from shared.classad.columnar.probe import Probe
from shared.classad.columnar.ranks import Ranks
from shared.classad.columnar.shapes import HIDDEN
from shared.classad.columnar.table import Stretch, Table
from shared.classad.columnar.vector import Run
from shared.classad.compiled.plan import COLUMN, LEFT, RIGHT, Known, Node, Planner, Unplannable
from shared.classad.depth import with_room
from shared.classad.evaluate import evaluate
from shared.classad.expr import AttrRef, Binary, Call, Expr, Literal, Parens, Subscript, walk
from shared.classad.match import is_true
from shared.classad.unparse import unparse, unparse_exact
from shared.classad.values import UNDEFINED

OTHER_SIDE: Final = LEFT  # the ad that meets the table: the job
ROW_SIDE: Final = RIGHT
CACHE_BYTES: Final = 256 << 20
MAX_CONJUNCTS: Final = 200  # of one condition; what is beyond stays together
_OWN: Final = frozenset(("my", "self"))
_TARGET: Final = frozenset(("target", "other"))
_SPECIAL: Final = _OWN | _TARGET | {"parent", "root", "toplevel"}
# Calls that give another value at another moment, or when a map or the configuration was read anew.
_OF_THE_MOMENT: Final = frozenset(("time", "usermap", "userhome"))
# Calls that give another value every time, or that read names which can not be seen.
_UNSTEADY: Final = frozenset(
    ("random", "debug", "eval", "unparse", "unresolved", "evalineachcontext", "countmatches")
) | {"currenttime", "daytime", "timezoneoffset", "abstime", "formattime"}
_HASHED: Final = frozenset((int, str, bool))  # equal only if they are the same, together with their type
_MAX_KNOWN: Final = 100_000  # expressions and shapes of ads
_MAX_LIVE: Final = 256  # matches kept that hold until live columns change
_MATCH: Final = -1  # in the place of a term: whether both sides match
_ERA: Final = 8  # so many moments; results that were not asked for in one, or in the one before, are forgotten
_FEW: Final = 4  # of so many rows one may change, before a result is made anew rather than mended
_REQUIREMENTS: Final = AttrRef("Requirements", AttrRef("MY"))
_RANK: Final = AttrRef("Rank", AttrRef("MY"))
_NOTHING: Final = Literal(UNDEFINED)
_NOBODY: Final = ClassAd()
_HIDDEN_CONSTANT: Final = re.compile(rf"MY\.'{HIDDEN}[^']*'")

Marks: TypeAlias = "frozenset[tuple[int, str]]"
Array: TypeAlias = "NDArray[Any]"
T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """An expression to evaluate over rows: where it stands, and inside which attributes (see Planner.plan). A term with
    an `attribute` is that attribute of each row itself; its expr is the name."""

    expr: Expr
    side: int
    marks: Marks = frozenset()
    depth: int = 0
    attribute: str | None = None


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
class _Needs:
    """What a term can read: names in the other ad (in order), columns, and those columns that are expressions."""

    names: tuple[str, ...]
    columns: tuple[str, ...]
    shapes: tuple[str, ...]
    steady: bool  # whether that is all and always gives the same
    number: int  # the same for the same names
    live: bool  # whether one of the columns changes while results are kept
    lasting: bool  # whether it gives the same at another moment, and no column is a replaced one


Plan: TypeAlias = "list[tuple[Stretch | None, tuple[tuple[Term, _Needs], ...]]]"


class _Signs(dict[tuple[object, ...], int]):
    """A number for each key, which nothing else of the process has: ads that count by an older dict do no harm."""

    _numbers: ClassVar[Iterator[int]] = count()

    def __missing__(self, key: tuple[object, ...]) -> int:
        number = self[key] = next(self._numbers)
        return number


@dataclass(slots=True)
class _Kept:
    """A result in the cache. array: None where the evaluator has to be asked. version: of the table, for which it
    holds; moment: when it was asked for last, counted in changes of `now`."""

    array: Array | None
    version: int
    moment: int


class _Other:
    """The ad that meets the table, with its cells by name as parts of cache keys. `shape` is the same number for ads
    with the same expressions."""

    def __init__(self, ad: ClassAd, shape: int, number: Callable[[Expr], int], signs: _Signs) -> None:
        self.ad = ad
        self.shape = shape
        self.sides: tuple[Term, Term] | None = None  # its Requirements, and those of the rows
        self.rank: Term | None = None
        self.era = -1
        self.results: dict[
            int, tuple[int, Array]
        ] = {}  # of an era: lasting ones by term, with the version of the table
        self._number = number
        self._digests: dict[str, object] = {}
        self._known = signs
        self._signs: dict[int, int] = {}

    def sign(self, needs: _Needs) -> int:
        """The same number for ads in which all names of `needs` hold the same."""
        sign = self._signs.get(needs.number)
        if sign is None:
            sign = self._signs[needs.number] = self._known[(needs.number, *map(self.digest, needs.names))]
        return sign

    def digest(self, name: str) -> object:
        """What tells an attribute's cell from any other: its type, too, and the sign of zero."""
        known = self._digests.get(name)
        if known is None:
            cell = self.ad.find(name)
            if isinstance(cell, Expr):
                known = Expr, self._number(cell)
            else:
                known = (type(cell), cell) if type(cell) in _HASHED else (type(cell), repr(cell))
            self._digests[name] = known
        return known


class _RowSide:
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
        self.cache_bytes = cache_bytes
        self.patience: Callable[[], None] | None = None
        self.meter: Meter | None = None
        self._now = now
        self._version, self._layout, self._meaning = table.version, table.layout, table.meaning
        self._bytes = 0
        self._cache: OrderedDict[tuple[object, ...], _Kept] = OrderedDict()
        self._moment = 0
        self._passing: list[tuple[object, ...]] = []  # keys of results that hold at this moment only
        self._left_out = False  # whether some result lacks what the meter left out
        self._probes: dict[tuple[int, tuple[str, ...]], Probe] = {}  # of changed rows, until others change
        self._roots: dict[tuple[int, int, str | None], Term] = {}
        self._inner: dict[tuple[int, int, Marks, int], Term] = {}
        self._attributes: dict[str, Term] = {}
        self._plans: dict[tuple[int, int], Plan] = {}
        self._needs: dict[tuple[int, int], _Needs] = {}
        self._numbers: dict[object, int] = {}
        self._signs = _Signs()
        self._numbered: dict[int, tuple[Expr, int]] = {}
        self._ranks = Ranks(self)
        self._nodes: dict[tuple[object, ...], tuple[Node, tuple[Expr, ...]]] = {}
        self._steady: dict[int, tuple[ClassAd, _Other]] = {}  # with the ads, so that no other gets the identity of one
        self._by_bytes: dict[bytes, _Other] = {}  # ads that were held at this moment
        self._before: dict[bytes, _Other] = {}  # and at the last one
        self._live_epoch = 0
        self._live_matches: dict[tuple[object, ...], Mask] = {}

    @property
    def now(self) -> float:
        return self._now

    @now.setter
    def now(self, now: float) -> None:
        self._now = now
        self._steady.clear()
        self._before, self._by_bytes = self._by_bytes, {}
        self._live_matches.clear()
        if self._left_out:
            self.clear()
            return
        self._moment += 1
        for key in self._passing:
            self._drop(key)
        self._passing.clear()
        self._ranks.pass_on()
        if not self._moment % _ERA:
            oldest = self._moment - 2 * _ERA
            for key in [key for key, kept in self._cache.items() if kept.moment < oldest]:
                self._drop(key)

    @property
    def cached_bytes(self) -> int:
        """What the arrays in the cache hold."""
        return self._bytes

    def clear(self) -> None:
        """Forget all results, and what was told by `hold`."""
        self._steady.clear()
        self._cache.clear()
        self._passing.clear()
        self._probes.clear()
        self._live_matches.clear()
        self._ranks.clear()
        self._bytes = 0
        self._left_out = False

    def hold(self, ad: ClassAd) -> None:
        """Promise that an ad will not change until `now` is set or `clear` called, so that it need not be looked
        through at each question. One that came in the same bytes as an ad of the last time need not be at all."""
        self._steady.pop(id(ad), None)
        packed = ad.packed
        if packed is None:
            self._steady[id(ad)] = ad, self._met(ad)
            return
        known = self._by_bytes.get(packed) or self._before.get(packed)
        if known is None:
            known = self._met(ad)
            known.ad = ad.copy()  # who gave it may write to it one day
        self._by_bytes[packed] = known
        self._steady[id(ad)] = ad, known

    def prepare(self, jobs: Iterable[ClassAd], exprs: Iterable[Expr] = ()) -> None:
        """Have all planned that will be asked about some jobs: their matches, ranks, and these expressions of the rows.
        What is new to the table moves its rows now, and not at a later question."""
        kinds = {ad.shape: ad for ad in map(self._met, jobs)}  # plans depend on what is an expression, not on values
        theirs = [self._root(expr, ROW_SIDE) for expr in exprs]

        def work() -> None:
            for ad in kinds.values():
                own, rank = ad.ad.find("requirements"), ad.ad.find("rank")
                for cell in (own, rank):
                    if cell is not None:
                        self._planned(self._root(_expression(cell), OTHER_SIDE), ad, cell is own)
                self._planned(self._root(_REQUIREMENTS, ROW_SIDE, "requirements"), ad, True)
                for term in theirs:
                    self._planned(term, ad, False)

        self._settled(work)

    def _planned(self, term: Term, ad: _Other, condition: bool) -> None:
        if condition:
            self._plan(term, ad)
        elif (needs := self._need(term, ad)).shapes:
            self.table.shape(needs.shapes)

    # What to ask

    def match(self, job: ClassAd) -> Mask:
        """(rows,) bool: where job and row match each other, as `symmetric_match` says."""
        ad = self._met(job)
        sides = ad.sides
        if sides is None:
            if job.find("requirements") is None:
                return np.zeros(len(self.table), np.bool_)
            sides = ad.sides = self.sides(job)
        mine, theirs = sides
        if (known := self._known_of(ad, _MATCH)) is not None:
            return known

        def work() -> Mask:
            return self._conjunction(mine, ad) & self._conjunction(theirs, ad)

        def shared() -> Mask:
            """One for all jobs that have the same in what either side can read."""
            own, its = self._need(mine, ad), self._need(theirs, ad)
            if not (own.steady and its.steady):
                return work()
            key = ("match", id(mine), ad.sign(own), ad.sign(its))
            if not (own.live or its.live):
                columns, lasting = own.columns + its.columns, own.lasting and its.lasting
                found = self.keep(key, work, columns, lasting, lambda probe: probe.match(job, everything=True))
                if lasting:
                    ad.results[_MATCH] = (self._version, found)
                return found
            known = self._matches_now().get(key)
            if known is None:
                known = work()
                known.flags.writeable = False
                if len(self._live_matches) < _MAX_LIVE:
                    self._live_matches[key] = known
            return known

        return self._settled(shared)

    def _known_of(self, ad: _Other, which: int) -> Array | None:
        """A lasting result for an ad (of a term, by its identity, or _MATCH), if the table is the same since."""
        if ad.era != self._moment // _ERA:  # now and then it is looked for in the cache, which so sees what is in use
            ad.era = self._moment // _ERA
            ad.results.clear()
            return None
        known = ad.results.get(which)
        return None if known is None or known[0] != self.table.version else known[1]

    def _matches_now(self) -> dict[tuple[object, ...], Mask]:
        """Matches that are true until live columns change."""
        if self._live_epoch != self.table.epoch:
            self._live_epoch = self.table.epoch
            self._live_matches.clear()
        return self._live_matches

    def job_mask(self, job: ClassAd) -> Mask:
        """(rows,) bool: where the job's Requirements are true with the row as TARGET."""
        own = job.find("requirements")
        return np.zeros(len(self.table), np.bool_) if own is None else self.mask(_expression(own), job, OTHER_SIDE)

    def row_mask(self, job: ClassAd) -> Mask:
        """(rows,) bool: where the row's Requirements are true with the job as TARGET."""
        ad, term = self._met(job), self._root(_REQUIREMENTS, ROW_SIDE, "requirements")
        return self._settled(lambda: self._conjunction(term, ad))

    def conjuncts(self, job: ClassAd, apart: bool = False) -> list[Conjunct]:
        """The conditions of both sides with their masks, the job's first. `match` is true in the rows in which all of
        them that cover the row are true.

        Costs next to nothing after `match`: the masks are those in its cache. What only the evaluator can do is
        evaluated anew, in the rows where all else holds, and counts as true elsewhere. With `apart` the job's
        conditions are all evaluated in all rows, each once, in the order in which they are written.
        """
        own = job.find("requirements")
        mine = None if own is None else self._root(_expression(own), OTHER_SIDE)
        theirs = self._root(_REQUIREMENTS, ROW_SIDE, "requirements")
        ad = self._met(job)

        def work() -> list[Conjunct]:
            if mine is None:
                size = len(self.table)
                first = [Conjunct(OTHER_SIDE, _REQUIREMENTS.name, 0, size, np.zeros(size, np.bool_))]
            else:
                first = self._apart(mine, ad) if apart else self._as_planned(mine, ad)
            return first + self._as_planned(theirs, ad)

        return self._settled(work)

    def job_rank(self, job: ClassAd) -> Floats:
        """(rows,) float64: the job's Rank of each row; 0.0 where it is no number."""
        ad = self._met(job, OTHER_SIDE)
        if ad.rank is None:
            own = job.find("rank")
            ad.rank = self._root(_expression(0.0 if own is None else own), OTHER_SIDE)
        return self._values(ad.rank, ad)

    def row_rank(self, job: ClassAd) -> Floats:
        """(rows,) float64: each row's Rank of the job; 0.0 where it is no number."""
        return self._values(self._root(_RANK, ROW_SIDE, "rank"), self._met(job))

    def mask(self, expr: Expr, other: ClassAd | None = None, side: int = ROW_SIDE) -> Mask:
        """(rows,) bool: where an expression is true, or a number that is not zero.

        It stands on the side ROW_SIDE (each row is its MY, `other` its TARGET) or OTHER_SIDE, which needs an `other`.
        Cached by conjunct: about 1 us for each and an AND when known, else some 10 to 50 us for 100,000 rows.
        """
        ad, term = self._met(other, side), self._root(expr, side)
        return self._settled(lambda: self._conjunction(term, ad))

    def values(self, expr: Expr, other: ClassAd | None = None, side: int = ROW_SIDE) -> Floats:
        """(rows,) float64: the value of an expression as a rank; 0.0 where it is no number (or NaN)."""
        return self._values(self._root(expr, side), self._met(other, side))

    def _values(self, term: Term, ad: _Other) -> Floats:
        known = self._known_of(ad, id(term))
        if known is not None:
            return known
        found = self._settled(lambda: self._number_of(term, ad))
        if self._need(term, ad).lasting:
            ad.results[id(term)] = (self._version, found)
        return found

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
        self._probes.clear()
        self._live_matches.clear()
        if (layout, meaning) != (self._layout, self._meaning):
            self.clear()
            self._plans.clear()
            self._ranks = Ranks(self)
        if meaning != self._meaning:
            self._needs.clear()
            self._nodes.clear()
        self._version, self._layout, self._meaning = self.table.version, layout, meaning

    # The ads and expressions that were met

    def _met(self, ad: ClassAd | None, side: int = ROW_SIDE) -> _Other:
        if ad is None:
            if side == OTHER_SIDE:
                raise ValueError("an expression on the other ad's side needs that ad")
            ad = _NOBODY
        steady = self._steady.get(id(ad))
        if steady is not None:
            return steady[1]
        shape: list[tuple[str, int]] = []
        above: ClassAd | None = ad
        while above is not None:
            for key, (_, cell) in above.table().items():
                if type(cell) not in _HASHED and type(cell) is not float:
                    found = above.find(key)
                    if isinstance(found, Expr) and type(found) is not Literal:
                        shape.append((key, self._number(found)))
            above = above.chained
            if above is not None:
                shape.append(("", 0))
        if max(len(self._numbers), len(self._inner), len(self._signs) // 4) > _MAX_KNOWN:
            self._signs = _Signs()
            self.clear()
            self._by_bytes.clear()
            self._before.clear()
            self._nodes.clear()
            self._meaning = -1
            self._inner.clear()
            self._numbers.clear()
            self._numbered.clear()
            self._roots.clear()
            self._attributes.clear()
            self._steady.clear()
            self._forget()
        return _Other(ad, self._numbers.setdefault(tuple(shape), len(self._numbers)), self._number, self._signs)

    def _number(self, expr: Expr) -> int:
        """One number for all trees of the same text."""
        known = self._numbered.get(id(expr))
        if known is None:
            if type(expr) is Literal:  # made for each question: not to be kept
                return self._numbers.setdefault(unparse_exact(expr), len(self._numbers))
            text = unparse_exact(expr)
            known = self._numbered[id(expr)] = (expr, self._numbers.setdefault(text, len(self._numbers)))
        return known[1]

    def _root(self, expr: Expr, side: int, attribute: str | None = None) -> Term:
        key = (self._number(expr), side, attribute)
        known = self._roots.get(key)
        if known is None:
            known = self._roots[key] = Term(expr, side, attribute=attribute)
        return known

    def _below(self, term: Term, expr: Expr, marks: Marks) -> Term:
        """The same object for the same thing, as terms are compared by identity."""
        key = (self._number(expr), term.side, marks, term.depth + 1)
        known = self._inner.get(key)
        if known is None:
            known = self._inner[key] = Term(expr, term.side, marks, term.depth + 1)
        return known

    # What Ranks and Probe ask

    def met(self, ad: ClassAd | None) -> _Other:
        return self._met(ad)

    def root(self, expr: Expr, side: int) -> Term:
        return self._root(expr, side)

    def sides(self, job: ClassAd) -> tuple[Term, Term]:
        """The Requirements of a job that has some, and those of the rows."""
        own = job.find("requirements")
        assert own is not None
        return self._root(_expression(own), OTHER_SIDE), self._root(_REQUIREMENTS, ROW_SIDE, "requirements")

    def plan_of(self, term: Term, ad: _Other) -> Plan:
        return self._plan(term, ad)

    def need(self, term: Term, ad: _Other) -> _Needs:
        return self._need(term, ad)

    def node(self, term: Term, needs: _Needs, ad: _Other, shape: dict[str, Expr]) -> Node:
        """The plan of a term, in rows of this shape. Kept for as long as the columns mean the same. Raises
        Unplannable."""
        parts = tuple((name, id(expr)) for name, expr in shape.items())
        key = (id(term), parts, ad.sign(needs))
        known = self._nodes.get(key)
        if known is None:
            if len(self._nodes) > _MAX_KNOWN:
                self._nodes.clear()
            expr = term.expr
            if term.attribute is not None and not self.table.special:
                expr = shape.get(term.attribute, expr)

            def make() -> Node:
                return Planner(Known(ad.ad), _RowSide(self.table, shape)).plan(expr, term.side, term.depth, term.marks)

            # With the expressions, so that no other gets the identity of one of them.
            known = self._nodes[key] = (with_room(make), tuple(shape.values()))
        return known[0]

    @property
    def ranks(self) -> Ranks:
        return self._ranks

    def root_of(self, key: str) -> Term:
        """The term of an attribute of the rows."""
        known = self._attributes.get(key)
        if known is None:
            known = self._attributes[key] = self._root(AttrRef(key, AttrRef("MY")), ROW_SIDE, key)
        return known

    def shapes_of(self, term: Term, ad: _Other) -> tuple[str, ...]:
        """The columns that a root can read and that are expressions in some rows."""
        return self._need(term, ad).shapes

    def leave_out(self) -> None:
        """Note that the meter left out a row of what is asked."""
        self._left_out = True

    def is_steady(self, term: Term, ad: _Other) -> bool:
        """Whether a root gives the same for the same ads, and can be told what it reads."""
        return self._need(term, ad).steady

    def epoch_of(self, term: Term, ad: _Other) -> int:
        """A number that changes with the rows as far as a root reads them."""
        return self.table.epoch if self._need(term, ad).live else 0

    def row_side(self, shape: dict[str, Expr]) -> _RowSide:
        return _RowSide(self.table, shape)

    @staticmethod
    def places(node: AttrRef, side: int) -> tuple[int, ...]:
        return _places(node, side)

    # Conjunctions

    def _plan(self, term: Term, ad: _Other) -> Plan:
        plan = self._plans.get((id(term), ad.shape))
        if plan is None:
            plan = self._plans[id(term), ad.shape] = self._split(term, ad)
        return plan

    def _apart(self, term: Term, ad: _Other) -> list[Conjunct]:
        """The conjuncts of a root on the other ad's side, in all rows."""
        size = len(self.table)
        found = []
        for each in self._conjuncts(term, {}):
            mask = self._known(each, self._need(each, ad), ad, False, 0, size)
            if mask is None:
                mask = self._by_rows(each, ad, False, 0, size, np.ones(size, np.bool_))
            found.append(Conjunct(term.side, _text(each), 0, size, mask, each.expr))
        return found

    def _as_planned(self, term: Term, ad: _Other) -> list[Conjunct]:
        """The conjuncts of a root as `_conjunction` evaluates them."""
        found: list[Conjunct] = []
        lost: dict[tuple[int, int], list[Term]] = {}
        for stretch, terms in self._plan(term, ad):
            start, stop = (0, len(self.table)) if stretch is None else (stretch.start, stretch.stop)
            for each, needs in terms:
                mask = self._known(each, needs, ad, False, start, stop)
                if mask is None:
                    lost.setdefault((start, stop), []).append(each)
                else:
                    found.append(Conjunct(term.side, _text(each), start, stop, mask, each.expr))
        if lost:
            rest = np.ones(len(self.table), np.bool_)
            for known in found:
                rest[known.start : known.stop] &= known.mask
            for (start, stop), some in lost.items():
                asked = rest[start:stop]
                mask = self._by_rows(term, ad, False, start, stop, asked) | ~asked
                found.append(Conjunct(term.side, " && ".join(map(_text, some)), start, stop, mask))
        return found

    def _conjunction(self, term: Term, ad: _Other) -> Mask:
        plan = self._plan(term, ad)
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

    def _split(self, term: Term, ad: _Other) -> Plan:
        """First what is the same in all rows, then stretch by stretch what is not."""
        needs = self._need(term, ad)
        if not needs.steady:
            return [(None, ((term, needs),))]  # random numbers are drawn once for each row
        if not needs.shapes or not self.table.shape(needs.shapes):
            return [(None, self._with_needs(self._conjuncts(term, {}), ad))]
        stretches = self.table.stretches(needs.shapes)
        split = [(stretch, self._with_needs(self._conjuncts(term, stretch.shape), ad)) for stretch in stretches]
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

    def _with_needs(self, terms: Iterable[Term], ad: _Other) -> tuple[tuple[Term, _Needs], ...]:
        return tuple((each, self._need(each, ad)) for each in terms)

    def _conjuncts(self, term: Term, shape: dict[str, Expr]) -> tuple[Term, ...]:
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
                key = each.attribute or self._own_attribute(each)
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

    @staticmethod
    def _own_attribute(term: Term) -> str | None:
        """The attribute of the row that a term is nothing but the name of."""
        expr = term.expr
        if term.side != ROW_SIDE or not isinstance(expr, AttrRef) or expr.absolute or expr.key in _SPECIAL:
            return None
        scope = expr.scope
        own = scope is None or (isinstance(scope, AttrRef) and _word(scope) in _OWN)
        return expr.key if own else None

    # Terms

    def _need(self, term: Term, ad: _Other) -> _Needs:
        needs = self._needs.get((id(term), ad.shape))
        if needs is None:
            needs = self._needs[id(term), ad.shape] = self._look_through(term, ad.ad)
        return needs

    def _look_through(self, term: Term, ad: ClassAd) -> _Needs:
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
                    found.extend((place, node.key) for place in _places(node, side))
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
        number = self._numbers.setdefault(("names", order), len(self._numbers))
        live = not self.table.live.isdisjoint(columns)
        lasting = lasting and steady and not live and columns.isdisjoint(self.table.replaced)
        return _Needs(order, tuple(sorted(columns)), shapes, steady, number, live, lasting)

    def _number_of(self, term: Term, ad: _Other) -> Floats:
        size = len(self.table)
        needs = self._need(term, ad)
        values = self._ranks.values(term, ad) if needs.shapes else None
        if values is None:
            values = self._known(term, needs, ad, True, 0, size)
        return self._by_rows(term, ad, True, 0, size, np.ones(size, np.bool_)) if values is None else values

    def _known(self, term: Term, needs: _Needs, ad: _Other, numbers: bool, start: int, stop: int) -> Any:
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
        kept = self._cache.get(key)
        if kept is not None and kept.version == self._version and kept.moment == self._moment:
            return kept.array
        mend = None if numbers else lambda probe: probe.of_rows(term, needs, ad, start, stop)
        try:
            make = lambda: self._compute(term, needs, ad, numbers, start, stop)  # noqa: E731
            return self.keep(key, make, needs.columns, needs.lasting, mend, start, stop)
        except Unplannable:
            self._put(key, None, False)
            return None

    def keep(
        self,
        key: tuple[object, ...],
        make: Callable[[], Array],
        columns: tuple[str, ...],
        lasting: bool,
        mend: Callable[[Probe], Array] | None = None,
        start: int = 0,
        stop: int | None = None,
    ) -> Array:
        """What is in the cache under `key`; made if it is not there, or holds no more. columns: what it reads, in the
        rows start to stop; lasting: whether it holds at other moments too; mend: what it is in the rows of a probe, for
        what is worth it."""
        kept = self._cache.get(key)
        if kept is not None and kept.array is not None and self._renew(kept, columns, mend, start, stop):
            if kept.moment != self._moment:
                kept.moment = self._moment
                self._cache.move_to_end(key)
            return kept.array
        if kept is not None:
            self._drop(key)
        result = make()
        result.flags.writeable = False
        self._put(key, result, lasting)
        return result

    def _renew(
        self,
        kept: _Kept,
        columns: tuple[str, ...],
        mend: Callable[[Probe], Array] | None,
        start: int,
        stop: int | None,
    ) -> bool:
        """Have a result hold for the table as it is; False if it is to be made anew."""
        version = self.table.version
        if kept.version == version:
            return True
        probe = self._probes.get((kept.version, columns))
        if probe is None:
            rows = self.table.changed_rows(columns, kept.version)
            if rows is None or len(rows) * _FEW > len(self.table):
                return False
            probe = self._probes[kept.version, columns] = Probe(self, rows, {})
        first, last = probe.between(start, stop)
        if first < last:
            if mend is None:
                return False
            assert kept.array is not None
            mended = kept.array.copy()
            mended[probe.rows[first:last] - start] = mend(probe)
            mended.flags.writeable = False
            kept.array = mended
        kept.version = version
        return True

    def _put(self, key: tuple[object, ...], array: Array | None, lasting: bool) -> None:
        cache = self._cache
        cache[key] = _Kept(array, self.table.version, self._moment)
        if array is None or not lasting:
            self._passing.append(key)
        self._bytes += 0 if array is None else array.nbytes
        while self._bytes > self.cache_bytes and len(cache) > 1:
            self._drop(next(iter(cache)))

    def _drop(self, key: tuple[object, ...]) -> None:
        kept = self._cache.pop(key, None)
        if kept is not None and kept.array is not None:
            self._bytes -= kept.array.nbytes

    def _compute(self, term: Term, needs: _Needs, ad: _Other, numbers: bool, start: int, stop: int) -> Array:
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
        self, term: Term, needs: _Needs, shape: dict[str, Expr], ad: _Other, numbers: bool, start: int, stop: int
    ) -> Array:
        plan = self.node(term, needs, ad, shape)
        run = Run(self.table.columns, self.table.codes, start, stop, self._now, self.patience)
        meter = self.meter
        if meter is None:
            return run.numbers(plan) if numbers else run.true(plan)
        keys = self.table.keys
        if not meter.idle and start < stop and all(meter.is_out(keys[row]) for row in range(start, stop)):
            self._left_out = True
            return np.zeros(stop - start, np.float64 if numbers else np.bool_)
        began = thread_time()
        try:
            return run.numbers(plan) if numbers else run.true(plan)
        finally:
            if (took := thread_time() - began) > DEAR_S:
                meter.add([keys[row] for row in range(start, stop)], took)

    def _by_rows(self, term: Term, ad: _Other, numbers: bool, start: int, stop: int, asked: Mask) -> Array:
        """By the evaluator: once for each distinct tuple of what the term, a root, can read, where `asked` is true."""
        result: Array = np.zeros(stop - start, np.float64 if numbers else np.bool_)
        rows = np.flatnonzero(asked)
        meter = self.meter
        if meter is not None and not meter.idle:
            keys = self.table.keys
            asked_for = len(rows)
            rows = np.array([row for row in rows.tolist() if not meter.is_out(keys[start + row])], np.intp)
            self._left_out |= len(rows) < asked_for
        if not len(rows):
            return result
        needs = self._need(term, ad)
        if needs.steady and needs.columns:
            run = Run(self.table.columns, self.table.codes, start, stop, self._now)
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
        meter = self.meter
        if meter is None:
            return self._value_of_row(term, ad, numbers, row)
        key = (self.table.keys[row],)
        if not meter.idle and meter.is_out(key[0]):
            self._left_out = True
            return 0.0 if numbers else False
        began = thread_time()
        try:
            return self._value_of_row(term, ad, numbers, row)
        finally:
            meter.add(key, thread_time() - began)

    def _value_of_row(self, term: Term, ad: ClassAd, numbers: bool, row: int) -> float | bool:
        mine = self.table.ad(row)
        if term.attribute is not None:
            value = mine.eval(term.attribute, ad, self._now)
        elif term.side == OTHER_SIDE:
            value = evaluate(term.expr, ad, mine, self._now)
        else:
            value = evaluate(term.expr, mine, None if ad is _NOBODY else ad, self._now)
        if not numbers:
            return is_true(value)
        number = float(value) if isinstance(value, bool | int | float) else 0.0
        return 0.0 if math.isnan(number) else number


def _expression(cell: Cell) -> Expr:
    return cell if isinstance(cell, Expr) else Literal(cell)


def _text(term: Term) -> str:
    """A term for people."""
    if term.attribute is not None:
        return term.attribute.capitalize()
    text = unparse(term.expr, "old")
    return _HIDDEN_CONSTANT.sub("...", text) if HIDDEN in text else text


def _word(scope: AttrRef) -> str:
    return "" if scope.scope is not None or scope.absolute else scope.key


def _places(node: AttrRef, side: int) -> tuple[int, ...]:
    """On which sides a name may be looked up."""
    if isinstance(node.scope, AttrRef):
        word = _word(node.scope)
        if word in _OWN:
            return (side,)
        if word in _TARGET:
            return (1 - side,)
    return LEFT, RIGHT


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
