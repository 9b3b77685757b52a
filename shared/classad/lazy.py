"""Lists as values, and how an evaluation is given up.

A list is evaluated item by item, in the scope it was written in, when somebody asks: that is what lets an ad hold
a list of expressions of which one is asked for, and lets a list that contains itself have an end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from shared.classad.expr import Expr, Literal
from shared.classad.values import ERROR, Value

if TYPE_CHECKING:
    from shared.classad.evaluate import Evaluation

MAX_ROUNDS: Final = 4  # times a list item may be entered from within itself


class TooMuch(Exception):
    """The evaluation went beyond a bound; the whole of it is ERROR."""


class ListValue(list[Value]):
    """A list whose items came from expressions: `source` is what it prints as."""

    __slots__ = ("source",)

    def __init__(self, values: Iterable[Value], source: tuple[Expr, ...]) -> None:
        super().__init__(values)
        self.source = source


class LazyList(ListValue):
    """A list inside an evaluation: an item is evaluated when it is asked for, in the scope the list was written in.

    Only reading is supported (len, iteration, subscripts), which is all that functions do with a list.
    """

    __slots__ = ("_my", "_run", "_target", "scope")

    def __init__(self, items: tuple[Expr, ...], run: Evaluation) -> None:
        super().__init__((), items)
        self._run = run
        self._my, self._target, self.scope = run.my, run.target, run.scope

    def item(self, index: int) -> Value:
        """The value of one item: ERROR if it goes too deep or needs itself too often (as in the reference).

        Raises TooMuch for too many steps only.
        """
        expr = self.source[index]
        if isinstance(expr, Literal):
            return expr.value
        run = self._run
        mark = (id(expr), id(self.scope))
        rounds = run.rounds.get(mark, 0)
        if rounds >= MAX_ROUNDS:
            return ERROR
        saved = run.state()
        run.rounds[mark] = rounds + 1
        run.my, run.target, run.scope = self._my, self._target, self.scope
        try:
            value = run.visit(expr)
        except TooMuch:
            run.recover()
            value = ERROR
        run.restore(saved)
        return value

    def __len__(self) -> int:
        return len(self.source)

    def __bool__(self) -> bool:
        return bool(self.source)

    def __iter__(self) -> Iterator[Value]:
        for index in range(len(self.source)):
            yield self.item(index)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self.item(each) for each in range(*index.indices(len(self.source)))]
        return self.item(range(len(self.source))[index])
