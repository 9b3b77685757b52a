"""HADs as processes on RabbitMQ and Redis, each beside a negotiator that writes down who it is told to be."""

import asyncio
import json
import time
from contextlib import asynccontextmanager

import pytest

from services.gateway.pool_client import Negotiator, PoolClient
from shared.accounting_version import NOTHING
from shared.bus import connect
from shared.bus.api import Exchange
from shared.classad import ClassAd
from shared.daemon.clock import SystemClock
from shared.messages.base import Ack, Person
from shared.messages.events import LeaderChanged
from shared.messages.had import Following, Lead, StepDown
from shared.messages.negotiation import GetPriorities, Priorities, SetPriority
from shared.state import StaleEpoch, keys, open_store
from shared.state.accounting import write_records
from tests.gateway_keys import gateway_bus
from tests.processes import DaemonProcess, daemons
from tests.spec import spec
from tests.waiting import PATIENCE_S, eventually, wait_until

pytestmark = pytest.mark.servers

NAMES = ("cm1", "cm2", "cm3")
#: Long enough for a machine that is busy with other tests: who leads then changes only for the reason a test
#: gives.
CALM = {"ROOST_HAD_LEASE": 2.5}


class FakeNegotiator:
    """Obeys as a negotiator does: leads while its lease lasts, refuses old epochs."""

    def __init__(self, name):
        self.name = name
        self.epoch, self.until, self.heard = 0, 0.0, 0
        self.speaks = asyncio.Event()
        self.speaks.set()

    def leading(self):
        return time.monotonic() < self.until

    async def serve(self, bus):
        await bus.serve(f"negotiator.{self.name}", self._answer)

    async def _answer(self, envelope):
        body = envelope.body
        await self.speaks.wait()
        self.heard += 1
        if isinstance(body, Lead) and body.epoch >= self.epoch:
            self.epoch, self.until = body.epoch, time.monotonic() + body.lease_s
        elif isinstance(body, StepDown) and body.epoch >= self.epoch:
            self.until = 0.0
        return Following(negotiator=self.name, active=self.leading(), epoch=self.epoch, cycle=0)


class CentralManagers:
    def __init__(self, hads, negotiators):
        self.hads, self.negotiators = hads, negotiators

    def leaders(self):
        return [name for name, negotiator in self.negotiators.items() if negotiator.leading()]

    async def leader(self, *expected, timeout_s=PATIENCE_S):
        """Wait until exactly one of these leads; returns its negotiator."""
        await eventually(lambda: len(self.leaders()) == 1 and self.leaders()[0] in expected, timeout_s, "a leader")
        return self.negotiators[self.leaders()[0]]


@asynccontextmanager
async def central_managers(names, tmp_path, amqp_url, redis_url, **config):
    bus = connect(amqp_url, "negotiator.test")
    await bus.start()
    negotiators = {name: FakeNegotiator(name) for name in names}
    for negotiator in negotiators.values():
        await negotiator.serve(bus)
    config = {"HAD_LIST": ", ".join(f"{name}:51450" for name in names)} | config
    hads = {
        name: DaemonProcess("had", name, tmp_path, amqp_url=amqp_url, redis_url=redis_url, config=config)
        for name in names
    }
    managed = daemons(*hads.values())
    await asyncio.to_thread(managed.__enter__)
    try:
        yield CentralManagers(hads, negotiators)
    finally:
        for negotiator in negotiators.values():
            negotiator.speaks.set()
        await asyncio.to_thread(managed.__exit__, None, None, None)
        await bus.stop()


@spec("HA-02", "HA-03", "HA-06", "HA-09", "W-37")
async def test_killed_leader_is_replaced_and_its_epoch_is_over(tmp_path, amqp_url, redis_url):
    async with central_managers(NAMES, tmp_path, amqp_url, redis_url, **CALM) as cms:
        first = await cms.leader(*NAMES)
        await asyncio.to_thread(cms.hads[first.name].kill)
        others = [name for name in NAMES if name != first.name]
        second = await cms.leader(*others)
        assert second.epoch > first.epoch
        store = open_store(redis_url)
        await store.start()
        with pytest.raises(StaleEpoch):
            await write_records(store, "", first.epoch, NOTHING, submitters=[(b"a", b"b")])
        await write_records(store, "", second.epoch, NOTHING, submitters=[(b"a", b"b")])
        await store.stop()
        # It comes back, and does not take the lead (HAD_USE_PRIMARY false).
        await asyncio.to_thread(cms.hads[first.name].start)
        heard = first.heard
        await eventually(lambda: first.heard > heard)
        assert cms.leaders() == [second.name]


async def test_leader_is_replaced_with_the_defaults_too(tmp_path, amqp_url, redis_url):
    async with central_managers(NAMES[:2], tmp_path, amqp_url, redis_url) as cms:
        first = await cms.leader(*NAMES[:2])
        begun = time.monotonic()
        cms.hads[first.name].process.kill()
        await cms.leader(*(set(NAMES[:2]) - {first.name}))
        print(f"replaced {time.monotonic() - begun:.2f} s after the kill")


async def test_frozen_leader_is_replaced_and_thawed_follows(tmp_path, amqp_url, redis_url):
    async with central_managers(NAMES[:2], tmp_path, amqp_url, redis_url, **CALM) as cms:
        first = await cms.leader(*NAMES[:2])
        cms.hads[first.name].process.freeze()
        try:
            (other,) = set(NAMES[:2]) - {first.name}
            second = await cms.leader(other)
        finally:
            cms.hads[first.name].process.thaw()
        heard = first.heard
        await eventually(lambda: first.heard > heard)
        assert cms.leaders() == [second.name]
        await eventually(lambda: asyncio.to_thread(lambda: "passive" in cms.hads[first.name].ask("/readyz")[1]))


async def test_lead_goes_on_when_the_negotiator_does_not_answer(tmp_path, amqp_url, redis_url):
    async with central_managers(NAMES[:2], tmp_path, amqp_url, redis_url) as cms:
        first = await cms.leader(*NAMES[:2])
        first.speaks.clear()
        begun = time.monotonic()
        (other,) = set(NAMES[:2]) - {first.name}
        second = await cms.leader(other)
        print(f"replaced {time.monotonic() - begun:.2f} s after the last answer")
        assert second.epoch > first.epoch


@spec("HA-05", "W-37")
async def test_returning_primary_takes_the_lead_back(tmp_path, amqp_url, redis_url):
    async with central_managers(NAMES[:2], tmp_path, amqp_url, redis_url, HAD_USE_PRIMARY="true", **CALM) as cms:
        await cms.leader("cm1")
        await asyncio.to_thread(cms.hads["cm1"].kill)
        await cms.leader("cm2")
        await asyncio.to_thread(cms.hads["cm1"].start)
        again = await cms.leader("cm1")
        assert again.epoch > cms.negotiators["cm2"].epoch


@spec("HA-01")
async def test_single_had_restarted_carries_on_at_once(tmp_path, amqp_url, redis_url):
    """Nothing need be configured."""
    async with central_managers(NAMES[:1], tmp_path, amqp_url, redis_url, HAD_LIST="") as cms:
        only = await cms.leader("cm1")
        epoch = only.epoch
        await asyncio.to_thread(cms.hads["cm1"].kill)
        await asyncio.to_thread(cms.hads["cm1"].start)
        await eventually(lambda: only.epoch > epoch and only.leading())


async def test_lead_survives_a_restart_of_redis_and_epochs_only_grow(tmp_path, amqp_url, redis_server):
    async with central_managers(NAMES[:2], tmp_path, amqp_url, redis_server.url, **CALM) as cms:
        first = await cms.leader(*NAMES[:2])
        epoch = first.epoch
        await asyncio.to_thread(redis_server.kill)
        await eventually(lambda: not cms.leaders())
        await asyncio.to_thread(redis_server.start)
        again = await cms.leader(*NAMES[:2])
        assert again.epoch >= epoch


async def test_epochs_grow_though_redis_forgot_them(tmp_path, amqp_url, redis_server):
    async with central_managers(NAMES[:2], tmp_path, amqp_url, redis_server.url, **CALM) as cms:
        first = await cms.leader(*NAMES[:2])
        store = open_store(redis_server.url)
        await store.start()
        await store.delete(keys.had_epoch(), keys.had_lease())
        await store.stop()
        epoch = first.epoch
        await eventually(lambda: any(n.leading() and n.epoch > epoch for n in cms.negotiators.values()))


async def test_change_of_leader_is_an_event(tmp_path, amqp_url, redis_url):
    bus = gateway_bus(amqp_url, "gateway.test")
    await bus.start()
    events = []

    async def note(envelope):
        events.append(envelope.body)

    await bus.listen(Exchange.EVENTS, [LeaderChanged.type], note)
    async with central_managers(NAMES[:1], tmp_path, amqp_url, redis_url) as cms:
        await cms.leader("cm1")
        await eventually(lambda: [e.state for e in events] == ["leader"])
        cms.hads["cm1"].process.terminate()
        await eventually(lambda: [e.state for e in events] == ["leader", "passive"])
        # Told to step down, not left to run out of its lease.
        await eventually(lambda: cms.negotiators["cm1"].until == 0.0, what="the word to step down")
        assert await asyncio.to_thread(cms.hads["cm1"].process.wait) == 0
    await bus.stop()


@spec("HA-03", "HA-07", "W-37")
async def test_while_another_takes_over_from_a_hung_negotiator_whoever_asks_is_answered(tmp_path, amqp_url, redis_url):
    """Before the lease ends the hung one has the question, then it has lost the lead and is still connected, and when
    it goes on it says so."""
    config = {"HAD_LIST": "cm1:1, cm2:1"} | CALM
    made = {
        (daemon, name): DaemonProcess(daemon, name, tmp_path, amqp_url=amqp_url, redis_url=redis_url, config=config)
        for daemon in ("negotiator", "had")
        for name in ("cm1", "cm2")
    }
    bus = gateway_bus(amqp_url, "gateway.test")
    pool = PoolClient(bus, SystemClock(), person=lambda: Person("root@x", "ADMINISTRATOR"))
    anybody = Negotiator("", frozenset(NAMES))

    async def change(number):
        wish = SetPriority(submitter="ada@x", what="factor", value=float(number), by="root@x")
        assert await pool.ask_negotiator(anybody, wish, Ack, timeout=PATIENCE_S) == Ack()

    async def factor():
        known = await pool.ask_negotiator(anybody, GetPriorities(submitters=["ada@x"]), Priorities, timeout=PATIENCE_S)
        return ClassAd.unpack(known.ads[-1]).eval("PriorityFactor")

    def leader(*among):
        return next((name for name in among if _role(made["negotiator", name]) == "leader"), "")

    with daemons(*made.values()):
        await bus.start()
        first = await eventually(lambda: asyncio.to_thread(leader, "cm1", "cm2"))
        (other,) = {"cm1", "cm2"} - {first}
        await change(2)
        made["negotiator", first].process.freeze()
        try:
            assert await factor() == 2.0
            await eventually(lambda: asyncio.to_thread(leader, other))
            for number in range(3, 9):  # each second one would be the hung one's, if both took turns
                await change(number)
        finally:
            made["negotiator", first].process.thaw()
        for _ in range(6):
            assert await factor() == 8.0
        await bus.stop()


def _role(process):
    status, text = process.ask("/readyz")
    return json.loads(text)["role"] if status else ""


@spec("HA-03", "HA-07", "HA-10", "W-37")
async def test_killed_negotiator_hands_the_lead_to_the_other_and_comes_back_as_follower(tmp_path, amqp_url, redis_url):
    """The real negotiators beside their HADs; nothing but kill -9, SIGSTOP and starting again."""
    config = {"HAD_LIST": "cm1:1, cm2:1"} | CALM
    made = {
        (daemon, name): DaemonProcess(daemon, name, tmp_path, amqp_url=amqp_url, redis_url=redis_url, config=config)
        for daemon in ("negotiator", "had")
        for name in ("cm1", "cm2")
    }

    def leaders():
        return [
            name for (daemon, name), process in made.items() if daemon == "negotiator" and _role(process) == "leader"
        ]

    with daemons(*made.values()):
        await asyncio.to_thread(wait_until, lambda: len(leaders()) == 1)
        (first,) = leaders()
        (other,) = {"cm1", "cm2"} - {first}
        await asyncio.to_thread(made["negotiator", first].kill)
        await asyncio.to_thread(wait_until, lambda: leaders() == [other])
        await asyncio.to_thread(made["negotiator", first].start)
        await asyncio.to_thread(wait_until, made["had", first].ready)
        # Hung is as good as dead (HA-07, HA-10); thawed, it follows.
        made["negotiator", other].process.freeze()
        try:
            await asyncio.to_thread(wait_until, lambda: leaders() == [first])
        finally:
            made["negotiator", other].process.thaw()
        await asyncio.to_thread(wait_until, made["had", other].ready)
        assert _role(made["negotiator", first]) == "leader"
        await asyncio.to_thread(wait_until, lambda: leaders() == [first])
        first, other = other, first
        assert _role(made["had", other]) == "leader"
        # Everything at once, and back.
        for process in made.values():
            await asyncio.to_thread(process.kill)
        for process in made.values():
            await asyncio.to_thread(process.start, wait=False)
        await asyncio.to_thread(wait_until, lambda: len(leaders()) == 1, 60)
