"""Whether execution points are there, as the broker sees it: before one is asked for a slot with a job in the same
message, since what a dead one may have taken must be waited for (LEA-09), and what nobody was told need not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from shared.bus.api import BusUnavailable
from shared.daemon.context import Context

#: An execution point that is not at the broker is not asked. So long it may take to come back, as one does that is
#: started anew or reaches another node of the broker; then the match is given up.
ABSENT_PATIENCE_S: Final = 5.0


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

    def watch(self, startd: str) -> Absence:
        return Absence(self, startd, self._context.clock.monotonic)

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


class Absence:
    """Since when one execution point has been absent, as somebody sees it who looks before each of his requests."""

    def __init__(self, presence: Presence, startd: str, monotonic: Callable[[], float]) -> None:
        self._presence = presence
        self._startd = startd
        self._monotonic = monotonic
        self._since: float | None = None

    async def look(self) -> bool:
        """Whether it is absent now."""
        if not await self._presence.absent(self._startd):
            self._since = None
        elif self._since is None:
            self._since = self._monotonic()
        return self._since is not None

    @property
    def is_long(self) -> bool:
        """Whether it was absent in every look for ABSENT_PATIENCE_S."""
        return self._since is not None and self._monotonic() - self._since >= ABSENT_PATIENCE_S
