"""Roosters in this process, with something that answers as a collector does (PWR-06, PWR-07)."""

import asyncio
import contextlib
import socket
from contextlib import asynccontextmanager

import pytest

from services.rooster import waker as waking
from services.rooster.daemon import Rooster
from shared import wake_on_lan
from shared.bus.api import Exchange
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import evaluate, is_true, parse_ads, parse_expr
from shared.daemon import periodic
from shared.daemon.lifecycle import run_daemon
from shared.messages.ads import AdPage, AdUpdate
from shared.messages.base import Failure
from shared.state.embedded import EmbeddedStore
from tests.daemons import make_context
from tests.spec import spec
from tests.unit.rooster.test_policy import sleeper
from tests.waiting import eventually


class Pool:
    """A store and a collector, and as many roosters as are begun."""

    def __init__(self, tmp_path):
        self.hub, self.ads, self.events, self.told = MemoryHub(), [], [], []
        self.silent = False
        self.asked = 0
        self.log = tmp_path / "woken"
        self.command = tmp_path / "wake"
        self.command.write_text(
            f"#!/bin/sh\nmine={tmp_path}/$$\ncat > $mine\necho >> $mine\n"
            "if grep -q broken $mine; then echo no such socket >&2; exit 4; fi\n"
            f"cat $mine >> {self.log}\n"  # in one go, as several run at a time
        )
        self.command.chmod(0o755)
        self.lives = {}

    async def __aenter__(self):
        self.store = EmbeddedStore()
        await self.store.start()
        self.bus = MemoryBus(self.hub, sender="collector.cm")
        await self.bus.start()
        await self.bus.serve("collector", self._collector)

        async def hear(envelope):
            (self.told if isinstance(envelope.body, AdUpdate) else self.events).append(envelope.body)

        await self.bus.listen(Exchange.EVENTS, ["rooster.#"], hear)
        await self.bus.listen(Exchange.ADS, ["update.Rooster.#"], hear)
        return self

    async def __aexit__(self, *_):
        for name in list(self.lives):
            await self.kill(name)
        await self.bus.stop()
        await self.store.stop()

    async def _collector(self, envelope):
        self.asked += 1
        if self.silent:
            return Failure(code="unavailable", reason="not now", retryable=True)
        asked = parse_expr(envelope.body.constraint)
        return AdPage(ads=[ad.pack() for ad in self.ads if is_true(evaluate(asked, ad))])

    async def rooster(self, name="r1", **knobs):
        config = {"ROOSTER_WAKEUP_CMD": str(self.command), "ROOSTER_INTERVAL": "3600"} | knobs
        context = make_context("ROOSTER", name, hub=self.hub, store=self.store, config=config)
        await context.bus.start()
        daemon, running = Rooster(context), asyncio.Event()
        self.lives[name] = (daemon, asyncio.create_task(run_daemon(daemon, started=running.set)))
        await running.wait()
        return daemon

    async def kill(self, name):
        """Nothing is drained, nothing said."""
        daemon, life = self.lives.pop(name)
        life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await life
        await daemon.context.bus.stop()

    async def end(self, name):
        daemon, life = self.lives.pop(name)
        daemon.context.stopping.set()
        await life
        await daemon.context.bus.stop()

    def woken(self):
        return [ad.eval("Machine") for ad in parse_ads(self.log.read_text())] if self.log.exists() else []


@pytest.fixture
async def pool(tmp_path):
    async with Pool(tmp_path) as made:
        yield made


@spec("PWR-06")
async def test_the_command_gets_the_machine_s_ad(pool):
    pool.ads = [sleeper("a", HardwareAddress="52:54:00:00:00:01", Memory=8192), sleeper("b", Unhibernate=False)]
    rooster = await pool.rooster()
    await eventually(lambda: pool.events)
    (ad,) = parse_ads(pool.log.read_text())
    assert (ad.eval("Name"), ad.eval("HardwareAddress"), ad.eval("Memory")) == ("slot1@a", "52:54:00:00:00:01", 8192)
    assert ad.eval("Unhibernate") is True
    (event,) = pool.events
    assert (event.woken, event.failed, event.waiting, event.rooster) == (["a"], {}, 0, "r1")
    assert (rooster.rounds, rooster.woken, rooster.role()) == (1, 1, "leader")
    assert await eventually(lambda: any(b"MachinesWoken" in one.ads[0] for one in pool.told))


@spec("PWR-06")
async def test_so_many_are_woken_and_a_failure_does_not_count(pool):
    """ROOSTER_MAX_UNHIBERNATE, by ROOSTER_UNHIBERNATE_RANK."""
    pool.ads = [sleeper(name, Mips=mips) for name, mips in (("c", 1), ("broken", 9), ("a", 5), ("b", 3))]
    await pool.rooster(ROOSTER_MAX_UNHIBERNATE="2", ROOSTER_UNHIBERNATE_RANK="Mips")
    await eventually(lambda: pool.events)
    (event,) = pool.events
    assert sorted(pool.woken()) == ["a", "b"]
    assert (event.woken, event.waiting) == (["a", "b"], 1)
    assert list(event.failed) == ["broken"]
    assert "exit status 4: no such socket" in event.failed["broken"]


async def test_one_acts_and_the_next_keeps_the_interval(pool):
    """Neither a second rooster nor a new life of the first wakes more than the interval allows."""
    pool.ads = [sleeper("a"), sleeper("b")]
    first = await pool.rooster("r1", ROOSTER_MAX_UNHIBERNATE="1")
    await eventually(lambda: pool.events)
    second = await pool.rooster("r2", ROOSTER_MAX_UNHIBERNATE="1")
    await eventually(lambda: second.store_answers)
    assert (first.role(), second.role()) == ("leader", "passive")
    await pool.end("r1")
    await second.update_lead()
    assert second.leads
    assert second.last_round == first.last_round
    again = await pool.rooster("r1")
    await eventually(lambda: again.store_answers)
    assert pool.woken() == ["a"]
    second.last_round -= 3600  # the interval is over
    second.wake()
    await eventually(lambda: len(pool.events) == 2)
    assert pool.woken() == ["a", "a"]


async def test_a_collector_that_is_away_is_asked_again(pool, monkeypatch):
    monkeypatch.setattr(periodic, "RETRY_S", 0.05)
    pool.silent, pool.ads = True, [sleeper("a")]
    rooster = await pool.rooster()
    await eventually(lambda: pool.asked > 1 and rooster.trouble)
    assert rooster.ready() == rooster.trouble
    assert pool.woken() == []
    pool.silent = False
    await eventually(lambda: pool.woken() == ["a"])
    await eventually(lambda: not rooster.trouble)


async def test_new_settings_count_at_once(pool):
    rooster = await pool.rooster()
    await eventually(lambda: rooster.rounds == 1)
    pool.ads = [sleeper("a")]
    rooster.context.config = make_context(
        "ROOSTER", config={"ROOSTER_INTERVAL": "1", "ROOSTER_WAKEUP_CMD": str(pool.command)}
    ).config
    await rooster.reconfigure()
    await eventually(lambda: pool.woken())


@asynccontextmanager
async def listening():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        there.bind(("127.0.0.1", 0))
        there.settimeout(30)
        yield there


@spec("PWR-05", "PWR-06")
async def test_without_a_command_a_magic_packet_is_sent(monkeypatch):
    """As HTCondor's default, condor_power, does; also where that program is named and not there."""
    hardware = "52:54:00:00:00:01"
    async with listening() as there:
        sent = wake_on_lan.send

        def to_us(address, where, port=wake_on_lan.PORT):
            assert where == "127.255.255.255"
            sent(address, "127.0.0.1", there.getsockname()[1])

        monkeypatch.setattr(wake_on_lan, "send", to_us)
        ad = sleeper("a", HardwareAddress=hardware, SubnetMask="255.0.0.0", PublicNetworkIpAddr="127.0.0.1")
        for command in ((), ("/no/such/condor_power", "-d", "-i")):
            await waking.wake(ad, command)
            assert await asyncio.to_thread(there.recv, 1000) == b"\xff" * 6 + bytes.fromhex("525400000001") * 16
    with pytest.raises(waking.WakeFailed, match="a has no HardwareAddress"):
        await waking.wake(sleeper("a"), ())
    with pytest.raises(waking.WakeFailed, match="/no/such/tool can not be run"):
        await waking.wake(ad, ("/no/such/tool",))
