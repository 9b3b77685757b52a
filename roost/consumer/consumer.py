"""Following what happens in a pool, from Python.

    from roost import Consumer
    from roost.events import JobEnded

    async with Consumer(types=["job.*"], owner="alice") as consumer:
        async for got in consumer:
            match got:
                case Received(event=JobEnded(exit_code=0)): ...
                case Gap(reason=reason): ...

An item is taken when the next one is asked for: a durable consumer that dies, or leaves the loop, before that gets it
again. docs/consumers.md is the tutorial.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from roost.client import Client
from roost.consumer.blocking import BlockingLoop, stop_on_signals
from roost.consumer.exactly_once import Once, Transaction
from roost.consumer.filters import Filter, Wanted, binding_patterns, patterns_of, shell_patterns
from roost.consumer.handlers import Attempts, Handler, OnFailure
from roost.consumer.health import Health, HealthPage
from roost.consumer.http import HttpSource
from roost.consumer.parts import parts
from roost.consumer.position import SAVE_EVERY_S, Position
from roost.consumer.snapshot import JOB_NEEDS, SLOT_NEEDS, SnapshotCut
from roost.consumer.source import Closed, Delivered, Gap, Item, Job, Live, Received, Slot, SnapshotItem, Source
from roost.errors import ClientError
from roost.event_patterns import unheard
from roost.locate import locate
from roost.pool_directory import pool_dir
from shared.bus.handling import RetryPolicy
from shared.bus.topology import CONSUMER_MAX_LENGTH
from shared.classad import ClassAd

LOG = logging.getLogger("roost.consumer")
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

URL_VARIABLE = "ROOST_CONSUMER_URL"
#: What a snapshot tells of jobs and slots, besides what was asked for.
JOB_ATTRIBUTES = (
    *JOB_NEEDS,
    *("Owner", "User", "AccountingGroup", "AcctGroup", "JobStatus", "EnteredCurrentStatus", "QDate", "Cmd"),
    *("RequestCpus", "RequestMemory", "RequestDisk", "RequestGPUs", "RemoteHost", "JobCurrentStartDate"),
    *("RemoteWallClockTime", "NumJobStarts", "NumShadowStarts", "HoldReason", "HoldReasonCode", "JobBatchName"),
)
SLOT_ATTRIBUTES = (
    *SLOT_NEEDS,
    *("Machine", "SlotType", "PartitionableSlot", "DynamicSlot", "Cpus", "Memory", "Disk", "GPUs"),
    *("TotalSlotCpus", "TotalSlotMemory", "RemoteOwner", "RemoteUser", "JobId", "AccountingGroup", "MyAddress"),
)
#: Slots are read from the collector, which knows of a change a moment after those who hear the event.
SETTLE_S = 1.0
#: Events that are held while a snapshot is taken. When there are more, the rest wait where they come from.
HELD = 50_000
ADS_AT_A_TIME = 500


class Consumer:
    """url: of the pool's gateway (http://..., or nothing for the pool that `roost` finds), or of its broker (amqp://...);
    else ROOST_CONSUMER_URL, or the file that ROOST_CONSUMER_URL_FILE names. token: for the gateway, as for `Client`.

    types: event types, patterns of them ("job.*") or classes of roost.events; none: all. owner, group, job, schedd,
    where: see `roost.consumer.filters.Filter`.

    name, durable: a durable consumer goes on where it stopped, under its name. Over AMQP the broker holds what is said
    meanwhile, `max_length` events at most; over HTTP it is the place in the stream that is kept, in the file `state`.

    ahead: events read before they are asked for; when so many wait, the pool is not asked for more. retry: how often a
    handler gets an item that it fails at, and when. on_failure: what then becomes of the item: "dead-letter" (durable,
    AMQP: `roost dead-letters` shows it), "skip" (it is logged), "stop" (run() raises HandlerFailed and the item is not
    taken). By default the first that is possible, but "stop" for a durable consumer over HTTP. patience_s: how long the
    first connection may take. pool: URL of the gateway, for snapshots of a consumer over AMQP.

    Raises ValueError for what does not fit together, ClientError where there is no pool.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        types: Sequence[Wanted] = (),
        name: str = "",
        durable: bool = False,
        owner: str = "",
        group: str = "",
        job: str = "",
        schedd: str = "",
        where: Callable[[Received], bool] | None = None,
        ahead: int = 100,
        max_length: int = 100_000,
        state: str | os.PathLike[str] | None = None,
        retry: RetryPolicy | None = None,
        on_failure: OnFailure | None = None,
        patience_s: float = 30.0,
        pool: str | None = None,
    ) -> None:
        url = url or _from_environment()
        self._amqp = bool(url) and str(url).startswith(("amqp://", "amqps://"))
        if durable and not name and not self._amqp:
            raise ValueError("a durable consumer needs a name, under which its place is kept: name=...")
        if ahead < 1:
            raise ValueError(f"ahead {ahead}: want 1 or more")
        if not 0 < max_length <= CONSUMER_MAX_LENGTH:
            raise ValueError(f"max_length {max_length}: want 1 to {CONSUMER_MAX_LENGTH}")
        if job and not re.fullmatch(r"[0-9]+(\.[0-9]+)?", job):
            raise ValueError(f'job {job!r}: want a cluster ("12") or a job ("12.3")')
        self.filter = Filter(patterns_of(types), owner, group, job, schedd, where)
        for told in unheard(self.filter.patterns):
            LOG.warning("%s", told)
        self.name = name
        self.durable = durable
        self.retry = retry or RetryPolicy(limit=5, first_s=0.2, factor=3.0, cap_s=30.0)
        self.health = Health(name=name or "unnamed", transport="amqp" if self._amqp else "http")
        self._buries = self._amqp and durable
        self.on_failure: OnFailure = on_failure or ("dead-letter" if self._buries else "stop" if durable else "skip")
        if self.on_failure == "dead-letter" and not self._buries:
            raise ValueError('only a durable consumer over AMQP has dead letters: on_failure="skip" or "stop"')
        self._gateway = pool if self._amqp else url or None
        self._token = token
        self._ahead, self._max_length, self._patience_s = ahead, max_length, patience_s
        self._position: Position | None = None
        self._saving: asyncio.TimerHandle | None = None
        self._handlers: list[Handler] = []
        self._chosen = bool(types)
        self._url = str(url or "")
        self._source: Source | None = None
        self._stopping: asyncio.Event | None = None
        self._coming: asyncio.Task[Delivered] | None = None  # what the source is asked for
        self._parts: Iterator[Delivered] = iter(())  # what came of it last
        self._loops: list[AsyncGenerator[Any, None]] = []
        if not self._amqp:
            locate(self._gateway, self._token)  # a pool that is not there is told at once
            if durable:
                default = pool_dir() / "consumers" / f"{name.replace('/', '_')}.json"
                self._position = Position(Path(state) if state is not None else default)

    def _make_source(self) -> Source:
        patterns = self.filter.patterns
        if not self._chosen and self._handlers:  # only what some handler wants
            wanted = [one.filter.patterns for one in self._handlers if one.filter is not None]
            patterns = tuple(dict.fromkeys(pattern for some in wanted for pattern in some)) or patterns
        if self._amqp:
            # Imported here: who follows events over HTTP need not load the AMQP client.
            from roost.consumer.amqp import AmqpSource

            return AmqpSource(
                self._url,
                self.name,
                binding_patterns(patterns),
                durable=self.durable,
                max_length=self._max_length,
                ahead=self._ahead,
                patience_s=self._patience_s,
            )
        return HttpSource(
            lambda: locate(self._gateway, self._token),
            shell_patterns(patterns),
            before=self._position.recent if self._position else (),
            taken=self._taken,
            began=self._began,
            ahead=self._ahead,
            patience_s=self._patience_s,
        )

    # Life

    async def __aenter__(self) -> Consumer:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Begin to listen: from now on nothing is missed. Raises ClientError."""
        if self._source is None:
            source = self._source = self._make_source()
            self.health.source = source
            self._stopping = asyncio.Event()
            try:
                if self._position is not None:
                    self._position.hold()
                await source.open()
            except BaseException:
                await self.close()
                self._source = None  # it may be opened again
                raise

    async def close(self) -> None:
        """End. What was not taken comes again, if the consumer is durable."""
        for items in self._loops:
            if not getattr(items, "ag_running", False):  # else some other task waits there, and hears that it is over
                await items.aclose()  # one that was left by an error takes its transaction back here
        self._loops.clear()
        coming, self._coming = self._coming, None
        if self._source is not None:
            await self._source.close()
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
        if self._saving is not None:
            self._saving.cancel()
        if self._position is not None:
            self._position.save()
            self._position.let_go()

    def stop_on_signals(self, stack: contextlib.ExitStack) -> None:
        """Have SIGTERM and SIGINT stop() this consumer, until the stack is left. For loops; run() does it by itself."""
        stack.enter_context(stop_on_signals(self.stop))

    def stop(self) -> None:
        """Let loops over this consumer, and run(), end after the item in hand. From the consumer's own event loop."""
        if self._stopping is not None:
            self._stopping.set()

    # Events

    async def _next(self) -> Delivered:
        """The next item that the filter takes. Raises Closed when it is time to stop. Nothing is lost when this is
        cancelled."""
        assert self._stopping is not None
        assert self._source is not None
        while True:
            if self._stopping.is_set():
                raise Closed
            if (part := next(self._parts, None)) is not None:
                assert isinstance(part.item, Received)
                self.health.heard(part.item)
                if self.filter.takes(part.item):
                    return part
                part.done("")
                continue
            if self._coming is None:
                self._coming = asyncio.get_running_loop().create_task(self._source.next(), name="consumer:next")
            if not self._coming.done():
                await _first_of(self._coming, self._stopping)
                continue
            coming, self._coming = self._coming, None
            delivered = coming.result()
            item = delivered.item
            if isinstance(item, Gap):
                self.health.gaps += 1
                LOG.warning("%s: %s", self.health.name, item.reason)
                return delivered
            self._parts = parts(delivered)

    def __aiter__(self) -> AsyncGenerator[Item, None]:
        return self._registered(self._items())

    def _registered(self, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        self._loops.append(items)
        return items

    async def _items(self) -> AsyncGenerator[Item, None]:
        await self.open()
        while True:
            try:
                delivered = await self._next()
            except Closed:
                return
            yield delivered.item
            self._done(delivered)

    def batches(self, most: int, within_s: float) -> AsyncGenerator[list[Item], None]:
        """Items in lists of `most` at most (over AMQP also `ahead`), each `within_s` after the first of it came at the
        latest: for what is better done for many together. A list is taken when the next one is asked for."""
        return self._registered(self._batches(most, within_s))

    async def _batches(self, most: int, within_s: float) -> AsyncGenerator[list[Item], None]:
        await self.open()
        over = False
        while not over:
            found: list[Delivered] = []
            try:
                found.append(await self._next())
                async with asyncio.timeout(within_s):
                    while len(found) < most:
                        found.append(await self._next())
            except TimeoutError:
                pass
            except Closed:
                over = True
            if found:
                yield [delivered.item for delivered in found]
            for delivered in found:
                self._done(delivered)

    def __iter__(self) -> Iterator[Item]:
        """The same for programs without asyncio. The connection is kept by a thread; leaving the loop ends it."""
        with BlockingLoop() as loop:
            loop.run(self.open())
            items = self.__aiter__()
            try:
                while True:
                    try:
                        yield loop.run(_next_of(items))
                    except StopAsyncIteration:
                        return
            finally:
                loop.run(self.close())

    def once(self, store: Once) -> AsyncGenerator[tuple[Received, Transaction], None]:
        """Events that were not taken before, each with the transaction in which it is taken when the next one is asked
        for. An error in the loop takes nothing. Gaps are logged and counted in `health`."""
        return self._registered(self._once(store))

    async def _once(self, store: Once) -> AsyncGenerator[tuple[Received, Transaction], None]:
        await self.open()
        while True:
            try:
                delivered = await self._next()
            except Closed:
                return
            got = delivered.item
            if isinstance(got, Received):
                with store.taking(got.id) as db:
                    if db is not None:
                        yield got, db
            self._done(delivered)

    def _done(self, delivered: Delivered, given_up: str = "") -> None:
        delivered.done(given_up)
        if not given_up:
            self.health.handled += 1

    def _began(self, ident: str) -> None:
        if self._position is not None and not self._position.last:
            self._position.taken(ident)
            self._position.save()

    def _taken(self, ident: str) -> None:
        position = self._position
        if position is None:
            return
        position.taken(ident)
        if self._saving is not None:
            self._saving.cancel()
        # The last events before a quiet time.
        self._saving = asyncio.get_running_loop().call_later(SAVE_EVERY_S, position.save)

    # Snapshots

    def snapshot_then_live(
        self,
        *,
        jobs: bool = True,
        slots: bool = True,
        job_attributes: Sequence[str] = (),
        slot_attributes: Sequence[str] = (),
    ) -> AsyncGenerator[SnapshotItem, None]:
        """All jobs and slots there are, then Live, then events: what happened before a job was read is not told again,
        what happened after it is. Attributes: besides JOB_ATTRIBUTES and SLOT_ATTRIBUTES. After a Gap begin anew.

        owner, group, job and schedd of the consumer's filter choose jobs too; of slots all are told."""
        return self._registered(self._snapshot_then_live(jobs, slots, job_attributes, slot_attributes))

    async def _snapshot_then_live(
        self, jobs: bool, slots: bool, job_attributes: Sequence[str], slot_attributes: Sequence[str]
    ) -> AsyncGenerator[SnapshotItem, None]:
        await self.open()
        held: deque[Delivered] = deque()
        holding = asyncio.get_running_loop().create_task(self._hold(held), name="consumer:hold")
        cut, told_jobs, told_slots = SnapshotCut(), 0, 0
        try:
            if jobs:
                async for ad in self._ads("job", (*JOB_ATTRIBUTES, *job_attributes), self.filter.job_constraint()):
                    if cut.job(ad):
                        told_jobs += 1
                        yield Job(ad)
            if slots:
                await asyncio.sleep(SETTLE_S)
                async for ad in self._ads("slot", (*SLOT_ATTRIBUTES, *slot_attributes), ""):
                    cut.slot(ad)
                    told_slots += 1
                    yield Slot(ad)
            events = [delivered.item for delivered in held if isinstance(delivered.item, Received)]
            for schedd, cluster in cut.incomplete(events) if jobs else ():
                # It came into the queue while that was read.
                constraint = f"ClusterId == {cluster}"
                async for ad in self._ads("job", (*JOB_ATTRIBUTES, *job_attributes), constraint, schedd):
                    if cut.job(ad):
                        told_jobs += 1
                        yield Job(ad)
        finally:
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)
        # Those that came last of all; none is lost between the one that held them and us.
        events = [delivered.item for delivered in held if isinstance(delivered.item, Received)]
        news = {got.id for got in cut.news(events)}
        yield Live(told_jobs, told_slots)
        while held:
            delivered = held.popleft()
            if isinstance(delivered.item, Gap) or delivered.item.id in news:
                yield delivered.item
            self._done(delivered)
        while True:
            try:
                delivered = await self._next()
            except Closed:
                return
            if isinstance(delivered.item, Gap) or cut.is_news(delivered.item):
                yield delivered.item
            self._done(delivered)

    async def _hold(self, held: deque[Delivered]) -> None:
        with contextlib.suppress(Closed):
            while len(held) < HELD:
                held.append(await self._next())

    async def _ads(
        self, kind: str, attributes: Sequence[str], constraint: str, schedd: str = ""
    ) -> AsyncIterator[ClassAd]:
        """Ads from the gateway, read in a thread. Raises ClientError."""
        with Client(locate(self._gateway, self._token).url, self._token) as client:
            if kind == "job":
                schedd = schedd or self.filter.schedd
                ads = client.jobs(constraint=constraint, projection=attributes, schedd=schedd)
            else:
                ads = client.ads("Machine", constraint=constraint, projection=attributes)
            while some := await asyncio.to_thread(_some, ads):
                for ad in some:
                    yield ad

    # Handlers

    def on(self, *types: Wanted | type[Gap], once: Once | None = None, **wanted: Any) -> Callable[[F], F]:
        """Decorator: call this function, plain or async, with every event of these types (none: all), or with gaps
        (Gap). wanted: owner, group, job, schedd, where, as for Consumer. A parameter `got` gets the Received; with
        `once` a parameter `db` gets the transaction. A consumer without `types` asks for those of its handlers."""

        def register(function: F) -> F:
            chosen = None
            if Gap not in types:
                chosen = Filter(patterns_of([one for one in types if one is not Gap]), **wanted)  # type: ignore[misc]
            self._handlers.append(Handler.of(function, chosen, once))
            return function

        return register

    def run(self, *, health_port: int | None = None) -> None:
        """Call the handlers until SIGTERM or SIGINT; the one at work finishes. health_port: serve /healthz and /readyz
        there, on all addresses. Raises HandlerFailed, ClientError."""
        asyncio.run(self.run_async(health_port=health_port, signals=True))

    async def run_async(self, *, health_port: int | None = None, signals: bool = False) -> None:
        """run() inside a program that has an event loop."""
        if not self._handlers:
            raise ValueError("there is no handler: decorate one with @consumer.on(...)")
        async with contextlib.AsyncExitStack() as stack:
            if health_port is not None:
                await stack.enter_async_context(HealthPage(self.health, health_port))
            if signals:
                stack.enter_context(stop_on_signals(self.stop))
            await self.open()
            stack.push_async_callback(self.close)
            assert self._stopping is not None
            attempts = Attempts(self.retry, self.on_failure, self.health, self._stopping)
            with contextlib.suppress(Closed):
                while True:
                    delivered = await self._next()
                    given_up = ""
                    for handler in self._handlers:
                        if handler.wants(delivered.item):
                            given_up = await attempts.offer(handler, delivered.item) or given_up
                    self._done(delivered, given_up)


async def _first_of(task: asyncio.Task[Any], stopping: asyncio.Event) -> None:
    """Until the task is done or it is time to stop. Neither is touched."""
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop.cancel()


def _from_environment() -> str:
    path = os.environ.get(f"{URL_VARIABLE}_FILE")
    if not path:
        return os.environ.get(URL_VARIABLE, "")
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise ClientError(f"{URL_VARIABLE}_FILE: {path} can not be read: {error.strerror}", "no-pool") from error


def _some(ads: Iterator[ClassAd]) -> list[ClassAd]:
    return [ad for ad, _ in zip(ads, range(ADS_AT_A_TIME), strict=False)]


async def _next_of(items: AsyncIterator[Item]) -> Item:
    return await anext(items)
