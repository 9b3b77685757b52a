"""What follows from what happens to a job, in which order."""

from engine.queue.autoclusters import Autoclusters
from engine.queue.job_table import JobTable
from engine.queue.jobs import JobId, JobStatus, Shadow
from services.schedd.core.job_changes import (
    AbandonRun,
    Advertise,
    LeaveQueue,
    LogEvent,
    PublishEvent,
    SaveJob,
    StartCoolDown,
    StopRun,
    TraceStatus,
    WakeClaim,
    apply_event,
    requeue,
)
from services.schedd.core.job_states import JobEvent, Verdict
from services.schedd.core.policies import CoolDown
from tests.unit.schedd.test_decisions import cluster_of, job_of


def queued(status=JobStatus.IDLE, *, runs=False):
    table, job = JobTable(Autoclusters()), job_of(cluster_of(""))
    table.add(job.cluster, [job])
    if runs:
        job.shadow = Shadow(JobId(1, 0), 1, "token", True, 5.0, claim="c1")
    table.set_status(job, status, 5.0)
    return table, job


def kinds(effects):
    return [type(effect) for effect in effects]


def test_a_hold_of_a_running_job_is_logged_and_written_before_its_run_is_stopped():
    table, job = queued(JobStatus.RUNNING, runs=True)
    found = apply_event("ap", table, job, JobEvent.HOLD, 9.0, reason="because", code=1, how="fast")
    assert kinds(found.effects) == [TraceStatus, LogEvent, PublishEvent, SaveJob, StopRun, Advertise]
    assert StopRun(job, "hold", "fast") in found.effects
    assert (job.status, job.ad.eval("HoldReason"), job.number("NumHolds")) == (JobStatus.HELD, "because", 1)
    assert table.demand("alice@p") == (0, 0.0)


def test_a_removal_by_force_abandons_the_run_and_leaves_the_queue():
    table, job = queued(JobStatus.RUNNING, runs=True)
    found = apply_event("ap", table, job, JobEvent.FORCE, 9.0, reason="because")
    expected = [TraceStatus, LogEvent, PublishEvent, SaveJob, AbandonRun, LeaveQueue, Advertise]
    assert kinds(found.effects) == expected
    assert LeaveQueue(job, forced=True) in found.effects


def test_a_claim_that_waits_with_a_job_looks_for_another_when_the_job_is_held():
    table, job = queued()
    job.waits_for = "c1"
    table.refresh(job)
    found = apply_event("ap", table, job, JobEvent.HOLD, 9.0)
    assert WakeClaim("c1") in found.effects
    assert not job.waits_for


def test_what_cannot_happen_has_no_effects():
    table, job = queued()
    found = apply_event("ap", table, job, JobEvent.RELEASE, 9.0)
    assert (found.change.verdict, found.effects) == (Verdict.ALREADY, ())
    assert job.status == JobStatus.IDLE


def test_the_second_failure_in_a_row_keeps_the_job_from_being_offered_for_a_while():
    table, job = queued(JobStatus.RUNNING)
    effects = requeue("ap", table, job, "why", 9.0, CoolDown(), failed=True)
    assert StartCoolDown not in kinds(effects)
    assert table.demand("alice@p")[0] == 1
    table.set_status(job, JobStatus.RUNNING, 10.0)
    effects = requeue("ap", table, job, "why", 11.0, CoolDown(), failed=True)
    assert StartCoolDown(job, 1.0) in effects
    assert Advertise(at_once=True) in effects
    assert (job.status, table.demand("alice@p")[0]) == (JobStatus.IDLE, 0)
