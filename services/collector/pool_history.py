"""Samples the pool every POOL_HISTORY_SAMPLING_INTERVAL, and answers queries about the past.

A view server *is* a collector (spec row VIEW-03): it has the ads of all pools that forward to it in memory. So the
history is part of the collector, and not a daemon of its own, which would have to receive every ad once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import structlog

from services.collector.core.history_samples import (
    KINDS,
    OF_MACHINES,
    OF_SUBMITTERS,
    Sample,
    TooLong,
    by_lower_name,
    shown,
)
from services.collector.core.queries import BadQuery, read
from services.collector.pool_history_files import NoHistory, PoolHistory
from services.collector.search import Search
from shared.config.knobs import CollectorSettings
from shared.daemon import closed_files
from shared.daemon.ad_rows import BadAd, unpack
from shared.daemon.clock import Clock
from shared.messages.base import Failure, Message
from shared.messages.pool_history import AskPoolHistory, PastOfPool

#: Ads that are looked at before others get their turn.
STEP = 500


class PoolHistoryKeeper:
    """`problem`: why nothing is kept, though it should be; the last look may also have failed."""

    def __init__(
        self, settings: CollectorSettings, search: Search, clock: Clock, log: structlog.stdlib.BoundLogger
    ) -> None:
        self.wanted = settings.keep_pool_history
        self.problem = ""
        self.samples = 0
        self._every_s = settings.pool_history_sampling_interval
        self._search = search
        self._clock = clock
        self._log = log
        self._at_work = asyncio.Lock()
        self._history: PoolHistory | None = None
        if self.wanted:
            self.problem = location_problem(settings.pool_history_dir, settings.spool, settings.log)
            if not self.problem:
                directory = Path(settings.pool_history_dir or "")
                self._history = PoolHistory(directory, settings.pool_history_max_storage, self._every_s)

    async def open(self) -> None:
        """Take the files. What is wrong with them keeps nothing but the history from working."""
        if self._history is not None:
            try:
                cut = await asyncio.to_thread(self._history.open)
            except NoHistory as error:
                self._history, self.problem = None, str(error)
            else:
                closed_files.tell(self._history.closed, self._log)
                size = self._history.size()
                self._log.info("pool_history_open", bytes=size, cut_off=cut)
        if self.problem:
            self._log.warning("pool_history_not_kept", problem=self.problem)

    async def close(self) -> None:
        async with self._at_work:
            if self._history is not None:
                self._history.close()

    async def keep(self) -> None:
        """Root task."""
        if self._history is None:
            await asyncio.Event().wait()
        while True:
            await self._clock.sleep(self._every_s)
            await self.sample()

    async def sample(self) -> None:
        """One look at the pool. A disk that is full costs this sample, and is told once."""
        history = self._history
        if history is None:
            return
        now = self._clock.now()
        sample = Sample(now)
        async for ad in self._ads("Machine", OF_MACHINES):
            sample.machine(ad)
        async for ad in self._ads("Submitter", OF_SUBMITTERS):
            sample.submitter(ad)
        problem = ""
        async with self._at_work:
            try:
                tight = await asyncio.to_thread(history.add, now, sample.rows())
            except OSError as error:
                problem = f"POOL_HISTORY_DIR: {error}"
            else:
                self.samples += 1
                if tight:
                    problem = f"POOL_HISTORY_MAX_STORAGE is too small for one sample in {', '.join(tight)}"
        if problem and problem != self.problem:
            self._log.warning("pool_history_not_written", problem=problem)
        self.problem = problem

    async def answer(self, asked: AskPoolHistory) -> Message:
        """What is known."""
        history = self._history
        if history is None:
            code, why = ("unavailable", self.problem) if self.problem else ("not-found", "KEEP_POOL_HISTORY is false")
            return Failure(code=code, reason=f"this collector keeps no history of the pool: {why}")
        if asked.start > asked.end:
            return Failure(code="bad-request", reason="the time ends before it begins")
        kind = KINDS[asked.kind]
        async with self._at_work:
            try:
                if not asked.name:
                    names = await asyncio.to_thread(history.names, kind.name, asked.start, asked.end)
                    return PastOfPool(columns=list(kind.columns), names=names)
                every, points = await asyncio.to_thread(history.points, kind.name, asked.name, asked.start, asked.end)
            except (TooLong, NoHistory) as error:
                return Failure(code="bad-request", reason=str(error))
            except OSError as error:
                return Failure(code="unavailable", reason=f"POOL_HISTORY_DIR: {error}")
        told = [[at, *shown(kind.name, at, row)] for at, row in points]
        return PastOfPool(columns=list(kind.columns), every=every, points=told)

    async def _ads(self, my_type: str, attributes: Sequence[str]) -> AsyncIterator[dict[str, Any]]:
        """Of all ads of a type these attributes."""
        after = ""
        seen = 0
        while True:
            try:
                page = await self._search.answer(read([my_type], "", attributes, 0, after, absent=False))
            except BadQuery:  # our own cursor: an ad's name that no cursor can hold
                return
            for packed in page.ads:
                seen += 1
                if seen % STEP == 0:
                    await asyncio.sleep(0)
                try:
                    yield by_lower_name(unpack(packed).items())
                except BadAd:
                    continue
            if not page.next:
                return
            after = page.next


def location_problem(directory: str | None, spool: str, log: str) -> str:
    """What is wrong with the place of the history; empty when nothing is (VIEW-02)."""
    if not directory:
        return "KEEP_POOL_HISTORY is true, but POOL_HISTORY_DIR names no directory: give it one of its own"
    for name, other in (("SPOOL", spool), ("LOG", log)):
        if other and Path(directory).resolve() == Path(other).resolve():
            return f"POOL_HISTORY_DIR is {name} ({directory}): give the history a directory of its own"
    return ""
