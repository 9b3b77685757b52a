"""Late materialization in a schedd: clusters whose jobs come into the queue some at a time."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from shared.bus.api import RemoteFailure
from shared.classad import ClassAd
from shared.messages.queue import ActOnJobs, QueryJobs, SubmitJobs
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
