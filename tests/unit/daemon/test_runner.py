"""The life of a daemon: what starts, what ends it, and how it comes back."""

import asyncio

import pytest

from shared.backoff import wait_s
from shared.bus.api import Exchange
from shared.bus.memory import MemoryBus, MemoryHub
from shared.config import load_config
from shared.daemon.base import Daemon
from shared.daemon.health import waiting_for
from shared.daemon.lifecycle import TaskEnded, run_daemon, shutdown_s
from shared.daemon.runner import FIRST_BACKOFF_S, LONGEST_BACKOFF_S, Runner, State
from shared.messages import Ack
from shared.messages.ads import SendAds
from shared.state.api import StoreUnavailable
from shared.state.embedded import EmbeddedStore
from tests.daemons import make_context
from tests.spec import spec
from tests.waiting import eventually


class Example(Daemon):
    subsystem = "SCHEDD"

    def __init__(self, context):
        super().__init__(context)
        self.did = []
        self.fail = asyncio.Event()
        self.end = asyncio.Event()
        self.waits = ""

    async def setup(self):
        self.did.append("setup")

    def tasks(self):
        return {"one": self._one(), "two": self._two()}

    async def _one(self):
        await self.fail.wait()
        raise ValueError("broken")

    async def _two(self):
        await self.end.wait()

    async def drain(self):
        self.did.append("drain")

    async def close(self):
        self.did.append("close")

    def ready(self):
        return self.waits


class NoSetup(Example):
    async def setup(self):
        raise ValueError("no way")


class SlowSetup(Example):
    async def setup(self):
        await asyncio.Event().wait()


class Listening(Example):
    """What its handlers use is closed at the end."""

    async def setup(self):
        self.closed, self.refused = False, []
        await self.context.bus.serve("schedd.x", self._on_request)

    async def _on_request(self, envelope):
        if self.closed:
            self.refused.append(envelope)
            raise ValueError("closed")
        return Ack()

    async def close(self):
        self.closed = True
        for _ in range(20):
            await asyncio.sleep(0)


class NoDrain(Example):
    async def drain(self):
        raise StoreUnavailable("Redis is away")


class SlowDrain(Example):
    async def drain(self):
        await asyncio.Event().wait()


@pytest.fixture
async def hub():
    return MemoryHub()


@pytest.fixture
async def store():
    store = EmbeddedStore()
    await store.start()
    yield store
    await store.stop()


@pytest.fixture
async def make(hub, store):
    made = []

    def make(cls=Example):
        daemon = cls(make_context("SCHEDD", hub=hub, store=store))
        made.append(daemon)
        return daemon

    make.made = made
    yield make
    for daemon in made:
        await daemon.context.bus.stop()


async def living(daemon, **options):
    await daemon.context.bus.start()
    started = asyncio.Event()
    task = asyncio.create_task(run_daemon(daemon, started=started.set, **options))
    waiting = asyncio.create_task(started.wait())
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    return task


async def test_stop_drains_then_closes(make):
    daemon = make()
    task = await living(daemon)
    daemon.context.stopping.set()
    await task
    assert daemon.did == ["setup", "drain", "close"]


async def test_nobody_is_answered_from_closed_books(make, hub):
    """What comes while a daemon closes waits for its next life; it was refused, and one-way messages were dead."""
    daemon = make(Listening)
    task = await living(daemon)
    other = MemoryBus(hub, sender="collector.n")
    await other.start()
    asking, stop = [], asyncio.Event()

    async def ask():
        while not stop.is_set():
            asking.append(asyncio.ensure_future(other.call("schedd.x", SendAds(my_type="A"), timeout=30.0)))
            await asyncio.sleep(0)

    asker = asyncio.create_task(ask())
    await eventually(lambda: asking and asking[0].done())
    daemon.context.stopping.set()
    await task
    stop.set()
    await asker
    assert not asking[-1].done()
    assert not daemon.refused
    await daemon.context.bus.stop()
    again = MemoryBus(hub, sender="schedd.x")
    await again.start()

    async def answer(_):
        return Ack()

    await again.serve("schedd.x", answer)
    assert set(await asyncio.gather(*asking)) == {Ack()}
    await again.stop()
    await other.stop()


async def test_a_server_that_is_away_does_not_make_an_end_a_death(make):
    daemon = make(NoDrain)
    task = await living(daemon)
    daemon.context.stopping.set()
    await task
    assert daemon.did == ["setup", "close"]


async def test_failing_task_ends_the_daemon_without_a_drain(make):
    daemon = make()
    task = await living(daemon)
    daemon.fail.set()
    with pytest.raises(ValueError, match="broken"):
        await task
    assert daemon.did == ["setup", "close"]


async def test_task_that_returns_ends_the_daemon(make):
    daemon = make()
    task = await living(daemon)
    daemon.end.set()
    with pytest.raises(TaskEnded, match="two"):
        await task


async def test_failed_setup_closes(make):
    daemon = make(NoSetup)
    with pytest.raises(ValueError, match="no way"):
        await (await living(daemon))
    assert daemon.did == ["close"]


async def test_stop_during_setup_is_obeyed(make):
    daemon = make(SlowSetup)
    daemon.context.stopping.set()
    await (await living(daemon))
    assert daemon.did == ["close"]


async def test_drain_is_bounded(make):
    daemon = make(SlowDrain)
    task = await living(daemon, drain_s=0.05)
    daemon.context.stopping.set()
    await task
    assert daemon.did == ["setup", "close"]


async def test_how_long_a_stop_may_take_is_the_administrators(make):
    """SHUTDOWN_GRACEFUL_TIMEOUT and SHUTDOWN_FAST_TIMEOUT, where they are written."""

    def config(**knobs):
        return load_config([], subsystem="SCHEDD", env={}, overrides=knobs)

    assert shutdown_s(config(), 10.0) == (10.0, 10.0)
    assert shutdown_s(config(SHUTDOWN_GRACEFUL_TIMEOUT="60"), 10.0) == (60.0, 10.0)
    assert shutdown_s(config(SHUTDOWN_FAST_TIMEOUT="2"), 10.0) == (10.0, 2.0)
    daemon = make(SlowDrain)
    daemon.context.config = config(SHUTDOWN_GRACEFUL_TIMEOUT="0")
    task = await living(daemon, drain_s=3600.0)
    daemon.context.stopping.set()
    await task
    assert daemon.did == ["setup", "close"]


async def test_start_and_stop_are_events(make, hub):
    events = []
    listener = MemoryBus(hub, sender="gateway.test")
    await listener.start()

    async def note(envelope):
        events.append(envelope.body)

    await listener.listen(Exchange.EVENTS, ["daemon.*"], note)
    daemon = make()
    task = await living(daemon)
    daemon.fail.set()
    await asyncio.wait((task,))
    assert task.exception() is not None
    await eventually(lambda: len(events) == 2)
    assert [e.type for e in events] == ["daemon.started", "daemon.stopped"]
    assert events[0].daemon == "schedd@node1"
    assert "broken" in events[1].reason
    await listener.stop()


async def test_health_names_what_is_waited_for(make):
    daemon = make()
    assert any(reason.startswith("bus") for reason in waiting_for(daemon))
    await daemon.context.bus.start()
    assert waiting_for(daemon) == []
    daemon.waits = "its files"
    assert waiting_for(daemon) == ["its files"]
    await daemon.context.store.stop()
    assert any(reason.startswith("store") for reason in waiting_for(daemon))


@spec("CFG-20")
def test_backoff_doubles_up_to_a_bound():
    waits = [wait_s(deaths, FIRST_BACKOFF_S, LONGEST_BACKOFF_S) for deaths in range(1, 40)]
    assert waits[:3] == [FIRST_BACKOFF_S, 2 * FIRST_BACKOFF_S, 4 * FIRST_BACKOFF_S]
    assert waits[-1] == LONGEST_BACKOFF_S


@spec("CFG-20")
async def test_runner_starts_a_dead_daemon_again_with_everything_new(make):
    """What a master does, in a personal pool."""
    runner = Runner("schedd", make)
    await runner.start()
    assert runner.state is State.RUNNING
    first = runner.daemon
    first.fail.set()
    await eventually(lambda: runner.state is State.RUNNING and runner.daemon is not first)
    assert (runner.deaths, runner.last_error) == (1, "ValueError: broken")
    assert not first.context.bus.health.connected
    assert runner.report()["ready"] is True
    await runner.stop()
    assert runner.state is State.STOPPED
    assert make.made[-1].did == ["setup", "drain", "close"]


async def test_runner_tells_of_a_daemon_that_can_not_start(make):
    runner = Runner("schedd", lambda: make(NoSetup))
    await runner.start()
    assert runner.state is State.WAITING
    assert "no way" in runner.last_error
    await runner.stop()
    assert runner.state is State.STOPPED
