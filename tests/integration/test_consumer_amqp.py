"""Consumers on a real broker that is set up as a deployment is: what they get, and that they may do nothing else."""

import asyncio
import contextlib
from urllib.parse import quote

import msgpack
import pytest
from aiormq.exceptions import ChannelAccessRefused

from roost.consumer import Consumer, Gap, Once, Received, Reject, RetryPolicy
from roost.consumer.amqp import queue_name
from roost.errors import ClientError
from roost.events import JobRemoved, UnknownEvent
from shared.bus import connect
from shared.bus.amqp.link import Link, Refused, guarded
from shared.bus.api import Exchange
from shared.bus.definitions import consumer_user, consumers_of, definitions
from shared.bus.topology import ROLES
from shared.messages.base import Ack, Envelope
from shared.messages.events import JobHeld
from tests.waiting import eventually

pytestmark = pytest.mark.servers
QUICK = RetryPolicy(limit=3, first_s=0.01, factor=1.0)


class World:
    def __init__(self, server, vhost, passwords):
        self.server, self.vhost, self.passwords = server, vhost, passwords
        self._open = contextlib.AsyncExitStack()

    def url(self, user):
        return self.server.url_of(self.vhost, user, self.passwords[user])

    async def bus(self, sender):
        made = connect(self.url(sender.partition(".")[0]), sender, publish_wait_s=20)
        self._open.push_async_callback(made.stop)
        await made.start()
        return made

    async def schedd(self):
        return Schedd(await self.bus("schedd.ap"))

    def consumer(self, **wanted):
        return Consumer(self.url("consumer.bill"), retry=QUICK, **wanted)

    async def close(self):
        await self._open.aclose()


class Schedd:
    def __init__(self, bus):
        self.bus = bus
        self.count = 0

    async def say(self, count=1, **fields):
        for _ in range(count):
            event = JobRemoved(at=1.0, schedd="ap", job_id=f"1.{self.count}", owner="alice", reason="r", **fields)
            await self.bus.publish(Exchange.EVENTS, event.type, event)
            self.count += 1


@pytest.fixture
async def world(rabbit_server, amqp_url):
    vhost = amqp_url.rpartition("/")[2]
    passwords = {user: f"secret of {user}" for user in (*ROLES, "roost")}
    readers = {name: f"secret of {name}" for name in ("bill", "other")}
    declared = definitions(vhost, passwords, consumers=readers)
    await asyncio.to_thread(rabbit_server.api, "POST", "/api/definitions", declared)
    passwords |= {consumer_user(name): secret for name, secret in readers.items()}
    made = World(rabbit_server, vhost, passwords)
    yield made
    await made.close()
    for user in passwords:
        await asyncio.to_thread(rabbit_server.api, "DELETE", f"/api/users/{user}")


def jobs(found):
    return [one.event.job_id for one in found if isinstance(one, Received)]


async def take(consumer, count):
    """So many items, the last of them taken too."""
    found = []
    async with asyncio.timeout(60):
        async for item in consumer:
            if len(found) == count:
                break
            found.append(item)
            if len(found) == count:
                consumer.stop()
    return found


# What they get


async def test_an_ephemeral_consumer_hears_what_is_said_from_now_on(world):
    schedd = await world.schedd()
    await schedd.say()
    async with world.consumer(types=["job.*"], owner="alice") as consumer:
        assert consumer.health.report()["ready"]
        await schedd.bus.publish(
            Exchange.EVENTS, "job.removed", JobRemoved(at=1.0, schedd="ap", job_id="9.9", owner="bob", reason="r")
        )
        await schedd.say(3)
        found = await take(consumer, 3)
    assert jobs(found) == ["1.1", "1.2", "1.3"]
    assert {one.sender for one in found} == {"schedd.ap"}
    assert (consumer.health.received, consumer.health.handled) == (4, 3)


async def test_a_durable_consumer_gets_what_was_said_while_it_was_away(world):
    schedd = await world.schedd()
    async with world.consumer(durable=True) as consumer:
        await schedd.say(2)
        assert jobs(await take(consumer, 2)) == ["1.0", "1.1"]
    await schedd.say(3)
    async with world.consumer(durable=True) as consumer:
        assert jobs(await take(consumer, 1)) == ["1.2"]
    async with world.consumer(durable=True) as consumer:
        assert jobs(await take(consumer, 2)) == ["1.3", "1.4"]


async def test_what_was_not_taken_comes_again(world):
    schedd = await world.schedd()

    async def fail():
        async with world.consumer(durable=True) as consumer:
            await schedd.say(2)
            async for _ in consumer:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with world.consumer(durable=True) as consumer:
        found = await take(consumer, 2)
    assert sorted(jobs(found)) == ["1.0", "1.1"]
    assert found[0].redelivered


async def test_unknown_types_are_events_and_garbage_is_buried(world):
    schedd = await world.schedd()
    async with world.consumer(durable=True) as consumer:
        link = await Link.open(world.url("schedd"), name="raw", heartbeat_s=10, timeout_s=30)
        new = {
            "v": 1,
            "type": "job.teleported",
            "tv": 4,
            "id": "n",
            "ts": 1.0,
            "sender": "schedd.ap",
            "body": {"to": 1},
        }
        for data in (b"garbage", msgpack.packb(new)):
            await guarded(link.plain.basic_publish(data, exchange="roost.events", routing_key="job.teleported"))
        await link.close()
        (found,) = await take(consumer, 1)
    assert found.event == UnknownEvent("job.teleported", 4, {"to": 1})
    gateway = await world.bus("gateway.web")
    (letter,) = await eventually(gateway.dead_letters, 60)
    assert (letter.data, letter.queue, letter.by) == (b"garbage", "consumer.bill", "consumer.bill")
    await schedd.bus.stop()


async def test_a_handler_that_fails_gets_it_again_and_then_it_is_a_dead_letter_that_can_be_requeued(world):
    schedd, gateway = await world.schedd(), await world.bus("gateway.web")
    consumer = world.consumer(durable=True)
    tried, broken = [], True

    @consumer.on(JobRemoved)
    def handle(event, got):
        tried.append((event.job_id, got.id))
        if broken and event.job_id == "1.0":
            raise OSError("the printer is on fire")
        if event.job_id == "1.2":
            raise Reject("never again")

    running = asyncio.create_task(consumer.run_async())
    await eventually(lambda: consumer.health.connected, 60)
    await schedd.say(3)
    letters = await eventually(lambda: at_least(2, gateway.dead_letters), 60)
    assert [job for job, _ in tried] == ["1.0", "1.0", "1.0", "1.1", "1.2"]
    assert [letter.reason for letter in letters] == [
        f"{handle.__qualname__}: given up after 3 attempts: OSError: the printer is on fire",
        f"{handle.__qualname__}: never again",
    ]
    broken = False
    assert await gateway.requeue([letters[0].id]) == [letters[0].id]
    await eventually(lambda: len(tried) == 6, 60)
    assert tried[-1] == tried[0]  # the same event, by its id
    consumer.stop()
    await running
    assert (consumer.health.given_up, consumer.health.handled) == (2, 2)


async def at_least(count, ask):
    found = await ask()
    return found if len(found) >= count else None


async def test_one_transaction_takes_an_event_though_it_comes_twice(world, tmp_path):
    schedd = await world.schedd()
    store = Once(tmp_path / "bill.sqlite", "CREATE TABLE IF NOT EXISTS removed (job TEXT)")

    async def fail():
        async with world.consumer(durable=True) as consumer:
            await schedd.say(3)
            async for got, db in consumer.once(store):
                db.execute("INSERT INTO removed VALUES (?)", (got.event.job_id,))
                if got.event.job_id == "1.1":
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert store.query("SELECT job FROM removed") == [("1.0",)]
    # The program dies after its commit and before the broker knows: the same event comes once more.
    envelope = Envelope(JobRemoved(at=1.0, schedd="ap", job_id="1.9", owner="a", reason="r"), "schedd.ap")
    async with world.consumer(durable=True) as consumer:
        link = await Link.open(world.url("schedd"), name="raw", heartbeat_s=10, timeout_s=30)
        for _ in range(2):
            await guarded(link.plain.basic_publish(envelope.pack(), exchange="roost.events", routing_key="job.removed"))
        await link.close()
        await schedd.say()
        async for got, db in consumer.once(store):
            db.execute("INSERT INTO removed VALUES (?)", (got.event.job_id,))
            if got.event.job_id == "1.3":
                consumer.stop()
    assert sorted(store.query("SELECT job FROM removed")) == [("1.0",), ("1.1",), ("1.2",), ("1.3",), ("1.9",)]
    store.close()


async def test_a_full_queue_drops_the_oldest_and_says_so(world):
    schedd = await world.schedd()
    async with world.consumer(durable=True, max_length=5):
        pass
    await schedd.say(9)
    gateway = await world.bus("gateway.web")
    await eventually(lambda: full(gateway), 60)
    async with world.consumer(durable=True, max_length=5) as consumer:
        gap, *found = await take(consumer, 6)
    assert isinstance(gap, Gap)
    assert "consumer.bill is full (5 events)" in gap.reason
    assert jobs(found) == ["1.4", "1.5", "1.6", "1.7", "1.8"]


async def full(bus):
    return await bus.depth("consumer.bill") == 5


async def test_a_lost_connection_is_a_gap_for_an_ephemeral_consumer_only(world):
    schedd = await world.schedd()
    passing, durable = world.consumer(), Consumer(world.url("consumer.other"), durable=True)
    async with passing, durable:
        found = {passing: [], durable: []}

        async def follow(consumer):
            async for item in consumer:
                found[consumer].append(item)

        following = [asyncio.create_task(follow(consumer)) for consumer in found]
        await schedd.say()
        await eventually(lambda: all(len(items) == 1 for items in found.values()), 60)
        for connection in world.server.api("GET", "/api/connections"):
            if connection["user"].startswith("consumer."):
                world.server.api("DELETE", f"/api/connections/{quote(connection['name'], safe='')}")
        await eventually(lambda: len(found[passing]) == 2, 60)
        await schedd.say()
        await eventually(lambda: len(found[passing]) == 3 and len(jobs(found[durable])) >= 2, 60)
        assert isinstance(found[passing][1], Gap)
        assert found[passing][1].after == found[passing][0].id
        assert not any(isinstance(item, Gap) for item in found[durable])
        for consumer in found:
            consumer.stop()
        await asyncio.gather(*following)


async def test_a_queue_that_may_not_be_used_is_told(world):
    for name in ("other", "consumer.other"):
        with pytest.raises(ClientError, match="may only use queues that begin with its own name"):
            await Consumer(world.url("consumer.bill"), name=name, durable=True, patience_s=20).open()
    wrong = world.url("consumer.bill").replace("secret", "wrong")
    with pytest.raises(ClientError, match="no connection within 2 s"):
        await Consumer(wrong, patience_s=2).open()


# What they may not


async def test_a_consumer_may_read_events_and_nothing_else(world):
    """Every way in which an AMQP client could do more, tried with the broker."""
    await (await world.bus("schedd.ap")).serve("schedd.ap", answer)
    async with Consumer(world.url("consumer.other"), durable=True):
        pass
    url = world.url("consumer.bill")

    async def refused(what):
        link = await Link.open(url, name="burglar", heartbeat_s=10, timeout_s=30)
        try:
            with pytest.raises((ChannelAccessRefused, Refused)):
                await what(link)
        finally:
            await link.close()

    body = Envelope(JobHeld(at=1, schedd="ap", job_id="1.0", owner="o", code=1, subcode=0, reason="r"), "schedd.ap")

    def publish(exchange, key):
        return lambda link: guarded(
            link.confirming.basic_publish(body.pack(), exchange=exchange, routing_key=key, mandatory=True)
        )

    for exchange, key in (
        ("roost.events", "job.held"),
        ("roost.ads", "update.Machine.startd@x"),
        ("roost.private", "startd@x"),
        ("roost.requests", "schedd.ap"),
        ("", "roost.inbox.schedd.ap"),
        ("", "consumer.other"),
        ("amq.topic", "x"),
    ):
        await refused(publish(exchange, key))
    own = "consumer.bill.x"
    for name in ("roost.listen.gateway.x", "roost.inbox.negotiator.x", "consumer.billy", "consumer.other.x", "mine"):
        await refused(lambda link, name=name: guarded(link.control.queue_declare(name, exclusive=True)))
    for exchange in ("roost.ads", "roost.private", "roost.requests", "roost.dead"):

        async def spy(link, exchange=exchange):
            await guarded(link.control.queue_declare(own, exclusive=True))
            await guarded(link.control.queue_bind(own, exchange, "#"))

        await refused(spy)
    for pattern in ("#", "*.audit", "gateway.*", "gateway.audit"):  # what administrators did, and with which tokens

        async def listen(link, pattern=pattern):
            await guarded(link.control.queue_declare(own, exclusive=True))
            await guarded(link.control.queue_bind(own, "roost.events", pattern))

        await refused(listen)
    for queue in ("roost.inbox.schedd.ap", "roost.dead", "consumer.other"):
        await refused(lambda link, queue=queue: guarded(link.control.basic_get(queue)))
        await refused(lambda link, queue=queue: guarded(link.control.queue_purge(queue)))
        await refused(lambda link, queue=queue: guarded(link.control.queue_delete(queue)))
    await refused(lambda link: guarded(link.control.exchange_declare("mine", exchange_type="topic")))
    await refused(lambda link: guarded(link.control.exchange_delete("roost.events")))


async def answer(_):
    return Ack()


async def test_a_consumer_can_not_speak_to_daemons_through_dead_letters(world):
    """What the gateway requeues is believed, so it puts a consumer's letters into that consumer's queues only."""
    heard = []

    async def serve(envelope):
        heard.append(envelope)
        return Ack()

    await (await world.bus("schedd.ap")).serve("schedd.ap", serve)
    gateway = await world.bus("gateway.web")
    link = await Link.open(world.url("consumer.bill"), name="burglar", heartbeat_s=10, timeout_s=30)
    event = JobRemoved(at=1, schedd="ap", job_id="1.0", owner="o", reason="r")
    order = Envelope(event, "gateway.web").pack()
    for user, queue in (("consumer.bill", "roost.inbox.schedd.ap"), (None, "roost.inbox.schedd.ap"), (None, "gone")):
        headers = {"reason": "r", "exchange": "roost.requests", "key": "schedd.ap", "queue": queue}
        properties = AmqpProperties(headers=headers, message_id=f"{user} {queue}", user_id=user)
        await guarded(
            link.confirming.basic_publish(order, exchange="roost.dead", routing_key="", properties=properties)
        )
    forged = AmqpProperties(headers={}, message_id="forged", user_id="startd")
    with pytest.raises(Refused, match="user_id"):
        await guarded(link.confirming.basic_publish(order, exchange="roost.dead", routing_key="", properties=forged))
    await link.close()
    letters = await eventually(lambda: at_least(3, gateway.dead_letters), 60)
    for letter in letters:
        with pytest.raises(Reject, match="discard it"):
            await gateway.requeue([letter.id])
    assert len(await gateway.dead_letters()) == 3
    assert await gateway.discard([letter.id for letter in letters]) == [letter.id for letter in letters]
    assert heard == []


def AmqpProperties(**fields):
    from pamqp.commands import Basic

    return Basic.Properties(delivery_mode=2, **fields)


async def test_the_broker_bounds_what_a_queue_may_ask_for(world):
    """A consumer that declares its queue by itself, without any bound, gets the policy's."""
    link = await Link.open(world.url("consumer.bill"), name="hoarder", heartbeat_s=10, timeout_s=30)
    await guarded(link.control.queue_declare("consumer.bill.hoard", durable=True))

    said = await asyncio.to_thread(world.server.ctl, "list_queues", "-p", world.vhost, "name", "policy")
    assert "consumer.bill.hoard\tconsumers" in said.splitlines()
    (policy,) = world.server.api("GET", f"/api/policies/{world.vhost}")
    assert policy["definition"] == {
        "max-length": 1_000_000,
        "max-length-bytes": 1 << 30,
        "message-ttl": 7 * 86_400_000,
        "expires": 30 * 86_400_000,
    }
    await link.close()


async def test_a_consumer_is_added_to_a_broker_that_runs(world, monkeypatch, capsys):
    from shared.bus import definitions as module

    monkeypatch.setenv("ROOST_CONSUMER_PASSWORD", "secret of late")
    module.main(["--consumer", "late", "--vhost", world.vhost])
    added = capsys.readouterr().out
    import json

    await asyncio.to_thread(world.server.api, "POST", "/api/definitions", json.loads(added))
    world.passwords["consumer.late"] = "secret of late"
    schedd = await world.schedd()
    async with Consumer(world.url("consumer.late"), types=[JobRemoved]) as consumer:
        await schedd.say()
        assert jobs(await take(consumer, 1)) == ["1.0"]


@pytest.mark.parametrize("name", ["", "Big", "a.b", "a b", ".*", "x" * 50])
def test_a_name_that_could_be_another_user_is_refused(name):
    with pytest.raises(ValueError, match="want a name of small letters"):
        consumers_of("/", {name: "secret"})


def test_queues_are_named_after_the_user_or_the_name():
    assert queue_name("amqp://consumer.bill:x@h/", "") == "consumer.bill"
    assert queue_name("amqp://guest:x@h/,amqp://guest:x@i/", "") == "consumer.unnamed"
    assert queue_name("amqp://guest:x@h/", "bill") == "consumer.bill"
    assert queue_name("amqp://consumer.bill:x@h/", "consumer.bill.hourly") == "consumer.bill.hourly"


async def test_what_does_not_mend_itself_is_told_soon(world):
    """A wrong password: the consumer waited for it as for a broker that is down."""
    url = world.url("consumer.bill").replace(quote(world.passwords["consumer.bill"], safe=""), "wrong")
    with pytest.raises(ClientError, match=r"the broker refuses this consumer: .*ACCESS_REFUSED") as caught:
        await Consumer(url).open()
    assert not caught.value.retryable
