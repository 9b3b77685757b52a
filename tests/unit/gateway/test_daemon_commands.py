"""Whom `on` names while the ad of a daemon that is off is on its way."""

import pytest

from services.gateway.pool_client import PoolClient
from services.gateway.routes.administration import DaemonCommands, Daemons
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.daemon.clock import SystemClock
from shared.messages.ads import AdPage
from shared.messages.base import Ack


@pytest.fixture
async def place():
    """A hub; `ads` are what the collector tells, `serve` puts somebody at an inbox."""
    hub, buses = MemoryHub(), []

    async def serve(inbox, answer=None):
        bus = MemoryBus(hub, sender=f"{inbox.split('.')[0]}.x")
        await bus.start()

        async def take(envelope):
            return answer(envelope) if answer is not None else Ack()

        await bus.serve(inbox, take)
        buses.append(bus)
        return bus

    asking = MemoryBus(hub, sender="gateway.g")
    await asking.start()
    buses.append(asking)
    commands = DaemonCommands(asking, PoolClient(asking, SystemClock()), "gateway.g")
    commands_ads = []
    await serve("collector", lambda envelope: AdPage(ads=[ad.pack() for ad in commands_ads]))
    yield commands, commands_ads, serve
    for bus in buses:
        await bus.stop()


def off(subsystem, name):
    return ClassAd(
        {
            "MyType": "DaemonMaster",
            "Name": f"{subsystem}@{name}",
            "Machine": f"{name}.example.org",
            "MyAddress": f"{subsystem}.off.{name}",
            "Subsystem": subsystem.upper(),
            "DaemonName": name,
        }
    )


def startd(name):
    about = {"MyType": "Machine", "Name": f"slot1@{name}", "Machine": f"{name}.example.org"}
    return ClassAd(about | {"MyAddress": f"startd.{name}"})


async def named(commands, **asked):
    asked = Daemons(**asked)
    found, known = await commands.find(asked, silent=True)
    assert known
    return sorted(target.inbox for target in [*found, *await commands.minding(asked, found)])


@pytest.mark.parametrize("host", ["node1", "node1.example.org"])
async def test_who_minds_a_place_is_named_before_its_ad_is_there(place, host):
    """Its host is known by another daemon of it; nobody else is named, and nobody who has gone."""
    commands, ads, serve = place
    ads += [startd("node1"), off("schedd", "node1")]
    for inbox in ("startd.node1", "schedd.off.node1", "negotiator.off.node1", "schedd.off.node2"):
        await serve(inbox)
    gone = await serve("collector.off.node1")
    await gone.stop()
    assert await named(commands, names=[host]) == ["negotiator.off.node1", "schedd.off.node1", "startd.node1"]
    assert await named(commands, names=[host], subsystems=["SCHEDD"]) == ["schedd.off.node1"]


async def test_where_all_are_meant_or_a_constraint_says_who_it_is_the_ads_that_count(place):
    commands, ads, serve = place
    ads += [startd("node1")]
    for inbox in ("startd.node1", "schedd.off.node1"):
        await serve(inbox)
    assert await named(commands, names=[], all=True) == ["gateway.g", "startd.node1"]
    assert await named(commands, constraint="true") == ["startd.node1"]
