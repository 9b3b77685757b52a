"""Queues of many jobs: nothing that is done to them keeps a daemon from its other work. How long things take is
measured by `python -m bench.large_queue`; here it is counted how often others had their turn."""

import asyncio
from contextlib import contextmanager

import pytest

from engine.queue import hold_reasons
from engine.queue.packed_jobs import JobMap
from shared.bus.api import RemoteFailure
from shared.classad import UNDEFINED, ClassAd
from shared.classad.column_page import Sheet, reader
from shared.messages.queue import ALIKE, ActOnJobs, QueryJobs
from tests import scheddpool
from tests.scheddpool import job_ad

MANY = 3000


@pytest.fixture
async def pool(tmp_path):
    async with scheddpool.Pool(tmp_path) as running:
        yield running


async def seen_meanwhile(pool, work):
    """What an awaitable gave, and how many jobs stood in line whenever others had their turn meanwhile."""
    seen = set()

    async def look():
        while True:
            await asyncio.sleep(0)
            line = pool.schedd.table.idle.get(pool.user)
            seen.add(line.total if line is not None else 0)

    looking = asyncio.ensure_future(look())
    try:
        return await work, seen
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


def sheet_of(page):
    sheet, parts = Sheet(), reader()
    parts.feed(page.columns)
    for part in parts:
        sheet.add(part)
    return sheet


def commits(pool):
    return pool.schedd.queue.durations.count


async def submit_many(pool, *, alike=True):
    """alike: the jobs stay packed (engine.queue.packed_jobs), else each is made and sorted by itself."""
    own = ClassAd() if alike else ClassAd({"RequestDisk": 5, "Colour": "red"})
    answer = await pool.submit(job_ad(), procs=[own] * MANY)
    assert answer.count == MANY
    return str(answer.cluster)


async def test_many_jobs_are_acted_on_in_small_transactions(pool):
    """One of 100,000 jobs would be packed in one go, and everybody would wait."""
    cluster = await submit_many(pool, alike=False)
    for action in ("hold", "release", "remove"):
        before = commits(pool)
        results = await pool.act(action, cluster)
        assert set(results.values()) == {"done"}
        assert len(results) == MANY
        assert commits(pool) - before >= MANY // 500


async def test_jobs_that_are_alike_stay_packed_when_they_are_ordered_together(pool):
    cluster = await submit_many(pool)
    jobs = pool.schedd.table.clusters[int(cluster)].jobs
    for action in ("hold", "release", "hold"):
        before = len(pool.events)
        assert set((await pool.act(action, cluster)).values()) == {"done"}
        assert jobs.packed_count == MANY
        await pool.restart()
        jobs = pool.schedd.table.clusters[int(cluster)].jobs
        assert jobs.packed_count == MANY
        assert pool.schedd.updates.check_invariants() == []
        told = [event for event in pool.events[before:] if event.type.startswith("job.") and event.type != "job.sorted"]
        assert sum(event.job_count for event in told) == MANY
        assert len(told) <= 3


async def test_many_jobs_are_acted_on_part_by_part(pool):
    cluster = await submit_many(pool)
    seen, after = [], ""
    while True:
        order = ActOnJobs(user=pool.user, action="hold", ids=[cluster, "99.5"], after=after, limit=1000)
        part = await pool.call(order)
        seen.append(part.results)
        after = part.next
        if not after:
            break
    assert [len(results) for results in seen] == [1001, 1000, 1000]
    assert seen[0].pop("99.5") == "not-found"
    assert [job for results in seen for job in results] == [f"{cluster}.{proc}" for proc in range(MANY)]
    assert (await pool.call_totals())["Held"] == MANY


async def test_a_constraint_acts_part_by_part_on_those_it_is_true_for(pool):
    cluster = await submit_many(pool)
    order = ActOnJobs(user=pool.user, action="hold", constraint="ProcId % 1000 == 7", limit=2)
    first = await pool.call(order)
    assert first.results == {f"{cluster}.7": "done", f"{cluster}.1007": "done"}
    second = await pool.call(order.model_copy(update={"after": first.next}))
    assert second.results == {f"{cluster}.2007": "done"}
    assert second.next == ""


@pytest.mark.parametrize("step", ["submit", "significant attributes", "restart"])
async def test_others_have_their_turn_meanwhile(pool, step):
    if step == "submit":
        _, seen = await seen_meanwhile(pool, submit_many(pool, alike=False))
        assert len(pool.schedd.table.idle[pool.user].buckets) == 1
    elif step == "significant attributes":
        await submit_many(pool, alike=False)
        answer, seen = await seen_meanwhile(pool, pool.requests(significant=["Colour"]))
        assert [request.count for request in answer.requests[pool.user]] == [MANY]
    else:
        await submit_many(pool, alike=False)
        _, seen = await seen_meanwhile(pool, pool.restart())
        assert (await pool.call_totals())["Idle"] == MANY
    # Work gives way by time, so there are fewer turns on a quick machine; without, all jobs come at once.
    assert any(0 < number < MANY for number in seen)


async def test_jobs_that_are_alike_stay_packed_until_somebody_needs_them(pool):
    """Neither submit nor restart, negotiator, listing or a periodic look makes jobs of them: each would cost all."""

    def packed():
        jobs = pool.schedd.table.clusters[int(cluster)].jobs
        return jobs.packed_count

    cluster = await submit_many(pool)
    assert packed() == MANY
    await pool.jobs(cluster, projection=["ProcId", "JobStatus"])
    await pool.schedd.actions.look()
    assert packed() == MANY
    answer = await pool.requests(significant=["Colour"])
    assert [request.count for request in answer.requests[pool.user]] == [MANY]
    await pool.restart()
    assert packed() == MANY
    await pool.act("hold", f"{cluster}.5", f"{cluster}.7")
    assert packed() == MANY - 2
    assert (await pool.call_totals())["Held"] == 2
    assert (await pool.act("release", cluster))[f"{cluster}.7"] == "done"
    answer = await pool.requests()
    assert [request.count for request in answer.requests[pool.user]] == [MANY]


@contextmanager
def counting_made_jobs():
    """[how often a packed job was made, to keep or to look at]"""
    count, make = [0], JobMap._make

    def counted(self, proc, *, keep):
        count[0] += self.group_of(proc) is not None
        return make(self, proc, keep=keep)

    JobMap._make = counted
    try:
        yield count
    finally:
        JobMap._make = make


BATCHES = {"by": ["JobStatus"], "projection": ["ClusterId", "JobStatus", "Cmd", "Args"], "columns": True}


@pytest.mark.parametrize(
    ("question", "rows", "most"),
    [
        ({"projection": ["ProcId", "Args"], "limit": 50, "newest": True}, 50, 60),
        ({"projection": ["ProcId"], "limit": 50, "constraint": "JobStatus == 5", "newest": True}, 50, 60),
        ({"projection": ["ProcId"], "limit": 50, "constraint": "JobStatus == 2"}, 0, 2),
        ({"projection": ["ProcId"], "limit": 9, "constraint": 'regexp("99$", Args ?: "", "i")'}, 9, 30),
        ({"projection": ["Args", "RequestMemory"], "columns": True}, MANY, 2),
        ({"projection": ["Args"], "columns": True, "constraint": 'Args == "77" || Owner == "x"'}, 1, 2),
        (BATCHES, 2, 4),
    ],
)
async def test_a_page_makes_no_more_jobs_than_it_shows(pool, question, rows, most):
    """Of jobs that wait packed, of which a third is held; one is made for a look at what all have, or none."""
    own = [ClassAd({"Args": str(number)}) for number in range(MANY)]
    cluster = str((await pool.submit(job_ad(), procs=own)).cluster)
    await pool.call(ActOnJobs(user=pool.user, action="hold", ids=[cluster], limit=MANY // 3))
    assert pool.schedd.table.clusters[int(cluster)].jobs.packed_count == MANY
    with counting_made_jobs() as count:
        page = await pool.call(QueryJobs(**question))
    assert (page.rows or len(page.ads)) == rows
    assert count[0] <= most
    assert pool.schedd.table.clusters[int(cluster)].jobs.packed_count == MANY


async def test_jobs_are_counted_by_what_they_have(pool):
    own = [ClassAd({"Args": str(number % 3)}) for number in range(300)]
    first = (await pool.submit(job_ad(), procs=own)).cluster
    second = (await pool.submit(job_ad(JobUniverse=5), procs=own[:2])).cluster
    await pool.act("hold", *(f"{first}.{proc}" for proc in (0, 1, 7)))
    await pool.act("hold", str(second))

    async def lines(**question):
        page = await pool.call(QueryJobs(columns=True, **question))
        sheet = sheet_of(page)
        names = [*question["projection"], ALIKE]
        return [tuple(ad.eval(name) for name in names) for ad in sheet]

    shown = ["ClusterId", "ProcId", "JobStatus"]
    assert await lines(by=["JobStatus"], projection=shown) == [
        (first, 0, 5, 3),
        (first, 2, 1, 297),
        (second, 0, 5, 2),
    ]
    assert await lines(by=["Args"], projection=["ClusterId", "Args"], ids=[str(first)]) == [
        (first, "0", 100),
        (first, "1", 100),
        (first, "2", 100),
    ]
    assert await lines(by=["jobstatus"], projection=["ProcId"], constraint='Args == "2"') == [(2, 100)]
    third = (await pool.submit(job_ad(), procs=[ClassAd(), ClassAd({"Colour": "red"}), ClassAd()])).cluster
    assert await lines(by=["Colour"], projection=["ProcId", "Colour"], ids=[str(third)]) == [
        (0, UNDEFINED, 2),
        (1, "red", 1),
    ]
    await pool.act("remove", str(third))
    fourth = (await pool.submit(job_ad(), procs=[ClassAd({name: 13}) for name in ("Colour", "Size")])).cluster
    await pool.act("hold", f"{fourth}.0")  # so they are read by themselves
    assert await lines(by=["Colour", "Size"], projection=["ProcId"], ids=[str(fourth)]) == [(0, 1), (1, 1)]
    await pool.act("remove", str(fourth))
    assert await lines(by=["NoSuchThing"], projection=["ClusterId"], after=str(first)) == [(second, 2)]
    with pytest.raises(RemoteFailure, match="whole clusters"):
        await lines(by=["JobStatus"], projection=["ProcId"], ids=[f"{first}.0"])


async def test_held_jobs_are_counted_by_why_they_are(pool):
    """Reasons that differ in numbers and paths only are one; jobs that are alike stay packed."""
    cluster = (await pool.submit(job_ad(), procs=[ClassAd()] * 20)).cluster
    for proc in range(15):
        why = f"no /in/{proc}.dat: error {proc}" if proc < 12 else "no such thing"
        await pool.act("hold", f"{cluster}.{proc}", reason=why)
    other = int(await submit_many(pool))
    await pool.act("hold", str(other))
    names = ["ClusterId", "ProcId"]
    page = await pool.call(
        QueryJobs(columns=True, constraint="JobStatus == 5", by=list(hold_reasons.WHY), projection=names)
    )
    assert [(*(ad.eval(name) for name in names), ad.eval(ALIKE)) for ad in sheet_of(page)] == [
        (cluster, 0, 12),
        (cluster, 12, 3),
        (other, 0, MANY),
    ]
    assert pool.schedd.table.clusters[other].jobs.packed_count == MANY


async def test_jobs_that_are_alike_are_told_why_the_first_of_them_waits(pool):
    cluster = await submit_many(pool)
    (request,) = (await pool.requests()).requests[pool.user]
    pool.schedd._rejected(pool.user, request.autocluster, "no slot suits")
    with counting_made_jobs() as count:
        page = await pool.call(
            QueryJobs(projection=["ProcId", "AutoClusterId"], newest=True, limit=50, reasons=True, ids=[cluster])
        )
    assert page.reasons == {str(request.autocluster): "no slot suits"}
    assert count[0] <= 60
    await pool.act("hold", cluster)
    assert (await pool.call(QueryJobs(projection=["ProcId"], limit=5, reasons=True))).reasons == {}


async def test_a_page_of_a_projection_says_the_same_as_whole_ads(pool):
    own = [ClassAd({"Args": str(number), "Memory": number}) for number in range(3)]
    cluster = str((await pool.submit(job_ad(), procs=own)).cluster)
    names = ["Args", "ProcId", "ClusterId", "GlobalJobId", "Cmd", "Owner", "NoSuchThing", "JOBSTATUS"]
    whole = await pool.jobs(cluster)
    some = await pool.jobs(cluster, projection=names)
    assert [{name: ad[name] for name in names if name in ad} for ad in whole] == [
        {name: ad[name] for name in names if name in ad} for ad in some
    ]
    assert all(len(ad) == len(names) - 1 for ad in some)


async def test_pages_go_on_where_the_last_one_ended_whatever_left_meanwhile(pool):
    cluster = await submit_many(pool)
    first = await pool.call(QueryJobs(ids=[cluster], limit=1000, projection=["ProcId"]))
    await pool.act("remove", *(f"{cluster}.{proc}" for proc in range(990, 1010)))
    second = await pool.call(QueryJobs(ids=[cluster], limit=5, projection=["ProcId"], after=first.next))
    assert [ClassAd.unpack(ad).eval("ProcId") for ad in second.ads] == [1010, 1011, 1012, 1013, 1014]
