"""Parts of an answer for which a page does not wait for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from shared.errors import RoostError
from shared.tasks import TaskSet


class InTime:
    """patience_s: how long each part is waited for."""

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self._parts = TaskSet(failed=lambda _task, _error: None)  # told to who asks next

    async def get(self, part: Coroutine[Any, Any, Any]) -> Any:
        """A part of an answer, or {"error": why there is none}. What takes longer is still made, for those who ask
        next: begun anew by each of them it would never be done. Whose question is cancelled cancels it."""
        task = self._parts.spawn(part, "part of an answer")
        try:
            await asyncio.wait((task,), timeout=self.patience_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.done():
            return {"error": f"no answer within {self.patience_s:g} s"}
        try:
            return task.result()
        except RoostError as error:
            return {"error": str(error) or type(error).__name__}

    async def stop(self) -> None:
        """End what is still made."""
        await self._parts.cancel()
