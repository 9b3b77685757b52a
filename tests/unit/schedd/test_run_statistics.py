"""Runs are counted by how they ended, and their time by what it was for."""

import pytest

from engine.queue.jobs import JobId, JobStatus, Shadow
from services.schedd.core.job_end import Ended
from services.schedd.core.run_statistics import COMPLETED, FAILED, HELD, KILLED, REQUEUED, RunStatistics, outcome
from shared.messages.claims import JobExit
from tests.spec import spec


def run(**fields):
    return Shadow(job=JobId(1, 0), attempt=1, token="t", transfer=False, started=100.0, claim="c", **fields)


@spec("MON-21")
@pytest.mark.parametrize(
    ("reason", "status", "missing", "how"),
    [
        ("exited", JobStatus.COMPLETED, False, COMPLETED),
        ("exited", JobStatus.HELD, False, HELD),  # on_exit_hold
        ("exited", JobStatus.IDLE, False, REQUEUED),  # on_exit_remove = false
        ("exited", JobStatus.IDLE, True, FAILED),
        ("hold", JobStatus.HELD, False, HELD),
        ("killed", JobStatus.REMOVED, False, KILLED),
        ("killed", JobStatus.HELD, False, KILLED),
        ("evicted", JobStatus.IDLE, False, REQUEUED),
        ("failed", JobStatus.IDLE, False, FAILED),
    ],
)
def test_how_a_run_ended(reason, status, missing, how):
    assert outcome(JobExit(reason=reason), status, output_missing=missing) == how


@spec("MON-21")
def test_a_run_that_a_policy_ended_by_removing_its_job_is_told_apart():
    statistics = RunStatistics()
    statistics.over(KILLED, run(executing=101.0), Ended(110.0, 10.0, 9.0), 1)
    statistics.over(KILLED, run(executing=101.0, removed_by_policy=True), Ended(110.0, 10.0, 9.0), 1)
    counted = statistics.counted()
    assert (counted["JobsExited"], counted["JobsKilled"], counted["JobsShouldRemove"]) == (2, 1, 1)


@spec("MON-21")
def test_execution_as_the_access_point_sees_it_ends_where_output_begins_to_come():
    statistics = RunStatistics()
    statistics.over(COMPLETED, run(executing=102.0, output_began=110.0), Ended(115.0, 15.0, 13.0), 1)
    statistics.over(COMPLETED, run(executing=102.0), Ended(115.0, 15.0, 13.0), 1)  # no output travels
    assert statistics.counted()["JobsAccumExecuteAltTime"] == 8 + 13


@spec("MON-21")
def test_what_runs_is_told_by_time_and_size():
    statistics = RunStatistics()
    statistics.look([(5.0, 10.0), (100.0, 10.0), (100.0, 70.0)])
    told = statistics.histograms()
    assert told["JobsRunningRuntimes"].startswith("1, 0, 2, 0")
    assert told["JobsRunningSizes"].startswith("2, 1, 0")
    statistics.look([])
    assert set(statistics.histograms()["JobsRunningRuntimes"]) == {"0", ",", " "}


@spec("MON-21")
def test_times_add_up():
    statistics = RunStatistics()
    statistics.over(COMPLETED, run(executing=102.0), Ended(115.0, 15.0, 10.0), 100, closing=True, core_dumped=True)
    statistics.over(FAILED, run(), Ended(107.0, 7.0, 0.0), 1000)
    statistics.over(REQUEUED, run(executing=101.0), Ended(140.0, 40.0, 39.0), 1000, closing=True)
    counted = statistics.counted()
    assert [counted[f"JobsAccum{name}Time"] for name in ("PreExecute", "Execute", "PostExecute", "Churn")] == [
        3,
        49,
        3,
        7,
    ]
    assert (counted["JobsAccumRunningTime"], counted["JobsAccumBadputTime"]) == (62, 47)
    assert counted["JobsAccumExceptionalBadputTime"] == 7
    assert (counted["JobsExited"], counted["JobsExitedNormally"], counted["JobsExitedAndClaimClosing"]) == (3, 1, 1)
    assert (counted["JobsExitException"], counted["JobsShouldRequeue"], counted["JobsCoredumped"]) == (1, 1, 1)
    assert (counted["JobsExecFailed"], counted["JobsShadowNoMemory"]) == (1, 0)
    histograms = statistics.histograms()
    assert histograms["JobsCompletedRuntimes"].startswith("1, 0")
    assert histograms["JobsBadputRuntimes"].startswith("1, 1, 0")
    assert histograms["JobsBadputSizes"].startswith("0, 0, 2, 0")
    buckets = histograms["JobsRuntimesHistogramBuckets"].count(",") + 1
    assert histograms["JobsCompletedRuntimes"].count(",") == buckets
    assert histograms["JobsCompletedSizes"].count(",") == histograms["JobsSizesHistogramBuckets"].count(",") + 1
