"""A schedd is killed with SIGKILL in the middle of an order on many jobs: each is ordered or not, the answer is true,
and of each job the log and the history have what happened once."""

import asyncio
import re
import sqlite3
from collections import Counter
from contextlib import closing

import pytest

from shared.classad import ClassAd
from shared.messages.queue import ActOnJobs, SubmitJobs
from tests.processes import DaemonProcess
from tests.scheddpool import USER, job_ad
from tests.speakers import Speakers
from tests.waiting import eventually

pytestmark = pytest.mark.servers

#: More than one transaction has (services.schedd.io.actions.TRANSACTION), and their events are a long piece of a log.
JOBS = 12_000
SUBMITTED, ABORTED, HELD, RELEASED = b"000", b"009", b"012", b"013"
IDLE, ON_HOLD = 1, 5


def stored(path):
    """(jobs by status, jobs in the history, records of these) of a schedd's database."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        states = dict(database.execute("SELECT status, count(*) FROM jobs GROUP BY status"))
        return states, *database.execute("SELECT count(DISTINCT proc), count(*) FROM history").fetchone()


def logged(path):
    """How often a log has an event of a job, by number and proc."""
    return Counter(re.findall(rb"^([0-9]{3}) [(][0-9]+[.]([0-9]+)[.]", path.read_bytes(), re.MULTILINE))


def once(*numbers):
    return Counter((number, b"%03d" % proc) for number in numbers for proc in range(JOBS))


def said(answer):
    """How many jobs came out how."""
    found = Counter(answer.results.values())
    for outcome, rows in answer.ranges.items():
        found[outcome] += sum(last - first + 1 for _, first, last in rows)
    return found


async def test_a_schedd_killed_in_orders_on_many_jobs(tmp_path, amqp_url, redis_url):
    config = {"ROOST_SCHEDD_TRANSFER_HOST": "127.0.0.1", "MAX_JOBS_PER_SUBMISSION": JOBS}
    schedd = DaemonProcess("schedd", "ap", tmp_path, amqp_url=amqp_url, redis_url=redis_url, config=config)
    client = Speakers.on_broker(amqp_url)
    log = tmp_path / "job.log"
    try:
        await asyncio.to_thread(schedd.start)
        ad = job_ad(UserLog=str(log), Iwd=str(tmp_path))
        procs = [ClassAd({"Args": str(number)}).pack() for number in range(JOBS)]
        submit = SubmitJobs(user=USER, submit_id="x", cluster_ad=ad.pack(), procs=procs)
        made = await client.call("schedd.ap", submit, timeout=60)
        (database,) = tmp_path.rglob("job_queue.db")
        await eventually(lambda: log.exists() and logged(log) == once(SUBMITTED))
        told = [SUBMITTED]
        for action, before, after, event in (
            ("hold", IDLE, ON_HOLD, HELD),
            ("release", ON_HOLD, IDLE, RELEASED),
            ("remove", IDLE, None, ABORTED),
        ):
            size = log.stat().st_size
            order = ActOnJobs(user=USER, action=action, ids=[str(made.cluster)], ranges=True)
            call = asyncio.ensure_future(client.call("schedd.ap", order, timeout=120))
            await eventually(lambda size=size: log.stat().st_size > size)
            await asyncio.to_thread(schedd.kill)
            states, left, records = stored(database)
            assert states.keys() <= {before, after}
            assert sum(states.values()) + left == JOBS
            assert left == records
            ordered = JOBS - states.get(before, 0)
            assert ordered > 0
            await asyncio.to_thread(schedd.start)
            # The order comes once more, as nobody has answered it, and finds what is left to do.
            answer = said(await call)
            if ordered < JOBS or not answer.keys() <= {"done"}:
                assert answer["done"] == JOBS - ordered
                assert answer["already"] == (ordered if after is not None else 0)
            again = said(await client.call("schedd.ap", order, timeout=120))
            assert again == ({"already": JOBS} if after is not None else {"not-found": 1})
            assert stored(database) == ({after: JOBS}, 0, 0) if after is not None else ({}, JOBS, JOBS)
            told.append(event)
            await eventually(lambda told=tuple(told): logged(log).keys() >= once(*told).keys())
            assert logged(log) == once(*told)
    finally:
        await asyncio.to_thread(schedd.close)
        await client.stop()
