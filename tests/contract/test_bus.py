"""What every transport of the bus must do."""

import asyncio
import contextlib
import random

import msgpack
import pytest

from shared.bus.api import (
    BusUnavailable,
    CallTimeout,
    Exchange,
    MessageTooLarge,
    NobodyThere,
    Outgoing,
    Reject,
    RemoteFailure,
)
from shared.bus.topology import inbox_queue
from shared.caller import CallerGone, check_caller
from shared.errors import RetryableError
from shared.messages import Ack, Envelope, Failure
from shared.messages.ads import AdHeartbeat, AdInvalidate, SendAds
from shared.messages.claims import Alive, AliveReply, ClaimLost
from shared.messages.events import DaemonReconnected, JobRemoved
from shared.messages.negotiation import Reschedule
from shared.messages.queue import SubmitJobs
from tests.contract.bus_pool import RETRY, MemoryPool
from tests.waiting import PATIENCE_S, eventually


@pytest.fixture(params=["memory", pytest.param("amqp", marks=pytest.mark.servers)])
async def pool(request):
    if request.param == "memory":
        pool = MemoryPool()
    else:
        from tests.contract.bus_amqp import AmqpPool

        pool = AmqpPool(request.getfixturevalue("amqp_url"))
    yield pool
    await pool.close()


def heartbeat(sequence, daemon="startd@node1"):
    return AdHeartbeat(my_type="Machine", daemon=daemon, start_time=1, base=1, sequence=sequence)


def invalidate(sequence):
    return AdInvalidate(my_type="Machine", daemon="startd@node1", start_time=1, sequence=sequence)


def removed(number):
    return JobRemoved(at=float(number), schedd="ap", job_id=f"{number}.0", owner="ada", reason="so")


def alive(sequence):
    return Alive(schedd="ap1", sequence=sequence, claim_ids=[])


def lost(slot):
    return ClaimLost(startd="startd.node1", slot=slot, claim_id="c#1#secret", reason="drain")


class Catch:
    """A handler that remembers what it got."""

    def __init__(self):
        self.envelopes = []

    async def __call__(self, envelope):
        self.envelopes.append(envelope)
        return Ack()

    @property
    def bodies(self):
        return [envelope.body for envelope in self.envelopes]

    @property
    def sequences(self):
        return [envelope.body.sequence for envelope in self.envelopes]

    async def got(self, count):
        await eventually(lambda: len(self.envelopes) >= count, what=f"{count} messages, got {len(self.envelopes)}")


async def dead(bus, count=1):
    """The dead letters, once there are as many."""

    async def enough():
        letters = await bus.dead_letters()
        return letters if len(letters) >= count else None

    letters = await eventually(enough, what=f"{count} dead letters")
    assert len(letters) == count
    return letters


async def rejecting(envelope):
    raise Reject("no such thing")


# Broadcast


async def test_listener_gets_what_matches_its_patterns_in_order(pool):
    sender, receiver = await pool.bus("startd.node1"), await pool.bus("negotiator.cm")
    machines, everything = Catch(), Catch()
    await receiver.listen(Exchange.ADS, ["heartbeat.Machine.#", "*.Machine.startd@node1"], machines)
    await receiver.listen(Exchange.ADS, ["#"], everything)
    await sender.publish(Exchange.ADS, "heartbeat.Machine.startd@node1", heartbeat(1))
    await sender.publish(Exchange.ADS, "heartbeat.Scheduler.schedd@node1", heartbeat(2))
    await sender.publish(Exchange.ADS, "refresh.Machine.startd@node1", heartbeat(3))
    await sender.publish(Exchange.ADS, "heartbeat.Machine.startd@a.b.c", heartbeat(4))
    await machines.got(3)
    await everything.got(4)
    assert machines.sequences == [1, 3, 4]
    assert everything.sequences == [1, 2, 3, 4]


async def test_every_listener_gets_its_own_copy(pool):
    bus = await pool.bus("startd.node1")
    catches = [Catch() for _ in range(3)]
    for catch in catches:
        await (await pool.bus("negotiator.cm")).listen(Exchange.EVENTS, ["#"], catch)
    await bus.publish(Exchange.EVENTS, "claim.lost", lost("slot1"))
    for catch in catches:
        await catch.got(1)
        assert catch.bodies == [lost("slot1")]


async def test_envelope_arrives_with_sender_epoch_and_trace(pool):
    bus = await pool.bus("negotiator.cm")
    catch = Catch()
    await bus.listen(Exchange.ADS, ["#"], catch)
    await bus.publish(Exchange.ADS, "x", heartbeat(1), epoch=7, trace="00-ab-cd-01")
    await catch.got(1)
    (envelope,) = catch.envelopes
    assert (envelope.sender, envelope.epoch, envelope.trace) == ("negotiator.cm", 7, "00-ab-cd-01")
    assert len(envelope.id) == 32
    assert envelope.ts > 1_600_000_000


async def test_publish_without_listener_is_no_error(pool):
    bus = await pool.bus("startd.node1")
    await bus.publish(Exchange.ADS, "nobody", heartbeat(1))
    await bus.publish(Exchange.ADS, "nobody", invalidate(1))


async def test_cancelled_listener_gets_nothing_more(pool):
    bus = await pool.bus("startd.node1")
    stopped, going = Catch(), Catch()
    subscription = await bus.listen(Exchange.ADS, ["#"], stopped)
    await bus.listen(Exchange.ADS, ["#"], going)
    await bus.publish(Exchange.ADS, "x", invalidate(1))
    await going.got(1)
    await stopped.got(1)
    await subscription.cancel()
    await bus.publish(Exchange.ADS, "x", invalidate(2))
    await going.got(2)
    assert stopped.sequences == [1]


async def test_publish_many_confirms_all(pool):
    bus = await pool.bus("startd.node1")
    catch = Catch()
    await bus.listen(Exchange.ADS, ["#"], catch)
    await bus.publish_many([Outgoing(Exchange.ADS, "x", invalidate(n)) for n in range(500)])
    await catch.got(500)
    assert catch.sequences == list(range(500))


# Competing consumers


async def test_competing_consumers_share_the_messages(pool):
    sender = await pool.bus("startd.node1")
    first, second = Catch(), Catch()
    await (await pool.bus("collector.a")).consume("roost.collector", first, prefetch=1)
    await (await pool.bus("collector.b")).consume("roost.collector", second, prefetch=1)
    await sender.publish_many([Outgoing(Exchange.ADS, "x", invalidate(n)) for n in range(60)])
    await eventually(lambda: len(first.envelopes) + len(second.envelopes) >= 60)
    assert sorted(first.sequences + second.sequences) == list(range(60))
    assert first.sequences
    assert second.sequences


async def test_work_queue_keeps_messages_while_no_consumer_is_there(pool):
    bus, consumer = await pool.bus("startd.node1"), await pool.bus("collector.a")
    await (await consumer.consume("roost.collector", Catch())).cancel()
    await bus.publish(Exchange.ADS, "x", invalidate(1))
    catch = Catch()
    await consumer.consume("roost.collector", catch)
    await catch.got(1)
    assert catch.sequences == [1]


async def test_undeclared_queue_is_refused(pool):
    bus = await pool.bus("collector.a")
    with pytest.raises(ValueError, match=r"shared/bus/topology\.py"):
        await bus.consume("roost.nonsense", Catch())


async def test_consumer_runs_up_to_prefetch_handlers_at_a_time(pool):
    bus = await pool.bus("collector.a")
    running, most, done = 0, 0, 0

    async def handler(envelope):
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.02)
        running -= 1
        done += 1

    await bus.consume("roost.collector", handler, prefetch=4)
    await bus.publish_many([Outgoing(Exchange.ADS, "x", invalidate(n)) for n in range(12)])
    await eventually(lambda: done == 12)
    assert most == 4


async def test_cancel_waits_for_the_handlers_under_way(pool):
    bus = await pool.bus("collector.a")
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), []

    async def handler(envelope):
        begun.set()
        await may_end.wait()
        ended.append(envelope)

    subscription = await bus.consume("roost.collector", handler)
    await bus.publish(Exchange.ADS, "x", invalidate(1))
    await begun.wait()
    cancelling = asyncio.ensure_future(subscription.cancel())
    await asyncio.sleep(0)
    assert not cancelling.done()
    may_end.set()
    await cancelling
    assert len(ended) == 1
    again = Catch()
    await bus.consume("roost.collector", again)
    await bus.publish(Exchange.ADS, "x", invalidate(2))
    await again.got(1)
    assert again.sequences == [2]  # the first was acknowledged


async def test_handler_whose_wait_is_given_up_holds_up_nobody(pool):
    """It is not cancelled itself. Its message comes again when this consumer is gone, those behind it come at once."""
    bus = await pool.bus("collector.a")
    given_up, heard, consumed = asyncio.get_running_loop().create_future(), Catch(), Catch()

    async def handler(envelope, others):
        if envelope.body.sequence == 1:
            await given_up
        return await others(envelope)

    await bus.listen(Exchange.ADS, ["#"], lambda envelope: handler(envelope, heard))
    subscription = await bus.consume("roost.collector", lambda envelope: handler(envelope, consumed), prefetch=1)
    await bus.serve("collector.a", lambda envelope: handler(envelope, Catch()))
    asked = asyncio.ensure_future(bus.call("collector.a", invalidate(1), timeout=PATIENCE_S))
    await bus.publish(Exchange.ADS, "x", invalidate(1))
    await eventually(lambda: bus.health.received == 3)
    given_up.cancel()
    await bus.publish(Exchange.ADS, "x", invalidate(2))
    await heard.got(1)
    assert heard.sequences == [2]
    with pytest.raises(RemoteFailure) as refused:
        await asked
    assert refused.value.retryable
    await subscription.cancel()
    again = Catch()
    await bus.consume("roost.collector", again)
    await again.got(1 if consumed.sequences else 2)
    assert sorted([*again.sequences, *consumed.sequences]) == [1, 2]


async def test_handler_may_cancel_its_own_subscription(pool):
    bus = await pool.bus("startd.node1")
    done = asyncio.Event()

    async def handler(envelope):
        await subscription.cancel()
        done.set()

    subscription = await bus.listen(Exchange.ADS, ["#"], handler)
    await bus.publish(Exchange.ADS, "x", invalidate(1))
    async with asyncio.timeout(10):
        await done.wait()


# Requests


async def test_call_is_answered(pool):
    startd, schedd = await pool.bus("startd.node1"), await pool.bus("schedd.ap1")

    async def handler(envelope):
        assert envelope.sender == "schedd.ap1"
        return AliveReply(unknown=envelope.body.claim_ids[1:])

    await startd.serve("startd.node1", handler)
    answer = await schedd.call("startd.node1", Alive(schedd="ap1", sequence=1, claim_ids=["a", "b"]))
    assert answer == AliveReply(unknown=["b"])
    assert {kind: taken.count for kind, taken in schedd.health.called.by_name.items()} == {Alive.type: 1}
    assert schedd.health.calls_waiting == 0


async def test_many_calls_at_a_time_get_their_own_answers(pool):
    startd, schedd = await pool.bus("startd.node1"), await pool.bus("schedd.ap1")

    async def handler(envelope):
        number = envelope.body.sequence
        await asyncio.sleep(0.001 * (number % 7))
        return AliveReply(unknown=[str(number)])

    await startd.serve("startd.node1", handler)
    answers = await asyncio.gather(
        *(schedd.call("startd.node1", Alive(schedd="ap1", sequence=n, claim_ids=[])) for n in range(300))
    )
    assert [answer.unknown for answer in answers] == [[str(n)] for n in range(300)]


async def test_servers_of_one_inbox_share_the_calls(pool):
    client = await pool.bus("gateway.web")
    catches = [Catch(), Catch()]
    for catch in catches:
        await (await pool.bus("collector.cm")).serve("collector", catch, prefetch=1)
    await asyncio.gather(*(client.call("collector", SendAds(my_type="Any")) for _ in range(40)))
    assert sum(len(catch.envelopes) for catch in catches) == 40
    assert all(catch.envelopes for catch in catches)


async def test_a_server_gets_nothing_while_one_of_a_higher_priority_has_room(pool):
    """So whoever leads now is asked, though one that led before hangs and is connected still."""
    client = await pool.bus("gateway.web")
    stuck, full = asyncio.Event(), asyncio.Event()
    taken, caught = [], Catch()

    async def hang(envelope):
        taken.append(envelope.body)
        full.set()
        await stuck.wait()
        return Ack()

    former, latter = await pool.bus("negotiator.cm1"), await pool.bus("negotiator.cm2")
    await former.serve("negotiator", caught, priority=3)
    subscription = await latter.serve("negotiator", hang, prefetch=1, priority=4)
    waiting = asyncio.ensure_future(client.call("negotiator", Reschedule(by="ada"), timeout=PATIENCE_S))
    await asyncio.wait_for(full.wait(), PATIENCE_S)
    # It has as much as it takes at a time: the next one comes before nobody.
    assert await client.call("negotiator", Reschedule(by="ada")) == Ack()
    assert (len(taken), len(caught.envelopes)) == (1, 1)
    stuck.set()
    await waiting
    for _ in range(5):
        await client.call("negotiator", Reschedule(by="ada"))
    assert (len(taken), len(caught.envelopes)) == (6, 1)
    await subscription.cancel()
    await client.call("negotiator", Reschedule(by="ada"))
    assert len(caught.envelopes) == 2


async def test_refusals_reach_the_caller(pool):
    startd, schedd = await pool.bus("startd.node1"), await pool.bus("schedd.ap1")
    how = {
        1: RemoteFailure("stale-epoch", "epoch 3 is over", True),
        2: Reject("slot9 is not here"),
        3: RetryableError("the disk is full"),
        4: ZeroDivisionError("division by zero"),
    }

    async def handler(envelope):
        if envelope.body.sequence == 5:
            return Failure(code="denied", reason="not yours")
        raise how[envelope.body.sequence]

    await startd.serve("startd.node1", handler)
    seen = {}
    for number in range(1, 6):
        with pytest.raises(RemoteFailure) as caught:
            await schedd.call("startd.node1", Alive(schedd="ap1", sequence=number, claim_ids=[]))
        seen[number] = (caught.value.code, caught.value.reason, caught.value.retryable)
    assert seen == {
        1: ("stale-epoch", "epoch 3 is over", True),
        2: ("bad-request", "slot9 is not here", False),
        3: ("unavailable", "RetryableError: the disk is full", True),
        4: ("internal", "ZeroDivisionError: division by zero", False),
        5: ("denied", "not yours", False),
    }
    assert await schedd.dead_letters() == []


async def test_call_times_out_and_late_answer_is_ignored(pool):
    startd, schedd = await pool.bus("startd.node1"), await pool.bus("schedd.ap1")
    may_answer = asyncio.Event()

    async def handler(envelope):
        if envelope.body.sequence == 1:
            await may_answer.wait()
        return AliveReply(unknown=[str(envelope.body.sequence)])

    await startd.serve("startd.node1", handler)
    with pytest.raises(CallTimeout, match=r"startd\.node1"):
        await schedd.call("startd.node1", Alive(schedd="ap1", sequence=1, claim_ids=[]), timeout=1.0)
    may_answer.set()
    answer = await schedd.call("startd.node1", Alive(schedd="ap1", sequence=2, claim_ids=[]))
    assert answer == AliveReply(unknown=["2"])


async def test_a_handler_learns_that_its_caller_gave_up(pool):
    startd, schedd = await pool.bus("startd.node1"), await pool.bus("schedd.ap1")
    learned = asyncio.Event()

    async def handler(envelope):
        if envelope.body.sequence == 2:
            check_caller()
            return AliveReply(unknown=[])
        try:
            while True:
                await asyncio.sleep(0.01)
                check_caller()
        except CallerGone:
            learned.set()
            raise

    await startd.serve("startd.node1", handler)
    with pytest.raises(CallTimeout):
        await schedd.call("startd.node1", Alive(schedd="ap1", sequence=1, claim_ids=[]), timeout=1.0)
    await eventually(learned.is_set)
    answer = await schedd.call("startd.node1", Alive(schedd="ap1", sequence=2, claim_ids=[]), timeout=PATIENCE_S)
    assert answer == AliveReply(unknown=[])


@pytest.mark.parametrize("told", [False, True], ids=["at once", "once it was told who works on it"])
async def test_who_works_for_a_gateway_learns_that_nobody_waits_any_more(pool, told):
    """Several daemons read the inbox: the one that has the call learns it, and the other goes on with its own."""
    gateway, began, learned = await pool.bus("gateway.gw"), asyncio.Event(), []
    going_on = asyncio.Event()

    def working(name):
        async def handler(envelope):
            if envelope.body.sequence == 2:
                await going_on.wait()
                check_caller()
                return AliveReply(unknown=[name])
            began.set()
            try:
                while True:
                    await asyncio.sleep(0.01)
                    check_caller()
            except CallerGone:
                learned.append(name)
                raise

        return handler

    buses = {name: await pool.bus(f"collector.{name}") for name in ("a", "b")}
    for name, bus in buses.items():
        await bus.serve("collector", working(name))
        await bus.serve(f"collector.{name}", working(name))
    other = asyncio.create_task(gateway.call("collector", alive(2), timeout=PATIENCE_S))
    call = asyncio.create_task(gateway.call("collector", alive(1), timeout=600.0))
    await eventually(began.is_set)
    if told:  # in one process there is nobody to be told
        await eventually(lambda: getattr(gateway._calls, "_taken", True))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    (name,) = await eventually(lambda: learned)
    assert await eventually(lambda: buses[name].health.abandoned) == 1
    going_on.set()
    assert (await other).unknown in (["a"], ["b"])


async def test_a_daemon_works_on_for_another_daemon_that_gave_up_early(pool):
    """Only gateways say so: a daemon has no right to send to every inbox, and its deadlines are short."""
    startd, schedd = await pool.bus("startd.node1"), await pool.bus("schedd.ap1")
    began, done = asyncio.Event(), asyncio.Event()

    async def handler(envelope):
        began.set()
        await asyncio.sleep(0.3)
        check_caller()
        done.set()
        return AliveReply(unknown=[])

    await startd.serve("startd.node1", handler)
    call = asyncio.create_task(schedd.call("startd.node1", alive(1), timeout=PATIENCE_S))
    await eventually(began.is_set)
    call.cancel()
    await eventually(done.is_set)


async def test_request_whose_caller_gave_up_is_not_delivered(pool):
    startd, schedd = await pool.bus("startd.node1"), await pool.bus("schedd.ap1")
    await (await startd.serve("startd.node1", Catch())).cancel()
    with pytest.raises(CallTimeout):
        await schedd.call("startd.node1", Alive(schedd="ap1", sequence=1, claim_ids=[]), timeout=1.0)
    # The broker's clock for the message began a little later than the caller's: on a busy machine more than a little.
    gave_up = asyncio.get_running_loop().time()
    await eventually(lambda: asyncio.get_running_loop().time() > gave_up + 1.0)
    catch = Catch()
    await startd.serve("startd.node1", catch)
    await schedd.call("startd.node1", Alive(schedd="ap1", sequence=2, claim_ids=[]))
    assert catch.sequences == [2]


async def test_call_to_an_inbox_that_never_was_fails_at_once(pool):
    bus = await pool.bus("schedd.ap1")
    with pytest.raises(NobodyThere, match="nowhere"):
        await bus.call("startd.nowhere", SendAds(my_type="Machine"), timeout=20)
    with pytest.raises(NobodyThere):
        await bus.call("startd." + "x" * 300, SendAds(my_type="Machine"), timeout=20)
    with pytest.raises(NobodyThere, match="nowhere"):
        await bus.send("startd.nowhere", lost("slot1"))
    await bus.send("startd.nowhere", Reschedule(by="me"))  # transient: nobody minds
    assert bus.health.unpublished.by_name == {("nobody-there",): 1}
    assert bus.health.confirmed.count == 0
    await bus.publish(Exchange.ADS, "x", invalidate(1))
    assert bus.health.confirmed.count == 1


async def test_shared_inbox_waits_for_its_first_server(pool):
    bus = await pool.bus("schedd.ap1")
    calling = asyncio.ensure_future(bus.call("negotiator", Reschedule(by="ap1"), timeout=20))
    await bus.send("negotiator", Reschedule(by="ap2"))
    catch = Catch()
    await (await pool.bus("negotiator.cm")).serve("negotiator", catch)
    assert await calling == Ack()
    await catch.got(2)


# One way


async def test_one_way_message_waits_while_the_owner_is_away(pool):
    startd, schedd = await pool.bus("startd.node1"), await pool.bus("schedd.ap1")
    await (await schedd.serve("schedd.ap1", Catch())).cancel()
    await startd.send("schedd.ap1", lost("slot1"))
    await startd.send("schedd.ap1", Reschedule(by="startd"), epoch=3)
    catch = Catch()
    await schedd.serve("schedd.ap1", catch)
    await catch.got(2)
    assert catch.bodies == [lost("slot1"), Reschedule(by="startd")]
    assert catch.envelopes[1].epoch == 3


async def test_refused_one_way_message_is_dead_lettered(pool):
    startd, schedd = await pool.bus("startd.node1"), await pool.bus("schedd.ap1")

    async def handler(envelope):
        return Failure(code="denied", reason="not yours")

    await schedd.serve("schedd.ap1", handler)
    await startd.send("schedd.ap1", lost("slot1"))
    (letter,) = await dead(startd)
    assert letter.reason == "denied: not yours"
    assert (letter.exchange, letter.key, letter.queue) == (
        "roost.requests",
        "schedd.ap1",
        "roost.inbox.schedd.ap1",
    )


# What goes wrong in handlers


async def test_rejected_message_is_dead_lettered_with_the_reason(pool):
    bus = await pool.bus("collector.a")
    await bus.consume("roost.collector", rejecting)
    await bus.publish(Exchange.ADS, "invalidate.x", invalidate(1), epoch=4)
    (letter,) = await dead(bus)
    assert letter.reason == "no such thing"
    assert (letter.exchange, letter.key, letter.queue) == ("roost.ads", "invalidate.x", "roost.collector")
    assert letter.type == "ads.invalidate"
    assert letter.at > 1_600_000_000
    assert Envelope.unpack(letter.data).body == invalidate(1)
    assert bus.health.dead_lettered == 1


async def test_retryable_error_brings_the_message_again_until_it_succeeds(pool):
    bus = await pool.bus("collector.a")
    attempts = []

    async def handler(envelope):
        attempts.append(envelope.body.sequence)
        if len(attempts) < 3:
            raise RetryableError("not yet")

    await bus.consume("roost.collector", handler)
    await bus.publish(Exchange.ADS, "x", invalidate(1))
    await eventually(lambda: len(attempts) == 3)
    await bus.publish(Exchange.ADS, "x", invalidate(2))
    await eventually(lambda: len(attempts) == 4)
    assert attempts == [1, 1, 1, 2]
    assert await bus.dead_letters() == []
    assert (bus.health.retried, bus.health.redelivered) == (2, 0)


async def test_message_that_never_succeeds_is_given_up(pool):
    bus = await pool.bus("collector.a")
    attempts = []

    async def handler(envelope):
        attempts.append(envelope)
        raise RetryableError("Redis is away")

    await bus.consume("roost.collector", handler)
    await bus.publish(Exchange.ADS, "x", invalidate(1))
    (letter,) = await dead(bus)
    assert len(attempts) == RETRY.limit
    assert letter.reason == f"given up after {RETRY.limit} deliveries: RetryableError: Redis is away"


async def test_consumer_survives_a_handler_that_breaks(pool):
    bus = await pool.bus("collector.a")
    catch = Catch()

    async def handler(envelope):
        if envelope.body.sequence == 1:
            raise KeyError("slot1")
        await catch(envelope)

    for subscribe in (
        bus.consume("roost.collector", handler),
        bus.listen(Exchange.ADS, ["#"], handler),
    ):
        await subscribe
    await bus.publish(Exchange.ADS, "x", invalidate(1))
    await bus.publish(Exchange.ADS, "x", invalidate(2))
    await catch.got(2)
    letters = await dead(bus, 2)
    assert {letter.reason for letter in letters} == {"handler failed: KeyError: 'slot1'"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xc1garbage", "not a msgpack envelope"),
        (msgpack.packb([1, 2]), "envelope version"),
        (msgpack.packb({"v": 9, "type": "ack", "tv": 1, "id": "1", "body": {}}), "envelope version 9"),
        (msgpack.packb({"v": 1, "type": ["ack"], "tv": 1, "id": "1", "body": {}}), "message type"),
        (
            msgpack.packb({"v": 1, "type": "job.eaten", "tv": 1, "id": "1", "body": {}}),
            "unknown message type 'job.eaten'",
        ),
        (
            msgpack.packb({"v": 1, "type": "ack", "tv": 77, "id": "1", "body": {}}),
            "unknown message type 'ack' version 77",
        ),
        (
            msgpack.packb({"v": 1, "type": "ads.send", "tv": 1, "id": "1", "body": {}}),
            "my_type: Field required",
        ),
        (
            msgpack.packb({"v": 1, "type": "ack", "tv": 1, "id": "1", "epoch": "x", "body": {}}),
            "field 'epoch'",
        ),
        (msgpack.packb({"v": 1, "type": "ack", "tv": 1, "body": {}}), "lacks an id"),
    ],
)
async def test_unreadable_message_is_dead_lettered_and_the_consumer_goes_on(pool, data, reason):
    bus = await pool.bus("schedd.ap1")
    catch = Catch()
    await bus.serve("schedd.ap1", catch)
    await pool.inject(Exchange.RPC, "schedd.ap1", data)
    (letter,) = await dead(bus)
    assert reason in letter.reason
    assert letter.data == data
    await bus.call("schedd.ap1", SendAds(my_type="Machine"))
    assert catch.bodies == [SendAds(my_type="Machine")]


async def test_unknown_fields_are_ignored(pool):
    bus = await pool.bus("schedd.ap1")
    catch = Catch()
    await bus.serve("schedd.ap1", catch)
    raw = {
        "v": 1,
        "type": "ads.send",
        "tv": 1,
        "id": "1",
        "sender": "collector.a",
        "flavour": 3,
        "body": {"my_type": "A", "later": [1]},
    }
    await pool.inject(Exchange.RPC, "schedd.ap1", msgpack.packb(raw))
    await catch.got(1)
    assert catch.bodies == [SendAds(my_type="A")]


# Dead letters


async def test_dead_letters_are_listed_oldest_first_and_stay(pool):
    bus = await pool.bus("collector.a")
    await bus.consume("roost.collector", rejecting, prefetch=1)
    for n in range(5):
        await bus.publish(Exchange.ADS, "x", invalidate(n))
    letters = await dead(bus, 5)
    assert [Envelope.unpack(letter.data).body.sequence for letter in letters] == [0, 1, 2, 3, 4]
    assert len({letter.id for letter in letters}) == 5
    assert await bus.dead_letters() == letters
    assert await bus.dead_letters(limit=2) == letters[:2]


async def test_requeued_letter_comes_back_to_the_queue_it_came_from(pool):
    bus = await pool.bus("collector.a")
    failing = await bus.consume("roost.collector", rejecting)
    await bus.publish(Exchange.ADS, "x", invalidate(1), epoch=4)
    await bus.publish(Exchange.ADS, "x", invalidate(2))
    letters = await dead(bus, 2)
    await failing.cancel()
    bystander, catch = Catch(), Catch()
    await bus.listen(Exchange.ADS, ["#"], bystander)
    await bus.consume("roost.collector", catch)
    wanted = next(x for x in letters if Envelope.unpack(x.data).body.sequence == 1)
    assert await bus.requeue([wanted.id, "no-such-id"]) == [wanted.id]
    await catch.got(1)
    assert catch.sequences == [1]
    assert catch.envelopes[0].epoch == 4
    assert bystander.envelopes == []
    assert [letter.id for letter in await dead(bus)] == [x.id for x in letters if x is not wanted]


async def test_requeued_letter_of_a_listener_that_is_gone_is_published_again(pool):
    bus = await pool.bus("negotiator.cm")
    listening = await bus.listen(Exchange.ADS, ["#"], rejecting)
    await bus.publish(Exchange.ADS, "x", invalidate(1))
    (letter,) = await dead(bus)
    await listening.cancel()
    catch = Catch()
    await bus.listen(Exchange.ADS, ["#"], catch)
    assert await bus.requeue([letter.id]) == [letter.id]
    await catch.got(1)
    assert await bus.dead_letters() == []


async def test_discarded_letter_is_gone(pool):
    bus = await pool.bus("collector.a")
    await bus.consume("roost.collector", rejecting)
    for n in range(3):
        await bus.publish(Exchange.ADS, "x", invalidate(n))
    letters = await dead(bus, 3)
    assert await bus.discard([letters[1].id, "no-such-id"]) == [letters[1].id]
    assert [letter.id for letter in await bus.dead_letters()] == [letters[0].id, letters[2].id]


# Limits


async def test_message_too_large_is_refused_before_it_is_sent(pool):
    bus = await pool.bus("schedd.ap1")
    big = Reschedule(by="x" * Reschedule.most_bytes)
    with pytest.raises(MessageTooLarge, match="in parts"):
        await bus.publish(Exchange.ADS, "x", big)
    with pytest.raises(MessageTooLarge):
        await bus.call("negotiator", big)

    async def handler(envelope):
        return big

    await bus.serve("schedd.ap1", handler)
    with pytest.raises(RemoteFailure, match="in parts"):
        await bus.call("schedd.ap1", SendAds(my_type="Machine"))


async def test_large_message_arrives_whole(pool):
    bus = await pool.bus("schedd.ap1")
    catch = Catch()
    await bus.serve("schedd.ap1", catch)
    submit = SubmitJobs(user="ß" * 3_000_000, submit_id="1", cluster_ad=b"", procs=[b"x" * 9_000_000])
    await bus.call("schedd.ap1", submit)
    assert catch.bodies == [submit]


async def test_nothing_is_published_to_the_dead_letters_by_hand(pool):
    bus = await pool.bus("schedd.ap1")
    with pytest.raises(ValueError, match="dead letters"):
        await bus.publish(Exchange.DEAD, "x", invalidate(1))
    with pytest.raises(ValueError, match="dead letters"):
        await bus.listen(Exchange.DEAD, ["#"], Catch())


# Lost connections


async def test_bus_comes_back_after_a_lost_connection_and_tells_of_the_gap(pool):
    bus, other = await pool.bus("schedd.ap1"), await pool.bus("startd.node1")
    catch, heard, gaps = Catch(), Catch(), []

    async def gap():
        gaps.append(len(heard.envelopes))

    bus.on_gap(gap)
    await bus.serve("schedd.ap1", catch)
    await bus.listen(Exchange.ADS, ["#"], heard)
    assert gaps == []
    await pool.cut(bus)
    await eventually(lambda: gaps == [0], what="the callback")
    assert bus.health.connected
    assert bus.health.waiting_for == ""
    assert bus.health.reconnects == 1
    assert bus.health.consumers == bus.health.expected_consumers == 2
    assert await other.call("schedd.ap1", SendAds(my_type="A")) == Ack()
    await other.publish(Exchange.ADS, "x", invalidate(1))
    await heard.got(1)


async def test_gap_callback_is_repeated_until_it_succeeds(pool):
    bus = await pool.bus("schedd.ap1")
    calls = []

    async def gap():
        calls.append(1)
        if len(calls) < 3:
            raise RetryableError("not yet")

    bus.on_gap(gap)
    await pool.cut(bus)
    await eventually(lambda: len(calls) == 3)


async def test_call_under_way_fails_when_the_connection_is_lost(pool):
    bus, other = await pool.bus("schedd.ap1"), await pool.bus("startd.node1")
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def handler(envelope):
        begun.set()
        await may_end.wait()
        return Ack()

    await other.serve("startd.node1", handler)
    calling = asyncio.ensure_future(bus.call("startd.node1", SendAds(my_type="A"), timeout=60))
    await begun.wait()
    await pool.cut(bus)
    with pytest.raises(BusUnavailable):
        await calling
    may_end.set()


async def test_message_in_hand_comes_again_when_its_consumer_loses_the_connection(pool):
    bus, other = await pool.bus("collector.a"), await pool.bus("startd.node1")
    begun, may_end, seen = asyncio.Event(), asyncio.Event(), []

    async def handler(envelope):
        seen.append(envelope.body.sequence)
        begun.set()
        await may_end.wait()

    await bus.consume("roost.collector", handler)
    await other.publish(Exchange.ADS, "x", invalidate(1))
    await begun.wait()
    assert bus.health.in_hand == 1
    await pool.cut(bus)
    await eventually(lambda: len(seen) == 2, what="the second delivery")
    may_end.set()
    assert seen == [1, 1]
    assert (bus.health.received, bus.health.redelivered) == (2, 1)
    await eventually(lambda: bus.health.in_hand == 0, what="the end of the handler")


async def test_message_that_ends_its_consumers_again_and_again_is_dead_lettered(pool):
    bus, other = await pool.bus("collector.a"), await pool.bus("startd.node1")
    seen, may_end = [], asyncio.Event()

    async def handler(envelope):
        seen.append(envelope.body.sequence)
        await may_end.wait()

    await bus.consume("roost.collector", handler)
    await other.publish(Exchange.ADS, "x", invalidate(1))
    for n in range(1, RETRY.limit + 1):
        await eventually(lambda n=n: len(seen) == n, what=f"delivery {n}")
        await pool.cut(bus)
    (letter,) = await dead(other)
    may_end.set()
    assert len(seen) == RETRY.limit
    assert letter.reason.startswith(f"given up after {RETRY.limit} deliveries")


async def test_durable_publish_waits_for_the_connection_and_transient_does_not(pool):
    bus, other = await pool.bus("startd.node1"), await pool.bus("negotiator.cm")
    catch = Catch()
    await other.listen(Exchange.ADS, ["#"], catch)
    await pool.cut(bus)
    await eventually(lambda: not bus.health.connected or bus.health.reconnects)
    await bus.publish(Exchange.ADS, "x", heartbeat(1))
    await bus.publish(Exchange.ADS, "x", invalidate(2))
    await eventually(lambda: 2 in catch.sequences)


async def test_facts_wait_for_the_connection_in_their_order_with_what_they_said(pool):
    bus, other = await pool.bus("schedd.ap"), await pool.bus("negotiator.cm")
    catch = Catch()
    await other.listen(Exchange.EVENTS, ["#"], catch)
    await bus.publish(Exchange.EVENTS, "job.removed", removed(0))
    await catch.got(1)
    await pool.cut(bus)
    await eventually(lambda: not bus.health.connected or bus.health.reconnects)
    for number in range(1, 300):
        await bus.publish(Exchange.EVENTS, "job.removed", removed(number))

    def heard():
        # The connection may be there again before the last of them.
        return {one.id: one.body for one in catch.envelopes if not isinstance(one.body, DaemonReconnected)}

    await eventually(lambda: any(isinstance(body, DaemonReconnected) for body in catch.bodies) and len(heard()) == 300)
    (told,) = (body for body in catch.bodies if isinstance(body, DaemonReconnected))
    assert (told.daemon, told.lost) == ("schedd@ap", 0)
    assert told.since <= told.at
    facts = heard()
    assert [fact.at for fact in facts.values()] == [float(number) for number in range(300)]
    assert bus.health.unpublished.by_name == {}


async def test_who_is_no_daemon_does_not_speak_of_itself(pool):
    bus, other, schedd = await pool.bus("consumer.bill"), await pool.bus("negotiator.cm"), await pool.bus("schedd.ap")
    catch = Catch()
    await other.listen(Exchange.EVENTS, ["#"], catch)
    await pool.cut(bus)
    await eventually(lambda: bus.health.reconnects)
    await schedd.publish(Exchange.EVENTS, "job.removed", removed(1))
    await catch.got(1)
    assert [body.type for body in catch.bodies] == ["job.removed"]


# Stopping


async def test_stop_waits_for_handlers_and_leaves_nothing_behind(pool):
    bus, other = await pool.bus("collector.a"), await pool.bus("startd.node1")
    begun, ended = asyncio.Event(), []

    async def handler(envelope):
        begun.set()
        await asyncio.sleep(0.05)
        ended.append(envelope)

    await bus.consume("roost.collector", handler)
    await other.publish(Exchange.ADS, "x", invalidate(1))
    await begun.wait()
    await bus.stop()
    assert len(ended) == 1
    assert not bus.health.connected
    with pytest.raises(BusUnavailable):
        await bus.publish(Exchange.ADS, "x", invalidate(2))
    await bus.stop()


async def test_deaf_bus_leaves_what_comes_to_the_next_life(pool):
    ending, other = await pool.bus("startd.node1"), await pool.bus("schedd.ap1")
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), []

    async def handler(envelope):
        begun.set()
        await may_end.wait()
        ended.append(envelope.body.slot)
        return Ack()

    await ending.serve("startd.node1", handler)
    await other.serve("schedd.ap1", Catch())
    await other.send("startd.node1", lost("first"))
    await begun.wait()
    deafening = asyncio.ensure_future(ending.stop_consuming())
    await asyncio.sleep(0)
    assert not deafening.done()
    may_end.set()
    await deafening
    assert ended == ["first"]
    await other.send("startd.node1", lost("second"))
    assert await ending.call("schedd.ap1", heartbeat(1)) == Ack()  # it can still speak
    await ending.stop()
    assert ended == ["first"]
    again = Catch()
    await (await pool.bus("startd.node1")).serve("startd.node1", again)
    await again.got(1)
    assert [envelope.body.slot for envelope in again.envelopes] == ["second"]


async def test_stop_ends_though_a_handler_does_not(pool, monkeypatch):
    """Its message, and what waits behind it, come to whoever is there next."""
    for transport in ("memory", "amqp.bus"):
        monkeypatch.setattr(f"shared.bus.{transport}.STOP_PATIENCE_S", 0.1)
    bus, other = await pool.bus("collector.a"), await pool.bus("startd.node1")
    begun = Catch()

    async def handler(envelope):
        await begun(envelope)
        await asyncio.Event().wait()

    await bus.consume("roost.collector", handler, prefetch=1)
    await other.publish(Exchange.ADS, "x", invalidate(1))
    await other.publish(Exchange.ADS, "x", invalidate(2))
    await begun.got(1)
    async with asyncio.timeout(PATIENCE_S):
        await bus.stop()
    again = Catch()
    await other.consume("roost.collector", again)
    await again.got(2)
    assert sorted(again.sequences) == [1, 2]
    assert begun.sequences == [1]


async def test_handler_may_stop_its_bus(pool):
    bus, other = await pool.bus("collector.a"), await pool.bus("startd.node1")
    stopped = asyncio.Event()

    async def handler(envelope):
        await bus.stop()
        stopped.set()

    await bus.consume("roost.collector", handler)
    await other.publish(Exchange.ADS, "x", invalidate(1))
    async with asyncio.timeout(PATIENCE_S):
        await stopped.wait()


async def test_stop_ends_while_the_connection_is_lost(pool):
    bus = await pool.bus("collector.a")
    await bus.consume("roost.collector", Catch())
    await bus.serve("collector.a", Catch())
    await pool.cut(bus)
    async with asyncio.timeout(PATIENCE_S):
        await bus.stop()
    assert bus.health.waiting_for == "start"


# All together


async def test_nothing_confirmed_is_lost_when_connections_break_again_and_again(pool):
    chance = random.Random(5)
    sender, first, second = [await pool.bus(name) for name in ("startd.n", "collector.a", "collector.b")]
    taken, answered, confirmed, sent = Catch(), Catch(), [], []
    for bus in (first, second):
        await bus.consume("roost.collector", taken, prefetch=20)
        await bus.serve("collector", answered, prefetch=20)
    stop = asyncio.Event()

    async def publisher(lane):
        number = lane
        while not stop.is_set():
            number += 10
            await sender.publish(Exchange.ADS, "x", invalidate(number))
            confirmed.append(number)
            await sender.send("collector", lost(f"slot{number}"))
            sent.append(f"slot{number}")
            await asyncio.sleep(0.002)

    async def caller():
        while not stop.is_set():
            with contextlib.suppress(BusUnavailable, CallTimeout):
                assert await sender.call("collector", SendAds(my_type="A"), timeout=2) == Ack()
            await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as tasks:
        for lane in range(5):
            tasks.create_task(publisher(lane))
        tasks.create_task(caller())
        for _ in range(8):
            before = len(confirmed)
            await eventually(lambda n=before: len(confirmed) > n + 20)
            await pool.cut(chance.choice([sender, first, second]))
        stop.set()
    await eventually(lambda: set(confirmed) <= set(taken.sequences), what="all that was published")
    await eventually(
        lambda: set(sent) <= {body.slot for body in answered.bodies if body.type == "claim.lost"},
        what="all that was sent",
    )
    assert await sender.call("collector", SendAds(my_type="A")) == Ack()
    for bus in (sender, first, second):
        await eventually(lambda bus=bus: bus.health.consumers == bus.health.expected_consumers)
    assert await sender.dead_letters() == []


async def test_the_broker_tells_who_is_there(pool):
    """A daemon that died, or lost its connection, is seen to be gone at once; one that is back is there again."""
    asker, there, gone = await pool.bus("collector.cm"), await pool.bus("startd.a"), await pool.bus("startd.b")
    inboxes = ["startd.never", "startd.a", "startd.b"]
    assert await asker.served(inboxes) == {}
    await there.serve("startd.a", Catch())
    serving = await gone.serve("startd.b", Catch())
    assert await asker.served(inboxes) == {"startd.a": True, "startd.b": True}
    await serving.cancel()
    assert await asker.served(inboxes) == {"startd.a": True, "startd.b": False}
    await gone.serve("startd.b", Catch())
    assert await asker.served(inboxes) == {"startd.a": True, "startd.b": True}
    await gone.stop()

    async def seen():
        return await asker.served(inboxes) == {"startd.a": True, "startd.b": False}

    await eventually(seen, what="the loss of the connection of startd.b")


async def test_the_broker_tells_how_much_waits(pool):
    """By queue, dead letters too; a queue that is not there is left out."""
    asker, sender, server = await pool.bus("gateway.g"), await pool.bus("startd.node1"), await pool.bus("schedd.ap1")
    queue, never = inbox_queue("schedd.ap1"), inbox_queue("schedd.never")
    assert await asker.waiting([queue, never]) == {}
    serving = await server.serve("schedd.ap1", Catch())
    await serving.cancel()
    await sender.send("schedd.ap1", lost("slot1"))
    await sender.send("schedd.ap1", lost("slot2"))
    collector = await pool.bus("collector.a")
    await collector.consume("roost.collector", rejecting)
    await collector.publish(Exchange.ADS, "x", invalidate(1))
    expected = {queue: 2, "roost.collector": 0, Exchange.DEAD: 1}

    async def seen():
        return await asker.waiting([*expected, never]) == expected

    await eventually(seen, what="what waits")
