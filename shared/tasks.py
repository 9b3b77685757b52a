"""Background tasks of one owner: kept from being collected as garbage, reported when they fail, and ended together.

The root tasks of a daemon are no matter of this: any end of theirs ends the daemon (shared.daemon.lifecycle).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class TaskSet:
    """Tasks that are under way, in the order in which they were started.

    failed: called with the task and its error when a task raises one. Without it, asyncio tells of an error that nobody
    has looked at.
    """

    def __init__(self, failed: Callable[[asyncio.Task[Any], BaseException], None] | None = None) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._failed = failed

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task: object) -> bool:
        return task in self._tasks

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(list(self._tasks))

    def others(self) -> list[asyncio.Task[Any]]:
        """All but the task that calls this."""
        current = asyncio.current_task()
        return [task for task in self._tasks if task is not current]

    async def finish(self, timeout_s: float | None = None) -> None:
        """Wait until all others have ended, or for so long."""
        if others := self.others():
            await asyncio.wait(others, timeout=timeout_s)

    async def cancel(self) -> None:
        """Cancel all others, and wait until they have ended."""
        others = self.others()
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if self._failed is not None and not task.cancelled() and (error := task.exception()) is not None:
            self._failed(task, error)
