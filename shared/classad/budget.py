"""What one question may cost, all its evaluations together: steps, text made, processor time.

    with Budget("constraint", steps=2_500_000, made=64 << 20, seconds=5.0).open():
        ...  # what is evaluated here, by whatever gear, is charged; TooExpensive says which limit was met

A single evaluation has bounds of its own (shared.classad.evaluate), beyond which its value is ERROR. They do not help
where one expression meets 100,000 ads, so whoever answers questions of others opens a budget around them. Who decides
for the pool and must go on (policies of jobs and slots) opens a `soft` one: beyond it every evaluation is ERROR.

The open budget is a context variable: it goes with a task across its awaits, and into `asyncio.to_thread`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import thread_time
from typing import Final, TypeVar

from shared.errors import PermanentError

#: Bounds of one question of somebody else. Honest ones stay far below: a constraint over 100,000 ads that has no plan
#: takes 2 s and 1,000,000 steps.
QUESTION_STEPS: Final = 10_000_000
QUESTION_MADE: Final = 256 << 20  # characters of texts and items of lists that functions made
QUESTION_S: Final = 5.0  # processor time
#: Bounds of what the policies of one job or slot may take together, where they are evaluated on an event loop.
POLICY_S: Final = 0.012
#: Bounds of what the expressions in one message of ads may take, to be read and evaluated as it is taken in; what each
#: of them takes up to FREE_S counts nothing, so that thousands of ordinary ones fit.
ADS_S: Final = 0.02
FREE_S: Final = 0.0001


T = TypeVar("T")


class TooExpensive(PermanentError):
    """A question met a limit of its budget. The text names the limit and the mend."""

    code: Final = "too-expensive"


class Budget:
    """What is left for one question. Not for several threads at once."""

    __slots__ = ("free", "made", "seconds", "soft", "steps", "what")

    def __init__(
        self,
        what: str,
        *,
        steps: int = QUESTION_STEPS,
        made: int = QUESTION_MADE,
        seconds: float = QUESTION_S,
        soft: bool = False,
        free: float = 0.0,
    ) -> None:
        """what: names the question for people; soft: beyond the limits evaluations are ERROR, and nothing is raised.
        free: seconds of each evaluation that count nothing."""
        self.what = what
        self.steps = steps
        self.made = made
        self.seconds = seconds
        self.soft = soft
        self.free = free

    @property
    def spent(self) -> str:
        """The limit that was met; empty: none."""
        if self.steps < 0:
            return "steps of evaluation"
        if self.made < 0:
            return "text and lists made by functions"
        return "processor time" if self.seconds < 0 else ""

    def charge(self, steps: int, made: int, seconds: float) -> None:
        """Count what was done."""
        self.steps -= steps
        self.made -= made
        self.seconds -= max(0.0, seconds - self.free)

    def check(self) -> bool:
        """Whether there is something left. Raises TooExpensive where there is not, unless the budget is soft."""
        if self.steps >= 0 and self.made >= 0 and self.seconds >= 0:
            return True
        if self.soft:
            return False
        raise TooExpensive(
            f"{self.what}: the limit of {self.spent} for one question is met; ask about fewer ads, or with a simpler "
            "expression"
        )

    @contextmanager
    def open(self) -> Iterator[Budget]:
        """Charge this budget with all that is evaluated inside."""
        token = _open.set(self)
        try:
            yield self
        finally:
            _open.reset(token)

    def over(self, steps: Generator[None, None, T]) -> Generator[None, None, T]:
        """Charge this budget with what is evaluated in these steps, and not with what others do in between."""
        while True:
            with self.open():
                try:
                    next(steps)
                except StopIteration as done:
                    found: T = done.value
                    return found
            yield

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Charge the processor time of what happens inside, which must not await. Raises TooExpensive before it."""
        self.check()
        began = thread_time()
        try:
            yield
        finally:
            self.seconds -= thread_time() - began


_open: ContextVar[Budget | None] = ContextVar("budget", default=None)


def present() -> Budget | None:
    """The budget that is open here."""
    return _open.get()


def policies(what: str) -> Budget:
    """A budget for the policies of one job or slot."""
    return Budget(what, seconds=POLICY_S, soft=True)


def ads_of(daemon: str) -> Budget:
    """A budget for the expressions of the ads in one message of a daemon, as they are taken in."""
    return Budget(f"the ads of {daemon[:80]}", steps=1 << 62, made=1 << 62, seconds=ADS_S, soft=True, free=FREE_S)
