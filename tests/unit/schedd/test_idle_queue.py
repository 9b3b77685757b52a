"""The order of idle jobs, against a plain sorted list."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.queue import bucket
from engine.queue.bucket import key_of
from engine.queue.idle_queue import IdleQueue
from tests.spec import spec

JOBS = st.lists(
    st.tuples(st.integers(-2, 2), st.integers(1, 4), st.integers(0, 60), st.integers(1, 4)),
    max_size=120,
    unique_by=lambda job: (job[1], job[2]),
)


def filled(jobs):
    idle, plain = IdleQueue(), {}
    for priority, cluster, proc, autocluster in jobs:
        key = key_of(priority, cluster, proc)
        idle.add(autocluster, key)
        plain[key] = autocluster
    return idle, plain


@given(st.sets(st.integers(0, 300)), st.lists(st.sets(st.integers(0, 320)), max_size=4), st.sampled_from([4, 1024]))
def test_rows_that_leave_are_as_jobs_that_leave_one_by_one(procs, rows, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucket, "CHUNK", chunk)
        idle, other = IdleQueue(), IdleQueue()
        for one in (idle, other):
            one.add_row(7, 2, 3, sorted(procs))
            one.add(7, key_of(2, 4, 1))
        for row in rows:
            idle.remove_row(7, 2, 3, sorted(row))
            for proc in row:
                other.remove(7, key_of(2, 3, proc))
            assert list(idle.keys()) == list(other.keys())
            assert (idle.total, idle.heads(), idle.weight()) == (other.total, other.heads(), other.weight())
        idle.remove_row(7, 2, 4, [1])
        idle.remove_row(7, 2, 3, sorted(procs))
        assert (idle.total, list(idle.heads())) == (0, [])


@given(JOBS, st.data())
def test_runs_are_consecutive_jobs_of_one_autocluster_in_order(jobs, data):
    idle, plain = filled(jobs)
    for key in data.draw(st.lists(st.sampled_from(sorted(plain)), unique=True) if plain else st.just([])):
        idle.remove(plain.pop(key), key)
    expected = [
        (autocluster, keys[0], len(keys))
        for autocluster, group in groupby(sorted(plain), key=plain.__getitem__)
        if (keys := list(group))
    ]
    runs, more = idle.runs(1000)
    assert [(run.autocluster, run.first, run.count) for run in runs] == expected
    assert not more
    assert idle.total == len(plain)
    assert list(idle.keys()) == [(key, plain[key]) for key in sorted(plain)]
    singles, _ = idle.runs(1000, counts=False)
    assert [run.first for run in singles] == sorted(plain)
    for autocluster in set(plain.values()):
        assert idle.first(autocluster) == min(key for key in plain if plain[key] == autocluster)
        assert idle.count(autocluster) == list(plain.values()).count(autocluster)


@spec("NEG-30")
@given(JOBS, st.integers(1, 5), st.booleans(), st.none() | st.frozensets(st.integers(1, 4)))
def test_pages_of_requests_add_up(jobs, limit, counts, only):
    idle, plain = filled(jobs)
    everything, _ = idle.runs(1000, counts=counts, only=only)
    chosen = sorted(key for key, autocluster in plain.items() if only is None or autocluster in only)
    assert sum(run.count for run in everything) == len(chosen)
    if not counts:
        assert [run.first for run in everything] == chosen
    pages, skip, more = [], 0, True
    while more:
        page, more = idle.runs(limit, skip=skip, counts=counts, only=only)
        pages += page
        skip += len(page)
    assert pages == everything


@given(JOBS, st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4), st.booleans()), max_size=8), st.data())
def test_a_page_tells_how_it_is_now_wherever_the_last_one_ended(jobs, pages, data):
    idle, plain = filled(jobs)
    for skip, limit, counts in pages:
        fresh = IdleQueue()
        for key, autocluster in plain.items():
            fresh.add(autocluster, key)
        assert idle.runs(limit, skip=skip, counts=counts) == fresh.runs(limit, skip=skip, counts=counts)
        if plain and data.draw(st.booleans()):
            key = data.draw(st.sampled_from(sorted(plain)))
            idle.remove(plain.pop(key), key)


def test_taking_from_the_front_and_adding_again_keeps_the_order():
    idle = IdleQueue()
    for proc in range(1000):
        idle.add(1, key_of(0, 1, proc))
    for proc in range(500):
        idle.remove(1, key_of(0, 1, proc))
    idle.add(1, key_of(0, 1, 3))
    idle.add(1, key_of(5, 9, 0))
    assert [idle.first(1), idle.total] == [key_of(5, 9, 0), 502]
    idle.remove(1, key_of(5, 9, 0))
    assert idle.first(1) == key_of(0, 1, 3)
    idle.remove(1, key_of(0, 1, 99))  # one that is not there
    assert idle.total == 501


@given(JOBS, st.lists(st.tuples(st.integers(-2, 2), st.integers(1, 4), st.sets(st.integers(61, 120)))), st.data())
def test_rows_of_jobs_stand_where_each_of_them_would(jobs, rows, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucket, "CHUNK", 3)
        idle, plain = filled(jobs)
        for priority, cluster, procs in rows:
            new = sorted(proc for proc in procs if key_of(priority, cluster, proc) not in plain)
            idle.add_row(2, priority, cluster, new, 0.5)
            plain |= {key_of(priority, cluster, proc): 2 for proc in new}
        leaving = data.draw(st.lists(st.sampled_from(sorted(plain)), unique=True)) if plain else []
        for key in leaving:
            assert key in idle.buckets[plain[key]]
            idle.remove(plain.pop(key), key)
        assert list(idle.keys()) == [(key, plain[key]) for key in sorted(plain)]
        assert idle.total == len(plain)
        fresh = IdleQueue()
        for key, autocluster in plain.items():
            fresh.add(autocluster, key)
        assert list(idle.heads()) == list(fresh.heads())
        assert idle.runs(1000) == fresh.runs(1000)


def test_the_weight_of_a_queue_follows_its_jobs():
    idle = IdleQueue()
    idle.add_row(1, 0, 1, range(10), 0.1)
    idle.add(2, key_of(0, 2, 0), 8.0)
    assert idle.weight() == pytest.approx(9.0)
    idle.remove(2, key_of(0, 2, 0))
    for proc in range(10):
        idle.remove(1, key_of(0, 1, proc))
    assert (idle.weight(), idle.total, list(idle.heads())) == (0.0, 0, [])
