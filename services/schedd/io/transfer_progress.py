"""How far the files of runs are: in the ads of their jobs while they travel, and now and then as an event.

What goes between access point and execution point is counted here as it goes; of what goes by URL the execution point
tells, no oftener than `shared.transfer.progress` has it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from engine.queue.jobs import Job, Shadow
from services.schedd.core import transfer_times
from services.schedd.core.transfer_times import Direction
from services.schedd.io.job_updates import JobUpdates
from shared.messages.events import JobTransferring
from shared.transfer.progress import Progress, Standing

#: Bytes of what an execution point tells.
MAX_TOLD: Final = 1024
_MOST: Final = 1 << 60


class TransferProgress:
    """Writes it down where it is seen."""

    def __init__(self, updates: JobUpdates) -> None:
        self._updates = updates

    def follow(self, job: Job, run: Shadow, way: Direction, total: int) -> Callable[[int], None]:
        """What is to be told of each further piece of a transfer that begins now. total: bytes; 0: not known."""
        monotonic = self._updates.context.clock.monotonic
        progress = Progress(monotonic(), total)

        def moved(count: int) -> None:
            standing = progress.moved(count, monotonic())
            if standing is not None and job.shadow is run:
                self._tell(job, run, way, standing)

        return moved

    def take(self, job: Job, run: Shadow, body: bytes) -> None:
        """What an execution point tells of files that go by URL. Raises HTTPUnprocessableEntity."""
        way, standing = _read(body)
        if job.whole is not None:
            return  # a parallel job has many at a time
        if standing is None:
            transfer_times.at_rest(job.ad, way)
        else:
            self._tell(job, run, way, standing)

    def _tell(self, job: Job, run: Shadow, way: Direction, standing: Standing) -> None:
        transfer_times.stands(job, way, standing)
        if not standing.notable:
            return
        updates = self._updates
        updates.publish(
            JobTransferring(
                **updates.about(job, updates.now()),
                attempt=run.attempt,
                direction="input" if way == "Input" else "output",
                bytes_done=standing.done,
                bytes_total=standing.total,
                bytes_per_s=standing.bytes_per_s,
            )
        )
        updates.commit()


def _read(body: bytes) -> tuple[Direction, Standing | None]:
    """None: nothing travels any more. Raises HTTPUnprocessableEntity."""
    try:
        told = json.loads(body)
        way = told["way"]
        if way not in ("Input", "Output"):
            raise ValueError("the way is Input or Output")
        if told.get("over") is True:
            return way, None
        done, total, rate = (_counted(told[name]) for name in ("done", "total", "bytes_per_s"))
        return way, Standing(done, total, rate, told.get("notable") is True)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise web.HTTPUnprocessableEntity(text=f"this tells of no transfer: {error}") from error


def _counted(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
        raise ValueError("bytes are whole numbers")
    return value
