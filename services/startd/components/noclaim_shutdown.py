"""Ends a startd that nobody claims (STARTD_NOCLAIM_SHUTDOWN): for one that was started for its pool's peak, as a job of
another batch system or on a machine that costs by the hour. Its process ends with status 0, and `roost up` does not
start it again.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Final

from services.startd.context import Component, StartdContext

#: Seconds between looks, at most.
LOOK_S: Final = 5.0


class NoClaimShutdown(Component):
    def __init__(self, startd: StartdContext) -> None:
        super().__init__(startd)
        self._claimed = startd.context.clock.monotonic()  # when there was a claim, or the startd began

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"no claims": self._watch()}

    async def _watch(self) -> None:
        while True:
            await self.startd.context.clock.sleep(self.look())

    def look(self) -> float:
        """End the startd if it is time. Returns seconds until the next look."""
        context, limit_s = self.startd.context, self.startd.settings.noclaim_shutdown
        now = context.clock.monotonic()
        if self.startd.slot_manager.claims:
            self._claimed = now
        left_s = self._claimed + limit_s - now
        if not limit_s or context.stopping.is_set():
            return LOOK_S
        if left_s <= 0:
            context.log.warning("ends_without_claims", reason=f"STARTD_NOCLAIM_SHUTDOWN: no claim for {limit_s} s")
            context.over = True
            context.stopping.set()
            return LOOK_S
        return min(LOOK_S, left_s)
