"""Questions of others that are answered on an event loop, ad by ad: with a budget, and in turns."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractContextManager
from typing import Final
from weakref import WeakKeyDictionary

from shared.caller import check_caller
from shared.classad.budget import Budget
from shared.cooperative import SLICE_S

#: Turns of the loop that others have at most for one slice that took long.
MOST_TURNS: Final = 20

#: By loop: held by the question that goes on next.
_lanes: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class Question:
    """One question of somebody else, as a context: a budget is open inside, and it gives way between ads.

        async with Question(Budget("this query")) as question:
            for ad in ads:
                ...
                await question.yield_if_due()

    Of all questions on a loop one goes on between two looks at messages, however many there are; and a slice that took
    longer than it should gives others as many more turns.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._began = time.perf_counter()
        self._opened: AbstractContextManager[Budget] | None = None

    async def __aenter__(self) -> Question:
        self._opened = self.budget.open()
        self._opened.__enter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._opened is not None
        self._opened.__exit__(None, None, None)

    def due(self) -> bool:
        """Whether this turn has lasted long enough."""
        return time.perf_counter() - self._began > SLICE_S

    async def yield_if_due(self) -> None:
        """Let others have their turn, once this one has lasted long enough. Raises TooExpensive where the budget is
        spent, CallerGone where nobody waits for the answer any more."""
        lasted = time.perf_counter() - self._began
        if lasted > SLICE_S:
            self.budget.check()
            check_caller()
            async with _lane():
                for _ in range(min(MOST_TURNS, int(lasted / SLICE_S))):
                    await asyncio.sleep(0)
            check_caller()  # others' turns took as long as they took
            self._began = time.perf_counter()


def _lane() -> asyncio.Lock:
    loop = asyncio.get_running_loop()
    lane = _lanes.get(loop)
    if lane is None:
        lane = _lanes[loop] = asyncio.Lock()
    return lane
