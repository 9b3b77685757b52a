"""Several negotiators in one pool, each with slots and books of its own (MUL-01 to MUL-05)."""

import pytest

from shared.bus.api import NobodyThere
from shared.bus.topology import negotiator_inbox
from shared.classad import ClassAd
from shared.messages.ads import QueryAds
from shared.messages.negotiation import GetPriorities, SetPriority
from tests.spec import spec
from tests.waiting import eventually
from tests.wholepool import USER, WholePool

RED = {"NEGOTIATOR_NAME": "red", "NEGOTIATOR_SLOT_CONSTRAINT": 'Name == "slot1@ep" || regexp("@ep$", Name)'}
BLUE = {"NEGOTIATOR_NAME": "blue", "NEGOTIATOR_SLOT_CONSTRAINT": 'regexp("@ep2$", Name)'}


@pytest.fixture
async def pool(tmp_path):
    async with WholePool(tmp_path, cpus=2, **RED) as pool:
        await pool.begin("startd", "ep2", "startd2")
        await pool.begin("negotiator", "cm2", "negotiator2", **BLUE)
        await pool.begin("had", "cm2", "had2", **BLUE)
        await eventually(lambda: pool.daemons["negotiator2"].leading() and pool.negotiator.leading(), 30)
        for shard in ("red", "blue"):
            await eventually(lambda shard=shard: answers(pool, shard), what=f"{shard} to answer")
        yield pool


def wants(where: str) -> str:
    return f'=regexp("@{where}$", TARGET.Name)'


async def books(pool, shard: str) -> dict[str, ClassAd]:
    answer = await pool.call(negotiator_inbox(shard), GetPriorities())
    ads = [ClassAd.unpack(ad) for ad in answer.ads]
    return {str(ad.eval("Name")): ad for ad in ads}


async def answers(pool, shard: str) -> bool:
    """Whether it has opened the inbox of who leads: it does so after it has begun to lead."""
    try:
        await books(pool, shard)
    except NobodyThere:
        return False
    return True


async def ran_on(pool, cluster: int) -> set[str]:
    ads = await pool.rests(cluster)
    assert [ad.eval("JobStatus") for ad in ads] == [4] * len(ads)
    assert [ad.eval("NumJobStarts") for ad in ads] == [1] * len(ads)
    return {str(ad.eval("LastRemoteHost")).rpartition("@")[2] for ad in ads}


@spec("MUL-01")
@pytest.mark.timeout(120)
async def test_each_negotiator_matches_its_own_slots_and_both_lead_at_once(pool):
    here = await pool.submit(pool.job(Requirements=wants("ep")))
    there = await pool.submit(pool.job(Requirements=wants("ep2")))
    assert await ran_on(pool, here) == {"ep"}
    assert await ran_on(pool, there) == {"ep2"}


@spec("MUL-03")
@pytest.mark.timeout(120)
async def test_each_is_known_to_the_collector_by_its_name(pool):
    async def known():
        page = await pool.call("collector", QueryAds(my_types=["Negotiator"]))
        ads = [ClassAd.unpack(ad) for ad in page.ads]
        return {(ad.eval("Name"), ad.eval("NegotiatorIsActive")) for ad in ads} == {("red", True), ("blue", True)}

    await eventually(known, what="both by name")


@spec("MUL-01")
@pytest.mark.timeout(120)
async def test_slot_outside_all_shards_is_never_matched(pool):
    await pool.begin("startd", "ep3", "startd3")
    await eventually(lambda: any(name == "slot1@ep3" for _, name, _ in pool.negotiator.ads.rows("Machine")))
    nowhere = await pool.submit(pool.job(Requirements=wants("ep3")))
    await pool.works()
    red, blue = pool.negotiator, pool.daemons["negotiator2"]
    before = red.cycle, blue.cycle
    await pool.submit(pool.job())
    await eventually(lambda: red.cycle > before[0] and blue.cycle > before[1])
    assert [ad.eval("JobStatus") for ad in await pool.ads(str(nowhere))] == [1]


@spec("MUL-02")
@pytest.mark.timeout(120)
async def test_use_in_one_shard_leaves_the_priorities_of_the_other_alone(pool):
    cluster = await pool.submit(pool.job("/bin/sleep", Arguments="1", Requirements=wants("ep2")))
    await ran_on(pool, cluster)
    blue = (await books(pool, "blue"))[USER]
    assert blue.eval("NegotiatorName") == "blue"
    assert blue.eval("WeightedAccumulatedUsage") > 0
    red = (await books(pool, "red")).get(USER)
    assert red is None or red.eval("WeightedAccumulatedUsage") == 0


@spec("MUL-04")
@pytest.mark.timeout(120)
async def test_change_of_a_priority_is_for_the_negotiator_that_was_named(pool):
    await pool.call(negotiator_inbox("blue"), SetPriority(submitter="a@p", what="factor", value=7.0))
    assert (await books(pool, "blue"))["a@p"].eval("PriorityFactor") == 7.0
    assert "a@p" not in await books(pool, "red")
    with pytest.raises(NobodyThere):
        await pool.call(negotiator_inbox("green"), GetPriorities(), timeout=5)


@spec("MUL-05")
@pytest.mark.timeout(120)
async def test_jobs_that_either_may_match_run_once(pool):
    cluster = await pool.submit(pool.job("/bin/true"), procs=30)
    await ran_on(pool, cluster)
    assert not pool.consistent()
