"""Jobs that ask for nothing, for less than nothing, or for what is no amount: they run, or it is told why not."""

import pytest

from tests.spec import spec
from tests.waiting import eventually
from tests.wholepool import WholePool

#: The defaults round 0 up.
POLICY = {
    "CONSUMPTION_POLICY": "true",
    "CONSUMPTION_CPUS": "TARGET.RequestCpus",
    "CONSUMPTION_MEMORY": "TARGET.RequestMemory",
    "CONSUMPTION_DISK": "TARGET.RequestDisk",
}


#: What each job of a cluster of three asks for.
NEXT_TO_NOTHING = [
    {"RequestCpus": 0},
    {"RequestMemory": 0},
    {"RequestDisk": 0},
    {"RequestCpus": 0, "RequestMemory": 0, "RequestDisk": 0},
    {"RequestCpus": -1, "RequestMemory": -5, "RequestDisk": -7},
    {"RequestCpus": 0.5, "RequestMemory": 0.5},
    {"RequestCpus": False},
    {"RequestCpus": "=NoSuchThing", "RequestMemory": "=NoSuchThing", "RequestDisk": "=NoSuchThing"},
    {"RequestCpus": "=TARGET.Cpus"},
    {"RequestGPUs": 0},
]


@spec("SLT-10")
async def test_jobs_that_ask_for_next_to_nothing_run(tmp_path):
    async with WholePool(tmp_path, cpus=2) as pool:
        for requests in NEXT_TO_NOTHING:
            cluster = await pool.submit(pool.job(**requests), procs=3)
            ended = await pool.rests(cluster, procs=3)
            assert [ad.eval("JobStatus") for ad in ended] == [4, 4, 4], requests
            assert pool.consistent() == [], requests


@spec("CON-02")
@pytest.mark.parametrize("requests", [{"RequestCpus": 0}, {"RequestMemory": 0}], ids=["Cpus 0", "Memory 0"])
async def test_a_consumption_policy_may_give_none_of_a_resource(tmp_path, requests):
    async with WholePool(tmp_path, cpus=2, **POLICY) as pool:
        cluster = await pool.submit(pool.job(**requests), procs=3)
        ended = await pool.rests(cluster, procs=3)
        assert [ad.eval("JobStatus") for ad in ended] == [4, 4, 4]
        assert pool.consistent() == []


@spec("NEG-25")
@pytest.mark.parametrize(
    ("several", "config"),
    [
        (
            [
                *({"RequestCpus": 2**62}, {"RequestCpus": 1e300}, {"RequestMemory": '=real("INF")'}),
                *({"RequestCpus": '=real("NaN")'}, {"RequestCpus": "=1/0"}, {"RequestCpus": '="two"'}),
            ],
            {},
        ),
        ([{"RequestCpus": 0, "RequestMemory": 0, "RequestDisk": 0}, {"RequestCpus": "=NoSuchThing"}], POLICY),
    ],
    ids=["no such amount", "by policy"],
)
async def test_a_job_that_fits_nowhere_stays_idle_and_says_why(tmp_path, several, config):
    async with WholePool(tmp_path, cpus=2, **config) as pool:
        for requests in several:
            cluster = await pool.submit(pool.job(**requests))

            async def reason(cluster=cluster, requests=requests):
                (ad,) = await pool.ads(str(cluster))
                assert ad.eval("NumJobStarts") == 0, requests
                return isinstance(ad.eval("LastRejMatchReason"), str)

            await eventually(reason, what=f"a reason for {requests}")
            await pool.works()


async def test_a_job_remembers_that_an_execution_point_refused_it(tmp_path):
    """What only the startd sees: the job goes round between Idle and its matches."""
    async with WholePool(tmp_path, cpus=2, MODIFY_REQUEST_EXPR_REQUESTCPUS="1") as pool:
        cluster = await pool.submit(pool.job(RequestCpus=2))

        async def reason():
            (ad,) = await pool.ads(str(cluster))
            return ad.eval("LastRejMatchReason") if "LastRejMatchReason" in ad else ""

        said = await eventually(reason, what="a reason")
        assert said == "slot1@ep refused it: MODIFY_REQUEST_EXPR gives less than the job asks for: Cpus"
