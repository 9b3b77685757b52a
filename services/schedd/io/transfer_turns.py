"""The turns of transfers (MAX_CONCURRENT_UPLOADS, MAX_CONCURRENT_DOWNLOADS): who waits, and who goes; and what the ad
of a job tells of it meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Final

from aiohttp import web

from engine.queue.jobs import Job, Shadow
from services.schedd.core import transfer_times
from services.schedd.core.transfer_queue import TransferQueue
from services.schedd.io import job_trace
from services.schedd.io.job_updates import JobUpdates
from services.schedd.io.transfer_progress import TransferProgress
from services.schedd.settings import Settings
from shared.errors import RetryableError
from shared.transfer.counts import TransferCounts

#: Seconds that a transfer waits in one request; the execution point asks again then, and has its place.
TURN_S: Final = 20.0
#: Told that so many bytes more went or came.
Moved = Callable[[int], None]


def nothing(_: int) -> None:
    """Of a transfer that nobody follows."""


class NotYet(RetryableError):
    """Other transfers go first: the client is to ask again."""


class TransferTickets:
    """The queues of transfers in both directions, and who waits in them."""

    def __init__(self) -> None:
        self.queues = {"input": TransferQueue(), "output": TransferQueue()}
        self._waiting: dict[Hashable, asyncio.Future[None]] = {}
        self.waiting_bytes = {"input": 0, "output": 0}  # of those that wait, as far as their size is known

    @contextlib.asynccontextmanager
    async def turn(
        self, what: str, user: str, name: Hashable, settings: Settings, size: int = 0
    ) -> AsyncIterator[None]:
        """Inside, the transfer may go. what: input or output. size: bytes, 0: not known. Raises NotYet after TURN_S."""
        queue = self.queues[what]
        queue.most = settings.max_uploads if what == "input" else settings.max_downloads
        ticket = object()
        try:
            if not queue.come(ticket, user, name):
                self.waiting_bytes[what] += size
                try:
                    await self._called(ticket, queue)
                finally:
                    self.waiting_bytes[what] -= size
            yield
        finally:
            self._waiting.pop(ticket, None)
            queue.leave(ticket)
            for called in queue.called():
                self._waiting[called].set_result(None)

    async def _called(self, ticket: Hashable, queue: TransferQueue) -> None:
        called = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(TURN_S):
                await called
        except TimeoutError:
            raise NotYet(f"{queue.going} transfers are under way and {queue.waiting} wait: ask again") from None


class TransferTurns:
    """The transfers of runs between access point and execution points."""

    def __init__(self, updates: JobUpdates, counts: TransferCounts, progress: TransferProgress) -> None:
        self._updates = updates
        self._counts = counts
        self._progress = progress
        self.tickets = TransferTickets()

    @contextlib.asynccontextmanager
    async def going(
        self, job: Job, run: Shadow, what: str, size: int = 0, tell: transfer_times.Direction | None = None
    ) -> AsyncIterator[Moved]:
        """Wait for the turn of this transfer; count and trace it. tell: what the job's ad says of it, if anything."""
        updates, now = self._updates, self._updates.now
        told = tell if job.whole is None else None  # a parallel job has many at a time
        arrived = False
        if told:
            transfer_times.queued(job, told, now())
        try:
            async with self.tickets.turn(what, job.cluster.user, (job.id, run.attempt), updates.settings, size):
                if told:
                    transfer_times.started(job, told, now())
                files = job_trace.files(updates.name, job, run, f"transfer.{what}", now)
                with files, self._counts.measured(what):
                    yield self._progress.follow(job, run, told, size) if told else nothing
            arrived = True
        except NotYet as error:
            raise web.HTTPServiceUnavailable(text=str(error)) from error
        finally:
            if told and (job.shadow is run or job.shadow is None):
                transfer_times.ended(job, told, now(), arrived=arrived)
