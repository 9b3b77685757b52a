"""Late materialization in a schedd: clusters whose jobs come into the queue some at a time."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from aiohttp import ClientSession
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest

from engine.queue.jobs import JobId
from roost.cli.jobs_to_end import JobsToEnd
from roost.submit import Description, here
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd
from shared.config.errors import ConfigError
from shared.job_log import LogReader
from shared.messages.queue import ActOnJobs, QueryJobs, SubmitJobs
from shared.transfer.bundle import Source, write_bundle
from tests.scheddpool import Pool, job_ad
from tests.waiting import eventually


async def factory(pool, cluster=1):
    """The ad of a cluster's factory; None: there is none."""
    page = await pool.call(QueryJobs(factories=True, ids=[str(cluster)]))
    return ClassAd.unpack(page.ads[0]) if page.ads else None


async def numbers(pool):
    return [ad["ProcId"] for ad in await pool.jobs()]


async def edit(pool, *ids, **attributes):
    order = ActOnJobs(action="edit", ids=list(ids), user=pool.user, edits=ClassAd(attributes).pack())
    return (await pool.call(order)).results


async def submit(pool, count, *, submit_id="late", each=None, **attributes):
    procs = [(each(number) if each else ClassAd({"Args": f"-n {number}"})).pack() for number in range(count)]
    ad = job_ad(**attributes)
    return await pool.call(SubmitJobs(user=pool.user, submit_id=submit_id, cluster_ad=ad.pack(), procs=procs))


async def test_no_more_jobs_than_max_materialize_are_in_the_queue(tmp_path):
    log = tmp_path / "job.log"
    async with Pool(tmp_path) as pool:
        done = await submit(pool, 1000, JobMaterializeLimit=3, UserLog=str(log))
        assert (done.cluster, done.first_proc, done.count) == (1, 0, 1000)
        assert await numbers(pool) == [0, 1, 2]
        told = await factory(pool)
        assert [told[name] for name in ("TotalSubmitProcs", "JobMaterializeItemCount", "JobMaterializeNextProcId")] == [
            1000, 1000, 3,
        ]  # fmt: skip
        assert (told["JobMaterializePaused"], told["JobsPresent"], told["JobsIdle"], told["JobsHeld"]) == (0, 3, 3, 0)
        assert "ProcId" not in told
        await pool.act("remove", "1.1")
        await eventually(lambda: pool.schedd.table.clusters[1].next_proc == 4)
        assert await numbers(pool) == [0, 2, 3]
        job = await pool.job("1.3")
        assert (job["Args"], job["ClusterId"], job["TotalSubmitProcs"]) == ("-n 3", 1, 1000)
        await pool.restart()
        assert await numbers(pool) == [0, 2, 3]
        await pool.act("remove", "1.0")
        await eventually(lambda: pool.schedd.table.clusters[1].next_proc == 5)
        assert (await pool.job("1.4"))["Args"] == "-n 4"
        await eventually(lambda: log.read_text().count("000 (001.") == 5)
    assert [line[4:15] for line in log.read_text().splitlines() if line.startswith("000")] == [
        f"(001.00{number}.000)"[:11] for number in range(5)
    ]


@pytest.mark.parametrize("end", ["done", "removed"])
async def test_the_log_tells_of_the_whole_cluster_too(tmp_path, reference, end):
    """Who waits for the jobs of a log knows that others will come."""
    log = tmp_path / "job.log"
    async with Pool(tmp_path / "pool") as pool:
        notes = {"SubmitEventUserNotes": "mine", "JobAdInformationAttrs": "JobMaterializeLimit"}
        await submit(pool, 3, JobMaterializeLimit=1, UserLog=str(log), **notes)
        if end == "removed":
            await pool.act("remove", "1", reason="enough")
        else:
            for number in range(3):
                await eventually(lambda: pool.schedd.table.clusters[1].jobs)
                await pool.act("remove", f"1.{number}")
        await eventually(lambda: log.exists() and b"036 (001" in log.read_bytes())
    events = list(reference.htcondor.JobEventLog(str(log)).events(0))
    given = 1 if end == "removed" else 3
    assert [int(event.type) for event in events] == [35, 28, *[0, 28, 9, 28] * given, 36, 28]
    assert log.read_text().splitlines()[1] == "    mine"
    besides = [dict(events[at]) for at in (1, -1)]
    assert [ad["TriggerEventTypeName"] for ad in besides] == ["ULOG_CLUSTER_SUBMIT", "ULOG_CLUSTER_REMOVE"]
    assert [(ad["JobMaterializeLimit"], "UserNotes" in ad) for ad in besides] == [(1, False)] * 2
    last = dict(events[-2])
    assert (last["NextProcId"], last["Completion"], last.get("Notes")) == (
        (1, 0, "enough (by user root@pool)") if end == "removed" else (3, 1, None)
    )
    waiting = JobsToEnd("1")
    done = []
    for event in LogReader().feed(log.read_text()):
        assert waiting.take(event)
        done.append(waiting.done())
    assert done == [False] * (len(done) - 2) + [True, True]
    assert len(waiting.ended) == given


async def test_no_more_jobs_than_max_idle_wait(tmp_path):
    async with Pool(tmp_path) as pool:
        await submit(pool, 10, JobMaterializeMaxIdle=2)
        assert await numbers(pool) == [0, 1]
        await pool.match()
        await eventually(lambda: pool.schedd.table.clusters[1].next_proc == 3)
        await eventually(lambda: pool.startd.activations)
        (run,) = pool.startd.activations
        await pool.act("hold", "1.1")  # a held job counts as one that waits
        ads = await pool.jobs()
        assert [ad["JobStatus"] for ad in ads] == [2, 5, 1]
        await pool.startd.finish(run)  # the claim takes the next idle job
        await eventually(lambda: pool.schedd.table.clusters[1].next_proc == 4)
        told = await factory(pool)
        assert [told[f"Jobs{state}"] for state in ("Present", "Running", "Idle", "Held")] == [3, 1, 1, 1]


async def test_the_limits_of_the_pool_hold_for_factories_too(tmp_path):
    """MAX_JOBS_PER_SUBMISSION and MAX_JOBS_PER_OWNER bound what is in the queue, not what is submitted."""
    async with Pool(tmp_path, MAX_JOBS_PER_SUBMISSION="3", MAX_JOBS_PER_OWNER="5") as pool:
        await submit(pool, 10, submit_id="a", JobMaterializeLimit=100)
        await submit(pool, 10, submit_id="b", JobMaterializeLimit=100)
        await submit(pool, 10, submit_id="c", JobMaterializeLimit=100)
        assert [(ad["ClusterId"], ad["ProcId"]) for ad in await pool.jobs()] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]
        with pytest.raises(RemoteFailure, match="MAX_JOBS_PER_OWNER"):
            await pool.submit()
        await pool.act("remove", "1")  # all of it: its place goes to the others
        await eventually(lambda: pool.schedd.table.total == 5)
        counts = Counter(ad["ClusterId"] for ad in await pool.jobs())
        assert sum(counts.values()) == 5
        assert max(counts.values()) <= 3
        assert 1 not in counts


async def test_so_many_jobs_of_a_user_may_wait_to_be_materialized(tmp_path):
    async with Pool(tmp_path, ROOST_SCHEDD_LATE_JOBS_PER_OWNER="25") as pool:
        await submit(pool, 20, JobMaterializeLimit=1)

        def measured():
            text = generate_latest(pool.schedd.context.metrics).decode()
            return next(line for line in text.splitlines() if line.startswith("roost_schedd_jobs_unmaterialized "))

        assert measured().endswith(" 19.0")
        with pytest.raises(
            RemoteFailure, match=r"7 jobs besides 19 that wait .* ROOST_SCHEDD_LATE_JOBS_PER_OWNER = 25"
        ):
            await submit(pool, 7, submit_id="b", JobMaterializeLimit=1)
        await submit(pool, 6, submit_id="c", JobMaterializeLimit=1)
        assert measured().endswith(" 24.0")
        await pool.act("remove", "1")
        assert measured().endswith(" 5.0")


async def test_holding_a_whole_cluster_pauses_its_factory_and_releasing_it_goes_on(tmp_path):
    async with Pool(tmp_path) as pool:
        await submit(pool, 10, JobMaterializeLimit=2)
        assert await pool.act("hold", "1", reason="lunch") == {"1.0": "done", "1.1": "done"}
        told = await factory(pool)
        assert (told["JobMaterializePaused"], told["JobMaterializePauseReason"]) == (
            1,
            "lunch (by user root@pool)",
        )
        await pool.act("remove", "1.0", "1.1")
        await pool.restart()
        assert await numbers(pool) == []
        told = await factory(pool)
        assert (told["JobMaterializePaused"], told["JobsPresent"]) == (1, 0)
        assert await pool.act("hold", "1") == {"1": "already"}
        assert await pool.act("release", "1", user="mallory@pool") == {"1": "denied"}
        assert await pool.act("release", "1") == {"1": "done"}
        await eventually(lambda: pool.schedd.table.clusters[1].next_proc == 4)
        assert await numbers(pool) == [2, 3]
        assert "JobMaterializePauseReason" not in await factory(pool)


@pytest.mark.parametrize("paused", [False, True])
async def test_removing_a_whole_cluster_ends_its_factory(tmp_path, paused):
    async with Pool(tmp_path) as pool:
        await submit(pool, 10, JobMaterializeLimit=2)
        if paused:
            await pool.act("hold", "1")
            await pool.act("remove", "1.0", "1.1")
            assert await pool.act("remove", "1") == {"1": "done"}
        else:
            assert await pool.act("remove", "1") == {"1.0": "done", "1.1": "done"}
        assert (await numbers(pool), await factory(pool)) == ([], None)
        assert await pool.act("remove", "1") == {"1": "not-found"}
        stored = await pool.schedd.queue.read(lambda db: db.execute("SELECT count(*) FROM items").fetchone()[0])
        assert stored == 0
        await pool.restart()
        assert (await numbers(pool), await factory(pool), len(await pool.history())) == ([], None, 2)


async def test_a_constraint_means_factories_by_what_their_jobs_share(tmp_path):
    async with Pool(tmp_path) as pool:
        await submit(pool, 10, JobMaterializeLimit=2, JobBatchName="one")
        await submit(pool, 10, submit_id="b", JobMaterializeLimit=2, JobBatchName="two")
        await pool.act("remove", constraint="JobStatus == 1")  # jobs only: others come in their place
        await eventually(lambda: pool.schedd.table.total == 4)
        assert await numbers(pool) == [2, 3, 2, 3]
        await pool.act("remove", constraint='JobBatchName == "one"')
        assert {ad["ClusterId"] for ad in await pool.jobs()} == {2}
        await pool.act("remove", constraint="true")
        assert (await numbers(pool), await factory(pool, 2)) == ([], None)


async def test_limits_can_be_edited_and_edits_of_a_whole_cluster_count_for_later_jobs(tmp_path):
    def each(number):
        return ClassAd({"Args": f"-n {number}", "RequestMemory": 100 + number, "JobPrio": number % 3})

    async with Pool(tmp_path) as pool:
        await submit(pool, 20, each=each, JobMaterializeLimit=2)
        assert await edit(pool, "1", JobMaterializeLimit=4) == {"1.0": "done", "1.1": "done"}
        await eventually(lambda: pool.schedd.table.clusters[1].next_proc == 4)
        await edit(pool, "1", RequestMemory=77, JobPrio=9)
        await pool.restart()
        await edit(pool, "1", JobMaterializeLimit=6)
        await eventually(lambda: pool.schedd.table.clusters[1].next_proc == 6)
        ads = await pool.jobs()
        assert [(ad["RequestMemory"], ad["JobPrio"], ad["Args"]) for ad in ads] == [
            (77, 9, f"-n {number}") for number in range(6)
        ]
        assert pool.schedd.table.clusters[1].jobs[5].priority == 9
        await edit(pool, "1.0", RequestMemory=5)  # one job is one job
        await edit(pool, "1", JobMaterializeLimit=0)
        await pool.act("remove", "1.1")
        assert (await pool.job("1.2"))["RequestMemory"] == 77
        assert pool.schedd.table.clusters[1].next_proc == 6
        for bad in ({"JobMaterializeLimit": -1}, {"JobMaterializeMaxIdle": "x"}, {"JobMaterializeNextProcId": 3}):
            with pytest.raises(RemoteFailure, match=next(iter(bad))):
                await edit(pool, "1", **bad)


@pytest.mark.parametrize("deed", ["edit", "hold", "remove", "limit"])
async def test_what_happens_to_a_cluster_while_its_jobs_are_made_counts_for_them(tmp_path, deed):
    async with Pool(tmp_path) as pool:
        await submit(pool, 20, JobMaterializeLimit=2)
        materializer = pool.schedd.late_materialization
        made = materializer._made

        async def disturbed(*arguments):
            materializer._made = made
            jobs = await made(*arguments)
            assert [job.proc for job, _ in jobs] == [2, 3, 4, 5, 6]
            if deed in ("edit", "limit"):
                await edit(pool, "1", **({"RequestMemory": 5} if deed == "edit" else {"JobMaterializeLimit": 3}))
            else:
                await pool.act(deed, "1")
            return jobs

        materializer._made = disturbed
        await edit(pool, "1", JobMaterializeLimit=7)
        await eventually(lambda: materializer._made is made and not materializer._lock.locked())
        memory = {ad["ProcId"]: ad["RequestMemory"] for ad in await pool.jobs()}
        if deed == "edit":
            await eventually(lambda: len(pool.schedd.table.clusters[1].jobs) == 7)
            memory = {ad["ProcId"]: ad["RequestMemory"] for ad in await pool.jobs()}
            assert memory == dict.fromkeys(range(7), 5)
        else:
            assert list(memory) == {"hold": [0, 1], "remove": [], "limit": [0, 1, 2]}[deed]


async def test_a_bad_limit_is_refused_when_it_is_submitted(tmp_path):
    async with Pool(tmp_path) as pool:
        with pytest.raises(RemoteFailure, match="JobMaterializeLimit: 0 is no number of jobs; set max_materialize"):
            await submit(pool, 5, JobMaterializeLimit=0)
        assert await numbers(pool) == []


async def test_a_pool_may_have_no_late_materialization(tmp_path):
    """SCHEDD_ALLOW_LATE_MATERIALIZE = false: all jobs are queued at once."""
    async with Pool(tmp_path, SCHEDD_ALLOW_LATE_MATERIALIZE="false") as pool:
        await submit(pool, 5, JobMaterializeLimit=2)
        assert await numbers(pool) == [0, 1, 2, 3, 4]
        assert await factory(pool) is None


async def test_administrators_rules_are_for_every_job(tmp_path):
    rules = {
        "JOB_TRANSFORM_NAMES": "memory",
        "JOB_TRANSFORM_memory": "EVALSET RequestMemory = RequestMemory * 2",
        "SUBMIT_REQUIREMENT_NAMES": "small",
        "SUBMIT_REQUIREMENT_small": "RequestMemory < 1000",
    }

    def each(number):
        return ClassAd({"RequestMemory": 10 + number})

    async with Pool(tmp_path, **rules) as pool:
        await submit(pool, 4, each=each, JobMaterializeLimit=2)
        await pool.act("remove", "1.0", "1.1")
        await eventually(lambda: pool.schedd.table.clusters[1].next_proc == 4)
        assert [ad["RequestMemory"] for ad in await pool.jobs()] == [24, 26]
        with pytest.raises(RemoteFailure, match=r"job 3: .*submit requirement small"):
            await submit(
                pool, 5, submit_id="b", each=lambda n: ClassAd({"RequestMemory": 200 * n}), JobMaterializeLimit=2
            )
        assert await factory(pool, 2) is None
        assert (await submit(pool, 1, submit_id="c", JobMaterializeLimit=2)).cluster > 1


async def test_a_factory_of_several_parts_is_one_and_half_of_one_is_none(tmp_path):
    async with Pool(tmp_path) as pool:
        ad = job_ad(JobMaterializeLimit=2).pack()

        async def part(number, count, *, submit_id="s", more=True):
            procs = [ClassAd({"Args": f"{number} {n}"}).pack() for n in range(count)]
            asked = SubmitJobs(user=pool.user, submit_id=submit_id, cluster_ad=ad, procs=procs, more=more, part=number)
            return await pool.call(asked)

        for _ in range(2):  # every part is sent again, as if its answer had been lost
            await part(0, 0)
        for _ in range(2):
            await part(1, 600)
        assert await factory(pool) is None
        for _ in range(2):
            done = await part(2, 3, more=False)
        assert (done.cluster, done.count) == (1, 603)
        await edit(pool, "1", JobMaterializeLimit=603)
        await eventually(lambda: pool.schedd.table.clusters[1].next_proc == 603)
        ads = await pool.jobs()
        assert [ad["Args"] for ad in ads] == [f"1 {n}" for n in range(600)] + [f"2 {n}" for n in range(3)]
        assert (await factory(pool))["JobMaterializePaused"] == 2
        batches = [(event.first_proc, event.count) for event in pool.events if event.type == "job.submitted"]
        assert [first for first, _ in batches] == [sum(count for _, count in batches[:n]) for n in range(len(batches))]
        await part(0, 600, submit_id="half")
        await pool.restart()
        assert await factory(pool, 2) is None
        stored = await pool.schedd.queue.read(lambda db: db.execute("SELECT count(*) FROM items").fetchone()[0])
        assert stored == 0


async def test_a_cluster_submitted_on_hold_stays_so_job_by_job(tmp_path):
    async with Pool(tmp_path) as pool:
        await submit(pool, 4, JobMaterializeLimit=2, JobStatus=5, HoldReason="not yet")
        await pool.act("remove", "1.0")
        await eventually(lambda: pool.schedd.table.clusters[1].next_proc == 3)
        ads = await pool.jobs()
        assert [(ad["JobStatus"], ad["HoldReasonCode"], ad["HoldReason"]) for ad in ads] == [(5, 15, "not yet")] * 2
        (event,) = [event for event in pool.events if event.type == "job.submitted" and event.first_proc == 2]
        assert (event.held, event.hold_code) == ([[2, 2]], 15)


async def test_stored_jobs_that_can_not_be_read_pause_their_factory(tmp_path):
    async with Pool(tmp_path) as pool:
        await submit(pool, 600, JobMaterializeLimit=2)

        def damage(database):
            (body,) = database.execute("SELECT body FROM items WHERE first_proc = 250").fetchone()
            database.execute("UPDATE items SET body = x'00' WHERE first_proc = 250")
            return body

        body = await pool.schedd.queue.read(damage)
        await edit(pool, "1", JobMaterializeLimit=1000)
        await eventually(lambda: pool.schedd.table.clusters[1].factory.mode == -1)
        assert await numbers(pool) == list(range(250))
        assert "can not be read" in (await factory(pool))["JobMaterializePauseReason"]
        assert (await submit(pool, 1, submit_id="other")).cluster == 2
        await pool.schedd.queue.read(
            lambda database: database.execute("UPDATE items SET body = ? WHERE first_proc = 250", (body,))
        )
        await pool.act("release", "1")
        await eventually(lambda: pool.schedd.table.clusters[1].next_proc == 600)
        assert [ad["ProcId"] for ad in await pool.jobs("1")] == list(range(600))


async def test_questions_about_factories(tmp_path):
    async with Pool(tmp_path) as pool:
        for number in range(5):
            await submit(pool, 3, submit_id=f"s{number}", JobMaterializeLimit=1, Number=number)
        await pool.submit()

        async def ask(**more):
            page = await pool.call(QueryJobs(factories=True, **more))
            return [ClassAd.unpack(ad)["ClusterId"] for ad in page.ads], page.next

        assert await ask() == ([1, 2, 3, 4, 5], "")
        assert await ask(limit=2) == ([1, 2], "2")
        assert await ask(limit=2, after="4") == ([5], "")
        assert await ask(ids=["2.1", "4", "6"]) == ([2, 4], "")
        where = "ProcId is undefined && JobMaterializeDigestFile isnt undefined && Number > 2"
        assert await ask(constraint=where) == ([4, 5], "")
        page = await pool.call(QueryJobs(factories=True, projection=["clusterid", "JobsIdle"], limit=1))
        assert dict(ClassAd.unpack(page.ads[0]).items()) == {"ClusterId": 1, "JobsIdle": 1}


async def test_a_queue_of_before_gets_the_table_of_factories(tmp_path):
    async with Pool(tmp_path) as pool:
        await pool.submit(procs=2)
        path = pool.schedd.queue.path
        await pool.end()
        with sqlite3.connect(path) as database:
            database.executescript("DROP TABLE items; PRAGMA user_version = 1;")
        database.close()
        await pool.begin()
        assert await numbers(pool) == [0, 1]
        await submit(pool, 5, JobMaterializeLimit=1)
        assert (await factory(pool, 2))["JobsPresent"] == 1


# Files over HTTP


async def bundle(*sources):
    return b"".join([chunk async for chunk in write_bundle(list(sources))])


async def put(url, token, body):
    headers = {"Authorization": f"Bearer {token}"}
    async with ClientSession() as session, session.put(url, data=body, headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize("hold", [False, True])
async def test_the_files_of_a_spooled_factory_are_sent_once(tmp_path, hold):
    """Jobs that were materialized before wait on hold for their input files; later ones find them."""
    (tmp_path / "in.txt").write_text("input")
    body = await bundle(Source(tmp_path / "in.txt", "in.txt"))
    async with Pool(tmp_path / "pool") as pool:
        ad = job_ad(JobMaterializeLimit=2, UserLog="job.log", ShouldTransferFiles="YES")
        if hold:
            ad["JobStatus"] = 5
        procs = [ClassAd({"Args": str(number)}).pack() for number in range(6)]
        asked = SubmitJobs(user=pool.user, submit_id="s", cluster_ad=ad.pack(), procs=procs, spool=True)
        done = await pool.call(asked)
        assert [(job["JobStatus"], job["HoldReasonCode"]) for job in await pool.jobs()] == [(5, 16)] * 2
        await pool.act("remove", "1.0")
        await eventually(lambda: pool.schedd.table.clusters[1].next_proc == 3)
        assert [(job["JobStatus"], job["HoldReasonCode"]) for job in await pool.jobs()] == [(5, 16)] * 2
        status, text = await put(f"{done.upload_url}.4", done.upload_token, body)
        assert status == 403  # the token is for the cluster
        url, token = pool.schedd.file_server.grant(JobId(1, 4))
        status, text = await put(url, token, body)
        assert (status, "not materialized yet" in text) == (404, True)
        status, text = await put(done.upload_url, done.upload_token, body)
        assert (status, text) == (200, "")
        after = [(5, 15)] * 2 if hold else [(1, None)] * 2
        assert [(job["JobStatus"], job.get("HoldReasonCode")) for job in await pool.jobs()] == after
        await pool.restart()
        await pool.act("remove", "1.1")
        await eventually(lambda: pool.schedd.table.clusters[1].next_proc == 4)
        assert [(job["JobStatus"], job.get("HoldReasonCode")) for job in await pool.jobs()] == after
        assert "HoldReasonSubCode" not in await pool.job("1.3") or hold
        folder = pool.schedd.updates.spool / "1"
        assert (folder / "shared" / "in.txt").read_text() == "input"
        log = folder / "proc3" / "out" / "job.log"
        await eventually(lambda: log.exists() and b"000 (001.003" in log.read_bytes())
        await pool.act("remove", "1")
        await eventually(lambda: not folder.exists())


# The same jobs as of an ordinary submit

VALUES = st.text("ab1 ,$()\"'%/=\\", max_size=6)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=9), count=st.integers(1, 3), limit=st.integers(1, 9)
)
def test_materialized_jobs_are_those_of_an_ordinary_submit(tmp_path_factory, rows, count, limit):
    """Whatever the items are: the same submit file with and without max_materialize gives the same jobs."""
    lines = "\n".join(f"{x.strip()},{y.strip()}" for x, y in rows)
    text = (
        "executable = /bin/true\narguments = $(x) $(Process) $(Step)\noutput = out.$(y).$(Row)\n"
        "+Mine = $(Process) * 2\nrequest_memory = $(Process)+1\npriority = $(Step)\n"
        f"queue {count} x,y from (\n{lines}\n)\n"
    )
    place = here("x.sub", tmp_path_factory.getbasetemp())

    def described(head):
        try:
            return next(Description(head + text, place, now=1.0).clusters(), None)
        except ConfigError:
            return None

    plain, late = described(""), described(f"max_materialize = {limit}\n")
    assert (plain is None) == (late is None)
    if plain is None:
        return

    async def compare():
        async with Pool(tmp_path_factory.mktemp("same")) as pool:
            for number, cluster in enumerate((plain, late)):
                procs = [ad.pack() for ad in cluster.jobs()]
                asked = SubmitJobs(user=pool.user, submit_id=f"s{number}", cluster_ad=cluster.ad.pack(), procs=procs)
                await pool.call(asked)
            expected = await pool.jobs("1")
            found = []
            while len(found) < len(expected):
                here_now = await pool.jobs("2")
                assert len(here_now) <= limit
                found += here_now
                await pool.act("remove", *(f"2.{ad['ProcId']}" for ad in here_now))
                if len(found) < len(expected):
                    await eventually(lambda: pool.schedd.table.clusters[2].jobs)
            assert [told(ad) for ad in found] == [told(ad) for ad in expected]
            assert await factory(pool, 2) is None

    asyncio.run(compare())


def told(ad):
    """What a job is, without its number and the time."""
    skipped = ("ClusterId", "GlobalJobId", "ServerTime", "QDate", "EnteredCurrentStatus", "AutoClusterId")
    return {
        name: ad.text(name)
        for name in ad
        if name not in skipped and not name.startswith("JobMaterialize") and name != "RoostReadAt"
    }


# A schedd that is killed at any moment

#: A schedd whose jobs are removed for ever, one after the other, so that others come in their place.
CHILD = """
import asyncio, sys
from pathlib import Path
from shared.classad import ClassAd
from shared.messages.queue import SubmitJobs
from tests.scheddpool import Pool, job_ad

async def main():
    async with Pool(Path(sys.argv[1])) as pool:
        ad = job_ad(JobMaterializeLimit=7, UserLog=sys.argv[1] + "/job.log")
        procs = [ClassAd({"Args": str(number)}).pack() for number in range(600)]
        await pool.call(SubmitJobs(user=pool.user, submit_id="s", cluster_ad=ad.pack(), procs=procs))
        print("ready", flush=True)
        while True:
            for job in await pool.jobs():
                await pool.act("remove", f"1.{job['ProcId']}")
                print("removed", flush=True)

asyncio.run(main())
"""


def entries(log, wanted):
    return log.read_text().count("000 (001.") == wanted


@pytest.mark.dear(
    held_by="tests/integration/test_schedd_recovery.py::test_an_answered_submit_survives_kill_9_and_none_is_half_there"
)
async def test_kill_9_at_any_moment_loses_no_job_and_makes_none_twice(tmp_path):
    def live(jobs):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        removed = 0
        try:
            for line in child.stdout:
                removed += line == "removed\n"
                if removed == jobs:
                    break
        finally:
            os.kill(child.pid, signal.SIGKILL)
            child.stdout.read()
            child.wait()
            child.stdout.close()
        return removed

    log = tmp_path / "job.log"
    for jobs in (1, 8, 33, 60):
        assert await asyncio.to_thread(live, jobs) == jobs
        async with Pool(tmp_path) as pool:
            await eventually(lambda: len(pool.schedd.table.clusters[1].jobs) == 7)
            present = [ad["ProcId"] for ad in await pool.jobs()]
            left = [ad["ProcId"] for ad in await pool.history()]
            given = pool.schedd.table.clusters[1].next_proc
            assert sorted(left + present) == list(range(given))  # each once, none left out
            assert all(ad["Args"] == str(ad["ProcId"]) for ad in await pool.jobs())
            await eventually(partial(entries, log, given))
    async with Pool(tmp_path) as pool:
        await edit(pool, "1", JobMaterializeLimit=600)
        await eventually(lambda: pool.schedd.table.clusters[1].next_proc == 600)
        present = [ad["ProcId"] for ad in await pool.jobs()]
        left = [ad["ProcId"] for ad in await pool.history()]
        assert sorted(left + present) == list(range(600))
