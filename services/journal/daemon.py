"""The journal: records what happens in the pool, and explains why.

It takes every event from a durable queue, in which events wait while the journal is away; it asks the collector now and
then how many slots there are in each state, and what slots offer. Losing the journal loses nothing else, because nobody
waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from services.journal.pool_sampler import PoolSampler
from services.journal.queries import JournalQueries
from services.journal.recorder import PREFETCH, Recorder
from services.journal.store import VERSION, JournalUnavailable, Store, url_of
from shared.bus.api import Subscription
from shared.classad import ClassAd
from shared.classad.budget import TooExpensive
from shared.config.knobs import JournalSettings
from shared.daemon.advertiser import Advertiser
from shared.daemon.base import Daemon
from shared.daemon.clock import wait_for_event
from shared.daemon.context import Context
from shared.daemon.metrics import Counter, Declared, Gauge, Histogram, register
from shared.daemon.orders import handle_order
from shared.messages.base import Envelope, Failure, Message
from shared.messages.journal import INBOX, JournalAnswer

#: Of its ad.
MY_TYPE = "Journal"
#: The queue in which every event waits for the journal.
QUEUE = "roost.view"
#: Seconds between looks at how old and how large the journal is.
TIDY_S = 600.0
#: Questions under way at a time: they share one thread.
QUESTIONS = 20


class Journal(Daemon):
    """The journal as a daemon: its queue of events, root tasks and answers."""

    subsystem: ClassVar[str] = "JOURNAL"
    uses_store: ClassVar[bool] = False
    keeps: ClassVar[Mapping[str, int]] = MappingProxyType({"journal": VERSION})
    at_start: ClassVar[tuple[str, ...]] = ("ROOST_JOURNAL_URL",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = JournalSettings.from_config(context.config)
        self.store = Store(url_of(self.settings.roost_journal_url, context.spool))
        self._tidy, self._advertise_now = asyncio.Event(), asyncio.Event()
        self.recorder = Recorder(context, self.store, self._tidy.set)
        self.answers = JournalQueries(self.store, context.clock)
        self.survey = PoolSampler(context, self.store, self.settings)
        self.advertiser = Advertiser(context, MY_TYPE)
        self.bytes = 0
        self.forgotten = 0
        self._subscription: Subscription | None = None
        register(context.metrics, METRICS, self)

    async def setup(self) -> None:
        """Raises JournalUnusable. A database that is not there yet is waited for; questions are refused till then."""
        bus = self.context.bus
        try:
            await self.store.open()
        except JournalUnavailable as error:
            self.recorder.trouble = str(error)
            self.context.log.error("journal_not_opened", reason=str(error))
        if self.store.set_aside:
            self.context.log.error("journal_damaged", kept=self.store.set_aside)
        self._subscription = await bus.consume(QUEUE, self.recorder.on_event, prefetch=PREFETCH)
        await bus.serve(INBOX, self._on_request, prefetch=QUESTIONS)
        await bus.serve(f"{INBOX}.{self.context.name}", self._on_request)

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {
            "record": self.recorder.run(),
            "tidy": self._keep_tidy(),
            "sample": self.survey.sample(),
            "slots": self.survey.watch_slots(),
            "advertise": self._advertise(),
        }

    async def reconfigure(self) -> None:
        self.settings = JournalSettings.from_config(self.context.config)
        self.survey.configure(self.settings)
        for now in (self._tidy, self._advertise_now):
            now.set()

    async def drain(self) -> None:
        await self.advertiser.invalidate()
        if self._subscription is not None and not self.recorder.trouble:
            await self._subscription.cancel()  # what is in hand is written first

    async def close(self) -> None:
        self.recorder.let_go()
        await self.store.close()

    def ready(self) -> str:
        return self.recorder.trouble

    async def _on_request(self, envelope: Envelope) -> Message:
        body = envelope.body
        answer = self.answers.of.get(type(body))
        if answer is not None:
            try:
                return JournalAnswer(data=await answer(body))
            except TooExpensive as error:
                return Failure(code=error.code, reason=str(error))
        return await handle_order(self, envelope, self.advertiser)

    async def _advertise(self) -> None:
        while True:
            self._advertise_now.clear()
            await self.advertiser.publish({self.context.name: self._ad()})
            await wait_for_event(self._advertise_now, self.context.clock, float(self.settings.master_update_interval))

    def _ad(self) -> ClassAd:
        recorded = self.recorder.recorded
        return self.advertiser.own_ad(
            {
                "JournalDatabase": self.store.url.get_backend_name(),
                "JournalEvents": recorded.events,
                "JournalFailures": recorded.failures,
                "JournalNewest": int(recorded.newest),
                "JournalProblem": self.recorder.trouble,
                "JournalSize": self.bytes,
            }
        )

    async def _keep_tidy(self) -> None:
        """Forget what is too old, or too much, now and then; and at once when there is no room."""
        clock = self.context.clock
        while True:
            self._tidy.clear()
            try:
                keep, most = self.settings.roost_journal_keep, self.settings.roost_journal_max_size << 20
                gone, self.bytes = await self.store.forget(clock.now() - keep, most)
                self.forgotten += gone
                if gone:
                    self.context.log.info("journal_forgot", rows=gone, bytes=self.bytes)
            except JournalUnavailable as error:
                self.context.log.info("journal_not_tidied", reason=str(error))
            await wait_for_event(self._tidy, clock, TIDY_S)
            await clock.sleep(1.0)


METRICS: Final[Declared[Journal]] = (
    Counter("roost_journal_events", "Events written down", lambda journal: journal.recorder.recorded.events),
    Counter(
        "roost_journal_events_again",
        "Events that came again, and were there",
        lambda journal: journal.recorder.recorded.again,
    ),
    Counter("roost_journal_batches", "Transactions of events", lambda journal: journal.recorder.recorded.batches),
    Histogram(
        "roost_journal_write_duration_seconds",
        "Transactions of events",
        lambda journal: journal.recorder.recorded.durations,
    ),
    Gauge(
        "roost_journal_events_waiting",
        "Events in hand that are not written down",
        lambda journal: journal.recorder.waiting,
    ),
    Counter(
        "roost_journal_failures",
        "Transactions that the database did not take",
        lambda journal: journal.recorder.recorded.failures,
    ),
    Counter(
        "roost_journal_refused", "Events that no database takes", lambda journal: journal.recorder.recorded.refused
    ),
    Counter(
        "roost_journal_forgotten_rows", "Rows forgotten for their age or for room", lambda journal: journal.forgotten
    ),
    Gauge("roost_journal_size_bytes", "Size of the journal", lambda journal: journal.bytes),
    Gauge(
        "roost_journal_newest_seconds",
        "Time of the newest event, seconds since 1970",
        lambda journal: journal.recorder.recorded.newest,
    ),
)
