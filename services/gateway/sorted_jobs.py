"""Reads one column of all jobs that fit, in columns, puts them in its order, and then the jobs of a page only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from services.gateway.core import dashboard_rows
from services.gateway.core.job_order import SortedJobs, TooMany, fields
from services.gateway.pool_client import JOB_TOTALS, PoolClient, Schedd
from services.gateway.single_flight import SharesAnswers
from shared.bus.api import RemoteFailure
from shared.daemon.clock import Clock
from shared.daemon.readable_ads import of_each
from shared.messages.queue import JobPage, QueryJobs

#: How long an order is good, seconds, and how many times as long as it took, as schedds have other work: the jobs of a
#: page are read anew each time, where they come in it is not.
FRESH_S: Final = 10.0
SHARE: Final = 10.0
#: More jobs are not sorted; an order of as many takes 30 MB, and so many orders are kept.
MOST: Final = 3_000_000
MOST_ORDERS: Final = 8


class JobSorter(SharesAnswers):
    """Raises RoostError for what the pool refuses, or when it does not answer."""

    def __init__(self, pool: PoolClient, clock: Clock) -> None:
        super().__init__(clock.monotonic, MOST_ORDERS)
        self._pool = pool

    async def page(
        self, schedds: Sequence[Schedd], constraint: str, order: str, after: str, limit: int
    ) -> dict[str, Any]:
        """{rows, next, totals, fits}: as Dashboard.job_page. order: one of ORDERS, with - before it descending; after:
        `next` of the page before."""
        if after and not (after.isascii() and after.isdigit() and len(after) < 10):
            raise RemoteFailure("bad-request", "after: want what the page before gave as next")
        start = int(after or 0)
        key = (tuple(one.name for one in schedds), constraint, order)
        found = await self.single_flight.get(key, lambda: self._sorted(schedds, constraint, order), FRESH_S, SHARE)
        places = found.page(start, limit)
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        totals: dict[str, int] = {}
        for one in schedds:
            ids = [place.job_id for place in places if place.schedd == one.name]
            question = (
                QueryJobs(ids=ids, projection=list(dashboard_rows.JOB_FIELDS), limit=limit, reasons=True)
                if ids
                else JOB_TOTALS
            )
            answer = await self._pool.ask(one.inbox, question, JobPage, timeout=30.0)
            for name, number in answer.totals.items():
                totals[name] = totals.get(name, 0) + number
            lines = await of_each(answer.ads, partial(dashboard_rows.job, schedd=one.name))
            dashboard_rows.fill_reasons(lines, answer.reasons)
            rows |= {(one.name, row["Id"]): row for row in lines}
        end = start + limit
        known = [(place.schedd, place.job_id) for place in places]
        there = [rows[one] for one in known if one in rows]  # others have left
        return {"rows": there, "next": str(end) if end < len(found) else "", "totals": totals, "fits": len(found)}

    async def _sorted(self, schedds: Sequence[Schedd], constraint: str, order: str) -> SortedJobs:
        by = order.removeprefix("-")
        found = SortedJobs(by, descending=order.startswith("-"))
        read = 0

        async def take(one: Schedd) -> None:
            nonlocal read
            async for sheet, ads in self._pool.job_sheets(one, constraint, fields(by), newest=True):
                read += len(sheet) + len(ads)
                if read > MOST:
                    raise TooMany(f"more than {MOST:,} jobs are not sorted")
                found.add(one.name, sheet)
                for ad in ads:
                    found.add_ad(one.name, ad)

        asked = [asyncio.ensure_future(take(one)) for one in schedds]
        try:
            await asyncio.gather(*asked)
        except TooMany as error:
            mend = (
                "choose fewer by status, user or search, or write them out (`roost q -af:j RequestMemory | sort -k 2n`)"
            )
            raise RemoteFailure("bad-request", f"{error}: {mend}") from error
        finally:
            for task in asked:  # where one has failed, the others need not go on
                task.cancel()
        await asyncio.to_thread(found.sort)
        return found
