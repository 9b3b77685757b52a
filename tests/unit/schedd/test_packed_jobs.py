"""Jobs that stay packed are for everybody what they would be if they were made."""

import sqlite3

import msgpack
import pytest

from engine.queue.autoclusters import Autoclusters
from engine.queue.job_columns import projected
from engine.queue.job_table import JobTable
from engine.queue.jobs import Cluster, JobStatus, full_packed, make_job
from engine.queue.packed_jobs import LOOKED_AT, NOTHING, Splitter, may_be_packed, merged, merging, split
from services.schedd.core.invariants import check_invariants
from services.schedd.core.policies import WATCHED
from services.schedd.io.stored_jobs import read_jobs
from shared.classad import ClassAd, parse_ad

PROCS = [0, 1, 2, 3, 7, 8]


def cluster_of(text="RequestCpus = 2; JobPrio = 3", number=4):
    return Cluster(number, "ada", "ada@pool", "ada@pool", 5, parse_ad(f"[{text}]"))


def own(proc):
    return parse_ad(f'[Args = "{proc}"; Colour = {proc % 2}]').pack()


def tables(text="RequestCpus = 2; JobPrio = 3"):
    """(a table whose jobs are packed, one with the same jobs made)."""
    packed, made = JobTable(Autoclusters()), JobTable(Autoclusters())
    assert packed.add_packed(cluster_of(text), {proc: own(proc) for proc in PROCS}, {"args", "colour"}, 9.0)
    cluster = cluster_of(text)
    jobs = [make_job(cluster, proc, own(proc), JobStatus.IDLE, 3, "ada@pool") for proc in PROCS]
    for job in jobs:
        job.idle_from = 9.0
    made.add(cluster, jobs)
    return packed, made


def seen(table):
    """What negotiator, users and journal see of a table."""
    told = [kind for part in table.sorting.take(lambda job, names: projected("ap", job, 9.0, names)) for kind in part]
    idle = table.idle["ada@pool"]
    return {
        "violations": check_invariants(table, {}, {}),
        "totals": table.totals(),
        "demand": table.demand("ada@pool"),
        "offered": table.counts["ada@pool"].offered,
        "requests": idle.runs(10),
        "in order": list(idle.keys()),
        "per user": table.per_user,
        "waiting": table.clusters[4].waiting,
        "procs": sorted(table.clusters[4].jobs),
        "ads": [full_packed("ap", job, 9.0) for job in table.jobs()],
        "since": [job.idle_since() for job in table.jobs()],
        "kinds": [(kind.autocluster, kind.jobs, kind.ad) for kind in told],
    }


def packed_procs(table):
    return sorted(proc for group in table.clusters[4].jobs.groups for proc in group.ads)


def test_packed_jobs_are_seen_as_made_ones_are_and_stay_packed():
    packed, made = tables()
    assert seen(packed) == seen(made)
    assert seen(packed)["violations"] == []
    assert packed_procs(packed) == PROCS


def test_who_asks_for_a_job_has_the_only_one():
    packed, made = tables()
    job = packed.at(packed.idle["ada@pool"].heads()[0][0])
    assert packed.clusters[4].jobs[0] is job is packed.get(job.id)
    assert packed_procs(packed) == PROCS[1:]
    for table in (packed, made):
        seen(table)
        first = table.clusters[4].jobs[0]
        table.set_status(first, JobStatus.HELD, 20.0)
        table.set_status(table.clusters[4].jobs[7], JobStatus.REMOVED, 20.0)
        table.forget(table.clusters[4].jobs[7])
    assert seen(packed) == seen(made)
    assert seen(packed)["violations"] == []


def test_a_cluster_is_gone_with_its_last_job():
    packed, _ = tables()
    cluster = packed.clusters[4]
    assert [packed.forget(cluster.jobs[proc]) for proc in PROCS] == [False] * 5 + [True]
    assert (packed.clusters, packed.total, packed.per_user) == ({}, 0, {})
    assert packed.demand("ada@pool") == (0, 0.0)


@pytest.mark.parametrize(("names", "left"), [(["Memory"], PROCS), (["Colour"], [])])
def test_they_are_sorted_anew_and_made_where_slots_tell_them_apart(names, left):
    packed, made = tables()
    for table in (packed, made):
        seen(table)
        waiting = table.set_significant(names)
        assert check_invariants(table, {}, {}) == []
        for job in waiting:
            table.refresh(job)
    assert packed_procs(packed) == left
    different = {"requests", "in order", "kinds", "ads", "offered"}  # numbers of autoclusters may be others
    mine, others = seen(packed), seen(made)
    assert {name: mine[name] for name in mine.keys() - different} == {
        name: others[name] for name in others.keys() - different
    }
    assert [(run.first, run.count) for run in mine["requests"][0]] == [
        (run.first, run.count) for run in others["requests"][0]
    ]
    assert mine["violations"] == []


def test_jobs_that_are_asked_for_while_they_wait_to_be_sorted_are_offered_once():
    packed, _ = tables()
    waiting = packed.set_significant(["Colour"])
    early = packed.clusters[4].jobs[3]
    assert early.idle_key is None
    for job in waiting:
        packed.refresh(job)
    packed.refresh(early)
    assert packed.demand("ada@pool")[0] == len(PROCS)
    assert check_invariants(packed, {}, {}) == []


@pytest.mark.parametrize("text", ["JobUniverse = 7", "JobUniverse = 11", "DeferralTime = 5", "Rank = Colour"])
def test_jobs_that_are_looked_at_before_they_start_are_made(text):
    table = JobTable(Autoclusters())
    assert not table.add_packed(cluster_of(text + "; JobPrio = 3"), {0: own(0)}, {"args", "colour"}, 9.0)
    assert (table.total, table.clusters) == (0, {})


def test_no_attribute_that_a_periodic_look_is_for_stays_packed():
    assert {name.lower() for name in WATCHED} <= LOOKED_AT
    assert may_be_packed({"args", "out"})
    assert not may_be_packed({"args", "requestfoo"})


def test_of_stored_jobs_those_are_packed_that_wait_for_nothing_but_a_slot():
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE jobs (cluster, proc, status, priority, submitter, ad)")
    rows = {
        0: (1, 3, "ada@pool", '[Args = "0"]'),
        1: (5, 3, "ada@pool", '[Args = "1"]'),
        2: (1, 4, "ada@pool", "[JobPrio = 4]"),
        3: (1, 3, "physics.ada@pool", "[]"),
        4: (1, 3, "ada@pool", "[PeriodicHold = NumJobStarts > 3]"),
        5: (1, 3, "ada@pool", "[LastVacateTime = 4]"),
    }
    for proc, (status, priority, submitter, text) in rows.items():
        row = (4, proc, status, priority, submitter, parse_ad(text).pack())
        database.execute("INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?)", row)
    stored = read_jobs(database, cluster_of())
    (group,) = stored.groups
    assert sorted(group.ads) == [0, 5]
    assert group.names == {"args", "lastvacatetime"}
    assert [one[0] for one in sorted(stored.others)] == [1, 2, 3, 4]
    assert [(one[2], one[3], one[4]) for one in sorted(stored.others)] == [rows[proc][:3] for proc in (1, 2, 3, 4)]


def test_a_job_that_waits_keeps_its_ad_as_bytes_until_somebody_reads_it():
    job = make_job(cluster_of(), 0, own(0), JobStatus.IDLE, 3, "ada@pool")
    job.ad["NumJobStarts"] = 1
    written = job.ad.keep_packed()
    job.settle()
    assert job.ad.pack() is written
    assert job.number("NumJobStarts") == 1
    job.settle()
    job.ad["NumJobStarts"] = 2
    job.settle()  # nothing is lost that was not packed
    assert ClassAd.unpack(job.ad.pack()).eval("NumJobStarts") == 2


def own_ad(**more):
    return ClassAd({"Args": "1", **more}).pack()


HELD = split(ClassAd({"JobStatus": 5, "HoldReason": "why", "HoldReasonCode": 1}).pack())[1]


@pytest.mark.parametrize(
    "own",
    [
        own_ad(),
        own_ad(Out="out.1"),
        own_ad(**{f"Own{number}": number for number in range(20)}),
        ClassAd().pack(),
        # These end with what the order wrote, and it is their own.
        own_ad(Err=merged(NOTHING, HELD)[1:].decode("utf-8", "surrogateescape")),
        own_ad(JobStatus=2),
    ],
)
def test_many_ads_are_taken_apart_as_each_is_alone(own):
    splitter = Splitter()
    splitter.split(merged(own_ad(Args="first"), HELD))
    for packed in (merged(own, HELD), own, merged(own, HELD)):
        rest, state, names = splitter.split(packed)
        assert (rest, state) == split(packed)
        assert list(names) == list(msgpack.unpackb(rest, unicode_errors="surrogateescape"))


@pytest.mark.parametrize("count", [0, 1, 13, 14, 15, 16, 17, 70_000])
def test_one_ad_is_put_together_with_many_as_with_each(count):
    first = msgpack.packb({f"Own{number}": number for number in range(count)})
    assert merging(HELD)(first) == merged(first, HELD)
    assert msgpack.unpackb(merging(HELD)(first)) == msgpack.unpackb(first) | msgpack.unpackb(HELD)
