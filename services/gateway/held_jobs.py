"""All held jobs by why they are, as their schedds count them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from engine.queue.hold_reasons import ATTRIBUTES, WHY, grouped
from services.gateway.core.batches import alike
from services.gateway.pool_client import PoolClient, Schedd
from services.gateway.single_flight import SharesAnswers, shared
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd
from shared.daemon.clock import Clock

#: How long an answer is good, seconds, and how many times as long as it took: where very many are held, each by itself,
#: their schedd has other work.
FRESH_S: Final = 5.0
SHARE: Final = 10.0

#: The first of some held jobs that are alike, its schedd, and how many they are.
_Line = tuple[ClassAd, str, int]


class HeldJobs(SharesAnswers):
    """Raises RoostError for what the pool refuses, or when it does not answer."""

    def __init__(self, pool: PoolClient, clock: Clock) -> None:
        super().__init__(clock.monotonic)
        self._pool = pool

    @shared(FRESH_S, SHARE)
    async def by_reason(self) -> list[dict[str, Any]]:
        """A line a reason, most jobs first: {reason, code, subcode, count, first, schedd}."""
        found: list[_Line] = []
        for schedd in await self._pool.schedds():
            try:
                found += await self._counted(schedd, WHY)
            except RemoteFailure as error:
                if error.code != "bad-request":
                    raise
                # A cluster is held for thousands of reasons: its first job's stands for all of them.
                found += await self._counted(schedd, ["JobStatus"])
        return [asdict(one) for one in grouped(found)]

    async def _counted(self, schedd: Schedd, by: Sequence[str]) -> list[_Line]:
        """A line for those of each cluster that have the same of these attributes."""
        found: list[_Line] = []
        async for sheet, ads in self._pool.job_sheets(schedd, "JobStatus == 5", ATTRIBUTES, by=by):
            found += [(ad, schedd.name, 1) for ad in ads]
            found += [(sheet[place], schedd.name, count) for place, count in enumerate(alike(sheet))]
        return found
