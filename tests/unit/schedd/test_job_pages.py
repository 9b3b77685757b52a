"""Jobs page by page: the next page begins after the last job of the one before, either way round."""

from types import SimpleNamespace

import pytest

from engine.queue.jobs import JobId
from engine.queue.packed_jobs import JobMap
from services.schedd.io.queries import in_order, newest_first


def cluster_of(number):
    jobs = JobMap()
    for proc in range(3):
        jobs[proc] = (number, proc)
    return SimpleNamespace(jobs=jobs)


#: Jobs of clusters 9, 10 and 11, each known by its number.
TABLE = SimpleNamespace(clusters={number: cluster_of(number) for number in (10, 9, 11)})
JOBS = [(cluster, proc) for cluster in (9, 10, 11) for proc in range(3)]


@pytest.mark.parametrize("job", JOBS)
def test_a_page_has_only_what_comes_after(job):
    place = JOBS.index(job)
    after = JobId.parse("{}.{}".format(*job))
    assert list(in_order(TABLE, [], after)) == JOBS[place + 1 :]
    assert list(newest_first(TABLE, [], after)) == JOBS[:place][::-1]


def test_the_first_page_begins_with_the_newest():
    assert list(newest_first(TABLE, [], None)) == JOBS[::-1]
    assert list(newest_first(TABLE, [JobId(10, -1), JobId(9, 1)], None)) == [(10, 2), (10, 1), (10, 0), (9, 1)]
