"""What a running collector takes of a new configuration, without a restart."""

import asyncio
import itertools

import pytest

from services.collector.daemon import Collector
from services.collector.view_links import ViewLinks
from shared.bus.api import Exchange
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.config import ConfigError, load_config
from shared.daemon.ad_table import AdTable
from shared.daemon.clock import SystemClock
from shared.messages.ads import AdUpdate
from tests.daemons import make_context
from tests.waiting import eventually


def config(**knobs):
    return load_config([], subsystem="COLLECTOR", env={f"_CONDOR_{name}": text for name, text in knobs.items()})


async def reconfigured(collector, **knobs):
    collector.context.config = config(**knobs)
    await collector.reconfigure()


def update(sequence=1):
    ad = ClassAd({"Name": "slot1@n", "MyType": "Machine", "Count": sequence})
    return AdUpdate(
        my_type="Machine", daemon="startd@n", start_time=1, sequence=sequence, names=["slot1@n"], ads=[ad.pack()]
    )


async def test_a_shorter_lifetime_ends_ads_that_are_there():
    collector = Collector(make_context("COLLECTOR", config=config(CLASSAD_LIFETIME="900")))
    table = collector.directory.table
    table.apply(update(), 100.0)
    assert table.expired(200.0) == []
    await reconfigured(collector, CLASSAD_LIFETIME="50")
    [(group, names)] = table.expired(200.0)
    assert (group.daemon, names) == ("startd@n", ["slot1@n"])


async def test_a_longer_lifetime_lets_ads_live_on():
    collector = Collector(make_context("COLLECTOR", config=config(CLASSAD_LIFETIME="50")))
    table = collector.directory.table
    table.apply(update(), 100.0)
    await reconfigured(collector, CLASSAD_LIFETIME="900")
    assert table.expired(999.0) == []
    assert len(table.expired(1000.0)) == 1


async def test_what_becomes_of_machines_that_are_gone():
    collector = Collector(make_context("COLLECTOR", config=config()))
    assert not collector.directory.policy.persistent
    await reconfigured(
        collector, COLLECTOR_PERSISTENT_AD_LOG="yes", ABSENT_REQUIREMENTS="true", ABSENT_EXPIRE_ADS_AFTER="77"
    )
    assert (collector.directory.policy.persistent, collector.directory.policy.keep_s) == (True, 77.0)


async def test_a_configuration_that_can_not_be_used_changes_nothing():
    collector = Collector(make_context("COLLECTOR", config=config(CLASSAD_LIFETIME="50")))
    with pytest.raises(ConfigError, match="ABSENT_EXPIRE_ADS_AFTER"):
        await reconfigured(collector, CLASSAD_LIFETIME="70", ABSENT_EXPIRE_ADS_AFTER="soon")
    assert collector.directory.table.lifetime_s == 50.0
    assert collector.settings.classad_lifetime == 50


async def test_its_own_ad_follows_at_once():
    """Not a COLLECTOR_UPDATE_INTERVAL later."""
    hub = MemoryHub()
    bus = MemoryBus(hub, sender="collector.node1")
    await bus.start()
    collector = Collector(make_context("COLLECTOR", bus=bus, config=config(COLLECTOR_NAME="before")))
    listener, names = MemoryBus(hub, sender="negotiator.node1"), []
    await listener.start()

    async def hear(envelope):
        for ad in getattr(envelope.body, "ads", None) or getattr(envelope.body, "changes", None) or []:
            names.append(ClassAd.unpack(ad).eval("PoolName"))

    await listener.listen(Exchange.ADS, ["#"], hear)
    root = collector.tasks()
    task = asyncio.create_task(root.pop("advertise"))
    for other in root.values():
        other.close()
    try:
        await eventually(lambda: names == ["before"])
        await reconfigured(collector, COLLECTOR_NAME="after")
        await eventually(lambda: names == ["before", "after"])
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.stop()
        await listener.stop()


async def test_views_come_and_go_and_the_others_are_told_on():
    hubs = {url: MemoryHub() for url in ("amqp://one", "amqp://two", "amqp://three")}
    heard, table = {url: [] for url in hubs}, AdTable()
    log = make_context("COLLECTOR").log
    views = ViewLinks("collector.node1", table, SystemClock(), log, lambda url, name: MemoryBus(hubs[url], sender=name))
    listeners, sequences = [], itertools.count(1)
    for url, hub in hubs.items():
        bus = MemoryBus(hub, sender="collector.view")
        await bus.start()
        listeners.append(bus)

        async def hear(envelope, url=url):
            heard[url].append(envelope.body.daemon)

        await bus.listen(Exchange.ADS, ["forward.#"], hear)
    views.aim(["amqp://one", "amqp://two"])
    task = asyncio.create_task(views.forward())

    async def told(*urls):
        counts = {url: len(heard[url]) for url in urls}

        def all_there():
            table.apply(update(next(sequences)), 100.0)
            views.note(("Machine", "startd@n"))
            return all(len(heard[url]) > count for url, count in counts.items())

        await eventually(all_there)

    try:
        await told("amqp://one", "amqp://two")
        before = views.told
        views.aim(["amqp://two", "amqp://three"])
        await told("amqp://two", "amqp://three")
        left = len(heard["amqp://one"])
        await told("amqp://two", "amqp://three")
        assert len(heard["amqp://one"]) == left
        assert views.told > before  # a counter, whatever views there are
        views.aim([])
        assert len(views) == 0
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await views.stop()
        for bus in listeners:
            await bus.stop()
