"""Jobs page by page: the next page begins after the last job of the one before, either way round."""

import pytest

from engine.queue.autoclusters import Autoclusters
from engine.queue.job_table import JobTable
from engine.queue.jobs import Cluster, JobId
from services.schedd.core.group_verdicts import Verdicts
from services.schedd.io.job_stretches import fitting
from shared.classad import ClassAd, parse_ad, parse_expr
from shared.classad.budget import Budget
from shared.classad.question import Question

JOBS = [(cluster, proc) for cluster in (9, 10, 11) for proc in range(3)]


def table_of(made=()):
    """Clusters 9, 10 and 11 with three jobs each, packed but for these."""
    table = JobTable(Autoclusters())
    for number in (10, 9, 11):
        cluster = Cluster(number, "ada", "ada@pool", "ada@pool", 5, parse_ad("[JobPrio = 3]"))
        assert table.add_packed(
            cluster, {proc: ClassAd({"Args": str(proc)}).pack() for proc in range(3)}, {"args"}, 9.0
        )
        for proc in (proc for one, proc in made if one == number):
            cluster.jobs[proc]
    return table


async def listed(table, ids=(), after=None, *, newest=False, where=None, most=250):
    found = []
    verdicts = Verdicts(parse_expr(where) if where else None, "ap", 9.0)
    async with Question(Budget("this query")) as question:
        async for stretch in fitting(question, table, verdicts, ids, after, newest=newest, most=most):
            assert len(stretch.procs) <= most
            assert [job.id for job in stretch.jobs()] == [(stretch.cluster.id, proc, -1) for proc in stretch.procs]
            found += [(stretch.cluster.id, proc) for proc in stretch.procs]
    return found


@pytest.mark.parametrize("made", [(), [(9, 1), (10, 0), (10, 1), (11, 2)], JOBS])
@pytest.mark.parametrize("job", JOBS)
async def test_a_page_has_only_what_comes_after(job, made):
    place = JOBS.index(job)
    after = JobId.parse("{}.{}".format(*job))
    table = table_of(made)
    assert await listed(table, after=after, most=2) == JOBS[place + 1 :]
    assert await listed(table, after=after, newest=True) == JOBS[:place][::-1]
    assert await listed(table, [JobId(10, 0), JobId(11, -1)], after) == [
        one for one in JOBS[place + 1 :] if one[0] == 11 or one == (10, 0)
    ]


async def test_the_first_page_begins_with_the_newest():
    table = table_of()
    assert await listed(table, newest=True) == JOBS[::-1]
    assert await listed(table, [JobId(10, -1), JobId(9, 1)], newest=True) == [(10, 2), (10, 1), (10, 0), (9, 1)]


@pytest.mark.parametrize("made", [(), [(9, 1), (10, 0), (10, 1), (11, 2)], JOBS])
async def test_a_page_has_only_what_fits(made):
    table = table_of(made)
    assert await listed(table, where="ClusterId =?= undefined && ProcId > 0", newest=True) == [
        one for one in JOBS[::-1] if one[1] > 0
    ]
    assert await listed(table, where='Args == "1" || JobPrio == 4') == [one for one in JOBS if one[1] == 1]
    assert await listed(table, where="JobPrio == 4") == []
