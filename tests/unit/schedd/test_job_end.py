"""What a job's ad says of its runs: starts, suspensions, and the accounts of all runs together."""

import pytest

from engine.queue.autoclusters import Autoclusters
from engine.queue.job_table import JobTable
from engine.queue.jobs import JobId, JobStatus, Shadow
from services.schedd.core import job_end
from services.schedd.core.claim import Claim
from services.schedd.core.job_changes import PublishEvent, SaveJob
from services.schedd.core.policies import CoolDown
from shared.classad import parse_ad
from shared.messages.claims import JobExit, Usage
from tests.unit.schedd.test_decisions import cluster_of, job_of


def claim_of(slot_ad, slot="slot1@ep"):
    return Claim(
        id="c1",
        claim_id="<ep>#1#1#secret",
        startd="startd.ep",
        slot=slot,
        slot_ad=parse_ad(f"[{slot_ad}]").pack(),
        submitter="alice@p",
        epoch=1,
        lease_s=2400,
        alive_s=300,
    )


def run_of(started):
    return Shadow(JobId(1, 0), 1, "token", True, started)


def test_runs_add_up():
    job, claim = job_of(cluster_of("")), claim_of("SlotWeight = 2.0; SlotID = 7")
    for number, (began, ended) in enumerate(((1000.0, 1010.5), (2000.0, 2004.0)), 1):
        run = run_of(began)
        job_end.on_start(job, claim, began)
        job_end.on_executing(job, run, began + 1)
        assert job.ad.eval("JobRunCount") == job.ad.eval("NumJobStarts") == number
        assert job.ad.eval("JobCurrentStartDate") == job.ad.eval("ShadowBday") == int(began)
        assert job.ad.eval("JobCurrentStartExecutingDate") == int(began) + 1
        assert (job.ad.eval("RemoteHost"), job.ad.eval("RemoteSlotID")) == ("slot1@ep", 7)
        job_end.on_run_end(job, claim, run, ended)
    assert job.ad.eval("RemoteWallClockTime") == 14.5
    assert job.ad.eval("CumulativeSlotTime") == 29.0
    assert job.ad.eval("JobLastStartDate") == 1000
    assert job.ad.eval("LastRemoteHost") == "slot1@ep"
    assert not {"RemoteHost", "RemoteSlotID", "StartdAddr", "ShadowBday"} & {name for name, _ in job.ad.cells()}


def test_a_clock_that_was_set_back_takes_nothing_from_the_accounts():
    job, run = job_of(cluster_of(""), text="RemoteWallClockTime = 5.0"), run_of(1000.0)
    job_end.on_run_end(job, claim_of(""), run, 990.0)
    assert job.ad.eval("RemoteWallClockTime") == 5.0


def test_suspensions_are_counted_and_one_ends_with_its_run():
    job, run = job_of(cluster_of("")), run_of(1000.0)
    job_end.on_suspend(job, run, 1010.0)
    assert (job.ad.eval("TotalSuspensions"), job.ad.eval("LastSuspensionTime")) == (1, 1010)
    job_end.on_continue(job, run, 1015.0)
    assert (job.ad.eval("CumulativeSuspensionTime"), job.ad.eval("LastSuspensionTime")) == (5, 0)
    job_end.on_continue(job, run, 1019.0)
    job_end.on_suspend(job, run, 1020.0)
    job_end.on_run_end(job, claim_of(""), run, 1027.0)
    assert (job.ad.eval("TotalSuspensions"), job.ad.eval("CumulativeSuspensionTime")) == (2, 12)
    assert job.ad.eval("RemoteWallClockTime") == 27.0


@pytest.mark.parametrize(("before", "said", "after"), [(100, 150, 150), (100, 90, 100), (100, 0, 100)])
def test_sizes_only_grow(before, said, after):
    job = job_of(cluster_of(""), text=f"ImageSize = {before}")
    job_end.on_usage(job, Usage(image_size_kib=said, user_cpu_s=2.0, sys_cpu_s=1.0))
    assert job.ad.eval("ImageSize") == after
    assert (job.ad.eval("RemoteUserCpu"), job.ad.eval("RemoteSysCpu")) == (2.0, 1.0)


def concluded(exit_, *, stop="", status=JobStatus.RUNNING):
    """The job after its run ended so, and the events that are published of it."""
    job, run, table = job_of(cluster_of("")), run_of(1000.0), JobTable(Autoclusters())
    job.status, run.stop = status, stop
    table.add(job.cluster, [job])
    result = job_end.Result(Usage(), exit_, "slot1@ep", parse_ad("[]"), run, 1010.0)
    effects = job_end.conclude("ap", table, job, result, CoolDown())
    assert SaveJob(job) in effects
    return job, [effect.event for effect in effects if isinstance(effect, PublishEvent)]


def requeued(job):
    """Why the job went back to the queue, whether its run could not start, and the code of the cause; None: it did not
    go back."""
    if job.status != JobStatus.IDLE:
        return None
    return job.ad.eval("VacateReason"), job.number("NumShadowExceptions") > 0, job.number("VacateReasonCode")


@pytest.mark.parametrize(("code", "expected"), [(0, 21), (34, 34)])
def test_a_hold_without_a_code_is_the_startds(code, expected):
    job, (told,) = concluded(JobExit(reason="hold", hold_code=code, hold_subcode=5))
    assert (told.type, told.code, told.subcode) == ("job.held", expected, 5)
    assert told.reason == "The execution point put the job on hold"
    assert job.status == JobStatus.HELD
    assert not requeued(job)


@pytest.mark.parametrize(
    ("reason", "stop", "said", "expected"),
    [
        ("evicted", "", 0, ("its run was evicted", False, 0)),
        ("evicted", "vacate", 0, ("its run was vacated", False, 1004)),
        ("killed", "vacate", 1003, ("its run was vacated", False, 1003)),
        ("failed", "", 0, ("the job could not be started", True, 0)),
    ],
)
def test_who_does_not_end_by_itself_goes_back_to_the_queue_with_the_code_of_the_cause(reason, stop, said, expected):
    job, told = concluded(JobExit(reason=reason, vacate_code=said), stop=stop)
    assert requeued(job) == expected
    assert not told


def test_a_job_held_meanwhile_stays_held_whatever_its_run_came_to():
    job, told = concluded(JobExit(reason="evicted"), status=JobStatus.HELD)
    assert job.status == JobStatus.HELD
    assert not requeued(job)
    assert not told
