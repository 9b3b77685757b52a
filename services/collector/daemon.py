"""The collector: receives all ads, answers queries, and expires ads of silent daemons.

It receives every ad twice: from its own copy of all broadcasts, which keeps its index complete, and from the queue that
all collectors share, which holds what was published while none of them was there. The second copy changes nothing.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from services.collector.core.acceptance import MACHINE, AbsentPolicy, check
from services.collector.core.forwarding import Inbox, targets
from services.collector.core.pool_counts import JOBS, STATE, pool_counts
from services.collector.core.presence import Presence
from services.collector.core.queries import BadQuery, read
from services.collector.core.resync import Resync
from services.collector.directory import AdIndex, Directory, StoredColumns
from services.collector.pool_history import PoolHistoryKeeper
from services.collector.search import Search
from services.collector.view_links import ViewLinks
from shared.bus import connect
from shared.bus.api import BusUnavailable, Exchange, Reject
from shared.classad import ClassAd
from shared.classad.budget import TooExpensive
from shared.config.knobs import CollectorSettings
from shared.cooperative import Yielder, reading
from shared.counters import DurationsBy
from shared.daemon.ad_rows import BadAd
from shared.daemon.ad_table import AdTable, inbox_of
from shared.daemon.advertiser import Advertiser
from shared.daemon.base import Daemon
from shared.daemon.clock import wait_for_event
from shared.daemon.context import Context
from shared.daemon.metrics import Counter, Declared, Gauge, Histogram, register
from shared.daemon.offline_ads import is_offline
from shared.daemon.orders import handle_order
from shared.daemon.statistics import Statistics
from shared.messages.ads import (
    AdCounts,
    AdDelta,
    AdHeartbeat,
    AdInvalidate,
    AdPage,
    AdUpdate,
    AskForAds,
    CountAds,
    ForwardedAds,
    PrivateAds,
    QueryAds,
    SendAds,
)
from shared.messages.base import Envelope, Failure, Message
from shared.messages.events import DaemonGone, OfflineMatched
from shared.messages.pool_history import INBOX, AskPoolHistory
from shared.state import StoreUnavailable
from shared.stored_versions import ABSENT, ADS, CLAIM_IDS
from shared.tls import ClientTls

#: Messages after which a look is worth its milliseconds, and seconds between looks.
WORTH, EVERY_S = 1_000, 30.0


def malloc_trimmer() -> Callable[[], object]:
    """A call for a thread; it does nothing where the C library has no such function."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: None) if trim is None else (lambda: trim(0))


#: Seconds between looks for ads whose time is over, and between looks at open questions.
EXPIRE_EVERY_S, ASK_EVERY_S = 1.0, 0.1
#: The type of its own ad. The counts in it are told anew when somebody asks for it and they are older than the first,
#: which the answer waits for until the second (s).
OWN_TYPE = "Collector"
COUNTS_HOLD_S, COUNTS_WAIT_S = 1.0, 2.0
#: Where nobody looks who is there, the knob that says so is looked at as often.
ASK_PRESENCE_KNOB_S = 5.0
WORK_QUEUE = "roost.collector"
#: Attributes to count by, and lines of such an answer.
MOST_BY, MOST_COUNTS = 16, 10_000


class Collector(Daemon):
    """The collector as a daemon: its subscriptions, root tasks and answers."""

    subsystem: ClassVar[str] = "COLLECTOR"
    writes: ClassVar[tuple[str, ...]] = (ADS, CLAIM_IDS, ABSENT)
    at_start: ClassVar[tuple[str, ...]] = ("KEEP_POOL_HISTORY", "POOL_HISTORY_*")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = CollectorSettings.from_config(context.config)
        index = AdIndex(float(self.settings.classad_lifetime))
        self.search = Search(index.table, index.order, index.absentees, context.clock, StoredColumns(context.store))
        self.directory = Directory(
            context.store, context.clock, context.log, index, policy(self.settings), self.search.note
        )
        directory = self.directory
        link = partial(connect, tls=ClientTls.of(self.settings))
        self.views = ViewLinks(f"collector.{context.name}", directory.table, context.clock, context.log, link)
        self.views.aim(self._view_urls())
        self.past = PoolHistoryKeeper(self.settings, self.search, context.clock, context.log)
        self._forwarded = Inbox()
        self.advertiser = Advertiser(context, OWN_TYPE)
        self.updates = 0
        self.at_work = 0  # queries that are being answered, or wait for their turn
        self.queries = 0
        self.statistics = Statistics(context, self.settings.statistics_window_seconds, self._counted)
        self.refused = 0  # queries that met a limit of their budget
        self.query_durations = DurationsBy()  # by kind
        self.presence = Presence(float(self.settings.collector_presence_grace))
        self.gone = 0  # execution points whose ads went before their time
        self._asking = Resync()
        self._questions = asyncio.Event()
        self._wake_advertise = asyncio.Event()
        self._own_ad_heard = asyncio.Event()
        self._counted_at = float("-inf")  # monotonic: when our own ad last told the counts of the pool
        self._telling = asyncio.Lock()
        self._loaded = False
        register(context.metrics, METRICS, self)

    async def setup(self) -> None:
        bus = self.context.bus
        ads = await self.directory.load()
        self._loaded = True
        self.context.log.info("ads_loaded", ads=ads, absent=len(self.directory.absentees))
        await self.past.open()
        bus.on_gap(self._on_gap)
        await bus.listen(Exchange.ADS, ["#"], self._on_broadcast)
        await bus.listen(Exchange.PRIVATE, ["#"], self._on_private)
        await bus.listen(Exchange.EVENTS, [OfflineMatched.type], self._on_offline_matched)
        await bus.consume(WORK_QUEUE, self._on_work)
        await bus.serve("collector", self._on_request)
        await bus.serve(f"collector.{self.context.name}", self._on_request)
        if self.past.wanted:
            await bus.serve(INBOX, self._on_request)
        await self._ask_everybody()

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {
            "write": self.directory.writer.keep_written(),
            "expire": self._expire(),
            "look": self._look_for_daemons(),
            "ask": self._ask(),
            "follow": self.search.follow(),
            "trim": self._trim(),
            "forward": self.views.forward(),
            "past": self.past.keep(),
            "advertise": self._advertise(),
        }

    async def reconfigure(self) -> None:
        settings = CollectorSettings.from_config(self.context.config)
        self.settings = settings
        self.presence.grace_s = float(settings.collector_presence_grace)
        self.directory.policy = policy(settings)
        self.directory.table.set_lifetime(float(settings.classad_lifetime))
        self.views.aim(self._view_urls())
        self._wake_advertise.set()

    async def drain(self) -> None:
        await self.advertiser.invalidate()
        while self.directory.writer.waiting:
            await self.directory.writer.write_some()
        await self.search.keep()

    async def close(self) -> None:
        await self.views.stop()
        await self.past.close()

    def ready(self) -> str:
        return "" if self._loaded else "the ads to be read from Redis"

    # What comes in

    async def _on_work(self, envelope: Envelope) -> None:
        """What all collectors of the pool share, and nobody else might have heard."""
        await self._on_ads(envelope)

    async def _on_ads(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, AskForAds):
            return  # for those who have ads
        if isinstance(body, ForwardedAds):
            await self._on_forwarded(body)
            return
        if not isinstance(body, AdUpdate | AdDelta | AdHeartbeat | AdInvalidate):
            raise Reject(f"{body.type} is no ad")
        problem = check(body)
        if problem:
            raise Reject(problem)
        try:
            change = await self.directory.take_in(body)
            self.search.changed(change)
        except BadAd as error:
            raise Reject(str(error)) from error
        self.updates += 1
        if body.daemon == self.advertiser.daemon:
            self._own_ad_heard.set()
        # Of every copy: others who share the queue may have other views, or none (a view server beside the collector).
        self.views.note((body.my_type, body.daemon))
        if change.ask:
            now = self.context.clock.monotonic()
            self._asking.missed((body.my_type, body.daemon), body.start_time, body.sequence, now)
            self._questions.set()

    async def _on_forwarded(self, body: ForwardedAds) -> None:
        """Ads of another pool: what is missing comes again by itself, and nobody is asked."""
        try:
            message = self._forwarded.take(body, self.directory.table.group(body.my_type, body.daemon))
            if message is None:
                return
            problem = check(message)
            if problem:
                raise Reject(problem)
            self.search.changed(await self.directory.take_in(message))
        except BadAd as error:
            raise Reject(str(error)) from error
        self.updates += 1

    async def _on_broadcast(self, envelope: Envelope) -> None:
        try:
            await self._on_ads(envelope)
        except Reject as refused:
            # The same message in the queue becomes a dead letter; one is enough.
            self.context.log.info("ads_refused", sender=envelope.sender, reason=str(refused))

    async def _on_private(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, PrivateAds):
            self.directory.writer.take_claims(body.daemon, body.start_time, body.sequence, body.claims)

    async def _on_offline_matched(self, envelope: Envelope) -> None:
        body = envelope.body
        if isinstance(body, OfflineMatched):
            turn = Yielder()
            for slot in body.slots:
                for change in self.directory.matched_offline(slot, body.at):
                    self.search.changed(change)
                await turn.yield_if_due()

    async def _on_gap(self) -> None:
        """Broadcasts were missed; what other collectors took from the shared queue is in Redis."""
        self.presence.begin_anew()
        await self.directory.load()
        await self._ask_everybody()

    async def _ask_everybody(self) -> None:
        await self.context.bus.publish(Exchange.ADS, "ask.all", AskForAds(by=f"collector.{self.context.name}"))

    async def _on_request(self, envelope: Envelope) -> Message:
        body = envelope.body
        if isinstance(body, QueryAds | CountAds):
            self.at_work += 1
            try:
                return await (self._query(body) if isinstance(body, QueryAds) else self._count(body))
            finally:
                self.at_work -= 1
        if isinstance(body, AskPoolHistory):
            return await self.past.answer(body)
        return await handle_order(self, envelope, self.advertiser)

    async def _query(self, body: QueryAds) -> Message:
        self.queries += 1
        began = time.perf_counter()
        try:
            query = await reading(
                len(body.constraint), read, body.my_types, body.constraint, body.projection, body.limit, body.after,
                body.absent, body.order, columns=body.columns,
            )  # fmt: skip
            if OWN_TYPE in query.types and not query.absent:
                await self._tell_present_counts()
            page = await self.search.answer(query)
        except BadQuery as error:
            return Failure(code="bad-request", reason=str(error))
        except TooExpensive as error:
            self.refused += 1
            return Failure(code=error.code, reason=str(error))
        self.query_durations.add(kind_of(body), time.perf_counter() - began)
        if page.unreadable:
            self.context.log.warning("ads_unreadable", count=page.unreadable, types=list(query.types))
        name = self.context.name
        return AdPage(
            ads=page.ads, next=page.next, fits=page.fits, columns=page.columns, rows=page.rows, collector=name
        )

    async def _count(self, body: CountAds) -> Message:
        self.queries += 1
        began = time.perf_counter()
        try:
            query = await reading(len(body.constraint), read, [body.my_type], body.constraint, [], 0, "", absent=False)
        except BadQuery as error:
            return Failure(code="bad-request", reason=str(error))
        if len(body.by) > MOST_BY:
            return Failure(code="bad-request", reason=f"by: {len(body.by)} attributes, at most {MOST_BY} are taken")
        try:
            totals = await self.search.totals(query, body.by)
        except TooExpensive as error:
            self.refused += 1
            return Failure(code=error.code, reason=str(error))
        self.query_durations.add("count", time.perf_counter() - began)
        if len(totals) > MOST_COUNTS:
            reason = f"by: there are {len(totals)} combinations, at most {MOST_COUNTS} are told; name fewer attributes"
            return Failure(code="bad-request", reason=reason)
        return AdCounts(values=[list(values) for values in totals], counts=list(totals.values()))

    # Root tasks

    async def _expire(self) -> None:
        clock = self.context.clock
        while True:
            await clock.sleep(EXPIRE_EVERY_S)
            try:
                dropped = await self.directory.drop(self.directory.expire())
                await self.directory.forget(clock.now())
            except StoreUnavailable as error:
                self.context.log.warning("ads_not_expired", reason=str(error))
                continue
            if dropped:
                self.context.log.info("ads_expired", ads=dropped)

    async def _look_for_daemons(self) -> None:
        """Take out the ads of execution points that are gone, and tell negotiators (COL-11)."""
        clock = self.context.clock
        while True:
            interval = self.settings.collector_presence_interval
            await clock.sleep(float(interval or ASK_PRESENCE_KNOB_S))
            if not interval:
                continue
            try:
                await self._look()
            except (BusUnavailable, StoreUnavailable) as error:
                self.presence.begin_anew()  # who can not be asked about may be back
                self.context.log.info("presence_unknown", reason=str(error))

    async def _look(self) -> None:
        table, clock = self.directory.table, self.context.clock
        daemons = self.presence.to_look_at([group.daemon for group in table.groups(MACHINE)])
        if not daemons:
            return
        served = await self.context.bus.served([inbox_of(daemon) for daemon in daemons])
        there = {daemon: served[inbox_of(daemon)] for daemon in daemons if inbox_of(daemon) in served}
        for daemon, silent_s in self.presence.saw(there, clock.monotonic()).items():
            now = clock.now()
            group = table.group(MACHINE, daemon)
            if group is None or any(is_offline(row.read(), now) for row in group.rows.values()):
                continue  # it sleeps, and is to be woken
            groups = [group for my_type in table.types() if (group := table.group(my_type, daemon)) is not None]
            self.context.log.info("daemon_gone", of=daemon, ads=sum(len(group.rows) for group in groups))
            self.gone += 1
            ads = await self.directory.drop([(group, list(group.rows)) for group in groups])
            told = DaemonGone(at=now, collector=self.context.name, daemon=daemon, since=now - silent_s, ads=ads)
            await self.context.bus.publish(Exchange.EVENTS, told.type, told)

    async def _trim(self) -> None:
        trim, done = malloc_trimmer(), 0
        while True:
            await self.context.clock.sleep(EVERY_S)
            if self.updates - done >= WORTH:
                done = self.updates
                await asyncio.to_thread(trim)

    async def _ask(self) -> None:
        clock = self.context.clock
        while True:
            if not len(self._asking):
                self._questions.clear()
                await self._questions.wait()
            await clock.sleep(ASK_EVERY_S)
            for my_type, daemon in self._asking.due(self.directory.table, clock.monotonic()):
                self.context.log.info("asking_for_ads", my_type=my_type, of=daemon)
                try:
                    await self.context.bus.send(inbox_of(daemon), SendAds(my_type=my_type))
                except (BusUnavailable, ValueError) as error:
                    self.context.log.info("not_asked", of=daemon, reason=str(error))

    async def _tell_present_counts(self) -> None:
        """Say anew how many slots and jobs there are, and wait until our own table has it: somebody asks."""
        async with self._telling:
            if self.context.clock.monotonic() - self._counted_at < COUNTS_HOLD_S:
                return
            await self._publish_own_ad()
            if not self.context.bus.health.connected:
                return  # what it says is not heard; who asks gets what is known
            try:
                async with asyncio.timeout(COUNTS_WAIT_S):
                    while not self._is_own_ad_known():
                        self._own_ad_heard.clear()
                        await self._own_ad_heard.wait()
            except TimeoutError:
                self.context.log.info("own_ad_not_heard", within_s=COUNTS_WAIT_S)

    def _is_own_ad_known(self) -> bool:
        group = self.directory.table.group(OWN_TYPE, self.advertiser.daemon)
        return group is not None and group.sequence >= self.advertiser.sequence

    async def _publish_own_ad(self) -> None:
        self._counted_at = self.context.clock.monotonic()
        await self.advertiser.publish({self.context.name: self._ad(await self._pool_counts())})

    async def _pool_counts(self) -> dict[str, int]:
        slots = read([MACHINE], "", [], 0, "", absent=False)
        submitters = read(["Submitter"], "", [], 0, "", absent=False)
        try:
            return pool_counts(
                await self.search.totals(slots, [STATE]), await self.search.totals(submitters, list(JOBS))
            )
        except TooExpensive as error:
            self.context.log.warning("pool_not_counted", reason=str(error))
            return {}

    async def _advertise(self) -> None:
        while True:
            self._wake_advertise.clear()
            await self._publish_own_ad()
            interval = float(self.settings.collector_update_interval)
            await wait_for_event(self._wake_advertise, self.context.clock, interval)

    def _view_urls(self) -> list[str]:
        """Brokers of the pools that hear of this one's ads."""
        urls, problems = targets(self.settings.condor_view_host, self.settings.roost_amqp_url or "")
        for problem in problems:
            self.context.log.warning("configuration", problem=f"CONDOR_VIEW_HOST: {problem}")
        return urls

    def _counted(self) -> dict[str, float]:
        return {
            "UpdatesTotal": self.updates,
            "QueriesTotal": self.queries,
            "DroppedQueries": self.refused,
        }

    def _ad(self, counts: Mapping[str, int]) -> ClassAd:
        table = self.directory.table
        return self.advertiser.own_ad(
            {
                "PoolName": self.settings.collector_name,
                **counts,
                **lost_updates(table),
                "ForwardedGroups": self.views.told,
                **({"PoolHistorySamples": self.past.samples} if self.past.wanted else {}),
                **({"PoolHistoryProblem": self.past.problem} if self.past.problem else {}),
                "AbsentAds": len(self.directory.absentees),
                "ActiveQueryWorkers": max(0, self.at_work - self.search.waiting),
                "PendingQueries": self.search.waiting,
                **self.statistics.attributes(),
                **{f"{my_type}Ads": sum(1 for _ in table.rows(my_type)) for my_type in sorted(table.types())},
            }
        )


def kind_of(asked: QueryAds) -> str:
    """How the durations of a query are counted: by what makes it cheap or dear."""
    if asked.order:
        return "order"
    if asked.columns:
        return "columns"
    return "constraint" if asked.constraint else "all"


def lost_updates(table: AdTable) -> dict[str, int | float]:
    """What did not arrive, by the sequence numbers of what did (COL-08)."""
    received = lost = most = 0
    for group in table.groups():
        received, lost, most = received + group.received, lost + group.lost, max(most, group.lost)
    ratio = lost / (received + lost) if lost else 0.0
    return {
        "UpdatesSequenced": received + lost,
        "UpdatesLost": lost,
        "UpdatesLostMax": most,
        "UpdatesLostRatio": round(ratio, 6),
    }


def policy(settings: CollectorSettings) -> AbsentPolicy:
    """Without COLLECTOR_PERSISTENT_AD_LOG nothing is remembered (ABS-09). The file itself is not used: Redis
    keeps absent and offline ads as it keeps all others."""
    if not settings.collector_persistent_ad_log:
        return AbsentPolicy()
    return AbsentPolicy(
        requirements=settings.absent_requirements,
        keep_s=float(settings.absent_expire_ads_after),
        invalidated_too=settings.expire_invalidated_ads,
        persistent=True,
        offline_s=float(settings.offline_expire_ads_after),
    )


def _ads_by_type(collector: Collector) -> dict[tuple[str, ...], float]:
    table = collector.directory.table
    return {(my_type,): sum(1 for _ in table.rows(my_type)) for my_type in table.types()}


METRICS: Final[Declared[Collector]] = (
    Gauge("roost_collector_ads", "Ads by type", _ads_by_type, labels=["type"]),
    Gauge(
        "roost_collector_absent_ads",
        "Absent ads remembered",
        lambda collector: len(collector.directory.absentees),
    ),
    Gauge(
        "roost_collector_unwritten_groups",
        "Groups of ads not in Redis yet",
        lambda collector: collector.directory.writer.waiting,
    ),
    Gauge(
        "roost_collector_updates_lost",
        "Updates that did not arrive, of daemons that are there",
        lambda collector: sum(group.lost for group in collector.directory.table.groups()),
    ),
    Gauge(
        "roost_collector_forward_waiting",
        "Groups of ads still to be told to views",
        lambda collector: collector.views.waiting,
    ),
    Counter(
        "roost_collector_daemons_gone",
        "Execution points whose ads were taken out as they are not at the broker",
        lambda collector: collector.gone,
    ),
    Counter("roost_collector_updates", "Messages about ads taken", lambda collector: collector.updates),
    Counter(
        "roost_collector_queries_too_expensive",
        "Queries that met a limit of their budget",
        lambda collector: collector.refused,
    ),
    Counter("roost_collector_queries", "Queries answered", lambda collector: collector.queries),
    Histogram(
        "roost_collector_query_duration_seconds",
        "Pages of answers by kind of question: `all`, `constraint`, `order`, `columns`, `count`",
        lambda collector: collector.query_durations.by_name,
        label="kind",
    ),
    Counter(
        "roost_collector_from_columns",
        "Queries answered from columns",
        lambda collector: collector.search.from_columns,
    ),
    Counter("roost_collector_forwarded", "Groups of ads told to views", lambda collector: collector.views.told),
)
