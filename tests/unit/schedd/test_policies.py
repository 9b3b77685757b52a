"""Policies by tables: which expression says what, with HTCondor's numbers."""

import pytest

from engine.queue.jobs import JobStatus
from services.schedd.core.policies import (
    Action,
    CoolDown,
    SystemPolicy,
    after_exit,
    needs_watching,
    next_duration,
    periodic,
    stays_in_queue,
)
from shared.classad import parse_ad, parse_expr

NOW = 1000.0
RUNNING, IDLE, HELD, COMPLETED = JobStatus.RUNNING, JobStatus.IDLE, JobStatus.HELD, JobStatus.COMPLETED


@pytest.mark.parametrize(
    ("text", "status", "action", "code", "subcode"),
    [
        ("PeriodicHold = true", RUNNING, "hold", 3, 0),
        ("PeriodicHold = 2 > 1; PeriodicHoldSubCode = 7", IDLE, "hold", 3, 7),
        ("PeriodicHold = true", HELD, None, 0, 0),
        ("PeriodicHold = true; PeriodicHoldSubCode = -2147483647", IDLE, "hold", 3, -2147483647),
        ("PeriodicHold = true; PeriodicHoldSubCode = 2147483648", IDLE, "hold", 3, 0),  # what no C int holds is none
        ('PeriodicHold = true; PeriodicHoldSubCode = real("INF")', IDLE, "hold", 3, 0),
        ('PeriodicHold = true; PeriodicHoldSubCode = real("NaN")', IDLE, "hold", 3, 0),
        ("PeriodicHold = undefined", RUNNING, None, 0, 0),
        ("PeriodicHold = nosuch", RUNNING, None, 0, 0),
        ('PeriodicHold = "x"', RUNNING, None, 0, 0),
        ("PeriodicRelease = HoldReasonCode == 3; HoldReasonCode = 3", HELD, "release", 0, 0),
        ("PeriodicRelease = true; HoldReasonCode = 1", HELD, None, 0, 0),
        ("PeriodicRelease = true; HoldReasonCode = 16", HELD, None, 0, 0),
        ("PeriodicRelease = true", IDLE, None, 0, 0),
        ("PeriodicRemove = true", HELD, "remove", 0, 0),
        ("PeriodicHold = true; PeriodicRemove = true", RUNNING, "hold", 3, 0),
        ("PeriodicVacate = true", RUNNING, "vacate", 0, 0),
        ("PeriodicVacate = true", IDLE, None, 0, 0),
        ("TimerRemove = 999", IDLE, "remove", 0, 0),
        ("TimerRemove = 1001", IDLE, None, 0, 0),
        ("TimerRemove = false", IDLE, None, 0, 0),
        ("AllowedJobDuration = 50; JobCurrentStartDate = 950", RUNNING, "hold", 46, 0),
        ("AllowedJobDuration = 51; JobCurrentStartDate = 950", RUNNING, None, 0, 0),
        ("AllowedExecuteDuration = 50; JobCurrentStartExecutingDate = 900", RUNNING, "hold", 47, 0),
        ("AllowedExecuteDuration = 50; JobCurrentStartExecutingDate = 900", IDLE, None, 0, 0),
    ],
)
def test_the_jobs_own_policies(text, status, action, code, subcode):
    decision = periodic(parse_ad(f"[{text}]"), status, NOW)
    if action is None:
        assert decision is None
    else:
        assert (decision.action, decision.code, decision.subcode) == (action, code, subcode)
        assert decision.reason


@pytest.mark.parametrize(
    ("name", "status", "action", "code"),
    [
        ("hold", RUNNING, "hold", 26),
        ("release", HELD, "release", 0),
        ("remove", IDLE, "remove", 0),
        ("vacate", RUNNING, "vacate", 0),
    ],
)
def test_the_pools_policies(name, status, action, code):
    system = SystemPolicy(**{name: parse_expr("JobPrio > 3")})
    assert periodic(parse_ad("[JobPrio = 2]"), status, NOW, system) is None
    decision = periodic(parse_ad("[JobPrio = 4]"), status, NOW, system)
    assert (decision.action, decision.code) == (action, code)
    assert "JobPrio > 3" in decision.reason


def test_reasons_are_the_jobs_own_where_it_gives_them():
    ad = parse_ad('[PeriodicHold = true; PeriodicHoldReason = strcat("a", "b")]')
    assert periodic(ad, RUNNING, NOW).reason == "ab"
    system = SystemPolicy(
        hold=parse_expr("true"), hold_reason=parse_expr('"too big"'), hold_subcode=parse_expr("2 + 3")
    )
    decision = periodic(parse_ad("[]"), RUNNING, NOW, system)
    assert (decision.reason, decision.subcode) == ("too big", 5)


@pytest.mark.parametrize(
    ("text", "action", "code"),
    [
        ("", "complete", 0),
        ("OnExitRemove = ExitCode == 0; ExitCode = 0", "complete", 0),
        ("OnExitRemove = ExitCode == 0; ExitCode = 1", "requeue", 0),
        ("OnExitHold = ExitCode =!= 0; ExitCode = 1", "hold", 3),
        ("OnExitHold = true; OnExitRemove = true", "hold", 3),
        ("OnExitRemove = nosuch > 1", "hold", 5),
        ('OnExitHold = "yes"', "hold", 5),
        ("OnExitRemove = 1/0", "hold", 5),
        # What `max_retries = 2` becomes.
        ("OnExitRemove = NumJobCompletions > JobMaxRetries || ExitCode == 0; NumJobCompletions = 2; JobMaxRetries = 2;"
         "ExitCode = 1", "requeue", 0),
        ("OnExitRemove = NumJobCompletions > JobMaxRetries || ExitCode == 0; NumJobCompletions = 3; JobMaxRetries = 2;"
         "ExitCode = 1", "complete", 0),
    ],
)  # fmt: skip
def test_what_an_exit_means(text, action, code):
    decision = after_exit(parse_ad(f"[{text}]"), NOW)
    assert (decision.action, decision.code) == (action, code)
    assert decision.reason or decision.action == Action.COMPLETE


def test_jobs_without_policies_are_not_looked_at():
    assert not needs_watching(parse_ad("[PeriodicHold = false; PeriodicRemove = false]"))
    assert needs_watching(parse_ad("[PeriodicHold = x]"))


def test_durations_and_staying():
    ad = parse_ad("[AllowedJobDuration = 60; JobCurrentStartDate = 990]")
    assert next_duration(ad, NOW) == 50
    assert next_duration(parse_ad("[]"), NOW) is None
    assert stays_in_queue(parse_ad("[LeaveJobInQueue = time() < 1001]"), NOW)
    assert not stays_in_queue(parse_ad("[LeaveJobInQueue = nosuch]"), NOW)


def test_failures_in_a_row_wait_longer_and_longer():
    waits = [CoolDown().wait_s(failures) for failures in range(1, 40)]
    assert waits[:4] == [0, 1, 2, 4]
    assert waits == sorted(waits)
    assert waits[-1] == 300
