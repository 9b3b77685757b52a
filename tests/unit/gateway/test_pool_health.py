"""How daemons do, as the gateway gathers it: who answers, whose clock is off, what waits in queues."""

from typing import ClassVar

from services.gateway.pool_client import PoolClient
from services.gateway.pool_health import PoolHealth
from shared.bus.api import Exchange
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.daemon.base import Daemon
from shared.daemon.clock import SystemClock
from shared.daemon.orders import handle_order
from shared.messages.ads import AdCounts, AdHeartbeat, AdPage, QueryAds
from shared.messages.base import known_types, protocol
from shared.messages.orders import AskConfig, ConfigTold
from tests.daemons import make_context


class HourAhead(SystemClock):
    def now(self):
        return super().now() + 3600.0


class Plain(Daemon):
    """A daemon that answers what all answer."""

    subsystem: ClassVar[str] = "SCHEDD"
    keeps: ClassVar[dict[str, int]] = {"job queue": 2}

    async def setup(self):
        await self.context.bus.serve(f"schedd.{self.context.name}", lambda envelope: handle_order(self, envelope))

    def tasks(self):
        return {}

    def troubles(self):
        return ["no cgroups"]


def ad(kind, name, inbox):
    times = {"LastHeardFrom": 1795351950, "DaemonStartTime": 1795300000}
    return ClassAd({"MyType": kind, "Name": name, "Machine": name, "MyAddress": inbox, **times}).pack()


class Surroundings:
    """A hub with a collector that knows these ads, and a gateway's look at it."""

    def __init__(self, tmp_path, ads):
        self.hub, self.tmp_path, self.ads = MemoryHub(), tmp_path, ads
        self.buses = []

    async def bus(self, sender):
        made = MemoryBus(self.hub, sender=sender)
        await made.start()
        self.buses.append(made)
        return made

    async def start(self):
        collector = await self.bus("collector.cm1")
        await collector.serve("collector", self._answer)
        gateway = await self.bus("gateway.gw1")

        async def own(envelope):
            return ConfigTold()  # as one of an earlier release: without health

        await gateway.serve("gateway.gw1", own)
        clock = SystemClock()
        self.health = PoolHealth(gateway, PoolClient(gateway, clock), clock, "gateway.gw1")

    async def _answer(self, envelope):
        body = envelope.body
        if isinstance(body, QueryAds):
            wanted = [packed for kind, packed in self.ads if kind in body.my_types]
            return AdPage(ads=wanted[: body.limit or None])
        return AdCounts(values=[[]], counts=[sum(kind == "Machine" for kind, _ in self.ads)])

    async def daemon(self, name, clock=None):
        context = make_context(
            "SCHEDD", name, bus=await self.bus(f"schedd.{name}"), directory=self.tmp_path, clock=clock
        )
        await Plain(context).setup()

    async def stop(self):
        for bus in self.buses:
            await bus.stop()


async def test_everybody_is_asked_and_told_of_by_name(tmp_path):
    names = ("ahead", "gone", "well")
    there = Surroundings(tmp_path, [("Scheduler", ad("Scheduler", name, f"schedd.{name}")) for name in names])
    await there.start()
    try:
        await there.daemon("well")
        await there.daemon("ahead", HourAhead())
        found = await there.health.look()
    finally:
        await there.stop()
    told = {(one["subsystem"], one["name"]): one for one in found["daemons"]}
    assert set(told) == {("SCHEDD", name) for name in names} | {("GATEWAY", "gw1")}
    well = told["SCHEDD", "well"]
    assert abs(well["clock_s"]) < 1.0 + well["unsure_s"]
    assert abs(told["SCHEDD", "ahead"]["clock_s"] - 3600.0) < 1.0 + well["unsure_s"]
    assert well["health"]["troubles"] == ["no cgroups"]
    assert well["health"]["keeps"] == {"job queue": 2}
    assert "messages" not in well["health"]
    assert found["protocols"] == {protocol(): known_types()}
    assert "nobody is at its inbox" in told["SCHEDD", "gone"]["silent"]
    assert (well["queue"], well["heard"], well["began"]) == ("roost.inbox.schedd.well", 1795351950, 1795300000)
    assert (told["GATEWAY", "gw1"]["heard"], told["GATEWAY", "gw1"]["began"]) == (0, 0)
    assert told["GATEWAY", "gw1"]["health"] == {}
    assert told["GATEWAY", "gw1"]["silent"] == ""


async def test_what_waits_in_queues_is_looked_at_twice(tmp_path):
    there = Surroundings(tmp_path, [])
    await there.start()
    try:
        there.hub.work_queue("roost.collector")  # whose collector went away
        sender = await there.bus("schedd.ap1")
        beat = AdHeartbeat(my_type="Scheduler", daemon="schedd@ap1", start_time=1, sequence=2, base=1)
        for _ in range(3):
            await sender.publish(Exchange.ADS, "heartbeat.Scheduler.schedd@ap1", beat)
        found = await there.health.look()
    finally:
        await there.stop()
    assert found["queues"] == [{"name": "roost.collector", "before": 3, "after": 3}]


async def test_machines_are_asked_up_to_a_limit_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("services.gateway.pool_health.MOST_MACHINES", 2)
    machines = [("Machine", ad("Machine", f"slot1@n{n}", f"startd.n{n}")) for n in range(4)]
    there = Surroundings(tmp_path, machines)
    await there.start()
    try:
        found = await there.health.look()
    finally:
        await there.stop()
    assert found["machines"] == 4
    assert [one["name"] for one in found["daemons"] if one["subsystem"] == "STARTD"] == ["n0", "n1"]


async def test_a_daemon_tells_its_configuration_and_its_health_only_when_asked(tmp_path):
    hub = MemoryHub()
    bus, asker = MemoryBus(hub, sender="schedd.ap1"), MemoryBus(hub, sender="gateway.gw1")
    await bus.start()
    await asker.start()
    try:
        await Plain(make_context("SCHEDD", "ap1", bus=bus, directory=tmp_path)).setup()
        plain = await asker.call("schedd.ap1", AskConfig(names=["SPOOL"]))
        asked = await asker.call("schedd.ap1", AskConfig(names=["SPOOL"], health=True))
    finally:
        await bus.stop()
        await asker.stop()
    assert plain.health == {}
    assert [macro["name"] for macro in asked.macros] == ["SPOOL"]
    assert asked.health["release"]
    assert asked.health["loop"] == {}
