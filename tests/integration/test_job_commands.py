"""What submit commands ask of an access point, with real daemons or its own half of the protocol."""

from shared.classad import ClassAd
from tests.scheddpool import Pool, job_ad
from tests.spec import spec
from tests.waiting import eventually


@spec("SUB-01")
async def test_noop_jobs_end_without_a_slot(tmp_path):
    log = tmp_path / "log"
    async with Pool(tmp_path) as pool:
        ad = job_ad(IsNoopJob="=ProcId != 1", NoopJobExitCode="=ProcId", UserLog=str(log))
        await pool.submit(ad, procs=300)

        async def all_but_one():
            return len(await pool.jobs()) == 1

        await eventually(all_but_one)
        [left] = await pool.jobs()
        assert (left["ProcId"], left["JobStatus"]) == (1, 1)
        [done] = await pool.history("1.200")
        assert (done["JobStatus"], done["ExitCode"]) == (4, 200)
        requests = (await pool.requests()).requests[pool.user]
        assert [(request.first_job, request.count) for request in requests] == [("1.1", 1)]
        edits = ClassAd()
        edits["IsNoopJob"] = True
        assert await pool.act("edit", "1.1", edits=edits.pack()) == {"1.1": "done"}
        await eventually(lambda: log.read_text().count("\n005 (") == 300)
        assert await pool.jobs() == []


async def test_a_noop_job_on_hold_waits_and_one_of_before_ends_after_a_restart(tmp_path):
    async with Pool(tmp_path) as pool:
        await pool.submit(job_ad(IsNoopJob=True, JobStatus=5, HoldReasonCode=15, HoldReason="asked for"))
        await pool.restart()
        assert (await pool.job("1.0"))["JobStatus"] == 5
        assert await pool.act("release", "1.0") == {"1.0": "done"}
        await eventually(lambda: pool.history("1.0"))
        assert await pool.jobs() == []
