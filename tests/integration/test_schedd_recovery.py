"""What a schedd that is killed at any moment leaves, and what the next makes of it."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.queue.jobs import JobId
from services.schedd.io.claims import lease_of
from shared.bus.api import RemoteFailure
from shared.messages.base import Ack
from shared.messages.claims import DeactivateClaim, JobExit, Usage
from tests.scheddpool import Pool, job_ad
from tests.spec import spec
from tests.waiting import eventually

#: A schedd that takes submits for ever, printing each before it is sent and after it is answered.
CHILD = """
import asyncio, sys
from pathlib import Path
from tests.scheddpool import Pool, job_ad

async def main():
    async with Pool(Path(sys.argv[1])) as pool:
        number = 0
        while True:
            number += 1
            print("sent", number, flush=True)
            await pool.submit(job_ad(Number=number), procs=1 + number % 5, submit_id=f"child{sys.argv[2]}-{number}")
            print("answered", number, flush=True)

asyncio.run(main())
"""


SIBLING = "tests/integration/test_schedd_recovery.py::test_an_answered_submit_survives_kill_9_and_none_is_half_there"
DEAR = pytest.mark.dear(held_by=SIBLING)


@pytest.mark.parametrize("answers", [pytest.param(1, marks=DEAR), 7, pytest.param(40, marks=DEAR)])
async def test_an_answered_submit_survives_kill_9_and_none_is_half_there(tmp_path, answers):
    """Kill a child between submits and answers: all that was answered is there, with all its procs; of what was only
    sent, all or nothing."""

    def kill_after_answers():
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), str(answers)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        told = {"sent": 0, "answered": 0}
        try:
            for line in child.stdout:
                word, _, number = line.partition(" ")
                if word in told:
                    told[word] = int(number)
                if told["answered"] >= answers:
                    break
        finally:
            os.kill(child.pid, signal.SIGKILL)
            for line in child.stdout:  # what it still said before it died
                word, _, number = line.partition(" ")
                if word in told:
                    told[word] = int(number)
            child.wait()
            child.stdout.close()
        return told

    told = await asyncio.to_thread(kill_after_answers)
    assert told["answered"] >= answers
    async with Pool(tmp_path) as pool:
        procs = {}
        for ad in await pool.jobs():
            procs.setdefault(ad["Number"], []).append(ad["ProcId"])
        assert set(range(1, told["answered"] + 1)) <= procs.keys() <= set(range(1, told["sent"] + 1))
        assert all(found == list(range(1 + number % 5)) for number, found in procs.items())
        # Sent again because its answer was lost, a submit that is there is not doubled.
        for number in range(1, told["sent"] + 1):
            await pool.submit(job_ad(Number=number), procs=1 + number % 5, submit_id=f"child{answers}-{number}")
        assert len(await pool.jobs()) == sum(1 + number % 5 for number in range(1, told["sent"] + 1))


async def test_parts_whose_rest_never_came_are_gone_after_a_restart(tmp_path):
    async with Pool(tmp_path) as pool:
        await pool.submit(procs=3, submit_id="half", more=True, part=0)
        await pool.restart()
        assert await pool.jobs() == []
        done = await pool.submit(procs=1)
        assert done.cluster == 2


async def test_cluster_numbers_are_never_given_twice(tmp_path):
    async with Pool(tmp_path) as pool:
        await pool.submit()
        await pool.act("remove", "1")
        await pool.restart()
        assert (await pool.submit()).cluster == 2


async def test_held_jobs_and_their_reasons_survive(tmp_path):
    async with Pool(tmp_path) as pool:
        await pool.submit(procs=2)
        await pool.act("hold", "1.1", reason="because")
        await pool.restart()
        ads = await pool.jobs()
        assert [ad["JobStatus"] for ad in ads] == [1, 5]
        assert ads[1]["HoldReason"].startswith("because (by user ")
        assert (await pool.call_totals())["Held"] == 1


async def test_a_removal_under_way_is_carried_on(tmp_path):
    async with Pool(tmp_path) as pool:
        run = await pool.run_one()
        await eventually(lambda: pool.schedd.claim_table.by_claim_id)
        pool.startd.mute = True
        await pool.act("remove", "1.0")
        await pool.restart()
        pool.startd.mute = False
        await eventually(lambda: pool.startd.deactivated)
        await pool.startd.finish(run, exit=JobExit(reason="killed"))
        assert (await pool.history())[0]["JobStatus"] == 3


async def test_matches_of_before_a_restart_hit_no_other_jobs(tmp_path):
    async with Pool(tmp_path) as pool:
        await pool.submit()
        old = (await pool.requests()).requests[pool.user][0].autocluster
        await pool.restart()
        new = (await pool.requests()).requests[pool.user][0].autocluster
        assert old != new
        await pool.match(autocluster=old)
        assert (await pool.job("1.0"))["JobStatus"] == 1


async def test_a_queue_that_can_not_be_written_ends_the_daemon_and_is_not_answered(tmp_path):
    from services.schedd.io.queue_db import QueueDamaged
    from shared.bus.api import RemoteFailure

    pool = Pool(tmp_path)
    await pool.__aenter__()
    await pool.submit()
    await pool.schedd.queue.read(lambda database: database.execute("PRAGMA query_only = ON"))
    with pytest.raises(RemoteFailure):
        await pool.submit()
    with pytest.raises((QueueDamaged, BaseExceptionGroup)):
        await pool._life
    await pool.context.bus.stop()
    await pool.begin()
    assert len(await pool.jobs()) == 1
    await pool.__aexit__()


async def test_a_damaged_database_is_refused_with_a_mend(tmp_path):
    from services.schedd.io.queue_db import QueueDamaged, QueueDatabase

    path = tmp_path / "job_queue.db"
    path.write_bytes(b"this is no database, " * 100)
    queue = QueueDatabase(path)
    with pytest.raises(QueueDamaged, match=r"job_queue\.db.*move the file away"):
        await queue.open()


# Leases


@spec("LEA-01", "LEA-07")
async def test_a_silent_execution_point_is_waited_for_until_its_lease_is_over(tmp_path):
    """40 minutes, and losses are tolerated until then."""
    async with Pool(tmp_path) as pool:
        log = tmp_path / "job.log"
        run = await pool.run_one(ad=job_ad(UserLog=str(log)))
        await eventually(lambda: pool.schedd.claim_table.by_claim_id)
        pool.startd.mute = True
        leases = pool.schedd.keepalive
        await leases.tell("startd.ep")
        assert (await pool.job("1.0"))["JobStatus"] == 2
        pool.startd.mute = False
        await leases.tell("startd.ep")
        pool.startd.mute = True
        (claim,) = pool.schedd.claim_table.claims.values()
        assert lease_of(claim, pool.schedd.updates.settings) == 2400
        await leases.tell("startd.ep")
        assert claim.unanswered
        # That keep-alive may have arrived in its time: the lease begins then, and every later one only asks.
        told_until = claim.told_until
        await leases.tell("startd.ep")
        assert claim.told_until == told_until
        claim.heard, claim.told_until = claim.heard - 2400, claim.told_until - 2400
        await leases.tell("startd.ep")
        assert (await pool.job("1.0"))["JobStatus"] == 2
        claim.heard, claim.told_until = claim.heard - 20, claim.told_until - 20
        await leases.tell("startd.ep")
        assert (await pool.job("1.0"))["JobStatus"] == 1
        pool.startd.mute = False
        assert not (await pool.startd.finish(run)).known
        await eventually(lambda: b"024 (001" in log.read_bytes())
        assert [line[:3] for line in log.read_text().splitlines() if "(001.000" in line] == [
            "000",
            "022",
            "023",
            "022",
            "024",
        ]


@spec("LEA-09")
async def test_a_job_whose_claim_nobody_confirms_goes_elsewhere_when_its_first_lease_has_passed(tmp_path, monkeypatch):
    """The request may have been taken by a startd that died then: so the job is not offered again at once."""
    monkeypatch.setattr("services.schedd.io.claims.JOB_PATIENCE_S", 0.0)
    waited = []

    def at_once(heard, told_until, lease):
        waited.append((heard, told_until > 0.0, lease))
        return 0.0

    monkeypatch.setattr("services.schedd.io.claims.given_up_at", at_once)
    async with Pool(tmp_path) as pool:
        pool.startd.mute = True
        await pool.submit(job_ad())
        await pool.match()
        await eventually(lambda: not pool.schedd.claim_table.claims)
        assert (await pool.job("1.0"))["JobStatus"] == 1
        assert waited == [(0.0, True, 40.0)]


@spec("LEA-09", "LEA-02")
async def test_a_claim_that_was_just_granted_is_kept_alive_soon(tmp_path):
    async with Pool(tmp_path) as pool:
        await pool.run_one()
        (request,) = pool.startd.requests.values()
        assert request.first_lease_s == 40
        await eventually(lambda: pool.startd.alive)
        (claim,) = pool.schedd.claim_table.claims.values()
        assert claim.claim_id in pool.startd.alive[0].claim_ids
        await eventually(lambda: claim.kept)


async def hold_writes(pool) -> threading.Event:
    """Nothing gets into the queue's database until the event is set."""
    begun, gate = threading.Event(), threading.Event()
    pool.held = asyncio.ensure_future(pool.schedd.queue.read(lambda database: (begun.set(), gate.wait())))
    await eventually(begun.is_set)
    return gate


@spec("LEA-09")
async def test_a_claim_has_its_whole_lease_only_when_a_killed_schedd_would_know_of_it(tmp_path):
    """Else its next life would give the claim up after the first lease, as one that nobody told it of."""
    async with Pool(tmp_path) as pool:
        old = await pool.run_one()
        old_id, _ = pool.startd.claim_of[old.job_id, old.attempt]
        (claim,) = pool.schedd.claim_table.claims.values()
        await eventually(lambda: claim.kept)
        pool.startd.mute = True
        await pool.submit()
        await pool.match()
        await eventually(lambda: pool.startd.refused)
        gate = await hold_writes(pool)
        try:
            pool.startd.mute = False
            await eventually(lambda: len(pool.schedd.claim_table.by_claim_id) == 2)
            new = pool.startd.activations[-1]
            new_id, _ = pool.startd.claim_of[new.job_id, new.attempt]
            told = asyncio.ensure_future(pool.startd.report(new, "running", renew=True, timeout=60.0))
            await eventually(lambda: pool.schedd.table.get(JobId.parse(new.job_id)).shadow.executing)
            pool.startd.alive.clear()
            await pool.schedd.keepalive.tell("startd.ep")
            assert {claim for alive in pool.startd.alive for claim in (*alive.claim_ids, *alive.only_asked)} == {old_id}
            assert not told.done()
        finally:
            gate.set()
        assert (await told).renewed
        await pool.held
        assert not (await pool.startd.report(new, "running")).renewed
        await eventually(lambda: any(new_id in alive.claim_ids for alive in pool.startd.alive))


@spec("LEA-03", "LEA-04", "LEA-05")
async def test_the_alive_interval_is_a_third_of_the_lease(tmp_path):
    async with Pool(tmp_path) as pool:
        await pool.run_one(ad=job_ad(JobLeaseDuration=60))
        (request,) = pool.startd.requests.values()
        assert (request.lease_s, request.alive_interval_s) == (60, 20)
        await pool.run_one(ad=job_ad(JobLeaseDuration=0))
        *_, request = pool.startd.requests.values()
        assert (request.lease_s, request.alive_interval_s) == (0, 300)
        await eventually(lambda: len(pool.schedd.claim_table.by_claim_id) == 2)
        settings = pool.schedd.updates.settings
        assert {lease_of(claim, settings) for claim in pool.schedd.claim_table.claims.values()} == {60, 1800}


# The user's log


def events_of(reference, path):
    return [(event.type.name, dict(event)) for event in reference.htcondor.JobEventLog(str(path)).events(0)]


async def test_the_log_of_a_job_is_read_by_the_reference(tmp_path, reference):
    async with Pool(tmp_path) as pool:
        log = tmp_path / "job.log"
        run = await pool.run_one(ad=job_ad(UserLog=str(log)))
        usage = Usage(user_cpu_s=61, sys_cpu_s=2, image_size_kib=5000, resident_set_kib=400, memory_mib=5, disk_kib=9)
        await pool.startd.report(run, "running", started_at=5.0)
        await pool.startd.report(run, "running", usage=usage)
        await pool.startd.report(run, "suspended", usage=usage)
        await pool.startd.report(run, "running", usage=usage)
        await pool.startd.finish(run, exit=JobExit(reason="evicted", message="drained"), usage=usage)
        await pool.act("hold", "1.0", reason="wait\n...\nfor me")
        await pool.act("release", "1.0", reason="go")
        await pool.match()
        await eventually(lambda: len(pool.startd.activations) == 2)
        await pool.startd.finish(pool.startd.activations[1], 3, usage=usage, started_at=9.0)
        await pool.submit(job_ad(UserLog=str(log)))
        await pool.act("remove", "2.0", reason="enough")
        await eventually(lambda: log.read_bytes().count(b"\n...\n") == 12)
        events = events_of(reference, log)
        assert [name for name, _ in events] == [
            "SUBMIT", "EXECUTE", "IMAGE_SIZE", "JOB_SUSPENDED", "JOB_UNSUSPENDED", "JOB_EVICTED", "JOB_HELD",
            "JOB_RELEASED", "EXECUTE", "JOB_TERMINATED", "SUBMIT", "JOB_ABORTED",
        ]  # fmt: skip
        by_name = dict(events)
        assert by_name["EXECUTE"]["SlotName"].startswith("slot1_")
        assert (by_name["IMAGE_SIZE"]["Size"], by_name["IMAGE_SIZE"]["MemoryUsage"]) == (5000, 5)
        assert by_name["JOB_EVICTED"]["Reason"] == "drained"
        assert (by_name["JOB_HELD"]["HoldReason"], by_name["JOB_HELD"]["HoldReasonCode"]) == (
            "wait ... for me (by user root@pool)",
            1,
        )
        assert by_name["JOB_RELEASED"]["Reason"] == "go (by user root@pool)"
        end = by_name["JOB_TERMINATED"]
        assert (end["TerminatedNormally"], end["ReturnValue"]) == (True, 3)
        assert (end["RequestMemory"], end["MemoryUsage"], end["Memory"]) == (128, 5, 128)
        assert "0 00:01:01" in end["RunRemoteUsage"]
        assert "0 00:02:02" in end["TotalRemoteUsage"]
        assert by_name["JOB_ABORTED"]["Reason"] == "enough (by user root@pool)"


async def test_events_that_were_committed_but_not_written_are_written_once(tmp_path, reference):
    async with Pool(tmp_path) as pool:
        log = tmp_path / "job.log"
        await pool.submit(job_ad(UserLog=str(log)), procs=3)
        await eventually(lambda: log.exists() and log.read_bytes().count(b"...") == 3)
        written = log.read_bytes()
        database = pool.schedd.queue
        await pool.end()
        first, second, third = (written.split(b"...\n")[index] + b"...\n" for index in range(3))
        # As after a kill: all three are in the database still, the last two are not in the file.
        import sqlite3

        with sqlite3.connect(database.path) as connection:
            connection.execute("DELETE FROM log_events")
            connection.executemany(
                "INSERT INTO log_events (seq, path, text) VALUES (?, ?, ?)",
                [(100 + number, str(log), text) for number, text in enumerate((first, second, third))],
            )
        connection.close()
        log.write_bytes(first)
        await pool.begin()
        await eventually(lambda: log.read_bytes() == written)
        await pool.restart()
        assert log.read_bytes() == written
        assert len(events_of(reference, log)) == 3


async def test_a_log_that_can_not_be_written_stops_nobody(tmp_path):
    async with Pool(tmp_path) as pool:
        os.mkfifo(tmp_path / "pipe")
        good = tmp_path / "good.log"
        await pool.submit(job_ad(UserLog="/nonexistent/job.log"))
        await pool.submit(job_ad(UserLog=str(tmp_path / "pipe")))
        await pool.submit(job_ad(UserLog=str(good)))
        await eventually(lambda: good.exists() and good.read_bytes().endswith(b"...\n"))


@spec("LEA-02")
async def test_a_startd_that_does_not_answer_has_the_order_to_stop_in_its_inbox_all_the_time(tmp_path, monkeypatch):
    """So who comes back ends a removed job at once. With a pause after each order that timed out, which grows to 10 s,
    so many orders would take minutes."""
    monkeypatch.setattr("services.schedd.io.claim_table.STOP_TIMEOUT_S", 0.05)
    orders, over = [], asyncio.Event()

    async def hang(envelope):
        if isinstance(envelope.body, DeactivateClaim):
            orders.append(envelope.body)
        await over.wait()
        return Ack()

    async with Pool(tmp_path) as pool:
        run = await pool.run_one()
        await eventually(lambda: pool.schedd.claim_table.by_claim_id)
        await pool.startd.bus.stop()
        await pool.startd.bus.start()
        await pool.startd.bus.serve(pool.startd.inbox, hang)
        await pool.act("remove", "1.0")
        await eventually(lambda: len(orders) > 25)
        over.set()
        assert {(order.job_id, order.attempt, order.why) for order in orders} == {(run.job_id, 1, "remove")}


@contextlib.asynccontextmanager
async def a_job_between_queue_and_history(pool):
    """1.0 has left the queue. The transaction that moves it into the history waits behind another, which waits."""
    run = await pool.run_one()
    await pool.submit(job_ad(Number=2))
    await eventually(lambda: pool.schedd.claim_table.by_claim_id)
    gate = await hold_writes(pool)
    try:
        held = asyncio.ensure_future(pool.act("hold", "2.0"))
        await eventually(lambda: pool.schedd.table.get(JobId.parse("2.0")).status == 5)
        ended = asyncio.ensure_future(pool.startd.finish(run))
        await eventually(lambda: pool.schedd.table.get(JobId.parse("1.0")) is None)
        assert await pool.jobs("1.0") == []
        yield gate
    finally:
        gate.set()
    await asyncio.gather(held, ended, pool.held)


async def test_a_job_is_in_the_queue_or_in_the_history_at_any_time(tmp_path):
    """Who asks the one and then the other finds it, at whatever moment."""
    async with Pool(tmp_path) as pool, a_job_between_queue_and_history(pool) as gate:
        asked = [asyncio.ensure_future(pool.history(*ids)) for ids in (["1"], ["1.0"], [])]
        await pool.jobs("2.0")  # answered from memory, and came later than those
        gate.set()
        for one in asked:
            assert [(ad["ClusterId"], ad["JobStatus"]) for ad in await one] == [(1, 4)]


async def test_who_asks_for_a_job_that_can_not_get_into_the_history_is_told(tmp_path):
    """The disk is full: it is in neither."""
    async with Pool(tmp_path) as pool:
        async with a_job_between_queue_and_history(pool):
            pool.schedd.queue._note_room("the disk is full")
            for ids in (["1"], ["1.0", "2.0"]):
                with pytest.raises(RemoteFailure, match="waits for room on the disk: the disk is full") as told:
                    await pool.history(*ids)
                assert told.value.retryable
            others = [asyncio.ensure_future(pool.history(*ids)) for ids in (["2.0"], [])]
            await pool.jobs("2.0")
        assert [await one for one in others] == [[], []]
        assert [ad["ClusterId"] for ad in await pool.history("1")] == [1]
