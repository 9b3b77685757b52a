"""Lets long work yield to others now and then: leases, heartbeats and other requests share the event loop with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Final, ParamSpec, TypeVar

#: Seconds of work between two looks at other messages.
SLICE_S: Final = 0.005
#: Characters of expressions and the like that are read on the event loop; longer ones are read in a thread.
SHORT: Final = 8_000

P = ParamSpec("P")
T = TypeVar("T")


class Yielder:
    """One for each piece of work: `await yielder.yield_if_due()` wherever others may see what is done so far."""

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_S

    def due(self) -> bool:
        """Whether this turn has lasted long enough."""
        return time.perf_counter() > self._until

    async def yield_if_due(self) -> None:
        """Let others have their turn, once this one has lasted long enough. Costs next to nothing before that."""
        if self.due():
            await asyncio.sleep(0)
            self._until = time.perf_counter() + SLICE_S


def at_once(steps: Generator[None, None, T]) -> T:
    """Carry out work that stops where others may have their turn, without any."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found


async def in_turns(steps: Generator[None, None, T]) -> T:
    """Carry out such work, and let others have their turn."""
    turn = Yielder()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: T = done.value
            return found
        await turn.yield_if_due()


async def reading(characters: int, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `read` makes of a text of so many characters: at once if it is short, else in a thread."""
    if characters <= SHORT:
        return read(*args, **kwargs)
    return await asyncio.to_thread(read, *args, **kwargs)
