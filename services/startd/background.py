"""Work in the background that ends with the daemon, and the two things that the timers wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import structlog


class BackgroundTasks:
    """Tasks that are not waited for. A mistake in one is logged, and the daemon goes on."""

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._closing:
            work.close()
            return
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The one place for mistakes of ours outside of the root tasks: loud, and the daemon goes on.
            self._log.error("task_failed", task=task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancel what goes on, and begin nothing any more."""
        self._closing = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class Wakeups:
    """What makes the timers look again sooner than they meant to."""

    lease_granted: asyncio.Event = field(default_factory=asyncio.Event)
    review_rescheduled: asyncio.Event = field(default_factory=asyncio.Event)
    polling: bool = False  # whether the policy is looked at as often as claimed slots want it
