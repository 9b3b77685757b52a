"""Orders on many jobs that are alike are carried out for all of them at once: nobody can tell it from orders that are
carried out job by job."""

import re
import sqlite3

import pytest

from services.schedd.io import group_orders
from shared.classad import ClassAd
from shared.messages.events import JobsOrdered
from shared.messages.queue import ActOnJobs
from tests import scheddpool
from tests.scheddpool import job_ad

JOBS = 130
#: What differs with the time and the place.
DIFFERENT = {"ServerTime", "QDate", "EnteredCurrentStatus", "CompletionDate", "GlobalJobId", "UserLog"}
CLUSTER = "ClusterId == 1"
STEPS = [
    ("hold", ["1"], "", "first"),
    ("hold", ["1"], "", "again"),
    ("release", [], f"{CLUSTER} && ProcId >= 10 && JobStatus == 5", ""),
    ("restart", [], "", ""),
    ("hold", [], f'{CLUSTER} && Owner == "nobody"', ""),
    ("hold", [], "JobStatus == 1 && ClusterId == 1", "second"),
    ("vacate", ["1"], "", ""),
    ("hold", ["1.3", "1.4"], "", ""),
    ("restart", [], "", ""),
    ("release", ["1"], "", "now"),
    ("remove", [], f"{CLUSTER} && ProcId < 60", "enough"),
    ("hold", ["1.100"], "", ""),
    ("restart", [], "", ""),
    ("remove", ["1"], "", ""),
]


def plain(ad):
    return {name: ad.text(name) for name in ad if name not in DIFFERENT}


def without_times(text):
    return re.sub(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}", "TIME", text)


async def what_comes_of_it(directory, **common):
    """All that anybody sees after each step."""
    seen = []
    directory.mkdir()
    log = directory / "job.log"
    async with scheddpool.Pool(directory) as pool:
        own = [ClassAd({"Args": str(number)}) for number in range(JOBS)]
        await pool.submit(job_ad(UserLog=str(log), **common), procs=own)
        for action, ids, constraint, reason in STEPS:
            before, results = len(pool.events), {}
            if action == "restart":
                await pool.restart()
            else:
                order = ActOnJobs(user=pool.user, action=action, ids=ids, constraint=constraint, reason=reason)
                results = (await pool.call(order)).results
            await pool.schedd.queue.commit()
            table = pool.schedd.table
            told = [event for event in pool.events[before:] if isinstance(event, JobsOrdered)]
            seen.append(
                {
                    "step": (action, ids, constraint),
                    "results": results,
                    "jobs": [plain(ad) for ad in await pool.jobs()],
                    "history": sorted((plain(ad) for ad in await pool.history()), key=lambda ad: int(ad["ProcId"])),
                    "totals": await pool.call_totals(),
                    "told": sorted(
                        (one.type, one.job_id, one.reason, one.owner, one.submitter)
                        for event in told
                        for one in event.each()
                    ),
                    "held": dict(pool.schedd.updates.held.by_name),
                    "offered": table.demand(pool.user),
                    "broken": pool.schedd.updates.check_invariants(),
                    "stored": rows(pool),
                }
            )
        requests = await pool.requests()
        seen.append([request.count for request in requests.requests.get(pool.user, [])])
    return seen, sorted(without_times(log.read_text()).split("...\n"))


def rows(pool):
    """(proc, status, names of attributes) as they are stored, of queue and history."""
    with sqlite3.connect(pool.schedd.queue.path) as database:
        queued = [
            (proc, status, sorted(ClassAd.unpack(ad)))
            for proc, status, ad in database.execute("SELECT proc, status, ad FROM jobs ORDER BY proc")
        ]
        left = database.execute("SELECT proc, owner, count(*) FROM history GROUP BY proc ORDER BY proc")
        return queued, list(left)


@pytest.mark.parametrize("common", [{}, {"JobNotification": 2}], ids=["alike", "mailed"])
async def test_it_is_as_if_each_were_ordered_by_itself(tmp_path, monkeypatch, common):
    together = await what_comes_of_it(tmp_path / "together", **common)
    monkeypatch.setattr(group_orders, "LEAST", 10**9)
    alone = await what_comes_of_it(tmp_path / "alone", **common)
    for one, other in zip(together[0], alone[0], strict=True):
        assert one == other
    # Both have logs of their own, and nothing but a path differs.
    assert together[1] == alone[1]
    assert together[0][0]["results"] == {f"1.{proc}": "done" for proc in range(JOBS)}
    assert together[0][-2]["totals"]["Idle"] == together[0][-2]["totals"]["Held"] == 0
    assert len(together[0][-2]["history"]) == JOBS


async def test_an_answer_tells_ranges_to_who_asks_for_them(tmp_path):
    async with scheddpool.Pool(tmp_path) as pool:
        await pool.submit(procs=JOBS)
        await pool.act("hold", "1.7")
        order = ActOnJobs(user=pool.user, action="hold", ids=["1", "2.0"], limit=100, ranges=True)
        first = await pool.call(order)
        assert first.results == {"2.0": "not-found"}
        assert first.ranges == {"done": [[1, 0, 6], [1, 8, 99]], "already": [[1, 7, 7]]}
        second = await pool.call(order.model_copy(update={"after": first.next}))
        assert (second.ranges, second.next) == ({"done": [[1, 100, 129]]}, "")


async def test_nobody_orders_jobs_of_others(tmp_path):
    async with scheddpool.Pool(tmp_path) as pool:
        await pool.submit(procs=JOBS)
        assert set((await pool.act("hold", "1", user="eve@pool")).values()) == {"denied"}
        assert set((await pool.act("hold", "1", user="eve@pool", admin=True)).values()) == {"done"}
