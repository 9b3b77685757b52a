"""Jobs that the schedd runs itself: who may have some, which may start, and what their end means."""

import pytest

from engine.queue.autoclusters import Autoclusters
from engine.queue.job_table import JobTable
from engine.queue.jobs import Cluster, JobStatus, Shadow, make_job
from services.schedd.core.scheduler_universe import (
    Limits,
    Running,
    exit_of,
    kill_after_s,
    launch,
    may_start,
    on_end,
    refusal,
)
from shared.classad import ClassAd, parse_expr
from shared.job_text import BadJobText


def job(**more):
    ad = ClassAd({"JobUniverse": 7, "Cmd": "run.sh", "Iwd": "/work", "JobStatus": 1, **more})
    cluster = Cluster(17, "alice", "alice@pool", "alice@pool", 5, ad)
    return make_job(cluster, 0, ClassAd().pack(), JobStatus.IDLE, 0, "alice@pool")


@pytest.mark.parametrize(
    ("user", "spool", "said"),
    [
        ("alice@pool", False, ""),
        ("alice@POOL", False, ""),
        ("alice@pool", True, "without spooling"),
        ("alice@elsewhere", False, "another user"),
        ("bob@pool", False, "bob@pool is another user"),
        ("alice", False, "another user"),
    ],
)
def test_who_may_have_such_jobs(user, spool, said):
    answer = refusal(user, "alice", "pool", spool=spool)
    assert (said in answer) if said else not answer


@pytest.mark.parametrize(
    ("start", "running", "of_owner", "expected"),
    [
        (None, 1000, 199, True),
        (None, 1000, 200, False),
        ("TotalSchedulerJobsRunning < 500", 499, 0, True),
        ("TotalSchedulerJobsRunning < 500", 500, 0, False),
        ('TARGET.Cmd == "run.sh"', 0, 0, True),
        ("TARGET.Missing", 0, 0, False),
    ],
)
def test_which_may_start(start, running, of_owner, expected):
    limits = Limits(None if start is None else parse_expr(start), 200, parse_expr("false"))
    one = job()
    ad = ClassAd.from_table({**one.cluster.ad.table(), **one.ad.table()})
    assert may_start(one, ad, Running(running, 7, of_owner), limits, 5.0) is expected


@pytest.mark.parametrize(
    ("start", "running", "expected"),
    [(None, 1000, True), ("TotalLocalJobsRunning < 200", 199, True), ("TotalLocalJobsRunning < 200", 200, False)],
)
def test_jobs_of_the_local_universe_have_limits_of_their_own(start, running, expected):
    limits = Limits(parse_expr("false"), 200, None if start is None else parse_expr(start))
    one = job(JobUniverse=12)
    assert may_start(one, ClassAd({}), Running(600, running, 300), limits, 5.0) is expected


def test_no_slot_is_offered_such_a_job():
    table = JobTable(Autoclusters())
    one = job()
    table.add(one.cluster, [one])
    assert list(table.due_here) == [one.id]
    assert table.demand("alice@pool") == (0, 0.0)
    assert table.check_invariants() == []
    table.set_status(one, JobStatus.RUNNING, 6.0)
    count = table.counts["alice@pool"]
    assert (count.running, count.total, count.scheduler[JobStatus.RUNNING]) == (0, 1, 1)
    assert not table.due_here
    table.set_status(one, JobStatus.HELD, 7.0)
    table.set_status(one, JobStatus.IDLE, 8.0)
    assert list(table.due_here) == [one.id]
    assert table.forget(one)
    assert not table.due_here


def test_what_is_run():
    found = launch(
        job(Arguments="a 'b c'", Environment="X=1 HOME=/else", Out="out", Err="/e"), "alice", "/home/a", "ap"
    )
    assert found.words == ["/work/run.sh", "a", "b c"]
    assert found.environment == {
        "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/else", "USER": "alice", "LOGNAME": "alice", "X": "1",
        "CONDOR_ID": "17.0", "CONDOR_SCHEDD": "ap",
    }  # fmt: skip
    assert list(map(str, (found.stdin, found.stdout, found.stderr))) == ["/dev/null", "/work/out", "/e"]
    with pytest.raises(BadJobText):
        launch(job(Environment="nothing"), "alice", "/", "ap")
    with pytest.raises(BadJobText):
        launch(job(Cmd=""), "alice", "/", "ap")


@pytest.mark.parametrize(
    ("ad", "why", "seconds"),
    [
        ({}, "hold", 20.0),
        ({"KillSig": "SIGTERM"}, "vacate", None),
        ({"RemoveKillSig": "SIGUSR1"}, "remove", None),
        ({"RemoveKillSig": "SIGUSR1"}, "hold", 20.0),
        ({"RemoveKillSig": "SIGUSR1", "KillSigTimeout": 3}, "remove", 3.0),
    ],
)
def test_how_long_a_job_has_to_leave(ad, why, seconds):
    assert kill_after_s(ClassAd(ad), why) == seconds


@pytest.mark.parametrize(
    ("code", "stop", "reason", "exit_code", "exit_signal"),
    [
        (3, "", "exited", 3, None),
        (-9, "", "exited", None, 9),
        (None, "", "evicted", None, None),
        (2, "remove", "exited", 2, None),
        (-15, "vacate", "evicted", None, None),
    ],
)
def test_what_an_end_means(code, stop, reason, exit_code, exit_signal):
    run = Shadow(job().id, 1, "", False, 5.0, stop=stop)
    found = exit_of(code, run)
    assert (found.reason, found.exit_code, found.exit_signal) == (reason, exit_code, exit_signal)


def test_a_run_is_added_to_the_totals():
    one = job(RemoteWallClockTime=2.0)
    run = one.shadow = Shadow(one.id, 1, "", False, 5.0)
    on_end(one, run, 8.5)
    assert one.shadow is None
    assert one.ad["RemoteWallClockTime"] == 5.5
