"""What a job's ad says of its runs: starts, suspensions, and the accounts of all runs together."""

import time

import pytest

from engine.queue.autoclusters import Autoclusters
from engine.queue.job_table import JobTable
from engine.queue.jobs import JobId, JobStatus, Shadow
from services.schedd.core import job_end
from services.schedd.core.claim import Claim
from services.schedd.core.job_changes import LeaveQueue, LogEvent, PublishEvent, SaveJob
from services.schedd.core.policies import CoolDown
from shared import job_log
from shared.classad import UNDEFINED, parse_ad
from shared.messages.claims import JobExit, JobReport, Usage
from tests.spec import spec
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
        granted=True,
    )


def run_of(started):
    return Shadow(JobId(1, 0), 1, "token", True, started)


def test_runs_add_up():
    job, claim = job_of(cluster_of("")), claim_of("SlotWeight = 2.0; SlotID = 7")
    for number, (began, ended) in enumerate(((1000.0, 1010.5), (2000.0, 2004.0)), 1):
        run = run_of(began)
        job_end.on_start(job.ad, job.autocluster, claim, began)
        job_end.on_executing(job, run, began + 1)
        assert job.ad.eval("JobRunCount") == job.ad.eval("NumJobStarts") == number
        assert job.ad.eval("JobCurrentStartDate") == job.ad.eval("ShadowBday") == int(began)
        assert job.ad.eval("JobCurrentStartExecutingDate") == int(began) + 1
        assert (job.ad.eval("RemoteHost"), job.ad.eval("RemoteSlotID")) == ("slot1@ep", 7)
        job_end.on_run_end(job, claim, run, job_end.heard_of_end(run, ended))
    assert job.ad.eval("RemoteWallClockTime") == 14.5
    assert job.ad.eval("LastRemoteWallClockTime") == 4.0
    assert job.ad.eval("CumulativeSlotTime") == 29.0
    assert job.ad.eval("JobLastStartDate") == 1000
    assert job.ad.eval("LastRemoteHost") == "slot1@ep"
    assert not {"RemoteHost", "RemoteSlotID", "StartdAddr", "ShadowBday"} & {name for name, _ in job.ad.cells()}


def test_a_clock_that_was_set_back_takes_nothing_from_the_accounts():
    job, run = job_of(cluster_of(""), text="RemoteWallClockTime = 5.0"), run_of(1000.0)
    job_end.on_run_end(job, claim_of(""), run, job_end.heard_of_end(run, 990.0))
    assert job.ad.eval("RemoteWallClockTime") == 5.0


def test_suspensions_are_counted_and_one_ends_with_its_run():
    job, run = job_of(cluster_of("")), run_of(1000.0)
    job_end.on_suspend(job, run, 1010.0)
    assert (job.ad.eval("TotalSuspensions"), job.ad.eval("LastSuspensionTime")) == (1, 1010)
    job_end.on_continue(job, run, 1015.0)
    assert (job.ad.eval("CumulativeSuspensionTime"), job.ad.eval("LastSuspensionTime")) == (5, 0)
    job_end.on_continue(job, run, 1019.0)
    job_end.on_suspend(job, run, 1020.0)
    job_end.on_run_end(job, claim_of(""), run, job_end.heard_of_end(run, 1027.0))
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
    result = job_end.Result(Usage(), exit_, "slot1@ep", parse_ad("[]"), run, 1010.0, job_end.heard_of_end(run, 1010.0))
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
    assert told.reason == "Error from slot1@ep: The execution point put the job on hold"
    assert job.status == JobStatus.HELD
    assert not requeued(job)


@pytest.mark.parametrize(
    ("reason", "stop", "said", "expected"),
    [
        ("evicted", "", 0, ("its run was evicted", False, 0)),
        ("evicted", "vacate", 0, ("its run was vacated", False, 1004)),
        ("killed", "vacate", 1003, ("its run was vacated", False, 1003)),
        ("failed", "", 0, ("the job could not be started", True, 1003)),
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


def ended_run(exit_, *, text="", transfer=True, output=True, executing=1002.0, usage=None, ended=None):
    """The job after its run came to this, and all effects."""
    job, table = job_of(cluster_of(text)), JobTable(Autoclusters())
    run = Shadow(JobId(1, 0), 4, "token", transfer, 1000.0, executing=executing, output=output)
    job.status = JobStatus.RUNNING
    table.add(job.cluster, [job])
    ended = ended or job_end.heard_of_end(run, 1010.5)
    result = job_end.Result(usage or Usage(), exit_, "slot1@ep", parse_ad("[Cpus = 1]"), run, 1010.5, ended)
    return job, job_end.conclude("ap", table, job, result, CoolDown())


def committed(job):
    return tuple(job.ad.eval(f"Committed{name}") for name in ("Time", "SlotTime", "SuspensionTime"))


def test_only_runs_whose_work_counts_are_committed():
    job, _ = ended_run(JobExit(reason="exited", exit_code=3), text="CumulativeSuspensionTime = 4; CommittedTime = 2")
    assert committed(job) == (12, 10.5, 4)
    lost, _ = ended_run(JobExit(reason="exited", exit_code=0), output=False)
    left, _ = ended_run(JobExit(reason="evicted"))
    assert committed(lost) == committed(left) == (UNDEFINED,) * 3


def events_of(effects):
    return [effect.event for effect in effects if isinstance(effect, PublishEvent)]


def log_of(effects):
    return b"".join(job_log.written(effect.event()) for effect in effects if isinstance(effect, LogEvent)).decode()


def test_a_job_that_exits_is_completed_and_tells_what_it_used():
    usage = Usage(user_cpu_s=3.0, sys_cpu_s=1.5, bytes_sent=10, bytes_received=20, memory_mib=7)
    job, effects = ended_run(JobExit(reason="exited", exit_code=3), usage=usage)
    assert job.status == JobStatus.COMPLETED
    (event,) = events_of(effects)
    assert (event.type, event.job_id, event.attempt, event.slot) == ("job.ended", "1.0", 4, "slot1@ep")
    assert (event.exit_code, event.exit_signal, event.ran_s) == (3, None, 8.5)
    assert (event.user_cpu_s, event.sys_cpu_s, event.memory_mib) == (3.0, 1.5, 7)
    ad = job.ad
    assert (ad.eval("ExitBySignal"), ad.eval("ExitCode"), ad.eval("ExitStatus")) == (False, 3, 3)
    assert (ad.eval("CompletionDate"), ad.eval("JobFinishedHookDone"), ad.eval("NumJobCompletions")) == (1010, 1010, 1)
    assert (ad.eval("CumulativeRemoteUserCpu"), ad.eval("CumulativeRemoteSysCpu")) == (3.0, 1.5)
    assert (ad.eval("BytesSent"), ad.eval("BytesRecvd")) == (10.0, 20.0)
    assert "return value 3" in log_of(effects)
    assert "output" in log_of(effects)


def test_a_job_that_a_signal_ended_has_no_exit_code():
    job, effects = ended_run(JobExit(reason="exited", exit_signal=11, core_dumped=True), executing=0.0, transfer=False)
    (event,) = events_of(effects)
    assert (event.exit_code, event.exit_signal, event.ran_s) == (None, 11, 10.5)
    ad = job.ad
    assert (ad.eval("ExitBySignal"), ad.eval("ExitSignal"), ad.eval("JobCoreDumped")) == (True, 11, True)
    assert "ExitCode" not in ad
    assert "Finished transferring output" not in log_of(effects)


@pytest.mark.parametrize(
    ("transfer", "output", "committed", "counts"),
    [(True, False, False, False), (True, True, False, True), (True, False, True, True), (False, False, False, True)],
)
def test_a_run_whose_output_did_not_come_home_does_not_count(transfer, output, committed, counts):
    exit_ = JobExit(reason="exited", exit_code=0, output_committed=committed)
    job, effects = ended_run(exit_, transfer=transfer, output=output)
    assert (job.status == JobStatus.COMPLETED) is counts
    assert len(events_of(effects)) == int(counts)
    if not counts:
        assert requeued(job) == ("its output did not arrive", True, 1002)
        assert "its output did not arrive" in log_of(effects)
        assert "NumJobCompletions" not in job.ad


def test_a_policy_of_the_job_holds_it_at_its_exit_or_runs_it_again():
    exit_ = JobExit(reason="exited", exit_code=7)
    job, effects = ended_run(exit_, text="OnExitHold = ExitCode == 7; OnExitHoldSubCode = 42")
    (event,) = events_of(effects)
    assert (job.status, event.type, event.code, event.subcode) == (JobStatus.HELD, "job.held", 3, 42)
    assert "CompletionDate" not in job.ad
    job, effects = ended_run(exit_, text="OnExitRemove = ExitCode == 0")
    (event,) = events_of(effects)
    assert (job.status, event.type, event.attempt) == (JobStatus.IDLE, "job.evicted", 4)
    assert "(0) Job terminated and was requeued" in log_of(effects)
    assert "(1) Normal termination (return value 7)" in log_of(effects)
    assert event.reason in log_of(effects)
    assert event.reason == job.ad.eval("VacateReason")
    assert requeued(job)[1] is False


@pytest.mark.parametrize(("executing", "told"), [(1002.0, ["job.evicted"]), (0.0, [])])
def test_an_eviction_is_told_of_a_job_that_ran(executing, told):
    job, effects = ended_run(JobExit(reason="evicted", message="the owner is back"), executing=executing)
    assert [event.type for event in events_of(effects)] == told
    assert requeued(job) == ("the owner is back", False, 0)
    assert ("the owner is back" in log_of(effects)) is bool(told)
    assert "requeued" not in log_of(effects)


def test_what_a_job_came_to_that_was_removed_meanwhile_is_noted():
    job, run, table = job_of(cluster_of("")), run_of(1000.0), JobTable(Autoclusters())
    job.status = JobStatus.REMOVED
    table.add(job.cluster, [job])
    exit_ = JobExit(reason="exited", exit_code=5)
    result = job_end.Result(
        Usage(user_cpu_s=2.0), exit_, "slot1@ep", parse_ad("[]"), run, 1010.0, job_end.heard_of_end(run, 1010.0)
    )
    effects = job_end.conclude("ap", table, job, result, CoolDown())
    assert (job.ad.eval("ExitCode"), job.ad.eval("CumulativeRemoteUserCpu")) == (5, 2.0)
    assert LeaveQueue(job, forced=False) in effects


def test_what_an_execution_point_may_not_say_is_left_out():
    job = job_of(cluster_of(""), text='Owner = "alice"; JobPrio = 5')
    said = parse_ad('[Owner = "root"; jobprio = 99; ChirpNote = "mine"; ClaimId = "secret"; _condor_privX = 1]')
    job_end.on_updates(job, said.pack())
    assert (job.ad.eval("Owner"), job.ad.eval("JobPrio"), job.ad.eval("ChirpNote")) == ("alice", 5, "mine")
    assert not {"ClaimId", "_condor_privX"} & {name for name, _ in job.ad.cells()}
    before = job.ad.pack()
    job_end.on_updates(job, b"")
    job_end.on_updates(job, b"\xc1 no ad")
    assert job.ad.pack() == before


@pytest.mark.parametrize(
    ("said", "taken"),
    [(5, 5), (-1, 0), (2**70, 2**60), (2.5, 2.5), (float("nan"), 0.0), (float("inf"), 2**60)],
)
def test_numbers_of_a_report_can_be_counted_on(said, taken):
    wild = Usage.model_construct(**{**dict(Usage()), "user_cpu_s": said})
    report = JobReport.model_construct(usage=wild, at=-5.0, started_at=1e300)
    sound = job_end.sanitize_report(report)
    assert sound.usage.user_cpu_s == taken
    assert (sound.at, sound.started_at) == (0.0, 2.0**33)


def test_a_sound_report_is_taken_as_it_is():
    report = JobReport.model_construct(usage=Usage(user_cpu_s=1.0), at=5.0, started_at=4.0)
    assert job_end.sanitize_report(report) is report


def told(run, **times):
    """When a run is over whose end is told at 1100 by our clock."""
    report = JobReport(
        startd="ep", slot="slot1@ep", claim_id="c", job_id="1.0", attempt=4, sequence=9, phase="ended", **times
    )
    return job_end.when_ended(run, job_end.sanitize_report(report), 1100.0)


@spec("LEA-12")
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (1040.0, 1040.0),  # both clocks agree
        (4640.0, 1050.0),  # theirs is an hour ahead: it was over 50 s ago at the latest
        (10.0, 1030.0),  # theirs is far behind: it took 30 s at the least
        (0.0, 1030.0),
    ],
)
def test_a_run_was_over_when_its_startd_says_however_late_that_is_heard(theirs, ours):
    ended = told(run_of(1000.0), at=theirs, started_at=theirs, had_s=30.0, ran_s=29.0, over_s=50.0)
    assert ended == job_end.Ended(ours, 30.0, 29.0)


def test_the_end_of_a_run_is_not_before_its_beginning_nor_after_it_is_heard_of():
    assert told(run_of(1090.0), at=1095.0, had_s=30.0, ran_s=29.0, over_s=50.0).at == 1090.0
    assert told(run_of(1200.0), at=1095.0, had_s=30.0, ran_s=29.0, over_s=50.0).at == 1100.0  # set back meanwhile
    nonsense = told(run_of(1000.0), at=float("inf"), had_s=float("nan"), ran_s=-1.0, over_s=float("-inf"))
    assert nonsense == job_end.Ended(1100.0, 0.0, 0.0)


def test_an_execution_point_of_before_is_believed_to_tell_at_once():
    run = Shadow(JobId(1, 0), 4, "token", False, 1000.0, executing=1002.0)
    assert told(run, at=1040.0) == job_end.Ended(1100.0, 100.0, 98.0)


def test_what_an_end_says_of_its_times_counts_for_ad_log_and_events():
    job, effects = ended_run(JobExit(reason="exited", exit_code=0), ended=job_end.Ended(1004.0, 3.5, 2.0))
    (event,) = events_of(effects)
    assert (event.ran_s, event.at) == (2.0, 1010.5)
    assert job.ad.eval("CompletionDate") == 1004
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1004.0))
    assert f"005 (001.000.000) {stamp}" in log_of(effects)
    _, effects = ended_run(JobExit(reason="evicted", message="m"), ended=job_end.Ended(1004.0, 3.5, 2.0))
    assert f"004 (001.000.000) {stamp}" in log_of(effects)


def test_the_end_of_a_run_frees_claim_and_job_and_its_weight():
    job, table = job_of(cluster_of("")), JobTable(Autoclusters())
    claim, run = claim_of("SlotWeight = 2"), run_of(1000.0)
    table.add(job.cluster, [job])
    claim.shadow = job.shadow = run
    table.count("alice@p").weighted_running = 5.0
    job_end.end_run(table, job, claim, run, job_end.heard_of_end(run, 1010.0))
    assert (claim.shadow, job.shadow) == (None, None)
    assert table.count("alice@p").weighted_running == 3.0
    assert job.ad.eval("RemoteWallClockTime") == 10.0
