"""A collector as a process on RabbitMQ and Redis: killed, frozen, doubled, cut off."""

import asyncio
import json
import time

import pytest

from shared.bus import connect
from shared.bus.api import CallTimeout
from shared.classad import ClassAd
from shared.daemon.advertiser import Advertiser
from shared.messages.ads import QueryAds, SendAds
from shared.messages.base import Ack
from shared.state import open_store
from shared.state.ads import load_ads, load_claims
from tests.daemons import make_context
from tests.gateway_keys import gateway_bus
from tests.processes import DaemonProcess, daemons
from tests.spec import spec
from tests.waiting import eventually

pytestmark = pytest.mark.servers


class FakeStartd:
    """A daemon with slots to show."""

    def __init__(self, name, amqp_url):
        self.bus = connect(amqp_url, f"startd.{name}")
        self.context = make_context("STARTD", name, bus=self.bus)
        self.name = name
        self.asked = 0

    async def __aenter__(self):
        await self.bus.start()
        self.advertiser = Advertiser(self.context, "Machine")
        await self.bus.serve(f"startd.{self.name}", self._answer)
        return self

    async def __aexit__(self, *_):
        await self.bus.stop()

    async def _answer(self, envelope):
        assert isinstance(envelope.body, SendAds)
        self.asked += 1
        self.advertiser.resend(envelope.body)
        return Ack()

    async def show(self, slots, **attributes):
        ads = {
            f"slot{i}@{self.name}": ClassAd(
                {"MyType": "Machine", "Name": f"slot{i}@{self.name}", "Memory": 1024, "Cpus": 4, **attributes}
            )
            for i in range(1, slots + 1)
        }
        await self.advertiser.publish(ads, {name: f"{name}#secret" for name in ads})


async def query(bus, **question):
    """All matching ads, through all pages; None while the collector does not answer."""
    ads, after = [], ""
    while True:
        try:
            page = await bus.call("collector", QueryAds(after=after, **question), timeout=2.0)
        except CallTimeout:
            return None
        ads += [ClassAd.unpack(packed) for packed in page.ads]
        if not page.next:
            return ads
        after = page.next


async def count(bus, **question):
    ads = await query(bus, **question)
    return None if ads is None else len(ads)


@pytest.fixture
async def bus(amqp_url):
    bus = gateway_bus(amqp_url, "gateway.test")
    await bus.start()
    yield bus
    await bus.stop()


@pytest.fixture
def collector(tmp_path, amqp_url, redis_url):
    process = DaemonProcess("collector", "cm1", tmp_path, amqp_url=amqp_url, redis_url=redis_url)
    with daemons(process):
        yield process


@spec("COL-03", "COL-04")
async def test_ads_are_shown_changed_and_taken_back(collector, bus, amqp_url):
    async with FakeStartd("n1", amqp_url) as startd:
        await startd.show(3)
        await eventually(lambda: _is(count(bus, my_types=["Machine"]), 3))
        await startd.show(3, State="Claimed")
        await eventually(lambda: _is(count(bus, constraint='State == "Claimed"'), 3))
        await startd.show(2, State="Claimed")
        await eventually(lambda: _is(count(bus, my_types=["Machine"]), 2))
        (ad,) = await query(bus, constraint='Name == "SLOT1@n1"')
        assert ad["LastHeardFrom"] >= time.time() - 60
        assert "secret" not in str(ad)
        await startd.advertiser.invalidate()
        await eventually(lambda: _is(count(bus, my_types=["Machine"]), 0))
        assert startd.asked == 0


@spec("COL-11")
async def test_a_startd_whose_connection_is_gone_is_seen_as_gone(tmp_path, amqp_url, redis_url, bus):
    """As the broker sees it: nobody serves its inbox any more. It says nothing itself."""
    knobs = {"COLLECTOR_PRESENCE_INTERVAL": 1, "COLLECTOR_PRESENCE_GRACE": 1}
    process = DaemonProcess("collector", "cm1", tmp_path, amqp_url=amqp_url, redis_url=redis_url, config=knobs)
    with daemons(process):
        async with FakeStartd("n1", amqp_url) as stays:
            async with FakeStartd("n2", amqp_url) as goes:
                await stays.show(1)
                await goes.show(3)
                await eventually(lambda: _is(count(bus, my_types=["Machine"]), 4))
            await eventually(lambda: _is(count(bus, my_types=["Machine"]), 1))
            async with FakeStartd("n2", amqp_url) as back:
                await back.show(2)
                await eventually(lambda: _is(count(bus, my_types=["Machine"]), 3))


async def _is(answer, expected):
    return await answer == expected


@spec("COL-01")
async def test_killed_collector_forgets_nothing_and_answers_again_soon(collector, bus, amqp_url, redis_url):
    """COL-01 the other way round: a restart forgets nothing."""
    store = open_store(redis_url)
    await store.start()
    async with FakeStartd("n1", amqp_url) as old, FakeStartd("n2", amqp_url) as new:
        await old.show(5)
        await eventually(lambda: _is(count(bus, my_types=["Machine"]), 5))
        await eventually(lambda: _stored(store, 5))
        await asyncio.to_thread(collector.kill)
        # What is said while no collector is there waits in the broker.
        await old.show(5, State="Claimed")
        await new.show(4)
        await asyncio.to_thread(collector.start)
        await eventually(lambda: _is(count(bus, my_types=["Machine"]), 9))
        assert await count(bus, constraint='State == "Claimed"') == 5
        assert old.asked == new.asked == 0
        await eventually(lambda: _stored(store, 9))
        await eventually(lambda: _claims(store, 9))
    await store.stop()


async def _claims(store, expected):
    return len(await load_claims(store)) == expected


async def _stored(store, expected):
    return sum(len(group.ads) for group in await load_ads(store, "Machine")) == expected


async def test_collector_that_lost_a_delta_asks_for_everything(collector, bus, amqp_url):
    async with FakeStartd("n1", amqp_url) as startd:
        await startd.show(2)
        await eventually(lambda: _is(count(bus, my_types=["Machine"]), 2))
        sent = startd.bus.publish

        async def lose(*_, **__):
            return None

        startd.bus.publish = lose
        await startd.show(2, State="Claimed")
        startd.bus.publish = sent
        await startd.advertiser.repeat()
        await eventually(lambda: _is(count(bus, constraint='State == "Claimed"'), 2))
        assert startd.asked == 1


@spec("COL-06")
async def test_with_two_collectors_the_death_of_one_is_not_noticed(collector, bus, amqp_url, redis_url, tmp_path):
    other = DaemonProcess("collector", "cm2", tmp_path, amqp_url=amqp_url, redis_url=redis_url)
    with daemons(other):
        async with FakeStartd("n1", amqp_url) as startd:
            await startd.show(2)
            for _ in range(4):  # both answer
                await eventually(lambda: _is(count(bus, my_types=["Machine"]), 2))
            await asyncio.to_thread(collector.kill)
            await startd.show(6)
            await eventually(lambda: _is(count(bus, my_types=["Machine"]), 6))
            await asyncio.to_thread(collector.start)
            await asyncio.to_thread(other.kill)
            await eventually(lambda: _is(count(bus, my_types=["Machine"]), 6))


async def test_redis_restart_is_waited_for_and_told(collector, bus, amqp_url, redis_server):
    async with FakeStartd("n1", amqp_url) as startd:
        await startd.show(2)
        await eventually(lambda: _is(count(bus, my_types=["Machine"]), 2))
        await asyncio.to_thread(redis_server.kill)
        await startd.show(5)
        # Answers come from the index.
        await eventually(lambda: _is(count(bus, my_types=["Machine"]), 5))
        await eventually(lambda: _not_ready(collector, "store"))
        await asyncio.to_thread(redis_server.start)
        store = open_store(redis_server.url)
        await store.start()
        await eventually(lambda: _stored(store, 5))
        await store.stop()
        await eventually(lambda: asyncio.to_thread(collector.ready))


async def _not_ready(process, word):
    status, text = await asyncio.to_thread(process.ask, "/readyz")
    return status == 503 and any(word in reason for reason in json.loads(text)["waiting_for"])


@spec("COL-02", "ABS-01", "ABS-02", "ABS-03", "ABS-05", "W-78")
async def test_silent_machine_expires_and_becomes_absent(tmp_path, bus, amqp_url, redis_url):
    config = {
        "CLASSAD_LIFETIME": 2,
        "ABSENT_REQUIREMENTS": "Cpus > 2",
        "COLLECTOR_PERSISTENT_AD_LOG": "anything",
    }
    process = DaemonProcess("collector", "cm1", tmp_path, amqp_url=amqp_url, redis_url=redis_url, config=config)
    with daemons(process):
        async with FakeStartd("n1", amqp_url) as startd:
            await startd.show(1)
            await eventually(lambda: _is(count(bus, my_types=["Machine"]), 1))
            await eventually(lambda: _is(count(bus, my_types=["Machine"]), 0))
            await eventually(lambda: _is(count(bus, my_types=["Machine"], absent=True), 1))
            await asyncio.to_thread(process.kill)
            await asyncio.to_thread(process.start)
            # Asked for its ads by the new collector, the startd may have shown itself once more meanwhile.
            await eventually(lambda: _is(count(bus, my_types=["Machine"], absent=True), 1))
            (ad,) = await query(bus, my_types=["Machine"], absent=True)
            assert ad["Absent"] is True
            await startd.advertiser.resend()
            await eventually(lambda: _is(count(bus, my_types=["Machine"]), 1))
            assert await count(bus, constraint="Absent =?= true") == 0


async def test_bad_messages_and_questions_harm_nobody(collector, bus, amqp_url):
    from shared.bus.api import Exchange, RemoteFailure
    from shared.messages.ads import AdUpdate

    forged = AdUpdate(my_type="Machine", daemon="startd@n1", start_time=1, sequence=1, names=["s"], ads=[b"\x80"])
    await bus.publish(Exchange.ADS, "update.Machine.startd@n1", forged)
    await eventually(lambda: _dead(bus, "speaks for itself"))
    with pytest.raises(RemoteFailure) as refused:
        await bus.call("collector", QueryAds(constraint="Memory >"))
    assert refused.value.code == "bad-request"
    assert await count(bus, my_types=["Machine"]) == 0
    assert collector.ready()


async def _dead(bus, word):
    return [letter for letter in await bus.dead_letters() if word in letter.reason]


async def test_sigterm_stops_it_cleanly(collector):
    collector.process.terminate()
    assert await asyncio.to_thread(collector.process.wait) == 0
    lines = [json.loads(line) for line in collector.log.read_text().splitlines()]
    assert [line["event"] for line in lines if line["level"] in ("error", "critical")] == []
    assert lines[-1]["event"] == "daemon_stopped", lines[-1]


async def test_health_and_metrics(collector):
    status, text = collector.ask("/readyz")
    assert (status, json.loads(text)["daemon"]) == (200, "collector@cm1")
    assert collector.ask("/healthz")[0] == 200
    status, text = collector.ask("/metrics")
    assert "roost_daemon_ready 1.0" in text
    assert "roost_collector_ads" in text
