"""The plain evaluator: what the language means. The faster gears are held equal to this one.

Four-valued logic, scopes and bounds:

* An unscoped name is looked up in the ad around the expression, then in the ads around that one, and then, if the
  expression stands in an outermost ad, in the other ad of the match, from whose side it is then evaluated. `MY` is
  the ad around the expression, `TARGET` the other ad; an attribute of that name goes first.
* A name that is needed to evaluate itself is UNDEFINED where the circle closes.
* At most MAX_DEPTH operators and references may be open at once; a deeper evaluation is ERROR as a whole. So is one
  that takes more than MAX_STEPS steps or EVALUATION_S seconds of processor time, or whose functions make more than
  MAX_MADE characters and items, where the reference would go on for hours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from time import thread_time
from typing import Final, ParamSpec, TypeAlias

from shared.classad import operators
from shared.classad.ad import ClassAd
from shared.classad.budget import Budget, present
from shared.classad.cells import Cell, PackedError, as_expr
from shared.classad.depth import with_room
from shared.classad.expr import (
    CURRENT_TIME,
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
from shared.classad.functions import FUNCTIONS
from shared.classad.functions.coerce import MAX_ITEMS
from shared.classad.lazy import LazyList, ListValue, TooMuch
from shared.classad.values import ERROR, UNDEFINED, Value

MAX_DEPTH: Final = 400
MAX_FRAMES: Final = 3_000  # nested evaluations of any kind: calls and list items do not count as depth
MAX_STEPS: Final = 25_000  # what a policy takes is tens to hundreds
EVALUATION_S: Final = 0.015  # of processor time, looked at where an evaluation takes CLOCK_STEPS steps or more
CLOCK_STEPS: Final = 500
MAX_MADE: Final = 1 << 20  # characters of texts and items of lists that functions make
STEPS_PER_SECOND: Final = 500_000  # of processor time in what can take long: as many as the walk does
LONG_TEXT: Final = 128  # characters; what handles a longer text is timed
STEPS_OF_AD: Final = 5  # of a nested ad that is made
ITEMS_PER_STEP: Final = 8  # of lists that are copied item by item

P = ParamSpec("P")

_SPECIAL: Final = frozenset(("my", "self", "target", "other", "parent", "root", "toplevel", CURRENT_TIME))


Marks: TypeAlias = "set[tuple[int, str | int]]"
Rounds: TypeAlias = "dict[tuple[int, int], int]"
State: TypeAlias = "tuple[ClassAd | None, ClassAd | None, ClassAd | None, int, int, Marks, Rounds]"


class Evaluation:
    """One evaluation in progress; also the context that lazy functions see (`Context`)."""

    __slots__ = (
        *("_end", "_frames", "_look", "_nested", "_open", "depth", "made", "my", "now", "rounds", "scope", "seconds"),
        *("steps", "target"),
    )

    def __init__(self, my: ClassAd | None, target: ClassAd | None, now: float | None = None) -> None:
        self.my = my
        self.target = target
        self.scope: ClassAd | None = my
        self.now = time.time() if now is None else now
        self.depth = 0
        self._frames = 0
        self.steps = 0
        self.made = 0  # characters and items
        self.seconds = EVALUATION_S  # of processor time that it may take
        self._look = CLOCK_STEPS  # the steps at which the clock is looked at next
        self._end = 0.0
        self.rounds: Rounds = {}
        self._open: Marks = set()
        self._nested: dict[tuple[int, int], tuple[ClassAd, AdExpr]] = {}

    # The protocol for functions

    def evaluate(self, expr: Expr) -> Value:
        """The value of `expr` at this place."""
        return self.visit(expr)

    def evaluate_in(self, expr: Expr, my: ClassAd) -> Value:
        """The value of `expr` with `my` as the ad around it."""
        saved = self.my, self.target, self.scope
        if outermost(my) is self.target:
            self.target = self.my
        self.my = self.scope = my
        try:
            return self.visit(expr)
        finally:
            self.my, self.target, self.scope = saved

    def lookup(self, name: str) -> Expr | None:
        """The expression that an unscoped `name` refers to here."""
        found = self._find(fold(name))
        return None if found is None else as_expr(found[0])

    def finished(self, value: Value) -> Value:
        """A value for the outside: lists with all their items evaluated.

        An item that goes too deep is ERROR, and a list that contains itself has UNDEFINED there.
        """
        if not isinstance(value, LazyList):
            return [self.finished(item) for item in value] if isinstance(value, list) else value
        mark = (id(value.source), id(value.scope))
        if mark in self._open:
            return UNDEFINED
        self._open.add(mark)
        self._spend(len(value.source) // ITEMS_PER_STEP)
        values = [self.finished(item) for item in value]
        self._open.discard(mark)
        return ListValue(values, value.source)

    # What a list item needs to be evaluated elsewhere, and to fail alone

    def state(self) -> State:
        """What an evaluation changes while it goes on, but for the number of its steps."""
        return self.my, self.target, self.scope, self.depth, self._frames, self._open.copy(), self.rounds.copy()

    def restore(self, state: State) -> None:
        """Go back to a state."""
        self.my, self.target, self.scope, self.depth, self._frames, self._open, self.rounds = state

    def recover(self) -> None:
        """Go on after TooMuch, or raise it again if it was too many steps."""
        if self.steps > MAX_STEPS:
            raise TooMuch

    def _spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > self._look:
            self._check()

    def _check(self) -> None:
        """Raises TooMuch when the evaluation went on for too long; for good, whatever part of it is given up."""
        now = thread_time()
        if not self._end:
            self._end = now + self.seconds
        if self.steps > MAX_STEPS or now > self._end:
            self.steps = max(self.steps, MAX_STEPS + 1)
            raise TooMuch
        self._look = min(self.steps + CLOCK_STEPS, MAX_STEPS)

    def _make(self, amount: int) -> None:
        """Count what a function made: a long text, or a list."""
        self.made += amount
        if self.made > MAX_MADE:
            self.steps = max(self.steps, MAX_STEPS + 1)
            raise TooMuch

    # The walk

    def visit(self, expr: Expr) -> Value:
        """The value of one node. Raises TooMuch."""
        if type(expr) is Literal:
            return expr.value
        self.steps += 1
        self._frames += 1
        if self.steps > self._look:
            self._check()
        if self._frames > MAX_FRAMES:
            raise TooMuch
        value = _VISIT[expr.kind](self, expr)
        self._frames -= 1
        return value

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooMuch

    def _literal(self, node: Literal) -> Value:
        return node.value

    def _unary(self, node: Unary) -> Value:
        self._enter()
        value = operators.unary(node.op, self.visit(node.operand))
        self.depth -= 1
        return value

    def _parens(self, node: Parens) -> Value:
        self._enter()
        value = self.visit(node.inner)
        self.depth -= 1
        return value

    def _binary(self, node: Binary) -> Value:
        self._enter()
        op = node.op
        left = self.visit(node.left)
        if op == "&&" or op == "||":
            decided = operators.logic_left(op, left)
            value = operators.logic(op, left, self.visit(node.right)) if decided is None else decided
        else:
            right = self.visit(node.right)
            long = type(left) is str and len(left) > LONG_TEXT and type(right) is str
            value = self._timed(operators.binary, op, left, right) if long else operators.binary(op, left, right)
        self.depth -= 1
        return value

    def _ternary(self, node: Ternary) -> Value:
        self._enter()
        condition = operators.truth(self.visit(node.condition))
        value: Value
        if condition is True:
            value = self.visit(node.then)
        elif condition is False:
            value = self.visit(node.otherwise)
        else:
            value = condition
        self.depth -= 1
        return value

    def _elvis(self, node: Elvis) -> Value:
        self._enter()
        value = self.visit(node.left)
        if value is UNDEFINED:
            value = self.visit(node.right)
        self.depth -= 1
        return value

    def _list(self, node: ListExpr) -> Value:
        return LazyList(node.items, self)

    def _ad(self, node: AdExpr) -> Value:
        return self.nested(node)

    def nested(self, node: AdExpr) -> ClassAd:
        """The ad that `node` stands for inside the present scope: one and the same all through an evaluation."""
        key = (id(node), id(self.scope))
        known = self._nested.get(key)
        if known is None:
            self._spend(STEPS_OF_AD + len(node.attrs) // ITEMS_PER_STEP)
            known = self._nested[key] = (ClassAd.of(node, self.scope), node)
        return known[0]

    def _call(self, node: Call) -> Value:
        function = FUNCTIONS.get(node.key)
        if function is None or not function.accepts(len(node.args)):
            return ERROR
        if function.lazy is not None:
            return self._timed(function.lazy, self, node.args) if function.costly else function.lazy(self, node.args)
        assert function.call is not None
        arguments = [self.visit(argument) for argument in node.args]
        if function.costly or any(map(_large, arguments)):
            if any(isinstance(argument, list) and len(argument) > MAX_ITEMS for argument in arguments):
                return ERROR
            value = self._timed(function.call, arguments)
            self._spend(0)
        else:
            value = function.call(arguments)
        if type(value) is str:
            if len(value) > LONG_TEXT:
                self._make(len(value))
        elif isinstance(value, list):
            self._make(len(value))
        return value

    def _timed(self, work: Callable[P, Value], *args: P.args, **kwargs: P.kwargs) -> Value:
        """The value of something of which one step can be long: it costs its processor time, or the steps that were
        counted inside it if they are more. Raises TooMuch."""
        began, steps = thread_time(), self.steps
        try:
            return work(*args, **kwargs)
        finally:
            self.steps = max(self.steps, steps + int((thread_time() - began) * STEPS_PER_SECOND))

    def _subscript(self, node: Subscript) -> Value:
        self._enter()
        base, index = self.visit(node.base), self.visit(node.index)
        value: Value
        if base is ERROR or index is ERROR:
            value = ERROR
        elif base is UNDEFINED or index is UNDEFINED:
            value = UNDEFINED
        elif isinstance(base, list):
            if type(index) is not int or not 0 <= index < len(base):
                value = ERROR
            elif isinstance(base, LazyList):
                self._enter()
                value = base.item(index)
                self.depth -= 1
            else:
                value = base[index]
        elif isinstance(base, ClassAd) and isinstance(index, str):
            value = self._attribute(base, fold(index))
        else:
            value = ERROR
        self.depth -= 1
        return value

    # Names

    def _attr(self, node: AttrRef) -> Value:
        if self.depth == MAX_DEPTH and self._leads_nowhere(node):
            return UNDEFINED  # a name that leads nowhere costs no depth
        self._enter()
        value: Value
        if node.scope is not None:
            base = self._side(node.scope) if self.depth < MAX_DEPTH else None
            value = self._select(self.visit(node.scope) if base is None else base, node.key)
        elif node.absolute:
            root = self._root()
            value = self._attribute(root, node.key)
            if node.key == CURRENT_TIME and root.find(node.key) is None:
                value = int(self.now)
        else:
            value = self._name(node.key)
        self.depth -= 1
        return value

    def _side(self, scope: Expr) -> ClassAd | None:
        """The ad that `MY` or `TARGET` means, in the plain case that it stands in an outermost ad of a match and no
        attribute has that name; None in any other."""
        my = self.my
        if my is None or self.scope is not my or type(scope) is not AttrRef:
            return None
        if scope.key == "target":
            found = self.target
        elif scope.key == "my":
            found = my
        else:
            return None
        return None if scope.scope is not None or scope.absolute or my.find(scope.key) is not None else found

    def _leads_nowhere(self, node: AttrRef) -> bool:
        """Whether a bare name is known in no ad."""
        bare = node.scope is None and not node.absolute and node.key not in _SPECIAL
        return bare and self._find(node.key) is None

    def _select(self, base: Value, key: str) -> Value:
        """`base.key`: of an ad or those around it; of a list, the list of its items' selections."""
        if isinstance(base, ClassAd):
            value = self._inside(base, key)
            return UNDEFINED if value is None else value
        if isinstance(base, list):
            self._frames += 1
            if self._frames > MAX_FRAMES:
                raise TooMuch
            items = self._items_here(base) if isinstance(base, LazyList) else base
            values = [self._select(item, key) for item in items]
            self._spend(len(values) // ITEMS_PER_STEP)
            self._frames -= 1
            return values
        return UNDEFINED if base is UNDEFINED else ERROR

    def _items_here(self, base: LazyList) -> Iterator[Value]:
        """The items of a list that is selected from. As in the reference, names in it mean what they mean here, not
        where the list was written; nested ads and lists stay where they are."""
        for index, item in enumerate(base.source):
            yield base.item(index) if isinstance(item, AdExpr | ListExpr | Literal) else self.visit(item)

    def _name(self, key: str) -> Value:
        scope = self.scope
        if scope is None:
            return UNDEFINED
        value = self._inside(scope, key)
        if value is None:
            beyond = self.target if scope is self.my else None
            value = UNDEFINED if beyond is None else self._attribute(beyond, key)
        return value

    def _inside(self, start: ClassAd, key: str) -> Value | None:
        """The value of a name in an ad or one around it; None if it is unknown there."""
        owner: ClassAd | None = start
        while owner is not None:
            cell = owner.find(key)
            if cell is not None:
                return self.value(owner, key, cell)
            if key in _SPECIAL:
                special = self._special(key, owner)
                if special is not None:
                    return special
            owner = owner.outer
        return None

    def _special(self, key: str, owner: ClassAd) -> Value | None:
        """The ads that have names of their own, seen from `owner`, and the time; None if there is none of that name."""
        if key == "my" or key == "self":
            return owner
        if key == "target" or key == "other":
            return self.target if owner is self.my else self.my if owner is self.target else None
        if key == "parent":
            return UNDEFINED if owner.outer is None else owner.outer
        return int(self.now) if key == CURRENT_TIME else self._root()

    def _root(self) -> ClassAd:
        """The outermost ad. In a match that is the match itself, which has no attributes to be found there."""
        if self.my is None:
            raise TooMuch  # there is no outermost ad: the reference gives no value to the whole expression
        return self.my if self.target is None else ClassAd()

    def _find(self, key: str) -> tuple[Cell, ClassAd] | None:
        owner = start = self.scope
        while owner is not None:
            cell = owner.find(key)
            if cell is not None:
                return cell, owner
            owner = owner.outer
        if start is not None and start is self.my and self.target is not None:
            cell = self.target.find(key)
            if cell is not None:
                return cell, self.target
        return None

    def _attribute(self, owner: ClassAd, key: str) -> Value:
        """The value of an attribute of `owner` itself."""
        cell = owner.find(key)
        return UNDEFINED if cell is None else self.value(owner, key, cell)

    def value(self, owner: ClassAd, key: str, cell: Cell) -> Value:
        """The value of an attribute's cell, evaluated from the side `owner` is on."""
        if not isinstance(cell, Expr):
            return cell
        mark = (id(owner), key)
        if mark in self._open:
            return UNDEFINED
        saved = self.my, self.target, self.scope
        root = outermost(owner)
        if root is self.target and root is not self.my:
            self.my, self.target = self.target, self.my
        self.scope = owner
        self._open.add(mark)
        value = self.visit(cell)
        self._open.discard(mark)
        self.my, self.target, self.scope = saved
        return value


def _large(value: Value) -> bool:
    """Whether a function can be busy with an argument for long."""
    if type(value) is str:
        return len(value) > LONG_TEXT
    return isinstance(value, list | ClassAd)


def outermost(ad: ClassAd) -> ClassAd:
    """The ad that all the ads around `ad` are in."""
    while ad.outer is not None:
        ad = ad.outer
    return ad


_VISIT: Final[tuple[Callable[..., Value], ...]] = (
    Evaluation._literal,
    Evaluation._attr,
    Evaluation._unary,
    Evaluation._binary,
    Evaluation._ternary,
    Evaluation._elvis,
    Evaluation._parens,
    Evaluation._subscript,
    Evaluation._call,
    Evaluation._list,
    Evaluation._ad,
)


def evaluate(expr: Expr, my: ClassAd | None = None, target: ClassAd | None = None, now: float | None = None) -> Value:
    """The value of `expr` with `my` as the ad around it and `target` as the other ad of a match.

    `now` (seconds since the epoch) is what time() gives; the present when it is None. Never raises for any
    expression: what goes beyond the bounds of this module is ERROR. Raises TooExpensive where a budget is open and
    spent (shared.classad.budget).
    """
    if type(expr) is Literal and present() is None:
        return expr.value  # most policies
    return with_room(_evaluate, expr, my, target, now)


def _evaluate(expr: Expr, my: ClassAd | None, target: ClassAd | None, now: float | None) -> Value:
    return _finished(Evaluation(my, target, now), expr)


def _finished(run: Evaluation, expr: Expr) -> Value:
    budget = present()
    if budget is not None:
        return _charged(run, expr, budget)
    try:
        return run.finished(run.visit(expr))
    except (TooMuch, PackedError):
        return ERROR


def _charged(run: Evaluation, expr: Expr, budget: Budget) -> Value:
    """Within what is left of a budget. Raises TooExpensive."""
    if not budget.check():
        return ERROR
    began = thread_time()
    if budget.soft:
        run.seconds = min(run.seconds, budget.seconds)
    try:
        return run.finished(run.visit(expr))
    except (TooMuch, PackedError):
        return ERROR
    finally:
        budget.charge(run.steps, run.made, thread_time() - began)


def evaluate_attribute(ad: ClassAd, key: str, target: ClassAd | None = None, now: float | None = None) -> Value:
    """The value of the attribute of `ad` with the folded name `key`; UNDEFINED if there is none. Never raises."""
    return with_room(_evaluate_attribute, ad, key, target, now)


def _evaluate_attribute(ad: ClassAd, key: str, target: ClassAd | None, now: float | None) -> Value:
    try:
        cell = ad.find(key)
        if cell is None:
            return UNDEFINED
        if not isinstance(cell, Expr):
            return cell
        return _finished(Evaluation(ad, target, now), cell)
    except PackedError:
        return ERROR
