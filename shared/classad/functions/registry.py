"""What a builtin function is to the evaluator.

A *strict* function (`call`) is handed the values of its arguments; a *lazy* one (`lazy`) is handed the evaluation
in progress and the argument expressions, and evaluates what it needs. Exactly one of the two is set. A wrong number
of arguments is for the evaluator to see: outside `min_args`..`max_args` the value of the call is ERROR and neither
is invoked. No builtin raises: a wrong argument makes ERROR or UNDEFINED.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from shared.classad.values import Value

if TYPE_CHECKING:
    from shared.classad.context import Context
    from shared.classad.expr import Expr

Strict: TypeAlias = Callable[[list[Value]], Value]
Lazy: TypeAlias = "Callable[[Context, tuple[Expr, ...]], Value]"


@dataclass(frozen=True, slots=True)
class Function:
    """One builtin. `max_args` None means any number; `name` is spelled as the manual spells it.

    `costly` is set where one call can take long whatever its arguments look like (regular expressions, eval,
    countMatches), so that an evaluation must count the time and not the calls. Of every other function it does so for
    long texts, lists and ads only.
    """

    name: str
    min_args: int
    max_args: int | None
    call: Strict | None = None
    lazy: Lazy | None = None
    costly: bool = False

    def accepts(self, count: int) -> bool:
        """Whether the function can be called with `count` arguments."""
        return count >= self.min_args and (self.max_args is None or count <= self.max_args)


def table(*functions: Function) -> dict[str, Function]:
    """The functions by lower-case name, as the evaluator looks them up."""
    return {function.name.lower(): function for function in functions}
