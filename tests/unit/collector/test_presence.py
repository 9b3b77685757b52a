"""Execution points that are not at the broker: since when, when that counts, and what becomes of their ads."""

import pytest

from services.collector.core.presence import MOST_LOOKS, Presence
from services.collector.daemon import Collector
from shared.bus.api import BusUnavailable, Exchange
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd
from shared.daemon.advertiser import Advertiser
from shared.messages.base import Ack
from shared.messages.events import DaemonGone
from tests.daemons import make_context
from tests.spec import spec
from tests.waiting import eventually

EP = "startd@ep"


@spec("COL-11")
def test_one_that_is_missed_for_longer_than_the_grace_is_gone():
    presence = Presence(5.0)
    assert presence.saw({EP: True, "startd@b": True}, 100.0) == {}
    assert presence.saw({EP: False, "startd@b": True}, 102.0) == {}
    assert presence.saw({EP: False, "startd@b": True}, 106.9) == {}
    assert presence.saw({EP: False, "startd@b": True}, 107.0) == {EP: 5.0}
    assert presence.missing == 1


@spec("COL-11")
def test_one_that_is_back_within_the_grace_was_never_gone():
    presence = Presence(5.0)
    for second in range(0, 100, 4):  # a startd that is started anew again and again
        assert presence.saw({EP: False}, float(second)) == {}
        assert presence.saw({EP: True}, second + 2.0) == {}


def test_one_look_is_not_enough_however_late_it_is():
    assert Presence(0.0).saw({EP: False}, 1000.0) == {}


def test_after_a_time_without_a_broker_all_have_to_come_back_first():
    presence = Presence(5.0)
    presence.saw({EP: False}, 100.0)
    presence.begin_anew()
    assert presence.saw({EP: False}, 200.0) == {}
    assert presence.saw({EP: False}, 205.0) == {EP: 5.0}


def test_what_the_broker_does_not_know_is_left_to_the_lifetime_of_its_ads():
    presence = Presence(0.0)
    for now in (1.0, 2.0, 3.0):
        assert presence.saw({}, now) == {}


def test_large_pools_are_looked_at_in_turn_and_those_that_are_missed_each_time():
    presence = Presence(5.0)
    pool = [f"startd@n{number:04}" for number in range(2 * MOST_LOOKS)]
    looked: list[str] = []
    for _ in range(2):
        looked += presence.to_look_at([*pool, "schedd@ap"])
    assert sorted(looked) == pool
    presence.saw({pool[7]: False}, 1.0)
    turns = [presence.to_look_at(pool) for _ in range(4)]
    assert all(pool[7] in turn and len(turn) == MOST_LOOKS for turn in turns)
    assert set().union(*turns) == set(pool)
    presence.to_look_at(pool[8:])
    assert presence.missing == 0  # its ads are gone, for whatever reason


def slot(name="slot1@ep", **more):
    return ClassAd({"Name": name, "MyType": "Machine", "MyAddress": "startd.ep", "State": "Unclaimed", **more})


@pytest.fixture
async def pool():
    """(collector, bus of its startd, the startd's advertiser, events)"""
    hub, events = MemoryHub(), []
    bus = MemoryBus(hub, sender="collector.cm")
    startd = make_context("STARTD", "ep", hub=hub)
    negotiator = MemoryBus(hub, sender="negotiator.cm")
    for each in (bus, startd.bus, negotiator):
        await each.start()

    async def hear(envelope):
        events.append(envelope.body)

    async def answer(_):
        return Ack()

    await negotiator.listen(Exchange.EVENTS, [DaemonGone.type], hear)
    await startd.bus.serve("startd.ep", answer)
    context = make_context("COLLECTOR", "cm", bus=bus)
    await context.store.start()
    collector = Collector(context)
    collector.presence.grace_s = 0.0
    await bus.listen(Exchange.ADS, ["#"], collector._on_broadcast)
    yield collector, startd.bus, Advertiser(startd, "Machine"), events
    for each in (bus, startd.bus, negotiator):
        await each.stop()
    await context.store.stop()


def names(collector):
    return sorted(name for _, name, _ in collector.directory.table.rows("Machine"))


@spec("COL-11")
async def test_the_ads_of_one_that_is_gone_go_at_once_and_come_back_with_it(pool):
    collector, startd, slots, events = pool
    await slots.publish({"slot1@ep": slot(), "slot2@ep": slot("slot2@ep")})
    await eventually(lambda: names(collector) == ["slot1@ep", "slot2@ep"])
    await collector.directory.writer.write_some()
    await collector._look()
    startd.disconnect()
    await collector._look()
    assert names(collector) == ["slot1@ep", "slot2@ep"]
    await collector._look()
    assert names(collector) == []
    await eventually(lambda: events)
    assert (events[0].daemon, events[0].collector, events[0].ads) == ("startd@ep", "cm", 2)
    assert await collector.directory.load() == 0  # gone in the store too
    startd.reconnect()
    await slots.publish({"slot1@ep": slot()}, whole=True)
    await eventually(lambda: names(collector) == ["slot1@ep"])
    await collector._look()
    await collector._look()
    assert (names(collector), len(events)) == (["slot1@ep"], 1)


async def test_a_machine_that_sleeps_keeps_its_ads(pool):
    collector, startd, slots, events = pool
    await slots.publish({"slot1@ep": slot(Offline=True)})
    await eventually(lambda: names(collector))
    startd.disconnect()
    for _ in range(3):
        await collector._look()
    assert (names(collector), events) == (["slot1@ep"], [])


async def test_a_broker_that_can_not_be_asked_takes_nobody_away(pool):
    collector, startd, slots, events = pool
    await slots.publish({"slot1@ep": slot()})
    await eventually(lambda: names(collector))
    startd.disconnect()
    await collector._look()
    collector.context.bus.disconnect()
    with pytest.raises(BusUnavailable):
        await collector._look()
    assert (names(collector), events) == (["slot1@ep"], [])
