"""Keeps the pace at which jobs are started (pace). Slots that must wait too long are left to others; whoever matches is
told when it goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from services.schedd.pace import Pace
from services.schedd.settings import Settings
from shared.bus.api import BusUnavailable, CallTimeout, RemoteFailure
from shared.bus.topology import negotiator_inbox
from shared.daemon.context import Context
from shared.errors import PermanentError
from shared.messages.negotiation import Reschedule

#: How long a negotiator is waited for (s). One that does not hear of it has a cycle before long all the same.
_TELL_S: Final = 10.0


class Pacing:
    """name: of the schedd. spawn: begins a task of its, with a name."""

    def __init__(self, context: Context, name: str, spawn: Callable[[Coroutine[Any, Any, None], str], object]) -> None:
        self._context = context
        self._name = name
        self._spawn = spawn
        self._pace = Pace()
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

    def book(self) -> float:
        """How long (s) the start has to wait."""
        return self._pace.book(self._context.clock.monotonic())

    async def _wake(self, inbox: str, wait: float) -> None:
        try:
            await self._context.clock.sleep(wait)
        finally:
            self._waking.discard(inbox)
        with contextlib.suppress(BusUnavailable, CallTimeout, RemoteFailure, PermanentError):
            await self._context.bus.call(inbox, Reschedule(by=f"schedd.{self._name}"), timeout=_TELL_S)
