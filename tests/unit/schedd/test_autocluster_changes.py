"""Which jobs have come to which autocluster, as ranges; what an autocluster looks like, once (NEG-17)."""

from engine.queue.autoclusters import Autoclusters
from engine.queue.job_columns import projected
from engine.queue.job_table import JobTable
from engine.queue.jobs import Cluster, Job, JobStatus
from shared.classad import ClassAd


def table_of(*counts: int, own=lambda proc: {}) -> JobTable:
    table = JobTable(Autoclusters())
    for number, count in enumerate(counts, 1):
        ad = ClassAd({"RequestMemory": number, "Environment": "SECRET=1", "Cmd": "x"})
        cluster = Cluster(number, "ada", "ada@pool", "ada@pool", qdate=3, ad=ad)
        jobs = []
        for proc in range(count):
            mine = ClassAd(own(proc))
            mine.chain(cluster.ad)
            jobs.append(Job(cluster, proc, mine, JobStatus.IDLE, 0, "ada@pool"))
        table.add(cluster, jobs)
    return table


def told(table: JobTable) -> list:
    project = lambda job, names: projected("ap", job, 9.0, names)  # noqa: E731
    return [kind for part in table.sorting.take(project) for kind in part]


def test_jobs_that_are_alike_are_one_range_and_told_once():
    table = table_of(1000, 3)
    first, second = told(table)
    assert (first.jobs, second.jobs) == ([[1, 0, 999]], [[2, 0, 2]])
    assert first.autocluster != second.autocluster
    ad = ClassAd.unpack(first.ad)
    assert ad.eval("RequestMemory") == 1
    assert "Environment" not in ad
    assert not table.sorting
    job = next(table.jobs())
    table.set_status(job, JobStatus.HELD, 10.0)
    table.set_status(job, JobStatus.IDLE, 20.0)
    assert told(table) == []  # it is of the same kind as before


def test_all_can_be_told_again_with_or_without_what_they_look_like():
    table = table_of(30, 3)
    assert len(told(table)) == 2
    jobs = list(table.jobs())
    table.sorting.repeat(jobs[:10])
    table.sorting.repeat(jobs[10:])
    again = told(table)
    assert [kind.jobs for kind in again] == [[[1, 0, 29]], [[2, 0, 2]]]
    assert [kind.ad for kind in again] == [b"", b""]
    table.sorting.forget_ads()
    table.sorting.repeat(jobs)
    assert all(kind.ad for kind in told(table))
    assert told(table) == []


def test_jobs_that_come_to_another_autocluster_are_told_again():
    table = table_of(4, own=lambda proc: {"Department": proc % 2})
    assert [kind.jobs for kind in told(table)] == [[[1, 0, 3]]]
    for job in table.set_significant(["Department"]):
        table.refresh(job)
    assert [kind.jobs for kind in told(table)] == [[[1, 0, 0], [1, 2, 2]], [[1, 1, 1], [1, 3, 3]]]


def test_many_ranges_come_in_several_parts():
    table = table_of(12_000, own=lambda proc: {"RequestMemory": proc % 2 + 1})
    parts = list(table.sorting.take(lambda job, names: b""))
    assert len(parts) > 1
    assert all(sum(len(kind.jobs) for kind in part) <= 5000 for part in parts)
    assert sum(last - first + 1 for part in parts for kind in part for _, first, last in kind.jobs) == 12_000
