"""What the bus does while its broker is dead and after that. The broker dies once for all of these stories, each of
which has a virtual host of its own."""

import asyncio

import pytest

from shared.bus.api import BusUnavailable, CallTimeout, Exchange
from shared.bus.spool import EventSpool
from shared.messages import Ack
from shared.messages.ads import SendAds
from shared.messages.events import DaemonReconnected, JobRemoved
from tests.contract.bus_amqp import AmqpPool
from tests.contract.outage import Stories
from tests.contract.test_bus import Catch, heartbeat, invalidate, lost
from tests.contract.test_bus_amqp import removed
from tests.waiting import eventually

pytestmark = pytest.mark.servers
story = Stories()
ends = story.ends()


@story
async def test_traffic_survives_kill_and_restart_of_the_broker(pool, broker):
    startd, collector = await pool.bus("startd.node1", publish_wait_s=60.0), await pool.bus("collector.a")
    negotiator, schedd = await pool.bus("negotiator.cm"), await pool.bus("schedd.ap1", publish_wait_s=60.0)
    consumed, heard, gaps, refused = Catch(), Catch(), [], []

    async def gap():
        gaps.append(len(heard.envelopes))

    negotiator.on_gap(gap)
    await collector.consume("roost.collector", consumed)
    await negotiator.listen(Exchange.ADS, ["#"], heard)
    await schedd.serve("schedd.ap1", Catch())
    confirmed, stop = [], asyncio.Event()

    async def publisher():
        sequence = 0
        while not stop.is_set():
            sequence += 1
            await startd.publish(Exchange.ADS, "invalidate.Machine.x", invalidate(sequence))
            confirmed.append(sequence)

    async def caller():
        while not stop.is_set():
            try:
                assert await startd.call("schedd.ap1", SendAds(my_type="A"), timeout=5) == Ack()
            except (BusUnavailable, CallTimeout) as error:
                refused.append(error)
                await asyncio.sleep(0.1)
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(publisher())
        tasks.create_task(caller())
        await broker.settle()
        await broker.kill()
        await broker.start()
        await eventually(lambda: gaps, what="the callback after the restart")
        before = len(confirmed)
        await eventually(lambda: len(confirmed) > before + 100, what="further publishing")
        stop.set()
    await eventually(lambda: set(confirmed) <= set(consumed.sequences), what="all that was confirmed")
    assert heard.sequences[-1] in confirmed  # broadcasts flow again
    assert gaps[0] > 0
    for bus in (startd, collector, negotiator, schedd):  # each comes back in its own time
        await eventually(lambda bus=bus: bus.health.reconnects >= 1 and not bus.health.waiting_for)
        assert bus.health.consumers == bus.health.expected_consumers
    assert await startd.call("schedd.ap1", SendAds(my_type="A")) == Ack()


@story
async def test_messages_that_wait_survive_kill_and_restart_of_the_broker(pool, broker):
    bus = await pool.bus("schedd.ap1")
    await (await bus.serve("schedd.ap1", Catch())).cancel()
    await (await bus.consume("roost.collector", Catch())).cancel()
    await broker.settle()
    for n in range(50):
        await bus.send("schedd.ap1", lost(f"slot{n}"))
        await bus.publish(Exchange.ADS, "x", invalidate(n))
    await broker.kill()
    await broker.start()
    inbox, work = Catch(), Catch()
    await bus.serve("schedd.ap1", inbox)
    await bus.consume("roost.collector", work)
    await inbox.got(50)
    await work.got(50)
    assert sorted(set(work.sequences)) == list(range(50))
    assert {body.slot for body in inbox.bodies} == {f"slot{n}" for n in range(50)}


@story
async def test_facts_of_who_is_killed_while_there_is_no_broker_are_told_in_the_next_life(pool, broker):
    """Those that it said meanwhile, and those of the moments before, each under its id."""
    schedd = await pool.bus("schedd.ap", spool=broker.folder / "events")
    journal, heard = await pool.bus("journal.j"), {}

    async def record(envelope):
        heard.setdefault(envelope.id, envelope.body.at)

    await journal.consume("roost.view", record)
    await broker.settle()
    await broker.kill()
    for number in range(100):
        await schedd.publish(Exchange.EVENTS, "job.removed", removed(number))
        if number == 10:
            await eventually(lambda: not schedd.health.connected)
    pool.buses.remove(schedd)
    schedd._supervisor.cancel()  # it is killed: nothing of it goes on
    await asyncio.wait({schedd._supervisor})
    await broker.start()
    again = await pool.bus("schedd.ap", spool=broker.folder / "events")
    await again.publish(Exchange.EVENTS, "job.removed", removed(100))
    await eventually(lambda: len([at for at in heard.values() if at < 1000]) == 101, what="every event")
    assert sorted(heard.values())[:101] == list(range(101))
    await eventually(lambda: not again._events.spool.used, what="the spool to be cleared")
    await again.stop()
    assert EventSpool(broker.folder / "events").take() == []


@story
async def test_facts_that_wait_when_their_daemon_is_stopped_are_told_in_the_next_life(pool, broker):
    schedd = await pool.bus("schedd.ap", spool=broker.folder / "events")
    journal, heard = await pool.bus("journal.j"), Catch()
    await journal.consume("roost.view", heard)
    await broker.settle()
    await broker.kill()
    await eventually(lambda: not schedd.health.connected)
    await schedd.publish(Exchange.EVENTS, "job.removed", removed(7))
    await schedd.stop()
    await broker.start()
    again = await pool.bus("schedd.ap", spool=broker.folder / "events")
    await eventually(lambda: 7.0 in [getattr(envelope.body, "at", 0) for envelope in heard.envelopes])
    await again.stop()
    assert EventSpool(broker.folder / "events").take() == []


@story
async def test_facts_said_to_a_broker_that_dies_reach_the_history(pool, broker):
    await facts_reach_the_history(pool, broker.settle, broker.kill, broker.start)


async def facts_reach_the_history(pool, settle, kill, start, hang=None):
    """Killed in the midst of it, or hung for a while before: what it had taken, or seemed to take, comes again under
    the same ids."""
    schedd = await pool.bus("schedd.ap", watch_s=1.0)
    journal = await pool.bus("journal.j", watch_s=1.0)
    heard: dict[str, object] = {}

    async def record(envelope):
        heard[envelope.id] = envelope.body

    await journal.consume("roost.view", record)
    said, stop, pause_s = [], asyncio.Event(), 0.002

    async def speak():
        while not stop.is_set():
            event = removed(len(said))
            await schedd.publish(Exchange.EVENTS, event.type, event)
            said.append(event.at)
            await asyncio.sleep(pause_s)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(speak())
        await settle()
        await eventually(lambda: heard)
        before = len(said)
        if hang is not None:
            await hang()
            await eventually(lambda: len(said) > before + 100)
        await kill()
        await eventually(lambda: not schedd.health.connected)
        before = len(said)
        await eventually(lambda: len(said) > before + 100)
        pause_s = 0.05  # it takes seconds
        await start()
        await eventually(lambda: schedd.health.connected and journal.health.connected)
        before = len(said)
        await eventually(lambda: len(said) > before + 50)
        stop.set()

    def events():
        return [body.at for body in heard.values() if isinstance(body, JobRemoved)]

    await eventually(lambda: len(events()) == len(said), what="every event")
    assert sorted(events()) == said
    assert schedd.health.unpublished.by_name == {}
    names = ("schedd@ap", "journal@j")

    def told():
        return {body.daemon for body in heard.values() if isinstance(body, DaemonReconnected)} == set(names)

    await eventually(told, what="both to tell of the time without a broker")


@story
async def test_without_broker_durable_messages_fail_at_their_deadline_and_transient_are_dropped(pool, broker):
    bus = await pool.bus("startd.node1", publish_wait_s=2.0)
    await broker.settle()
    await broker.kill()
    await eventually(lambda: not bus.health.connected)
    with pytest.raises(BusUnavailable):
        await bus.publish(Exchange.ADS, "x", invalidate(1))
    with pytest.raises(BusUnavailable):
        await bus.call("collector", SendAds(my_type="A"), timeout=0.3)
    await bus.publish(Exchange.ADS, "x", heartbeat(2))
    assert bus.health.unpublished.by_name == {("unavailable",): 1, ("dropped",): 1}
    assert bus.health.confirmed.count == 0
    await eventually(lambda: bus.health.last_error and "broker" in bus.health.waiting_for)
    await broker.start()
    await eventually(lambda: bus.health.connected)
    await bus.publish(Exchange.ADS, "x", invalidate(3))
    assert bus.health.confirmed.count == 1


@story
async def test_start_waits_for_a_broker_that_is_not_there_yet(pool, broker):
    await broker.settle()
    await broker.kill()
    starting = asyncio.ensure_future(pool.bus("startd.node1"))
    await eventually(lambda: pool.buses and pool.buses[0].health.last_error)
    assert not starting.done()
    await broker.start()
    bus = await starting
    assert bus.health.connected
    assert bus.health.reconnects == 0


async def test_facts_said_to_a_broker_that_hangs_before_it_dies_reach_the_history(amqp_url, rabbit_server):
    pool = AmqpPool(amqp_url)

    def do(action):
        return lambda: asyncio.to_thread(action)

    steps = (rabbit_server.settle, rabbit_server.kill, rabbit_server.start, rabbit_server.freeze)
    await facts_reach_the_history(pool, *map(do, steps))
    await pool.close()
