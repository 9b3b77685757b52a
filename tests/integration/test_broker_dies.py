"""What daemons do while their broker is dead and after that. It dies once for all of them, each of which has a virtual
host of its own."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator

import pytest

from shared import bus as transport
from tests.contract.outage import Stories
from tests.gateway_keys import gateway_bus
from tests.integration.test_daemon_process import collector
from tests.integration.test_had import CALM, NAMES, central_managers
from tests.integration.test_journal_process import NOW, events, jobs, journal, rows, told_of
from tests.processes import daemons
from tests.servers import Redis
from tests.waiting import eventually, wait_until

pytestmark = pytest.mark.servers
story = Stories()
ends = story.ends()


@contextlib.asynccontextmanager
async def redis_url() -> AsyncIterator[str]:
    with contextlib.closing(Redis()) as server:
        await asyncio.to_thread(server.start)
        yield server.url


@story
async def test_a_collector_is_not_ready_meanwhile_and_ready_again(pool, broker):
    async with redis_url() as url:
        process = collector(broker.folder, pool.url, url)
        managed = daemons(process)
        await asyncio.to_thread(managed.__enter__)
        try:
            await broker.settle()
            await broker.kill()
            await asyncio.to_thread(
                wait_until, lambda: process.ask("/readyz")[0] == 503, what="word of the lost broker"
            )
            await broker.start()
            await asyncio.to_thread(wait_until, process.ready, 60, "the daemon to be ready again")
            assert process.process.returncode is None
        finally:
            await asyncio.to_thread(managed.__exit__, None, None, None)


@story
async def test_nobody_leads_without_a_bus_and_one_does_when_it_is_back(pool, broker):
    """An order that does not arrive keeps no negotiator leading; the HADs, which see Redis, wait."""
    async with redis_url() as url, central_managers(NAMES[:2], broker.folder, pool.url, url, **CALM) as cms:
        first = await cms.leader(*NAMES[:2])
        await broker.settle()
        await broker.kill()
        await eventually(lambda: not cms.leaders())
        epoch = first.epoch
        await broker.start()
        again = await cms.leader(*NAMES[:2])
        assert again.epoch >= epoch


@story
async def test_what_happened_meanwhile_is_in_the_history_with_its_own_times(pool, broker):
    async with redis_url() as url:
        process = journal(broker.folder, pool.url, url)
        try:
            await keeps_what_happens(broker, pool.url, broker.folder)
        finally:
            await asyncio.to_thread(process.close)


async def keeps_what_happens(broker, amqp_url, tmp_path):
    bus, asking = transport.connect(amqp_url, "schedd.ap"), gateway_bus(amqp_url, "gateway.t")
    await bus.start()
    await asking.start()

    async def heard() -> bool:
        await bus.publish_many(events(0, 1))
        return bool(await told_of(asking, 0))

    await eventually(heard, 60, "the journal")
    await broker.settle()
    await broker.kill(before=lambda: bus.publish_many(events(1, 200)))  # in the midst of them
    await eventually(lambda: not bus.health.connected, 60, "a lost connection")
    await bus.publish_many(events(201, 200))
    await broker.start()
    await eventually(lambda: len(jobs(tmp_path)) == 401, 120, "all that happened")
    found: dict = {}

    async def told() -> bool:
        found.update(await told_of(asking, 300))
        return bool(found)

    await eventually(told, 60, "an answer")
    assert [event["at"] for event in found["events"]] == [pytest.approx(NOW + 300)]
    assert len([number for number in rows(tmp_path) if number]) == 400  # what came twice was written once

    def gaps() -> set[str]:
        with contextlib.closing(sqlite3.connect(tmp_path / "spool" / "journal.db", timeout=30)) as database:
            found = database.execute("SELECT sender FROM events WHERE type = 'daemon.reconnected'")
            return {sender for (sender,) in found}

    await eventually(lambda: gaps() == {"schedd.ap", "gateway.t", "journal.j"}, 60, "all to tell of that time")
    await asking.stop()
    await bus.stop()
