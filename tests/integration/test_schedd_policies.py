"""Policies at work in a schedd: periodic looks, limits on durations, who may act."""

import pytest

from shared.bus.api import RemoteFailure
from tests.scheddpool import Pool, job_ad
from tests.waiting import eventually


async def test_periodic_policies_hold_release_and_remove(tmp_path):
    async with Pool(tmp_path, PERIODIC_EXPR_INTERVAL=1) as pool:
        await pool.submit(
            job_ad(PeriodicHold="=NumHolds == 0", PeriodicHoldSubCode=9, PeriodicRelease="=HoldReasonSubCode == 9")
        )

        async def held_and_released():
            ad = await pool.job("1.0")
            return ad["NumHolds"] == 1 and ad["JobStatus"] == 1

        await eventually(held_and_released)
        assert (await pool.job("1.0"))["LastHoldReasonCode"] == 3
        await pool.act("edit", "1.0", edits=job_edit("PeriodicRemove", "NumHolds > 0"))
        await eventually(pool.history)
        assert await pool.jobs() == []


def job_edit(name, text):
    from shared.classad import ClassAd

    ad = ClassAd()
    ad.set_text(name, text)
    return ad.pack()


async def test_the_pools_periodic_hold(tmp_path):
    async with Pool(
        tmp_path,
        PERIODIC_EXPR_INTERVAL=1,
        SYSTEM_PERIODIC_HOLD="JobPrio > 5",
        SYSTEM_PERIODIC_HOLD_REASON='"too eager"',
        SYSTEM_PERIODIC_HOLD_SUBCODE="4",
    ) as pool:
        await pool.submit(job_ad(JobPrio=6))
        await pool.submit(job_ad(JobPrio=5))

        async def held():
            return (await pool.job("1.0"))["JobStatus"] == 5

        await eventually(held)
        ad = await pool.job("1.0")
        assert (ad["HoldReason"], ad["HoldReasonCode"], ad["HoldReasonSubCode"]) == ("too eager", 26, 4)
        assert (await pool.job("2.0"))["JobStatus"] == 1


async def test_a_limit_on_the_execution_time_is_kept_when_it_is_reached(tmp_path):
    async with Pool(tmp_path, PERIODIC_EXPR_INTERVAL=3600) as pool:
        run = await pool.run_one(ad=job_ad(AllowedExecuteDuration=1))
        await pool.startd.report(run, "running", started_at=pool.context.clock.now())
        await eventually(lambda: pool.startd.deactivated)
        assert pool.startd.deactivated[0].why == "hold"
        assert (await pool.job("1.0"))["HoldReasonCode"] == 47


async def test_super_users_may_act_on_the_jobs_of_others(tmp_path):
    async with Pool(tmp_path, QUEUE_SUPER_USERS="boss", GRACEFULLY_REMOVE_JOBS="false") as pool:
        await pool.run_one()
        await eventually(lambda: pool.schedd.claim_table.by_claim_id)
        assert await pool.act("hold", "1.0", user="mallory@pool") == {"1.0": "denied"}
        assert await pool.act("hold", "1.0", user="boss@pool") == {"1.0": "done"}
        await eventually(lambda: pool.startd.deactivated)
        assert pool.startd.deactivated[0].how == "fast"


async def test_limits_on_the_number_of_jobs(tmp_path):
    async with Pool(tmp_path, MAX_JOBS_PER_SUBMISSION=5, MAX_JOBS_PER_OWNER=6) as pool:
        with pytest.raises(RemoteFailure, match="MAX_JOBS_PER_SUBMISSION"):
            await pool.submit(procs=6)
        await pool.submit(procs=5)
        with pytest.raises(RemoteFailure, match="MAX_JOBS_PER_OWNER"):
            await pool.submit(procs=2)
        assert len(await pool.jobs()) == 5


async def test_a_job_that_is_vacated_is_stopped_where_it_runs(tmp_path):
    async with Pool(tmp_path) as pool:
        await pool.run_one()
        assert await pool.act("continue", "1.0") == {"1.0": "already"}
        assert await pool.act("vacate", "1.0") == {"1.0": "done"}
        await eventually(lambda: pool.startd.deactivated)
        assert pool.startd.deactivated[0].why == "vacate"
        assert await pool.act("suspend", "1.0") == {"1.0": "wrong-state"}


async def test_a_negotiator_job_constraint_hides_jobs(tmp_path):
    async with Pool(tmp_path) as pool:
        await pool.submit(job_ad(JobPrio=1), procs=3)
        await pool.submit(job_ad(JobPrio=2), procs=2)
        requests = (await pool.requests(job_constraint="JobPrio == 1")).requests[pool.user]
        assert [(request.first_job, request.count) for request in requests] == [("1.0", 3)]
        with pytest.raises(RemoteFailure, match="constraint"):
            await pool.requests(job_constraint="1 +")
