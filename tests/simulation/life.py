"""One daemon from its start to its death, which may come at any await."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from services.journal.store import Store as JournalStore
from shared.bus.api import Exchange
from shared.bus.handling import packed
from shared.bus.memory import Item, MemoryBus, MemoryHub
from shared.daemon.base import Daemon
from shared.daemon.lifecycle import DRAIN_S, drain, stop_consuming
from shared.messages.base import Envelope, Message
from shared.state.api import StoreUnavailable
from tests.simulation.loop import LIFE

STORE_S = 0.0002  # what a call of the store takes


#: What messages of the oldest version in tests/data/recorded_state say: names of fields, by type.
EARLIER: Final[dict[str, list[str]]] = json.loads(
    (Path(__file__).parents[1] / "data" / "sim" / "earlier_messages.json").read_text()
)


@cache
def gained(kind: type[Message]) -> dict[str, Any]:
    """What a message tells besides since then, as it is where nobody says it. One of a kind that there was not tells
    all that it has: who is earlier does not say it."""
    known = EARLIER.get(kind.type)
    if known is None:
        return {}
    return {
        name: field.get_default(call_default_factory=True)
        for name, field in kind.model_fields.items()
        if name not in known
    }


def as_before(body: Message) -> Message:
    """A message as that version says or reads it."""
    later = gained(type(body))
    return body.model_copy(update=later) if later else body


class Clock:
    """A daemon's clocks: the wall clock may be wrong, and stands at `start` when the simulation begins."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.skew = 0.0

    def now(self) -> float:
        return self.start + self.monotonic() + self.skew

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    boottime = monotonic

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Store:
    """A daemon's connection to the pool's store, which can be cut."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.cut = False

    @property
    def health(self) -> Any:
        return self._store.health

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*args: Any, **named: Any) -> Any:
            await asyncio.sleep(STORE_S)
            if self.cut:
                await asyncio.sleep(0.5)
                raise StoreUnavailable("the connection is cut")
            answer = await method(*args, **named)
            await asyncio.sleep(STORE_S)
            if self.cut:  # done, but the answer is lost
                await asyncio.sleep(0.5)
                raise StoreUnavailable("the connection was cut while waiting for the answer")
            return answer

        return call


class Hub(MemoryHub):
    """keeps: what is under way arrives, though its sender has died or is frozen since; in early seeds it ends or waits
    with its sender."""

    keeps = False

    def after(self, seconds: float, deliver: Callable[..., object], *arguments: object) -> None:
        if not self.keeps:
            return super().after(seconds, deliver, *arguments)
        token = LIFE.set(None)
        try:
            super().after(seconds, deliver, *arguments)
        finally:
            LIFE.reset(token)


class Bus(MemoryBus):
    """Handlers run as part of their daemon's life, whoever's message they handle."""

    life: Life
    subscribing: Callable[[], float] | None = None  # how long the next subscription takes, seconds
    heard: Callable[[Item], None] | None = None  # every fact that came to the broker
    is_earlier: Callable[[], bool] = staticmethod(lambda: False)  # whether this daemon is of an earlier version

    def _envelope(self, body: Message, epoch: int | None, trace: str | None) -> Envelope:
        return super()._envelope(as_before(body) if self.is_earlier() else body, epoch, trace)

    async def call(self, inbox: str, request: Message, **named: Any) -> Message:
        answer = await super().call(inbox, request, **named)
        return as_before(answer) if self.is_earlier() else answer

    def _packed(self, body: Message, epoch: int | None = None, trace: str | None = None) -> bytes:
        if self.is_earlier():
            body = as_before(body)
        clock = self.life.clock  # which may be wrong, and everybody sees it
        return packed(Envelope(body, self.sender, self.hub.new_id(), clock.now(), epoch, trace))

    def _route(self, item: Item, exchange: Exchange, began: float) -> None:
        if exchange is Exchange.EVENTS and self.heard is not None:
            self.heard(item)
        super()._route(item, exchange, began)

    def _within(self, handler: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
        life = self.life

        async def handle(envelope: Any) -> Any:
            LIFE.set(life)
            task = asyncio.current_task()
            assert task is not None
            if task not in life._tasks or not getattr(asyncio.get_running_loop(), "handlers_are_their_own", False):
                life.adopt(task)
            await life.thawed()
            return await handler(replace(envelope, body=as_before(envelope.body)) if self.is_earlier() else envelope)

        return handle

    async def consume(self, queue: str, handler: Any, *, prefetch: int = 100) -> Any:
        return await self._confirmed(await super().consume(queue, self._within(handler), prefetch=prefetch))

    async def listen(self, exchange: Any, patterns: Sequence[str], handler: Any, *, prefetch: int = 500) -> Any:
        found = await super().listen(exchange, patterns, self._within(handler), prefetch=prefetch)
        return await self._confirmed(found)

    async def serve(self, inbox: str, handler: Any, *, prefetch: int = 100, priority: int = 0) -> Any:
        served = await super().serve(inbox, self._within(handler), prefetch=prefetch, priority=priority)
        return await self._confirmed(served)

    async def _confirmed(self, subscription: Any) -> Any:
        """The first messages may be here before whoever subscribed goes on."""
        if self.subscribing is not None:
            await asyncio.sleep(self.subscribing())
        return subscription


class Life:
    """make(life): the daemon, with `life.bus`, `life.store` and `life.clock` in its context."""

    def __init__(self, name: str, make: Callable[[Life], Daemon], bus: Bus, store: Store, clock: Clock) -> None:
        self.name = name
        self.bus = bus
        self.store = store
        self.clock = clock
        self.dead = False
        self.gone = asyncio.Event()
        self.died_of = ""
        self.not_before = 0.0  # while it is frozen: when it goes on
        self._stopping: asyncio.Future[None] | None = None
        self.crash_at_task = 0  # dies when it makes so many more tasks (0: it does not): in the midst of something
        self.on_start: Callable[[Life], None] = lambda life: None
        self.on_kill: Callable[[Life], None] = lambda life: None
        self.on_break: Callable[[Life], None] = lambda life: None  # it ends without having said all
        self.said_all = False
        self.can_write: Callable[[], bool] = lambda: True  # what it says as it ends is written down
        self.begun = 0.0
        #: How long a thread's work takes until it is done, and until that is known, seconds; None: no time to speak of.
        self.disk: Callable[[], tuple[float, float]] | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in the order of their making, the same in every telling
        self._most_tasks = 50  # more are looked through: some are done
        self._make = make
        self.daemon: Daemon | None = None
        self.started = False
        bus.life = self

    def begin(self) -> None:
        self.begun = asyncio.get_running_loop().time()
        token = LIFE.set(self)
        try:
            asyncio.get_running_loop().create_task(self._live(), name=f"life:{self.name}")
        finally:
            LIFE.reset(token)

    async def _live(self) -> None:
        try:
            stopping = self._stopping = asyncio.get_running_loop().create_future()
            await self.bus.start()
            self.daemon = self._make(self)
            await self.daemon.setup()
            self.started = True
            self.on_start(self)
            tasks = [asyncio.create_task(work, name=f"{self.name}:{n}") for n, work in self.daemon.tasks().items()]
            await asyncio.wait((*tasks, stopping), return_when=asyncio.FIRST_COMPLETED)
            ended = next((task for task in tasks if task.done()), None)
            if ended is not None:
                self.died_of = f"{ended.get_name()}: {ended.exception()!r}"
            else:
                await self._end(self.daemon, tasks)
                self.died_of = "a fault"
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.died_of = f"{type(error).__name__}: {error}"
        self.kill()

    async def _end(self, daemon: Daemon, tasks: list[asyncio.Task[None]]) -> None:
        """As `shared.daemon.lifecycle` and `shared.daemon.main` do it."""
        await stop_consuming(self.bus)
        await drain(daemon, DRAIN_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await stop_consuming(self.bus)
        async with asyncio.timeout(DRAIN_S):
            await daemon.close()
        self.said_all = self.bus.health.connected and self.can_write()
        await self.bus.stop()

    async def stop(self, patience_s: float) -> None:
        """As SIGTERM does, and SIGKILL to one that takes longer."""
        if self._stopping is not None and not self._stopping.done():
            self._stopping.set_result(None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self.gone.wait()
        self.kill()

    def adopt(self, task: asyncio.Task[Any]) -> None:
        if self.dead:
            task.cancel()
            return
        self._tasks[task] = None
        if len(self._tasks) > self._most_tasks:
            self._tasks = {task: None for task in self._tasks if not task.done()}
            self._most_tasks = 2 * len(self._tasks) + 50
        if self.crash_at_task:
            self.crash_at_task -= 1
            if not self.crash_at_task:
                self.died_of = "a fault"
                asyncio.get_running_loop().call_soon(self.kill)

    async def thawed(self) -> None:
        # A timer of a frozen life waits for its end by itself: `VirtualLoop.call_at`.
        if asyncio.get_running_loop().time() < self.not_before:
            await asyncio.sleep(self.not_before - asyncio.get_running_loop().time())

    def freeze(self, seconds: float) -> None:
        """As SIGSTOP does: nothing happens in it for so long; messages wait."""
        self.not_before = asyncio.get_running_loop().time() + seconds

    def kill(self) -> None:
        """As SIGKILL does: nothing more happens in it. What it had handed to the store or the bus is done."""
        if self.dead:
            return
        self.dead = True
        if not self.said_all:
            self.on_break(self)
        self.gone.set()
        self.on_kill(self)
        self.bus.disconnect(crash=True)
        current = asyncio.current_task()
        for task in list(self._tasks):
            if task is not current:
                task.cancel()

    async def bury(self) -> None:
        """Wait for its tasks, and close its files."""
        self.kill()
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        while waiting := [task for task in tasks if not task.done()]:
            # One that was ended may have begun to put something right, with a thread that never comes back here.
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting, timeout=0.0)
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(Exception):
            await self.bus.stop()
        database = getattr(getattr(self.daemon, "queue", None), "_database", None)
        if database is not None:  # the schedd's, whose transactions are whole or not there
            database.rollback()
            database.close()
        session = getattr(getattr(getattr(self.daemon, "_shared", None), "runs", None), "_http", None)
        for one in (session, getattr(self.daemon, "_http", None)):
            if one is not None:
                one.detach()
        store = getattr(self.daemon, "store", None)
        if isinstance(store, JournalStore) and store._engine is not None:
            store._engine.dispose()
        ledger = getattr(self.daemon, "ledger", None)
        if ledger is not None:
            ledger.journal.close()
