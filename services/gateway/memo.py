"""Answers that many people look at, asked for once: who asks while one is being made waits for that one, and for a
moment afterwards it serves all."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final

#: Seconds for which an answer is good.
FOR_S: Final = 1.0
#: What took long to make is good for as long again: a large pool is not asked without a pause.
SHARE: Final = 1.0
MOST: Final = 256


@dataclass(slots=True)
class _Kept:
    task: asyncio.Task[Any]
    until: float  # monotonic; infinite while it is being made


class Memo:
    """monotonic: the clock, seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    async def get(self, key: Hashable, make: Callable[[], Awaitable[Any]], for_s: float = FOR_S) -> Any:
        """The answer to this question. A failure is told to all who wait, and not kept."""
        now = self._monotonic()
        kept = self._kept.get(key)
        if kept is None or kept.until <= now:
            kept = self._kept[key] = _Kept(asyncio.ensure_future(_made(make)), float("inf"))
            kept.task.add_done_callback(lambda task: self._done(key, task, now, for_s))
            self._kept.move_to_end(key)
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)
        # One who hangs up must not end it for the others.
        return await asyncio.shield(kept.task)

    def _done(self, key: Hashable, task: asyncio.Task[Any], began: float, for_s: float) -> None:
        kept = self._kept.get(key)
        failed = task.cancelled() or task.exception() is not None
        if kept is None or kept.task is not task:
            return
        if failed:
            del self._kept[key]
        else:
            now = self._monotonic()
            kept.until = now + max(for_s, (now - began) * SHARE)


async def _made(make: Callable[[], Awaitable[Any]]) -> Any:
    return await make()
