"""Writes events from their queue to the database: as many in one transaction as there are, each acknowledged when it is
written. While the database takes nothing, events stay with the broker, and are tried again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from services.journal.core.rows import Rows, rows_of
from services.journal.store import JournalRefused, JournalUnavailable, Store
from shared.backoff import Backoff
from shared.bus.api import Reject
from shared.counters import Durations
from shared.daemon.context import Context
from shared.messages.base import Envelope

#: Events in hand at a time; all others wait with the broker.
PREFETCH = 2000
#: Seconds between attempts to write, doubled up to the longest.
FIRST_S, LONGEST_S = 0.2, 10.0


#: An event's rows, and who waits until they are written.
_Entry = tuple[Rows, asyncio.Future[None]]


#: Seconds since 1970 of the last second that has a date.
LATEST: Final = 253_402_300_799


@dataclass(slots=True)
class RecorderCounts:
    """What became of events since the start."""

    events: int = 0  # written down
    again: int = 0  # came again, and were there already
    batches: int = 0
    failures: int = 0  # attempts that the database did not take
    refused: int = 0  # events that no database takes
    newest: float = 0.0  # `at` of the newest event
    durations: Durations = field(default_factory=Durations)  # of transactions that were taken


class Recorder:
    """Writes events in batches, and acknowledges each once it is written. `trouble`: why nothing is written at the
    moment; empty: all is well."""

    def __init__(self, context: Context, store: Store, relieve: Callable[[], object]) -> None:
        """relieve: called when the database takes nothing, as it may be full."""
        self.context = context
        self.store = store
        self.recorded = RecorderCounts()
        self.trouble = ""
        self._relieve = relieve
        self._pending: list[_Entry] = []
        self._closed = False
        self._wake = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Events in hand that are not written down."""
        return len(self._pending)

    async def on_event(self, envelope: Envelope) -> None:
        """Returns when the event is written down. Raises Reject for what can not be."""
        rows = rows_of(envelope)
        if not rows:
            return
        if self._closed:
            raise asyncio.CancelledError
        at = rows["events"][0]["at"]
        if not 0 <= at <= LATEST:  # which no calendar has, and no whole number stands for
            raise Reject(f"an event of {at:g} s since 1970: want 0 to {LATEST:g}, the end of the year 9999")
        self.recorded.newest = max(self.recorded.newest, at)
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending.append((rows, written))
        self._wake.set()
        await written

    async def run(self) -> None:
        """Write, until cancelled."""
        backoff = Backoff(FIRST_S, LONGEST_S)
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                batch, self._pending = self._pending, []
                try:
                    await self._write(batch)
                except JournalUnavailable as error:
                    self.recorded.failures += 1
                    if not self.trouble:
                        self.context.log.error("journal_not_written", waiting=len(batch), reason=str(error))
                    self.trouble = str(error)
                    self._pending = [entry for entry in batch if not entry[1].done()] + self._pending
                    self._relieve()
                    await self.context.clock.sleep(backoff.next_s())
                    continue
                except asyncio.CancelledError:
                    self._pending = batch + self._pending
                    raise
                if self.trouble:
                    self.context.log.info("journal_written_again", events=len(batch))
                self.trouble = ""
                backoff.reset()

    async def _write(self, batch: list[_Entry]) -> None:
        """One transaction; where one of the events can not be written by any, as many as it takes to find it."""
        began = time.perf_counter()
        try:
            new = await self.store.write([rows for rows, _ in batch])
        except JournalRefused as error:
            if len(batch) > 1:
                middle = len(batch) // 2
                await self._write(batch[:middle])
                await self._write(batch[middle:])
                return
            self.recorded.refused += 1
            if not batch[0][1].done():
                batch[0][1].set_exception(Reject(str(error)))
            return
        self.recorded.events += new
        self.recorded.again += len(batch) - new
        self.recorded.batches += 1
        self.recorded.durations.add(time.perf_counter() - began)
        for _, written in batch:
            if not written.done():
                written.set_result(None)

    def let_go(self) -> None:
        """Nothing more is written: handlers end, and what they had comes again in the next life."""
        self._closed = True
        for _, written in self._pending:
            written.cancel()
        self._pending = []
