"""The compiled scalar gear: expressions and matches as generated Python, equal in meaning to the evaluator.

    >>> from shared.classad import parse_ad, parse_expr
    >>> job = parse_ad("[ RequestMemory = 512; Requirements = TARGET.Memory >= RequestMemory ]")
    >>> matcher = compile_match(job)
    >>> matcher.matches(parse_ad("[ Memory = 1024; Requirements = true ]"))
    True
    >>> compile_expr(parse_expr("MY.Memory / 2")).evaluate(parse_ad("[ Memory = 1024 ]"))
    512

An expression is compiled for the *shape* of the ads it meets: which attributes it needs are expressions, and which.
Ads of another shape get a variant of their own. Writing a variant costs about a millisecond, so the gear pays where
one expression or ad meets hundreds of others. What it does not cover, or would cover at the cost of too many variants,
goes to the evaluator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from shared.classad.ad import ClassAd
from shared.classad.cells import Cell, PackedError
from shared.classad.compiled.plan import COLUMN, LEFT, RIGHT, Known, Node, Planner, Unplannable
from shared.classad.compiled.source import Deoptimized, Writer
from shared.classad.depth import with_room
from shared.classad.evaluate import evaluate
from shared.classad.expr import Expr, Literal
from shared.classad.match import RANK, REQUIREMENTS, rank, symmetric_match
from shared.classad.unparse import unparse_exact
from shared.classad.values import Value

MAX_VARIANTS: Final = 32  # for one expression; ads of further shapes go to the evaluator
MAX_HINTS: Final = 1_000
_EXPRESSIONS_LIMIT: Final = 20_000  # known by text, and compiled
_LONGEST_TEXT: Final = 20_000  # characters of an expression that is looked up by its text

Run = Callable[[Any, Any, "float | None"], Any]
Guards: TypeAlias = "dict[str, Expr | None]"
Shape: TypeAlias = "tuple[tuple[Expr | bool, ...], tuple[Expr | bool, ...]]"

_seen: dict[int, tuple[Expr, Expr]] = {}
_canonical: dict[str, Expr] = {}
_compiled: dict[int, Compiled] = {}


class Sampled:
    """An ad that stands for many of the same shape: its constants are read where the plan runs, its expressions become
    part of the plan. `guards` is what must be the same in another ad."""

    def __init__(self, ad: ClassAd, side: int) -> None:
        self._ad = ad
        self._side = side
        self.guards: Guards = {}

    def attribute(self, key: str) -> Expr | Node:
        cell = self._ad.find(key)
        if isinstance(cell, Expr) and not isinstance(cell, Literal):
            self.guards[key] = cell
            return cell
        return Node(COLUMN, key, (), self._side)

    def lacks(self, key: str) -> bool:
        absent = self._ad.find(key) is None
        if absent:
            self.guards[key] = None
        return absent


class Variants:
    """The functions generated for one task, one for each shape that was met; the last one used is tried first."""

    __slots__ = ("_hint", "_hinted", "_last", "_names", "_runs", "_write")

    def __init__(self, write: Callable[[ClassAd | None, ClassAd | None], tuple[Run | None, Guards, Guards]]) -> None:
        self._write = write
        self._names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())  # what tells shapes apart, of either side
        self._runs: dict[Shape, Run | None] = {}
        self._last: Run | None = None
        self._hint: str | None = None  # the right ad's attribute that tells most shapes apart
        self._hinted: dict[int, Run] = {}  # by the id of its expression: only a guess, as every run checks its shape

    def run(self, left: ClassAd | None, right: ClassAd | None, now: float | None) -> Any:
        """The value of the task for two ads without ads around or behind them. Raises Unplannable, PackedError."""
        mine = None if left is None else left.table().get
        theirs = None if right is None else right.table().get
        last = self._last
        mark = 0
        if self._hint is not None and theirs is not None:
            entry = theirs(self._hint)
            mark = 0 if entry is None else id(entry[1])
            last = self._hinted.get(mark, last)
        if last is not None:
            try:
                return last(mine, theirs, now)
            except Deoptimized:
                pass
        shape = self._shape(left, right)
        run = self._runs.get(shape)
        if run is not None:
            try:
                value = run(mine, theirs, now)
            except Deoptimized:
                run = self._generate(left, right)
                value = run(mine, theirs, now)
        elif shape in self._runs:
            raise Unplannable("known to have no plan")
        else:
            run = self._generate(left, right)
            value = run(mine, theirs, now)
        self._last = run
        if self._hint is not None:
            if len(self._hinted) >= MAX_HINTS:
                self._hinted.clear()
            self._hinted[mark] = run
        return value

    def _shape(self, left: ClassAd | None, right: ClassAd | None) -> Shape:
        return _expressions(left, self._names[0]), _expressions(right, self._names[1])

    def _generate(self, left: ClassAd | None, right: ClassAd | None) -> Run:
        if len(self._runs) >= MAX_VARIANTS:
            raise Unplannable("too many shapes")
        run, *guards = self._write(left, right)
        names = tuple(tuple(sorted({*old, *new})) for old, new in zip(self._names, guards, strict=True))
        if names != self._names:
            self._names = (names[0], names[1])
            self._runs.clear()  # their shapes were told by fewer names
        self._runs[self._shape(left, right)] = run
        if run is None:
            raise Unplannable("no plan")
        columns = list(zip(*(theirs for _, theirs in self._runs), strict=True))
        if columns:
            kinds = [len(set(map(id, column))) for column in columns]
            self._hint = self._names[1][kinds.index(max(kinds))]
        self._hinted.clear()
        return run


def _expressions(ad: ClassAd | None, keys: tuple[str, ...]) -> tuple[Expr | bool, ...]:
    """What the attributes are: an expression, the same one for equal texts; else whether there is one."""
    if ad is None:
        return ()
    found: list[Expr | bool] = []
    for key in keys:
        cell = ad.find(key)
        if isinstance(cell, Expr) and not isinstance(cell, Literal):
            shared = _shared(cell)
            if shared is not cell:  # the same meaning, so that the next look takes it for the same at once
                table = ad.table()
                table[key] = (table[key][0], shared)
            found.append(shared)
        else:
            found.append(cell is not None)
    return tuple(found)


def _shared(expr: Expr) -> Expr:
    """One tree for all of the same text."""
    known = _seen.get(id(expr))
    if known is None:
        text = unparse_exact(expr)
        if len(_seen) >= _EXPRESSIONS_LIMIT or len(_canonical) >= _EXPRESSIONS_LIMIT:
            _seen.clear()
            _canonical.clear()
        shared = _canonical.setdefault(text, expr) if len(text) <= _LONGEST_TEXT else expr
        known = _seen[id(expr)] = (expr, shared)  # with the tree, so that its id is not used again
    return known[1]


def _flat(ad: ClassAd | None) -> bool:
    """Whether all of an ad is in its own table."""
    return ad is None or (ad.outer is None and ad.chained is None)


class Compiled:
    """An expression for many pairs of ads."""

    __slots__ = ("_variants", "expr")

    def __init__(self, expr: Expr) -> None:
        self.expr: Final = expr
        self._variants: dict[tuple[bool, bool], Variants] = {}

    def evaluate(self, my: ClassAd | None = None, target: ClassAd | None = None, now: float | None = None) -> Value:
        """What `shared.classad.evaluate(expr, my, target, now)` gives. Never raises."""
        if _flat(my) and _flat(target) and my is not target:
            sides = my is not None, target is not None
            variants = self._variants.get(sides)
            if variants is None:
                variants = self._variants[sides] = Variants(self._write)
            try:
                value: Value = variants.run(my, target, now)
                return value
            except (Unplannable, Deoptimized, PackedError):
                pass  # the evaluator knows what to do in all cases
        return evaluate(self.expr, my, target, now)

    def _write(self, my: ClassAd | None, target: ClassAd | None) -> tuple[Run | None, Guards, Guards]:
        left = None if my is None else Sampled(my, LEFT)
        right = None if target is None else Sampled(target, RIGHT)

        def write() -> Run:
            plan = Planner(left, right).plan(self.expr)
            writer = Writer()
            _guard(writer, left, right)
            writer.line(f"return {writer.clean(plan)}")
            return writer.function()

        try:
            run: Run | None = with_room(write)
        except Unplannable:
            run = None
        return run, {} if left is None else left.guards, {} if right is None else right.guards


def _guard(writer: Writer, *sides: Sampled | None) -> None:
    for number, side in enumerate(sides):
        if side is not None:
            for key, expected in side.guards.items():
                writer.guard(number, key, expected)


def compile_expr(expr: Expr) -> Compiled:
    """The compiled form of an expression, the same one for the same tree. Raises nothing, costs nothing yet."""
    known = _compiled.get(id(expr))
    if known is None:
        if len(_compiled) >= _EXPRESSIONS_LIMIT:
            _compiled.clear()
        known = _compiled[id(expr)] = Compiled(expr)  # which keeps the tree, so that its id is not used again
    return known


class Matcher:
    """An ad that meets many others. It is taken as it is now: later changes of the ad are not seen."""

    __slots__ = ("_ad", "_matches", "_original", "_ranks")

    def __init__(self, ad: ClassAd) -> None:
        self._original = ad
        self._ad = ad.copy()
        self._matches = Variants(lambda _, other: self._write(other, self._write_match))
        self._ranks = Variants(lambda _, other: self._write(other, self._write_rank))

    def matches(self, other: ClassAd, now: float | None = None) -> bool:
        """What `symmetric_match(ad, other, now)` gives: whether each ad accepts the other. Never raises."""
        if other.outer is None and other.chained is None and other is not self._original:
            try:
                answer: bool = self._matches.run(None, other, now)
                return answer
            except (Unplannable, Deoptimized, PackedError):
                pass  # the evaluator knows what to do in all cases
        return symmetric_match(self._as_met_by(other), other, now)

    def rank(self, other: ClassAd, now: float | None = None) -> float:
        """What `rank(ad, other, now=now)` gives: the ad's Rank of the other, 0.0 if it is no number. Never raises."""
        if other.outer is None and other.chained is None and other is not self._original:
            try:
                value = self._ranks.run(None, other, now)
                return float(value) if isinstance(value, bool | int | float) else 0.0
            except (Unplannable, Deoptimized, PackedError):
                pass  # the evaluator knows what to do in all cases
        return rank(self._as_met_by(other), other, now=now)

    def _as_met_by(self, other: ClassAd) -> ClassAd:
        return self._original if other is self._original else self._ad  # an ad that meets itself is one ad, not two

    def _write(
        self, other: ClassAd | None, write: Callable[[Known, Sampled], Run]
    ) -> tuple[Run | None, Guards, Guards]:
        assert other is not None
        side = Sampled(other, RIGHT)
        try:
            run: Run | None = with_room(lambda: write(Known(self._ad), side))
        except Unplannable:
            run = None
        return run, {}, side.guards

    @staticmethod
    def _write_match(left: Known, right: Sampled) -> Run:
        planner = Planner(left, right)
        own = planner.plan(_required(left), LEFT)
        theirs = planner.plan(_required(right), RIGHT)
        writer = Writer()
        _guard(writer, None, right)
        writer.require(own)
        writer.require(theirs)
        writer.line("return True")
        return writer.function()

    @staticmethod
    def _write_rank(left: Known, right: Sampled) -> Run:
        found = left.attribute(RANK.lower())
        plan = Planner(left, right).plan(_expression(found))
        writer = Writer()
        _guard(writer, None, right)
        writer.line(f"return {writer.clean(plan)}")
        return writer.function()


def _required(side: Known | Sampled) -> Expr:
    """The Requirements of an ad. Raises Unplannable where there are none, or (of a sample) a constant."""
    found = side.attribute(REQUIREMENTS.lower())
    if isinstance(found, Node) or found is None:
        raise Unplannable("no Requirements, or a constant")
    return found if isinstance(found, Expr) else Literal(found)


def _expression(found: Cell | Node | None) -> Expr:
    assert not isinstance(found, Node)
    return found if isinstance(found, Expr) else Literal(0.0 if found is None else found)


def compile_match(ad: ClassAd) -> Matcher:
    """A matcher for an ad that meets many others, on either side of a match. Compiles at the first match."""
    return Matcher(ad)
