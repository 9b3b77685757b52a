"""The journal as a process on RabbitMQ: killed, it loses nothing that the broker still holds."""

import asyncio
import os
import sqlite3
import sys
import time
from contextlib import closing

import pytest

from shared import bus as transport
from shared.bus.api import Exchange, Outgoing
from shared.messages.events import JobRemoved
from shared.messages.journal import INBOX, AskJob, JournalAnswer
from tests.gateway_keys import gateway_bus
from tests.integration.pools import ROOT
from tests.servers import Leashed
from tests.waiting import eventually

NOW = time.time() - 3600.0  # what is too old is forgotten at once


def journal(place, amqp_url, redis_url) -> Leashed:
    knobs = {
        "ROOST_AMQP_URL": amqp_url,
        "ROOST_REDIS_URL": redis_url,
        "SPOOL": str(place / "spool"),
        "LOG": str(place / "log"),
        "ROOST_HEALTH_PORT": "0",
    }
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("ROOST_", "_CONDOR_"))}
    env = {**kept, **{f"_CONDOR_{name}": text for name, text in knobs.items()}, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "services.journal", "-name", "j"]
    return Leashed(command, log=place / "journal.log", env=env, cwd=ROOT)


@pytest.fixture
def start(tmp_path, amqp_url, redis_url):
    made: list[Leashed] = []

    def begin() -> Leashed:
        made.append(journal(tmp_path, amqp_url, redis_url))
        return made[-1]

    yield begin
    for process in made:
        process.close()


def events(first: int, count: int) -> list[Outgoing]:
    return [
        Outgoing(
            Exchange.EVENTS,
            "job.removed",
            JobRemoved(at=NOW + number, schedd="ap", job_id=f"{number}.0", owner="ada", reason="so"),
        )
        for number in range(first, first + count)
    ]


async def told_of(asking: transport.Bus, number: int) -> dict:
    """What the journal says of a job; nothing where it gives no answer."""
    try:
        found = await asking.call(INBOX, AskJob(job_id=f"{number}.0"), timeout=5.0)
    except Exception:
        return {}
    return dict(found.data) if isinstance(found, JournalAnswer) else {}


async def test_a_journal_that_is_killed_goes_on_where_it_was(start, tmp_path, amqp_url):
    process = start()
    bus, asking = transport.connect(amqp_url, "schedd.ap"), gateway_bus(amqp_url, "gateway.t")
    await bus.start()
    await asking.start()

    async def answers(number: int) -> bool:
        found = await told_of(asking, number)
        return bool(found) and found["state"] == "removed"

    async def heard() -> bool:
        await bus.publish_many(events(0, 1))  # again and again: until the journal's queue is there nobody hears it
        return await answers(0)

    await eventually(heard, 60, "the journal")
    for start_at in range(1, 2001, 500):
        await bus.publish_many(events(start_at, 500))
        if start_at == 501:
            await asyncio.to_thread(process.kill)  # in the middle of it
    process.close()
    start()
    await eventually(lambda: answers(2000), 90, "the last event")
    await eventually(lambda: len(jobs(tmp_path)) == 2001, 90, "all events")
    found = jobs(tmp_path)
    assert sorted(set(found)) == list(range(2001))
    # What came twice was written once: every event but the first, which was sent several times, has one row.
    assert len([number for number in rows(tmp_path) if number]) == 2000
    await asking.stop()
    await bus.stop()


def rows(tmp_path) -> list[int]:
    with closing(sqlite3.connect(tmp_path / "spool" / "journal.db", timeout=30)) as database:
        return [number for (number,) in database.execute("SELECT cluster FROM events WHERE type = 'job.removed'")]


def jobs(tmp_path) -> set[int]:
    return set(rows(tmp_path))
