"""Questions about jobs that left the queue, over a real database (TLS-12)."""

import pytest

from engine.queue.jobs import BadSubmit, JobId
from services.schedd.core.acceptance import MAX_AD_BYTES, check_size
from services.schedd.io import history
from services.schedd.io.queue_db import QueueDatabase
from shared.classad import ClassAd, parse_expr
from shared.classad.budget import Budget
from shared.classad.question import Question
from tests.spec import spec

CLUSTERS, PROCS = 60, 100


@pytest.fixture
async def queue(tmp_path):
    made = QueueDatabase(tmp_path / "queue.sqlite")
    await made.open()
    rows = [
        (cluster, proc, "alice", 0, ClassAd({"ClusterId": cluster, "ProcId": proc, "Odd": proc % 2 == 1}).pack())
        for cluster in range(1, CLUSTERS + 1)
        for proc in range(PROCS)
    ]
    made.do_many("INSERT INTO history (cluster, proc, owner, left_at, ad) VALUES (?, ?, ?, ?, ?)", rows)
    await made.commit()
    yield made
    await made.close()


async def asked(queue, ids, expr=None, limit=1000):
    """The ids that come, page after page."""
    found, after, pages = [], "", 0
    while True:
        async with Question(Budget("the test")) as question:
            wanted = ("ClusterId", "ProcId")
            page = await history.page(
                question, queue, ids, expr, lambda ad: ad, projection=wanted, limit=limit, after=after
            )
        found += [(ad.eval("ClusterId"), ad.eval("ProcId")) for ad in map(ClassAd.unpack, page.ads)]
        pages += 1
        assert len(page.ads) <= limit
        if not page.next:
            return found, pages
        after = page.next


@spec("TLS-12")
async def test_all_ids_are_looked_for_however_many_they_are(queue):
    everything = [(cluster, proc) for cluster in range(CLUSTERS, 0, -1) for proc in range(PROCS - 1, -1, -1)]
    assert (await asked(queue, []))[0] == everything
    # One by one: more ids than one look takes, some of them unknown, some twice.
    ids = [JobId(cluster, proc) for cluster, proc in [*everything, (7, 5), (999, 0), (7, 10**17)]]
    assert len(ids) > history.IDS
    found, pages = await asked(queue, ids)
    assert found == everything
    assert pages >= 6
    # Clusters and single jobs of them together are told once, the newest first.
    mixed = [JobId(3, 5), JobId(50, -1), JobId(3, -1), JobId(999, -1), JobId(9, 9)]
    assert (await asked(queue, mixed, limit=7))[0] == [one for one in everything if one[0] in (3, 50) or one == (9, 9)]
    assert await asked(queue, [JobId(999, 0)]) == ([], 1)
    odd = await asked(queue, [JobId(3, -1)], parse_expr("Odd"), limit=3)
    assert odd[0] == [(3, proc) for proc in range(PROCS - 1, -1, -2)]


async def runs(queue, ids=(), **more):
    async with Question(Budget("the test")) as question:
        page = await history.page(
            question,
            queue,
            ids,
            None,
            lambda ad: ad,
            limit=9,
            after="",
            records=history.RUNS,
            **{"projection": (), **more},
        )
    names = ("ClusterId", "RunInstanceId", "EpochWriteDate", "Kept")
    return [tuple(ad.get(name) for name in names) for ad in map(ClassAd.unpack, page.ads)]


async def test_runs_have_the_ad_of_then_and_the_last_one_that_of_the_history(tmp_path):
    queue = QueueDatabase(tmp_path / "queue.sqlite")
    await queue.open()
    job = JobId(1, 0)
    queue.end_run(job, 1, ClassAd({"ClusterId": 1, "Kept": "evicted"}).pack(), 100.5)
    queue.end_run(JobId(2, 0), 1, ClassAd({"ClusterId": 2}).pack(), 101)
    queue.end_run(job, 2, None, 102)
    queue.do(
        "INSERT INTO history (cluster, proc, owner, left_at, ad) VALUES (?, ?, ?, ?, ?)",
        (1, 0, "ada", 102, ClassAd({"ClusterId": 1, "Kept": "at the end"}).pack()),
    )
    await queue.commit()
    assert await runs(queue) == [(1, 2, 102, "at the end"), (2, 1, 101, None), (1, 1, 100, "evicted")]
    assert await runs(queue, [job]) == [(1, 2, 102, "at the end"), (1, 1, 100, "evicted")]
    assert await runs(queue, [job], projection=("RunInstanceId",)) == [(None, 2, None, None), (None, 1, None, None)]
    # The history forgets the job first: of its last run there is nothing to tell then.
    await queue.read(lambda database: history.prune(database, 1))
    assert await runs(queue) == [(2, 1, 101, None), (1, 1, 100, "evicted")]
    assert await queue.read(lambda database: history.prune(database, history.ROW, history.RUNS)) == 2
    assert await runs(queue) == []
    await queue.close()


async def test_the_records_of_runs_come_into_a_queue_of_before(tmp_path):
    queue = QueueDatabase(tmp_path / "queue.sqlite")
    await queue.read(lambda database: database.execute("DROP TABLE epochs"))
    await queue.close()
    queue = QueueDatabase(tmp_path / "queue.sqlite")
    await queue.open()
    assert await runs(queue) == []
    await queue.close()


def test_edits_may_not_grow_a_job_beyond_what_a_message_carries():
    before = ClassAd({"Small": 1})
    check_size(before, ClassAd({"Note": "x" * (MAX_AD_BYTES - 1000)}))
    large = ClassAd({"Note": "x" * (2 * MAX_AD_BYTES)})
    with pytest.raises(BadSubmit, match=r"would have 20\d+ bytes; at most"):
        check_size(before, large)
    check_size(large, ClassAd({"Note": "x" * (MAX_AD_BYTES - 1), "More": ""}))  # smaller than it was
    many = ClassAd({f"A{number}": number for number in range(5001)})
    with pytest.raises(BadSubmit, match="5001 attributes"):
        check_size(before, many)
    check_size(many, many)
