"""Whether execution points are there, as the broker sees it: before one is asked for a slot with a job in the same
message, since what a dead one may have taken must be waited for (LEA-09), and what nobody was told need not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from shared.bus.api import BusUnavailable
from shared.daemon.context import Context


class Presence:
    """Asks the broker about all startds at once that somebody wants to know of. spawn: begins a task with a name."""

    def __init__(self, context: Context, spawn: Callable[[Coroutine[Any, Any, None], str], object]) -> None:
        self._context = context
        self._spawn = spawn
        self._asked: dict[str, asyncio.Future[bool]] = {}

    async def absent(self, startd: str) -> bool:
        """Whether nobody serves this inbox, which somebody served before. False where the broker can not tell."""
        answer = self._asked.get(startd)
        if answer is None:
            answer = self._asked[startd] = asyncio.get_running_loop().create_future()
            if len(self._asked) == 1:
                self._spawn(self._look(), "presence")
        return await asyncio.shield(answer)

    async def _look(self) -> None:
        await asyncio.sleep(0)  # those who ask in the same turn share the question
        asked, self._asked = self._asked, {}
        served: dict[str, bool] = {}
        try:
            served = await self._context.bus.served(list(asked))
        except BusUnavailable as error:
            self._context.log.info("presence_unknown", reason=str(error))
        finally:
            for startd, answer in asked.items():
                if not answer.done():
                    answer.set_result(served.get(startd) is False)
