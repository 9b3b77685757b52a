"""What a simulation can do to messages on the in-process hub, and that it does the same again for the same seed."""

import asyncio
import random

import pytest

from shared.bus.api import BusUnavailable, CallTimeout, Exchange
from shared.bus.handling import RetryPolicy
from shared.bus.memory import DELIVER, DROP, DUPLICATE, UNCONFIRMED, MemoryBus, MemoryHub, delay
from shared.messages import Ack
from shared.messages.ads import AdHeartbeat, AdInvalidate, SendAds
from tests.contract.bus_pool import ANYBODY
from tests.waiting import eventually


def heartbeat(sequence):
    return AdHeartbeat(my_type="Machine", daemon="startd@n", start_time=1, base=1, sequence=sequence)


def invalidate(sequence):
    return AdInvalidate(my_type="Machine", daemon="startd@n", start_time=1, sequence=sequence)


async def pair(on_route=None, **options):
    hub = MemoryHub(on_route=on_route, **options)
    buses = tuple(MemoryBus(hub, sender=sender, rows=ANYBODY) for sender in ("startd.n", "schedd.a"))
    for bus in buses:
        await bus.start()
    return buses


async def listening(bus):
    got = []

    async def handler(envelope):
        got.append(envelope.body.sequence)

    await bus.listen(Exchange.ADS, ["#"], handler)
    return got


async def stop(*buses):
    for bus in buses:
        await bus.stop()


async def test_dropped_duplicated_and_delayed_copies():
    fates = {1: DROP, 2: DUPLICATE, 3: delay(0.02), 4: DELIVER}
    startd, schedd = await pair(lambda item: fates[item.body.sequence])
    got = await listening(schedd)
    for n in fates:
        await startd.publish(Exchange.ADS, "x", heartbeat(n))
    await eventually(lambda: len(got) == 4)
    assert got == [2, 2, 4, 3]
    await stop(startd, schedd)


async def test_hook_sees_who_sends_what_to_whom():
    seen = []

    def look(item):
        seen.append((item.sender, item.exchange, item.key, item.queue, item.body.type))
        return DELIVER

    startd, schedd = await pair(look)

    async def handler(envelope):
        return Ack()

    await schedd.serve("schedd.a", handler)
    await startd.call("schedd.a", SendAds(my_type="A"))
    assert seen == [
        ("startd.n", "roost.requests", "schedd.a", "roost.inbox.schedd.a", "ads.send"),
        ("schedd.a", "", "", "startd.n", "ack"),
    ]
    await stop(startd, schedd)


async def test_lost_durable_message_is_known_to_be_lost():
    startd, schedd = await pair(lambda item: DROP)
    got = await listening(schedd)
    with pytest.raises(BusUnavailable):
        await startd.publish(Exchange.ADS, "x", invalidate(1))
    await startd.publish(Exchange.ADS, "x", heartbeat(2))
    assert got == []
    await stop(startd, schedd)


async def test_unconfirmed_message_may_have_arrived():
    startd, schedd = await pair(lambda item: UNCONFIRMED)
    got = await listening(schedd)
    with pytest.raises(BusUnavailable):
        await startd.publish(Exchange.ADS, "x", invalidate(1))
    await eventually(lambda: got == [1])
    await stop(startd, schedd)


async def test_lost_answer_is_a_timeout():
    startd, schedd = await pair(lambda item: DELIVER if item.exchange else DROP)
    acted = []

    async def handler(envelope):
        acted.append(envelope)
        return Ack()

    await schedd.serve("schedd.a", handler)
    with pytest.raises(CallTimeout):
        await startd.call("schedd.a", SendAds(my_type="A"), timeout=0.02)
    assert len(acted) == 1
    await stop(startd, schedd)


async def test_crash_ends_handlers_and_gives_their_messages_back():
    startd, schedd = await pair()
    second = MemoryBus(schedd.hub, sender="collector.b", rows=ANYBODY)
    await second.start()
    begun, ended, got = asyncio.Event(), [], []

    async def hanging(envelope):
        begun.set()
        await asyncio.sleep(3600)
        ended.append(envelope)

    async def taking(envelope):
        got.append(envelope.body.sequence)

    await schedd.consume("roost.collector", hanging)
    await startd.publish(Exchange.ADS, "x", invalidate(1))
    await begun.wait()
    schedd.disconnect(crash=True)
    await second.consume("roost.collector", taking)
    await eventually(lambda: got == [1])
    await stop(startd, schedd, second)
    assert ended == []


async def test_durable_publish_gives_up_when_the_connection_stays_away():
    startd, schedd = await pair()
    startd.publish_wait_s = 0.02
    startd.disconnect()
    assert startd.health.waiting_for
    with pytest.raises(BusUnavailable):
        await startd.publish(Exchange.ADS, "x", invalidate(1))
    with pytest.raises(BusUnavailable):
        await startd.call("schedd.a", SendAds(my_type="A"), timeout=0.02)
    await stop(startd, schedd)


async def test_gap_callback_that_breaks_costs_the_others_nothing():
    startd, schedd = await pair()
    told = []

    async def breaks():
        raise KeyError("mistake")

    async def works():
        told.append(1)

    schedd.on_gap(breaks)
    schedd.on_gap(works)
    schedd.disconnect()
    schedd.reconnect()
    await eventually(lambda: told == [1])
    await stop(startd, schedd)


async def run_with(seed):
    """Traffic under random faults; everything that arrived, in order."""
    fates = random.Random(seed)
    numbers = iter(range(10**6))

    def on_route(item):
        return fates.choice([DELIVER, DELIVER, DROP, DUPLICATE, delay(fates.random() / 500)])

    startd, schedd = await pair(on_route, now=lambda: 1e9, new_id=lambda: f"{next(numbers):032x}")
    got = []

    async def handler(envelope):
        got.append((envelope.id, envelope.body.sequence))

    await schedd.listen(Exchange.ADS, ["#"], handler)
    await schedd.consume("roost.collector", handler, prefetch=3)
    for n in range(60):
        await startd.publish(Exchange.ADS, "x", heartbeat(n))
    pause = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.01, pause.set_result, None)
    await pause
    await stop(startd, schedd)
    return got


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only while nothing else can happen, and then at once."""

    def __init__(self):
        super().__init__()
        self._now = 0.0

    def time(self):
        return self._now

    def _run_once(self):
        if not self._ready and self._scheduled:
            self._now = max(self._now, self._scheduled[0].when())
        super()._run_once()


def test_same_seed_same_history():
    histories = []
    for seed in (1, 1, 2):
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            histories.append(runner.run(run_with(seed)))
    assert histories[0] == histories[1]
    assert histories[0] != histories[2]
    assert len(histories[0]) > 60


def test_retries_wait_longer_and_longer_up_to_a_cap():
    policy = RetryPolicy(limit=10, first_s=0.1, factor=3.0, cap_s=1.0)
    assert [round(policy.delay_s(n), 3) for n in (1, 2, 3, 4, 9)] == [0.1, 0.3, 0.9, 1.0, 1.0]
