"""Orders that every daemon takes (TLS-08, TLS-09): configuration again, restart, off and on."""

import pytest

from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.config import ConfigError, load_config
from shared.daemon import off_mark, orders
from shared.daemon.advertiser import Advertiser
from shared.daemon.base import Daemon
from shared.daemon.lifecycle import run_daemon
from shared.daemon.off_daemon import OffDaemon, inbox
from shared.daemon.runner import Runner, State
from shared.daemon.shutdown_expression import wanted_shutdown
from shared.daemon.startup import make_daemon
from shared.messages.base import Ack, Envelope, Failure
from shared.messages.orders import OrderTaken, Reconfigure, Reconfigured, Restart, SwitchOff, SwitchOn
from shared.state.embedded import EmbeddedStore
from tests.daemons import make_context
from tests.spec import spec
from tests.waiting import eventually


class Example(Daemon):
    subsystem = "SCHEDD"
    at_start = ("SLOW_*",)
    refuses = ""

    def __init__(self, context):
        super().__init__(context)
        self.goes_by = context.config

    async def setup(self):
        await self.context.bus.serve(f"schedd.{self.context.name}", self.on)

    async def on(self, envelope):
        return await orders.handle_order(self, envelope)

    def tasks(self):
        return {"wait": self.context.stopping.wait()}

    async def reconfigure(self):
        if self.refuses:
            raise ConfigError([])
        self.goes_by = self.context.config


class Gatewayish(Example):
    can_be_off = False


def config(**knobs):
    return load_config([], subsystem="SCHEDD", env={}, overrides=knobs)


def sent(body, sender="gateway.node1"):
    return Envelope(body, sender=sender)


@pytest.fixture
def daemon(tmp_path):
    made = Example(make_context("SCHEDD", config=config(FAST_ONE="1", SLOW_ONE="1", SAME="x"), directory=tmp_path))
    made.context.reread = lambda: config(FAST_ONE="2", SLOW_ONE="2", SAME="x", NEW="y")
    return made


@spec("CFG-16")
async def test_reconfiguring_tells_what_changed_and_what_wants_a_restart(daemon):
    answer = await orders.handle_order(daemon, sent(Reconfigure(by="root@x")))
    assert answer == Reconfigured(changed=["FAST_ONE", "NEW", "SLOW_ONE"], at_start=["SLOW_ONE"])
    assert daemon.goes_by.get("FAST_ONE") == "2"
    assert (await orders.handle_order(daemon, sent(Reconfigure()))) == Reconfigured()


async def test_a_value_that_changes_through_another_macro_is_told(daemon):
    daemon.context.config = config(BASE="1", DERIVED="$(BASE) + 1")
    daemon.context.reread = lambda: config(BASE="2", DERIVED="$(BASE) + 1")
    answer = await orders.handle_order(daemon, sent(Reconfigure()))
    assert answer.changed == ["BASE", "DERIVED"]


async def test_a_broken_configuration_is_refused_with_its_place_and_the_old_one_stays(daemon, tmp_path):
    file = tmp_path / "config"
    file.write_text("A = 1\nif true\n")
    daemon.context.reread = lambda: load_config([file], subsystem="SCHEDD", env={})
    before = daemon.context.config
    answer = await orders.handle_order(daemon, sent(Reconfigure()))
    assert isinstance(answer, Failure)
    assert f"{file}, line 2" in answer.reason
    assert daemon.context.config is before


async def test_one_that_the_daemon_can_not_use_is_refused_too(daemon):
    before = daemon.context.config
    daemon.refuses = "yes"
    assert isinstance(await orders.handle_order(daemon, sent(Reconfigure())), Failure)
    assert daemon.context.config is daemon.goes_by is before


async def test_no_daemon_restarts_into_a_configuration_that_can_not_be_read(daemon, tmp_path):
    def broken():
        return load_config([tmp_path / "none"], subsystem="SCHEDD", env={})

    daemon.context.reread = broken
    answer = await orders.handle_order(daemon, sent(Restart()))
    assert isinstance(answer, Failure)
    assert str(tmp_path / "none") in answer.reason
    assert not daemon.context.stopping.is_set()


async def test_what_is_no_order_is_refused(daemon):
    answer = await orders.handle_order(daemon, sent(Ack()))
    assert answer == Failure(code="bad-request", reason="a schedd does not answer ack")


async def test_a_gateway_can_not_be_off(tmp_path):
    gateway = Gatewayish(make_context("SCHEDD", directory=tmp_path))
    answer = await orders.handle_order(gateway, sent(SwitchOff()))
    assert isinstance(answer, Failure)
    assert off_mark.read_off_mark(gateway.context, "SCHEDD") is None


@pytest.mark.parametrize("text", ["", "null", "{}", '{"since": "x"}', "\x00"])
def test_a_mark_counts_whatever_is_in_it(tmp_path, text):
    context = make_context("SCHEDD", directory=tmp_path)
    assert off_mark.read_off_mark(context, "SCHEDD") is None
    off_mark.mark_off(context, "SCHEDD", "root@x", "repair")
    assert off_mark.read_off_mark(context, "SCHEDD").by == "root@x"
    next((tmp_path / "spool" / "off").iterdir()).write_text(text)
    assert off_mark.read_off_mark(context, "SCHEDD") == off_mark.OffMark(0.0)
    assert isinstance(make_daemon(Example, context), OffDaemon)
    off_mark.clear_off_mark(context, "SCHEDD")
    assert isinstance(make_daemon(Example, context), Example)


@pytest.fixture
async def running(tmp_path):
    """A runner with its example, and a gateway's end of the bus."""
    hub, store = MemoryHub(), EmbeddedStore()
    await store.start()
    lives = []

    def make():
        context = make_context("SCHEDD", hub=hub, store=store, directory=tmp_path)
        context.reread = lambda: context.config
        lives.append(make_daemon(Example, context))
        return lives[-1]

    runner = Runner("schedd", make)
    await runner.start()
    gateway = MemoryBus(hub, sender="gateway.node1")
    await gateway.start()
    yield runner, gateway, lives
    await gateway.stop()
    await runner.stop()
    await store.stop()


class Advertising(Example):
    """Tells the pool of itself, as it is told to."""

    load = 1

    async def setup(self):
        self.advertiser = Advertiser(self.context, "Scheduler")

    async def tell(self):
        await self.advertiser.publish({"a": ClassAd({"Name": "a"}), "b": ClassAd({"Name": "b", "Load": self.load})})


class UnstoppableAdvertising(Advertising):
    can_be_off = False


@spec("TLS-20")
@pytest.mark.parametrize("kind", [Advertising, UnstoppableAdvertising])
async def test_a_daemon_switches_itself_off_where_its_ad_says_so(tmp_path, kind):
    hub, store, lives = MemoryHub(), EmbeddedStore(), []
    await store.start()

    def make():
        knobs = config(**{"DAEMON_SHUTDOWN": "false", "SCHEDD.DAEMON_SHUTDOWN": "Load > 5"})
        context = make_context("SCHEDD", config=knobs, hub=hub, store=store, directory=tmp_path)
        lives.append(make_daemon(kind, context))
        return lives[-1]

    runner = Runner("schedd", make)
    await runner.start()
    (daemon,) = lives
    await daemon.tell()
    assert not daemon.context.shutdown_asked.is_set()
    daemon.load = 6
    await daemon.tell()
    if kind.can_be_off:
        await eventually(lambda: len(lives) == 2 and runner.state is State.RUNNING)
        assert isinstance(lives[1], OffDaemon)
        reason = off_mark.read_off_mark(daemon.context, "SCHEDD").reason
        assert reason == "DAEMON_SHUTDOWN is true in the ad of b: Load > 5"
    else:
        await eventually(lambda: daemon.context.shutdown is None)
        assert (len(lives), runner.state) == (1, State.RUNNING)
    assert runner.deaths == 0
    await runner.stop()
    await store.stop()


@spec("TLS-20")
@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({}, None),
        ({"DAEMON_SHUTDOWN": "Load > 5"}, False),
        ({"DAEMON_SHUTDOWN": "Load > 5", "DAEMON_SHUTDOWN_FAST": "Load > 5"}, True),
        ({"DAEMON_SHUTDOWN": "Load > 6", "DAEMON_SHUTDOWN_FAST": "Missing > 5"}, None),
        ({"DAEMON_SHUTDOWN": "1 +"}, None),
        ({"DAEMON_SHUTDOWN": "time() >= 1000"}, False),
        ({"DAEMON_SHUTDOWN": "time() > 1000"}, None),
        ({"DAEMON_SHUTDOWN_FAST": "1"}, True),
    ],
)
def test_what_the_expressions_ask_for(knobs, expected):
    found = wanted_shutdown(config(**knobs), [ClassAd({"Name": "a"}), ClassAd({"Name": "b", "Load": 6})], 1000.0)
    assert (None if found is None else found.fast) == expected


async def test_a_daemon_that_is_over_is_not_started_again(running):
    runner, _, lives = running
    lives[0].context.over = True
    lives[0].context.stopping.set()
    await eventually(lambda: runner.state is State.STOPPED)
    assert (len(lives), runner.deaths) == (1, 0)


async def test_a_restart_is_no_death(running):
    runner, gateway, lives = running
    assert isinstance(await gateway.call("schedd.node1", Restart()), OrderTaken)
    await eventually(lambda: len(lives) == 2 and runner.state is State.RUNNING)
    assert runner.deaths == 0
    assert isinstance(await gateway.call("schedd.node1", Reconfigure()), Reconfigured)


@spec("TLS-09")
async def test_off_leaves_an_off_daemon_until_on(running):
    """Over restarts too."""
    runner, gateway, lives = running
    await gateway.call("schedd.node1", SwitchOff(by="root@x", reason="repair"))
    await eventually(lambda: len(lives) == 2 and runner.state is State.RUNNING)
    minder = inbox("SCHEDD", "node1")
    await runner.stop()
    await runner.start()
    assert [type(life).__name__ for life in lives] == ["Example", "ExampleOff", "ExampleOff"]
    ad = lives[-1]._ad()
    assert (ad.eval("MyType"), ad.eval("DaemonState"), ad.eval("OffBy")) == ("DaemonMaster", "Off", "root@x")
    assert ad.eval("OffReason") == "repair"
    assert (await gateway.call(minder, SwitchOff())).said == "it is off already"
    await gateway.call(minder, SwitchOn())
    await eventually(lambda: len(lives) == 4 and runner.state is State.RUNNING)
    assert isinstance(lives[-1], Example)
    assert (await gateway.call("schedd.node1", SwitchOn())).said == "it is on already"
    assert runner.deaths == 0


@spec("TLS-09")
async def test_on_counts_that_comes_while_the_daemon_is_about_to_be_off(daemon):
    assert (await orders.handle_order(daemon, sent(SwitchOff()))).said == "it is off until `roost on`"
    assert (await orders.handle_order(daemon, sent(SwitchOn()))).said == "it is on"
    assert isinstance(make_daemon(Example, daemon.context), Example)


async def test_a_life_that_is_to_be_followed_by_another_says_so(daemon):
    await daemon.context.bus.start()
    orders.restart(daemon)
    await run_daemon(daemon)
    assert daemon.context.again
    await daemon.context.bus.stop()
