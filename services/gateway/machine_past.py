"""Asks for the past of a machine: what a collector with KEEP_POOL_HISTORY has written down of it. Where there is none
the answer says so: a page then shows that, which is no error."""

from __future__ import annotations

from typing import Any, Final

from services.gateway.core.machine_past import curves
from services.gateway.pool_client import PoolClient
from services.gateway.single_flight import SharesAnswers, shared
from shared.bus.api import NobodyThere, RemoteFailure
from shared.daemon.clock import Clock
from shared.errors import RetryableError
from shared.messages.pool_history import INBOX, AskPoolHistory, PastOfPool

#: How long an answer is good, seconds: a sample is taken every minute.
FRESH_S: Final = 10.0
PATIENCE_S: Final = 15.0
#: A collector that does not know machines is not asked again so long, seconds.
OLDER_S: Final = 600.0
OLDER: Final = "the collector that keeps the pool's history is of an earlier release, which does not know machines"
NOBODY: Final = "no collector keeps the pool's history (KEEP_POOL_HISTORY, POOL_HISTORY_DIR)"


class MachinePast(SharesAnswers):
    """Answers are {"found": {times, series}} or {"missing": why}, and shared by all who ask. Raises RoostError for what
    the collector refuses."""

    def __init__(self, pool: PoolClient, clock: Clock) -> None:
        super().__init__(clock.monotonic)
        self._pool, self._clock = pool, clock
        self._older_until = 0.0

    @shared(FRESH_S)
    async def told(self, machine: str, start: float, end: float) -> dict[str, Any]:
        """start, end: seconds since 1970."""
        if self._clock.monotonic() < self._older_until:
            return {"missing": OLDER}
        question = AskPoolHistory(kind="machines", name=machine, start=start, end=end)
        try:
            answer = await self._pool.ask(INBOX, question, PastOfPool, PATIENCE_S)
        except NobodyThere:
            return {"missing": NOBODY}
        except RemoteFailure as error:
            if error.code == "bad-message":  # it becomes a dead letter there, so not each time that somebody looks
                self._older_until = self._clock.monotonic() + OLDER_S
                return {"missing": OLDER}
            if error.code in ("unavailable", "not-found"):
                return {"missing": error.reason}
            raise
        except RetryableError as error:
            return {"missing": f"the collector that keeps the pool's history does not answer: {error}"}
        return {"found": curves(answer.columns, answer.points, answer.every)}
