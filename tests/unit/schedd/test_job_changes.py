"""What follows from what happens to a job, in which order."""

import pytest

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
    cluster_log_event,
    put_back,
    requeue,
    submit_log_event,
    submitted_event,
)
from services.schedd.core.job_states import JobEvent, Verdict
from services.schedd.core.policies import CoolDown
from shared import job_log
from shared.classad import ClassAd
from shared.job_log import LogReader
from shared.messages.claims import Usage
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


@pytest.mark.parametrize("event", [JobEvent.HOLD, JobEvent.REMOVE, JobEvent.FORCE])
@pytest.mark.parametrize("status", [JobStatus.RUNNING, JobStatus.SUSPENDED, JobStatus.TRANSFERRING_OUTPUT])
def test_the_log_of_a_job_that_runs_tells_that_it_leaves_before_it_tells_why(event, status):
    table, job = queued(status, runs=True)
    job.shadow.executing, job.shadow.stored_usage = 6.0, Usage(user_cpu_s=2.0, memory_mib=5)
    slot = ClassAd({"Cpus": 3})
    found = apply_event("ap", table, job, event, 10.0, reason="because", slot=slot)
    first, second = (effect.event() for effect in found.effects if isinstance(effect, LogEvent))
    assert (first.number, second.number) == (4, 12 if event == JobEvent.HOLD else 9)
    told = first.attributes
    assert (told["TerminatedAndRequeued"], "Reason" in told, told["Cpus"]) == (False, False, 3)
    assert (told["TimeExecuteUsage"], told["TimeSlotBusyUsage"]) == (4, 10 - int(job.shadow.started))
    assert (told["CpusUsage"], told["MemoryUsage"], told["RunRemoteUsage"]) == (
        0.5,
        5,
        "Usr 0 00:00:02, Sys 0 00:00:00",
    )
    # Once it is held, a removal takes nothing from any machine.
    then = apply_event("ap", table, job, JobEvent.REMOVE, 11.0, reason="for good", slot=slot)
    numbers = [effect.event().number for effect in then.effects if isinstance(effect, LogEvent)]
    assert numbers == ([9] if event == JobEvent.HOLD else [])


def test_a_policy_that_holds_or_removes_a_job_is_told_alone():
    for event, number in ((JobEvent.HOLD, 12), (JobEvent.REMOVE, 9)):
        table, job = queued(JobStatus.RUNNING, runs=True)
        job.shadow.executing = 6.0
        found = apply_event("ap", table, job, event, 10.0, reason="because", slot=ClassAd(), by_policy=True)
        assert [effect.event().number for effect in found.effects if isinstance(effect, LogEvent)] == [number]
        assert job.number("NumVacates") == 1


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


def told(effects):
    (found,) = [effect.event for effect in effects if isinstance(effect, PublishEvent)]
    return found


def log_of(effects):
    """What the job's log is to say."""
    return b"".join(job_log.written(effect.event()) for effect in effects if isinstance(effect, LogEvent)).decode()


def test_a_hold_tells_ad_log_and_listeners_the_same():
    table, job = queued()
    found = apply_event("ap", table, job, JobEvent.HOLD, 9.0, reason="no disk", code=34, subcode=104)
    assert [job.ad.eval(f"HoldReason{name}") for name in ("", "Code", "SubCode")] == ["no disk", 34, 104]
    event = told(found.effects)
    assert (event.type, event.reason, event.code, event.subcode) == ("job.held", "no disk", 34, 104)
    assert (event.at, event.schedd, event.job_id, event.owner, event.submitter) == (
        9.0,
        "ap",
        "1.0",
        "alice",
        "alice@p",
    )
    assert "no disk" in log_of(found.effects)
    assert "Code 34 Subcode 104" in log_of(found.effects)
    assert TraceStatus(job, JobStatus.IDLE, 9.0) in found.effects
    assert Advertise(at_once=False) in found.effects
    assert StopRun not in kinds(found.effects)


def test_a_release_moves_the_reason_and_offers_the_job():
    table, job = queued()
    apply_event("ap", table, job, JobEvent.HOLD, 9.0, reason="no disk", code=34, subcode=104)
    found = apply_event("ap", table, job, JobEvent.RELEASE, 12.0, reason="there is now")
    assert kinds(found.effects) == [TraceStatus, LogEvent, PublishEvent, SaveJob, Advertise]
    assert [job.ad.eval(f"LastHoldReason{name}") for name in ("", "Code", "SubCode")] == ["no disk", 34, 104]
    assert not {"HoldReason", "HoldReasonCode", "HoldReasonSubCode"} & {name for name, _ in job.ad.cells()}
    assert job.ad.eval("ReleaseReason") == "there is now"
    assert (told(found.effects).type, told(found.effects).reason) == ("job.released", "there is now")
    assert "there is now" in log_of(found.effects)
    assert Advertise(at_once=True) in found.effects
    assert table.demand("alice@p")[0] == 1


def test_a_removal_of_a_running_job_is_told_once_and_ends_with_its_run():
    table, job = queued(JobStatus.RUNNING, runs=True)
    found = apply_event("ap", table, job, JobEvent.REMOVE, 9.0, reason="enough")
    assert kinds(found.effects) == [TraceStatus, LogEvent, PublishEvent, SaveJob, StopRun, Advertise]
    assert StopRun(job, "remove", "graceful") in found.effects
    assert (job.ad.eval("RemoveReason"), told(found.effects).reason) == ("enough", "enough")
    assert "enough" in log_of(found.effects)
    # By force, because the startd does not answer: it was told before.
    found = apply_event("ap", table, job, JobEvent.FORCE, 10.0, reason="at once")
    assert kinds(found.effects) == [TraceStatus, SaveJob, AbandonRun, LeaveQueue, Advertise]
    assert job.ad.eval("RemoveReason") == "enough"


def test_a_removal_leaves_the_queue_as_it_is_asked_to():
    table, job = queued()
    found = apply_event("ap", table, job, JobEvent.REMOVE, 9.0, reason="enough")
    assert LeaveQueue(job, forced=False) in found.effects
    assert StopRun not in kinds(found.effects)


def test_a_vacated_job_stays_what_it_is_until_its_run_is_over():
    table, job = queued(JobStatus.RUNNING, runs=True)
    found = apply_event("ap", table, job, JobEvent.VACATE, 9.0, how="fast")
    assert kinds(found.effects) == [TraceStatus, SaveJob, StopRun, Advertise]
    assert StopRun(job, "vacate", "fast") in found.effects
    assert job.status == JobStatus.RUNNING


def test_a_job_that_waits_with_a_claim_keeps_it_while_it_stays_idle():
    table, job = queued()
    job.waits_for = "c1"
    found = apply_event("ap", table, job, JobEvent.OVER, 9.0)
    assert WakeClaim not in kinds(found.effects)
    assert job.waits_for == "c1"


def test_a_run_without_success_says_why_and_when_and_forgets_an_earlier_cause():
    table, job = queued(JobStatus.RUNNING)
    requeue("ap", table, job, "x" * 2000, 9.75, CoolDown(), failed=False, code=1004)
    assert (job.ad.eval("LastVacateTime"), job.ad.eval("VacateReason")) == (9, "x" * 1000)
    assert (job.ad.eval("VacateReasonCode"), job.number("NumShadowExceptions")) == (1004, 0)
    table.set_status(job, JobStatus.RUNNING, 10.0)
    requeue("ap", table, job, "other", 11.0, CoolDown(), failed=False)
    assert "VacateReasonCode" not in job.ad
    assert not job.cooling


def test_a_cool_down_is_in_the_ad_and_is_over_when_it_says():
    table, job = queued(JobStatus.RUNNING)
    job.ad["NumShadowExceptions"] = 1
    effects = requeue("ap", table, job, "why", 9.5, CoolDown(), failed=True)
    (begun,) = [effect for effect in effects if isinstance(effect, StartCoolDown)]
    assert job.number("NumShadowExceptions") == 2
    assert job.ad.eval("JobCoolDownExpiration") == int(9.5 + begun.wait_s)
    assert job.cooling


@pytest.mark.parametrize(
    ("event", "status", "leaves"),
    [(JobEvent.HOLD, JobStatus.HELD, False), (JobEvent.REMOVE, JobStatus.REMOVED, True)],
)
def test_what_a_held_or_removed_job_asked_for_comes_when_its_run_is_over(event, status, leaves):
    table, job = queued(JobStatus.RUNNING, runs=True)
    apply_event("ap", table, job, event, 9.0, reason="why")
    job.shadow = None
    effects = put_back("ap", table, job, 10.0)
    assert job.status == status
    assert (LeaveQueue in kinds(effects)) is leaves


def test_jobs_that_come_into_the_queue_are_told_in_a_row_with_those_on_hold():
    cluster = cluster_of("")
    jobs = [job_of(cluster, proc) for proc in range(3, 9)]
    event = submitted_event("ap", jobs, 5.0)
    assert (event.type, event.at, event.cluster, event.first_proc, event.count) == ("job.submitted", 5.0, 1, 3, 6)
    assert (event.schedd, event.owner, event.submitter) == ("ap", "alice", "alice@p")
    assert not event.held
    for number in (0, 1, 4):
        jobs[number].status = JobStatus.HELD
        jobs[number].ad.update({"HoldReason": "y" * 1500, "HoldReasonCode": 15})
    event = submitted_event("ap", jobs, 5.0)
    assert [list(pair) for pair in event.held] == [[3, 4], [7, 7]]
    assert (event.hold_code, event.hold_reason) == (15, "y" * 1000)


def test_the_log_of_a_submit_has_its_notes():
    job = job_of(cluster_of('SubmitEventNotes = "DAG node A"; SubmitEventUserNotes = "mine"'))
    said = job_log.written(submit_log_event(job, "ap.example", 5.0)).decode()
    assert "ap.example" in said
    assert "DAG node A" in said
    assert "mine" in said
    whole = cluster_log_event(job, "ap.example", 5.0)
    assert (whole.cluster, whole.proc, whole.number) == (1, -1, 35)
    assert job_log.written(whole).decode().splitlines()[1:3] == ["    DAG node A", "    mine"]
    assert next(iter(LogReader().feed(job_log.written(whole).decode()))).attributes == whole.attributes
    repeated = job_log.job_ad_information(whole, {"JobPrio": 0})
    assert (repeated.attributes["SubmitHost"], "UserNotes" in repeated.attributes) == ("<ap.example>", False)
