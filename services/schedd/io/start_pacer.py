"""The pace at which a schedd starts jobs, JOB_START_COUNT and JOB_START_DELAY, and who is told when it goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from engine.queue.jobs import Job
from services.schedd.core.start_throttle import StartThrottle
from services.schedd.settings import Settings
from shared.bus.api import BusUnavailable, CallTimeout, RemoteFailure
from shared.bus.topology import negotiator_inbox
from shared.daemon.context import Context
from shared.errors import PermanentError
from shared.messages.negotiation import Reschedule

#: How long a negotiator is waited for (s). One that does not hear of it has a cycle before long all the same.
RESCHEDULE_TIMEOUT_S: Final = 10.0


class StartPacer:
    """Lets jobs start at the pace that is configured. Slots that would wait too long are left to others; the negotiator
    that matched them is told when it goes on. name: of the schedd. spawn: begins a task with a name."""

    def __init__(self, context: Context, name: str, spawn: Callable[[Coroutine[Any, Any, None], str], object]) -> None:
        self._context = context
        self._name = name
        self._spawn = spawn
        self._pace = StartThrottle()
        self._due: list[float] = []  # when starts that have to wait are due, monotonic
        self._waking: set[str] = set()  # inboxes of negotiators that will be told

    def room(self, settings: Settings, shard: str) -> bool:
        """Whether a start can be booked. shard: whose match it is."""
        self._pace.set(settings.job_start_count, settings.job_start_delay_s)
        wait = self._pace.room_in_s(self._context.clock.monotonic())
        inbox = negotiator_inbox(shard)
        if wait and inbox not in self._waking:
            self._waking.add(inbox)
            self._spawn(self._wake(inbox, wait), "pace")
        return not wait

    def book(self, job: Job | None, settings: Settings) -> float:
        """How long (s) the start of a job has to wait. NextJobStartDelay, bounded by MAX_NEXT_JOB_START_DELAY, keeps
        others waiting after it."""
        wanted = float(job.number("NextJobStartDelay", 0)) if job is not None else 0.0
        pause_s = min(max(0.0, wanted), settings.max_next_job_start_delay_s)
        now = self._context.clock.monotonic()
        wait = self._pace.book(now, pause_s)
        if wait:
            self._due.append(now + wait)
        return wait

    def delayed(self) -> int:
        """How many starts wait for their time."""
        now = self._context.clock.monotonic()
        self._due = [due for due in self._due if due > now]
        return len(self._due)

    async def _wake(self, inbox: str, wait: float) -> None:
        try:
            await self._context.clock.sleep(wait)
        finally:
            self._waking.discard(inbox)
        with contextlib.suppress(BusUnavailable, CallTimeout, RemoteFailure, PermanentError):
            await self._context.bus.call(inbox, Reschedule(by=f"schedd.{self._name}"), timeout=RESCHEDULE_TIMEOUT_S)
