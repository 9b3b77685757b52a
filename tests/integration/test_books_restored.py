"""Redis loses the accountant's books, with and without the central managers: HADs and negotiators as processes (HA-13,
HA-15, HA-16)."""

import asyncio
import os
from contextlib import asynccontextmanager

import pytest

from shared.accounting_version import Version, parse
from shared.bus.api import Exchange
from shared.bus.topology import negotiator_inbox
from shared.classad import ClassAd
from shared.errors import RoostError
from shared.messages.events import BooksRestored, SnapshotRefused
from shared.messages.had import AskHad
from shared.messages.negotiation import GetPriorities, SetPriority
from shared.state import keys, open_store
from tests.gateway_keys import gateway_bus
from tests.processes import DaemonProcess, daemons
from tests.spec import spec
from tests.waiting import eventually

pytestmark = pytest.mark.servers

#: Who leads changes only for the reason a test gives.
CALM = {"ROOST_HAD_LEASE": 2.5, "HAD_LIST": "cm1:1, cm2:1"}


class CentralManagers:
    """Two of them, each with a HAD and a negotiator, seen from the bus."""

    def __init__(self, bus, made, events):
        self.bus, self.made, self.events = bus, made, events

    async def standing(self, name):
        return await self.bus.call(f"had.{name}", AskHad(), timeout=5.0)

    async def leader(self):
        async def one():
            try:
                standings = [await self.standing(name) for name in ("cm1", "cm2")]
            except RoostError:
                return None
            leaders = [standing for standing in standings if standing.state == "Leader"]
            return leaders[0] if len(leaders) == 1 and parse(leaders[0].in_redis).epoch >= 0 else None

        return await eventually(one, what="one leader")

    async def ask(self, question):
        """Of the negotiator that leads; it may just be changing."""

        async def answer():
            try:
                return await self.bus.call(negotiator_inbox(""), question, timeout=5.0)
            except RoostError:
                return None

        return await eventually(answer, what="an answer of the active negotiator")

    async def set_factor(self, submitter, factor):
        await self.ask(SetPriority(submitter=submitter, what="factor", value=factor, by="root"))

    async def factors(self):
        page = await self.ask(GetPriorities())
        ads = [ClassAd.unpack(packed) for packed in page.ads]
        return {ad["Name"]: ad["PriorityFactor"] for ad in ads if not ad.get("IsAccountingGroup")}

    def told(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def central_managers(tmp_path, amqp_url, redis_url, **config):
    bus = gateway_bus(amqp_url, "gateway.test")
    await bus.start()
    events = []

    async def note(envelope):
        events.append(envelope.body)

    await bus.listen(Exchange.EVENTS, ["had.#"], note)
    made = {
        (daemon, name): DaemonProcess(
            daemon, name, tmp_path, amqp_url=amqp_url, redis_url=redis_url, config=CALM | config
        )
        for name in ("cm1", "cm2")
        for daemon in ("negotiator", "had")
    }
    managed = daemons(*made.values())
    await asyncio.to_thread(managed.__enter__)
    try:
        yield CentralManagers(bus, made, events)
    finally:
        await asyncio.to_thread(managed.__exit__, None, None, None)
        await bus.stop()


@spec("HA-15")
async def test_emptied_redis_gets_the_leaders_memory_back(tmp_path, amqp_url, redis_server):
    """Without any copy on disk: who led has it all, and an epoch above the one before."""
    async with central_managers(tmp_path, amqp_url, redis_server.url) as cms:
        before = await cms.leader()
        await cms.set_factor("alice@p", 17.0)
        await cms.set_factor("bob@p", 3.0)
        known = await cms.factors()
        await asyncio.to_thread(redis_server.flush)
        await eventually(lambda: cms.told(BooksRestored), what="books restored")
        assert await cms.factors() == known == known | {"alice@p": 17.0, "bob@p": 3.0}
        after = await cms.leader()
        assert after.epoch > before.epoch
        assert cms.told(BooksRestored)[-1].source == "memory"
        # They are in Redis, not in memory alone.
        store = open_store(redis_server.url)
        await store.start()
        await eventually(lambda: _in(store, b"alice@p", b"bob@p"))
        await store.stop()


async def _in(store, *names):
    return set(names) <= (await store.hgetall(keys.accountant(""))).keys()


@spec("HA-13", "HA-16")
async def test_all_central_managers_and_redis_lost_at_once_and_one_copy_torn(tmp_path, amqp_url, redis_server):
    config = {"HAD_USE_REPLICATION": "true"}
    async with central_managers(tmp_path, amqp_url, redis_server.url, **config) as cms:
        before = await cms.leader()
        await cms.set_factor("alice@p", 17.0)
        known = await cms.factors()
        store = open_store(redis_server.url)
        await store.start()
        written = parse(await store.get(keys.accountant_version("")))
        await store.stop()

        async def copied():
            standings = [await cms.standing(name) for name in ("cm1", "cm2")]
            return all(parse(standing.snapshot) >= written for standing in standings)

        await eventually(copied, what="copies on both machines")
        files = [(await cms.standing(name)).snapshot_file for name in ("cm1", "cm2")]
        for process in cms.made.values():
            await asyncio.to_thread(process.kill)
        await asyncio.to_thread(redis_server.flush)
        await asyncio.to_thread(os.truncate, files[0], 60)
        cms.events.clear()
        for process in cms.made.values():
            await asyncio.to_thread(process.start, wait=False)
        after = await cms.leader()
        assert after.epoch > before.epoch
        assert await cms.factors() == known == known | {"alice@p": 17.0}
        (refused,) = cms.told(SnapshotRefused)
        assert files[0] in refused.problem
        (restored,) = cms.told(BooksRestored)
        assert (restored.source, restored.had) == ("snapshot", "cm2")
        assert Version(after.epoch, 0) < parse(after.in_redis)


async def test_redis_with_books_of_some_time_ago_gets_the_newer_ones(tmp_path, amqp_url, redis_server):
    """As after an unlucky fail-over: lease and epoch are there, the last charges are not."""
    async with central_managers(tmp_path, amqp_url, redis_server.url) as cms:
        await cms.leader()
        await cms.set_factor("alice@p", 17.0)
        store = open_store(redis_server.url)
        await store.start()
        names = (keys.accountant(""), keys.accountant_groups(""), keys.accountant_claims(""))
        old = [await store.hgetall(name) for name in names]
        version = await store.get(keys.accountant_version(""))
        await cms.set_factor("bob@p", 3.0)
        for name, rows in zip(names, old, strict=True):
            await store.delete(name)
            await store.hset(name, {field.decode(): row for field, row in rows.items()})
        await store.set(keys.accountant_version(""), version)
        await eventually(lambda: cms.told(BooksRestored), what="books restored")
        assert (await cms.factors()).items() >= {"alice@p": 17.0, "bob@p": 3.0}.items()
        await eventually(lambda: _in(store, b"alice@p", b"bob@p"))
        await store.stop()
