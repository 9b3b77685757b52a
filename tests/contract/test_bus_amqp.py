"""What only a real broker can do to the bus: freeze, close channels, fall silent, refuse. test_bus_outage.py: die."""

import asyncio

import aio_pika
import pytest
import uvloop

from shared.bus import connect
from shared.bus.amqp.link import Link
from shared.bus.api import BusUnavailable, CallTimeout, Exchange, NotAllowed, RemoteFailure
from shared.bus.definitions import definitions
from shared.bus.topology import ROLES, inbox_queue
from shared.messages import Ack
from shared.messages.ads import SendAds
from shared.messages.claims import Alive, AliveReply
from shared.messages.events import JobRemoved
from shared.messages.flows import EVERY, REQUESTS
from shared.messages.negotiation import Reschedule
from tests.contract.bus_amqp import AmqpPool
from tests.contract.bus_pool import ANYBODY, RETRY
from tests.contract.test_bus import Catch, dead, heartbeat, invalidate, lost
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.servers


@pytest.fixture
async def pool(amqp_url):
    pool = AmqpPool(amqp_url)
    yield pool
    await pool.close()


def removed(number, reason="so"):
    return JobRemoved(at=float(number), schedd="ap", job_id=f"{number}.0", owner="a", reason=reason)


async def test_facts_of_who_is_cancelled_do_not_wait_for_the_next_word(pool):
    """Nobody may ever say one: it was the last of a daemon that ends, or of a gateway that is idle from now on."""
    sender, listener, heard = await pool.bus("gateway.a"), await pool.bus("schedd.ap"), Catch()
    await listener.listen(Exchange.EVENTS, ["job.#"], heard)
    large = "x" * 200_000  # one that is written when the broker takes it
    saying = [asyncio.create_task(sender.publish(Exchange.EVENTS, "job.removed", removed(n, large))) for n in range(50)]
    await asyncio.wait(saying, return_when=asyncio.FIRST_COMPLETED)
    for task in saying:
        task.cancel()
    assert any(isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*saying, return_exceptions=True))
    await eventually(lambda: {envelope.body.at for envelope in heard.envelopes} == set(range(50)), what="all of them")


async def test_a_large_message_of_who_is_cancelled_leaves_its_channel_whole(pool):
    """It goes out in pieces, and others have their turn in between: what comes next on the channel comes behind it."""
    sender, listener, heard = await pool.bus("gateway.a"), await pool.bus("schedd.ap"), Catch()
    await listener.serve("schedd.ap", heard)
    link, large = sender._publisher.current, "x" * 1_000_000
    for turns in (1, 2, 3, 10, 25):
        for way in (sender.call, sender.send):
            sending = asyncio.create_task(way("schedd.ap", Reschedule(by=large)))
            for _ in range(turns):
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            assert await sender.call("schedd.ap", Reschedule(by="y"), timeout=PATIENCE_S) == Ack()
    assert sender._publisher.current is link
    assert link.usable
    assert {len(body.by) for body in heard.bodies} == {1, len(large)}


@pytest.mark.parametrize("waits_for", ["negotiator.cm", "negotiator.active"])
async def test_what_is_cancelled_while_a_connection_is_opened_stays_cancelled(pool, monkeypatch, waits_for):
    """Before its turn, and half-way on the new link. It would take messages that are for others now: a negotiator that
    has stepped down every other question."""
    negotiator = await pool.bus("negotiator.cm")
    await negotiator.serve("negotiator.cm", Catch())
    active = await negotiator.serve("negotiator.active", Catch())
    declare, opening, go_on = Link.declare, asyncio.Event(), asyncio.Event()

    async def slowly(link, channel, queue):
        await declare(link, channel, queue)
        if queue.name == inbox_queue(waits_for):
            opening.set()
            await go_on.wait()

    monkeypatch.setattr(Link, "declare", slowly)
    await pool.cut(negotiator)
    await opening.wait()
    cancelling = asyncio.create_task(active.cancel())
    if waits_for == "negotiator.cm":
        await cancelling
    await eventually(lambda: not active.open)
    go_on.set()
    await cancelling
    await eventually(lambda: negotiator.health.connected, what="the new connection")
    state = await negotiator._publisher.current.state(inbox_queue("negotiator.active"))
    assert (state.consumer_count, negotiator.health.consumers, negotiator.health.reconnects) == (0, 1, 1)


async def test_facts_of_a_time_without_a_broker_go_out_before_a_stop(pool):
    sender, listener, heard = await pool.bus("schedd.ap"), await pool.bus("journal.a"), Catch()
    await listener.listen(Exchange.EVENTS, ["job.#"], heard)
    back = asyncio.Event()

    async def note():
        back.set()

    sender.on_gap(note)
    sender._publisher.current.fail("cut by the test")
    for number in range(2000):
        await sender.publish(Exchange.EVENTS, "job.removed", removed(number))
    assert not heard.envelopes
    await back.wait()
    await sender.stop()
    await eventually(lambda: {envelope.body.at for envelope in heard.envelopes} == set(range(2000)), what="all of them")


# The broker is there, but something is wrong


async def test_frozen_broker_is_noticed_and_the_bus_comes_back(pool, rabbit_server):
    bus, other = await pool.bus("schedd.ap1", watch_s=0.5), await pool.bus("startd.node1", watch_s=0.5)
    catch = Catch()
    await bus.serve("schedd.ap1", catch)

    async def answered():
        """A busy machine's broker may be taken for a dead one meanwhile."""
        try:
            return await other.call("schedd.ap1", SendAds(my_type="A"), timeout=5.0) == Ack()
        except (BusUnavailable, CallTimeout):
            return False

    await eventually(answered, what="an answer")
    rabbit_server.freeze()
    try:
        with pytest.raises((BusUnavailable, CallTimeout)):
            await other.call("schedd.ap1", SendAds(my_type="A"), timeout=1.0)
        await eventually(lambda: not bus.health.connected, what="noticing")
        assert "did not answer" in bus.health.last_error
    finally:
        rabbit_server.thaw()
    await eventually(answered, what="an answer after that")


async def test_what_the_broker_refuses_to_store_is_published_again_on_other_channels(pool, amqp_url):
    """It refuses with a nack, as where a queue has no leader just then; the connection stays."""
    connection = await aio_pika.connect(amqp_url)
    channel = await connection.channel()
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    bus = await pool.bus("schedd.ap1")
    for inbox in ("startd.node1", "startd.node2"):
        queue = await channel.declare_queue(inbox_queue(inbox), durable=True, arguments=full)
        await queue.bind(Exchange.RPC, inbox)
        await channel.default_exchange.publish(aio_pika.Message(b""), queue.name)
    sending = asyncio.create_task(bus.send("startd.node1", lost("slot1")))
    calling = asyncio.create_task(bus.call("startd.node2", SendAds(my_type="A"), timeout=60.0))
    await eventually(lambda: bus._publisher.current.generation > 1, what="channels opened anew")
    assert not sending.done()
    assert not calling.done()
    for inbox in ("startd.node1", "startd.node2"):
        await (await channel.get_queue(inbox_queue(inbox))).purge()
    await sending
    queue = await channel.get_queue(inbox_queue("startd.node2"))

    async def request():
        return await queue.get(fail=False, no_ack=True)

    await eventually(request, what="the request")
    calling.cancel()
    await asyncio.wait({calling})
    assert bus.health.reconnects == 0
    await connection.close()


async def test_channel_error_on_a_publishing_channel_heals(pool):
    bus, other = await pool.bus("schedd.ap1"), await pool.bus("startd.node1")
    catch, heard = Catch(), Catch()
    await bus.serve("schedd.ap1", catch)
    await bus.listen(Exchange.ADS, ["#"], heard)
    for channel in ("plain", "confirming", "calling", "control"):
        reconnects = bus.health.reconnects
        await getattr(bus._publisher.current, channel).queue_declare("no-such-queue", passive=True, nowait=True)
        await eventually(
            lambda n=reconnects: bus.health.reconnects > n and not bus.health.waiting_for, what=f"healing of {channel}"
        )
        assert await other.call("schedd.ap1", SendAds(my_type="A")) == Ack()
        before = len(heard.envelopes)
        await bus.publish(Exchange.ADS, "x", invalidate(1))
        await bus.publish(Exchange.ADS, "x", heartbeat(1))
        await heard.got(before + 2)


async def test_channel_error_on_a_consuming_channel_heals(pool):
    bus, other = await pool.bus("collector.a"), await pool.bus("startd.node1")
    catch = Catch()
    consumer = await bus.consume("roost.collector", catch)
    await consumer._session.channel.basic_ack(4711)  # PRECONDITION_FAILED: unknown delivery tag
    await eventually(lambda: bus.health.reconnects >= 1)
    assert "delivery tag" in bus.health.last_error
    await other.publish(Exchange.ADS, "x", invalidate(1))
    await catch.got(1)


async def test_consumer_that_the_broker_forgot_is_noticed(pool):
    bus, other = await pool.bus("collector.a", watch_s=0.3), await pool.bus("startd.node1")
    catch = Catch()
    consumer = await bus.consume("roost.collector", catch)
    session = consumer._session
    await session.channel.basic_cancel(session.tag)  # behind the bus's back
    await other.publish(Exchange.ADS, "x", invalidate(1))
    await catch.got(1)
    assert "no consumer" in bus.health.last_error
    assert bus.health.reconnects == 1


async def test_consumer_that_is_registered_but_gets_nothing_is_noticed(pool):
    bus, other = await pool.bus("collector.a", watch_s=0.3), await pool.bus("startd.node1")
    catch = Catch()
    consumer = await bus.consume("roost.collector", catch, prefetch=5)
    # Deliveries that never reach us use up the broker's idea of our window, while we have room.
    consumer._session.channel.consumers.clear()
    for n in range(20):
        await other.publish(Exchange.ADS, "x", invalidate(n))
    await catch.got(20)
    assert "its consumer gets none" in bus.health.last_error
    assert sorted(set(catch.sequences)) == list(range(20))


async def test_subscriptions_that_come_and_go_leave_the_connection_alone(pool):
    """Also those that are given up half-way, while the watchdog looks at all of them."""
    bus = await pool.bus("gateway.a", watch_s=1.0)
    heard = []

    async def hear(envelope):
        heard.append(envelope.body)

    async def visit(number):
        subscription = await bus.listen(Exchange.EVENTS, ["#"], hear)
        try:
            await asyncio.sleep(0.001 * (number % 7))
        finally:
            await subscription.cancel()

    for number in range(400):
        visitor = asyncio.create_task(visit(number))
        await asyncio.wait({visitor}, timeout=0.0005 * (number % 40))
        visitor.cancel()
        await asyncio.gather(visitor, return_exceptions=True)
    await eventually(lambda: not bus._publisher.background, what="what was given up to be undone")
    assert bus.health.expected_consumers == 0
    assert (bus.health.reconnects, bus.health.last_error) == (0, "")


async def test_deleted_queue_is_made_again(pool, rabbit_server, amqp_url):
    bus, other = await pool.bus("schedd.ap1"), await pool.bus("startd.node1")
    await bus.serve("schedd.ap1", Catch())
    vhost = amqp_url.rpartition("/")[2]
    await asyncio.to_thread(rabbit_server.api, "DELETE", f"/api/queues/{vhost}/roost.inbox.schedd.ap1")
    await eventually(lambda: bus.health.reconnects == 1)
    assert await other.call("schedd.ap1", SendAds(my_type="A")) == Ack()


async def test_busy_handlers_are_reported_not_interrupted(pool):
    bus = await pool.bus("collector.a", watch_s=1.0)  # it is also how long a broker under load may take
    may_end, catch = asyncio.Event(), Catch()

    async def handler(envelope):
        await may_end.wait()
        await catch(envelope)

    await bus.consume("roost.collector", handler, prefetch=2)
    for n in range(5):
        await bus.publish(Exchange.ADS, "x", invalidate(n))
    await eventually(lambda: "2 handlers have been busy" in bus.health.waiting_for)
    may_end.set()
    await catch.got(5)
    await eventually(lambda: bus.health.waiting_for == "")
    assert bus.health.reconnects == 0
    assert catch.sequences == [0, 1, 2, 3, 4]


async def test_inbox_message_that_ends_its_consumers_again_and_again_is_dead_lettered(pool):
    bus, other = await pool.bus("schedd.ap1"), await pool.bus("startd.node1")
    seen, may_end = [], asyncio.Event()

    async def handler(envelope):
        seen.append(envelope)
        await may_end.wait()
        return Ack()

    consumer = await bus.serve("schedd.ap1", handler)
    await other.send("schedd.ap1", lost("slot1"))
    for n in range(1, RETRY.limit + 1):
        await eventually(lambda n=n: len(seen) == n, what=f"delivery {n}")
        # A redelivery is put back with its count, and then acknowledged. Cut before the broker has that, it comes once
        # more, and there are two: fine for messages that come at least once, but not the case that is tested here.
        await eventually(lambda: consumer.in_hand == 1, what=f"the acknowledgement of delivery {n}")
        # Answered once the broker has the acknowledgement.
        await consumer._session.channel.basic_qos(prefetch_count=consumer.prefetch)
        await pool.cut(bus)
    (letter,) = await dead(other)
    may_end.set()
    assert letter.reason.startswith(f"given up after {RETRY.limit} deliveries")
    assert len(seen) == RETRY.limit


# Users


@pytest.fixture
async def roles(rabbit_server, amqp_url):
    """A virtual host set up by the definitions, with a user for each role; makes buses for them."""
    vhost = amqp_url.rpartition("/")[2]
    passwords = {user: f"secret of {user}" for user in (*ROLES, "roost")}
    await asyncio.to_thread(rabbit_server.api, "POST", "/api/definitions", definitions(vhost, passwords))
    buses = []

    async def bus(sender, user=None):
        user = user or sender.partition(".")[0]
        url = rabbit_server.url_of(vhost, user, passwords[user])
        made = connect(url, sender, retry=RETRY, publish_wait_s=10, rows=ANYBODY)
        buses.append(made)
        await made.start()
        return made

    yield bus
    for made in buses:
        await made.stop()
    for user in passwords:
        await asyncio.to_thread(rabbit_server.api, "DELETE", f"/api/users/{user}")


async def test_every_role_may_do_its_work(roles):
    buses = {role: await roles(f"{role}.a") for role in ROLES}
    catches = {role: Catch() for role in ROLES}
    served = {f"{role}.{tail}" for role in ROLES for tail in ("a", "off.a")}
    served |= {"collector", "poolhistory", "negotiator", "journal", "registrar", "startd.a/visits"}
    for inbox in served:
        role = "collector" if inbox == "poolhistory" else inbox.partition(".")[0]
        await buses[role].serve(inbox, catches[role])
    for role in ("collector", "negotiator"):
        await buses[role].listen(Exchange.ADS, ["#"], catches[role])
        await buses[role].listen(Exchange.PRIVATE, ["#"], catches[role])
    await buses["gateway"].listen(Exchange.EVENTS, ["#"], catches["gateway"])
    await buses["had"].listen(Exchange.EVENTS, ["had.leader", "accountant.changed"], catches["had"])
    await buses["collector"].consume("roost.collector", catches["collector"])
    await buses["journal"].consume("roost.view", catches["journal"])
    await buses["startd"].publish(Exchange.ADS, "invalidate.Machine.startd@a", invalidate(1))
    await buses["startd"].publish(Exchange.PRIVATE, "startd@a", invalidate(2))
    await catches["negotiator"].got(2)
    await catches["collector"].got(3)
    await buses["schedd"].publish(
        Exchange.EVENTS, "job.removed", JobRemoved(at=1, schedd="a", job_id="1.0", owner="o", reason="r")
    )
    await catches["gateway"].got(1)
    await catches["journal"].got(1)
    for request in REQUESTS.values():
        for sender in ROLES if EVERY in request.by else request.by:
            inbox = request.inbox.format(subsystem="schedd", name="a")
            if inbox in served:
                assert await buses[sender].call(inbox, SendAds(my_type="A")) == Ack(), request
    assert [role for role, bus in buses.items() if bus.health.reconnects] == []


async def test_role_may_not_do_the_work_of_another(roles):
    startd = await roles("startd.a")
    with pytest.raises(NotAllowed, match=r"roost\.private"):
        await startd.listen(Exchange.PRIVATE, ["#"], Catch())
    with pytest.raises(NotAllowed, match=r"schedd"):
        await startd.serve("schedd.a", Catch())
    with pytest.raises(NotAllowed, match=r"invalidate\.Scheduler"):
        await startd.publish(Exchange.ADS, "invalidate.Scheduler.schedd@a", invalidate(1))
    await startd.publish(Exchange.ADS, "invalidate.Machine.startd@a", invalidate(1))


async def test_forged_sender_is_refused(roles):
    schedd = await roles("schedd.a")
    catch = Catch()
    await schedd.serve("schedd.a", catch)
    forger = await roles("negotiator.cm", user="startd")
    with pytest.raises(RemoteFailure, match="'startd'"):
        await forger.call("schedd.a", SendAds(my_type="A"))
    await forger.send("schedd.a", lost("slot1"))
    gateway = await roles("gateway.web")
    (letter,) = await dead(gateway)  # of what nobody waits for; the caller of the other one was told
    assert "'negotiator.cm'" in letter.reason
    assert "'startd'" in letter.reason
    assert catch.envelopes == []


async def test_requeued_message_of_another_role_is_accepted(roles):
    schedd, startd, gateway = await roles("schedd.a"), await roles("startd.a"), await roles("gateway.web")
    catch, broken = Catch(), True

    async def handler(envelope):
        if broken:
            raise ValueError("a mistake")
        return await catch(envelope)

    await schedd.serve("schedd.a", handler)
    await startd.send("schedd.a", lost("slot1"))
    (letter,) = await dead(gateway)
    broken = False
    assert await gateway.requeue([letter.id]) == [letter.id]
    await catch.got(1)
    assert catch.envelopes[0].sender == "startd.a"


# The other event loop


async def test_bus_works_on_uvloop(amqp_url):
    async def work():
        pool = AmqpPool(amqp_url)
        bus, other = await pool.bus("schedd.ap1"), await pool.bus("startd.node1")

        async def handler(envelope):
            return AliveReply(unknown=envelope.body.claim_ids)

        await bus.serve("schedd.ap1", handler)
        catch, gaps = Catch(), []
        await bus.listen(Exchange.ADS, ["#"], catch)
        bus.on_gap(lambda: asyncio.sleep(0, gaps.append(1)))
        for _ in range(2):
            answers = await asyncio.gather(
                *(other.call("schedd.ap1", Alive(schedd="a", sequence=n, claim_ids=[str(n)])) for n in range(50))
            )
            assert [answer.unknown for answer in answers] == [[str(n)] for n in range(50)]
            await other.publish(Exchange.ADS, "x", invalidate(1))
            await eventually(lambda: catch.envelopes)
            catch.envelopes.clear()
            if not gaps:
                await pool.cut(bus)
                await eventually(lambda: gaps)
        await pool.close()

    def run():
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work())

    await asyncio.to_thread(run)
