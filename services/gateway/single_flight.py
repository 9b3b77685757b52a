"""Shares one answer among all who ask the same question at the same time: who comes while the answer is being made
waits for it, and the answer stays good for a moment afterwards."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

#: Seconds for which an answer is good.
FRESH_S: Final = 1.0
#: What took long to make is good for as long again: a large pool is not asked without a pause.
SHARE: Final = 1.0
MOST_ANSWERS: Final = 256


T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", bound="SharesAnswers")


@dataclass(slots=True)
class _Answer:
    task: asyncio.Task[Any]
    until: float  # monotonic; infinite while it is being made
    waiting: int = 0  # who waits for it


class SingleFlight:
    """monotonic: the clock, seconds. most: answers that are kept, also those that are no longer good."""

    def __init__(self, monotonic: Callable[[], float], most: int = MOST_ANSWERS) -> None:
        self._monotonic, self._most = monotonic, most
        self._kept: OrderedDict[Hashable, _Answer] = OrderedDict()

    async def get(
        self, key: Hashable, make: Callable[[], Awaitable[T]], for_s: float = FRESH_S, share: float = SHARE
    ) -> T:
        """The answer to this question, good for so many seconds and for so many times as long as it took. A failure is
        told to all who wait, and not kept."""
        now = self._monotonic()
        kept = self._kept.get(key)
        if kept is None or kept.until <= now:
            kept = self._kept[key] = _Answer(asyncio.ensure_future(_awaited(make)), float("inf"))
            kept.task.add_done_callback(lambda task: self._done(key, task, now, for_s, share))
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        # One who hangs up must not end it for the others; the last of them does.
        kept.waiting += 1
        try:
            found: T = await asyncio.shield(kept.task)
        finally:
            kept.waiting -= 1
            if not kept.waiting and not kept.task.done():
                self._forget(key, kept)
                kept.task.cancel()
        return found

    def _forget(self, key: Hashable, answer: _Answer) -> None:
        if self._kept.get(key) is answer:
            del self._kept[key]

    def _done(self, key: Hashable, task: asyncio.Task[Any], began: float, for_s: float, share: float) -> None:
        kept = self._kept.get(key)
        failed = task.cancelled() or task.exception() is not None
        if kept is None or kept.task is not task:
            return
        if failed:
            del self._kept[key]
        else:
            now = self._monotonic()
            kept.until = now + max(for_s, (now - began) * share)


async def _awaited(make: Callable[[], Awaitable[Any]]) -> Any:
    return await make()


class SharesAnswers:
    """Has methods that are `shared`. monotonic: the clock, seconds; most: answers that are kept."""

    def __init__(self, monotonic: Callable[[], float], most: int = MOST_ANSWERS) -> None:
        self.single_flight = SingleFlight(monotonic, most)


def shared(
    for_s: float = FRESH_S,
    share: float = SHARE,
) -> Callable[
    [Callable[Concatenate[S, P], Coroutine[Any, Any, T]]], Callable[Concatenate[S, P], Coroutine[Any, Any, T]]
]:
    """A method whose answer is shared among all who call it with the same arguments. The arguments are hashable, and
    nobody changes the answer."""

    def decorate(
        method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
    ) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
        @wraps(method)
        async def ask(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            key = (method.__name__, args, frozenset(kwargs.items()))
            return await self.single_flight.get(key, lambda: method(self, *args, **kwargs), for_s, share)

        return ask

    return decorate
