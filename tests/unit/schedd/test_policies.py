"""Policies by tables: which expression says what, with HTCondor's numbers."""

import pytest

from engine.queue.jobs import JobStatus
from services.schedd.core.policies import (
    Action,
    CoolDown,
    SystemPolicy,
    SystemRule,
    after_exit,
    needs_watching,
    next_duration,
    periodic,
    stays_in_queue,
)
from services.schedd.settings import Settings
from shared.classad import parse_ad, parse_expr
from shared.config import ConfigError, load_config

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
    system = SystemPolicy(**{name: (SystemRule(f"SYSTEM_PERIODIC_{name.upper()}", parse_expr("JobPrio > 3")),)})
    assert periodic(parse_ad("[JobPrio = 2]"), status, NOW, system) is None
    decision = periodic(parse_ad("[JobPrio = 4]"), status, NOW, system)
    assert (decision.action, decision.code) == (action, code)
    assert "JobPrio > 3" in decision.reason


def test_reasons_are_the_jobs_own_where_it_gives_them():
    ad = parse_ad('[PeriodicHold = true; PeriodicHoldReason = strcat("a", "b")]')
    assert periodic(ad, RUNNING, NOW).reason == "ab"
    rule = SystemRule("SYSTEM_PERIODIC_HOLD", parse_expr("true"), parse_expr('"too big"'), parse_expr("2 + 3"))
    system = SystemPolicy(hold=(rule,))
    decision = periodic(parse_ad("[]"), RUNNING, NOW, system)
    assert (decision.reason, decision.subcode) == ("too big", 5)


def settings(**knobs):
    return Settings.from_config(load_config([], subsystem="SCHEDD", env={}, overrides=knobs))


def test_policies_with_names_are_looked_at_in_the_order_of_their_list_and_before_the_one_without():
    system = settings(
        SYSTEM_PERIODIC_HOLD_NAMES="Memory, runtime",
        SYSTEM_PERIODIC_HOLD_Runtime="A > 1",
        SYSTEM_PERIODIC_HOLD_runtime_REASON='strcat("ran ", A)',
        SYSTEM_PERIODIC_HOLD_RUNTIME_SUBCODE="40 + A",
        SYSTEM_PERIODIC_HOLD_MEMORY="B > 1",
        SYSTEM_PERIODIC_HOLD="C > 1",
        SYSTEM_PERIODIC_HOLD_REASON='"neither"',
        SYSTEM_PERIODIC_HOLD_LIMIT="5 GB",  # a macro of somebody's own, as its name is in no list
        SYSTEM_PERIODIC_REMOVE_NAMES="old",
        SYSTEM_PERIODIC_REMOVE_OLD="D > 1",
        SYSTEM_PERIODIC_RELEASE_NAMES="soon",
        SYSTEM_PERIODIC_RELEASE_SOON="D > 2",
        SYSTEM_PERIODIC_VACATE_NAMES="now",
        SYSTEM_PERIODIC_VACATE_NOW="D < 1",
    ).system

    def said(text, status=RUNNING):
        decision = periodic(parse_ad(f"[{text}]"), status, NOW, system)
        return decision and (str(decision.action), decision.reason, decision.code, decision.subcode)

    assert said("A = 2; B = 2; C = 2") == (
        "hold",
        "The system macro SYSTEM_PERIODIC_HOLD_Memory expression 'B > 1' evaluated to TRUE",
        26,
        0,
    )
    assert said("A = 2; C = 2") == ("hold", "ran 2", 26, 42)
    assert said("C = 2") == ("hold", "neither", 26, 0)
    assert said("D = 2") == (
        "remove",
        "The system macro SYSTEM_PERIODIC_REMOVE_old expression 'D > 1' evaluated to TRUE",
        0,
        0,
    )
    assert said("D = 3", HELD) == (
        "release",
        "The system macro SYSTEM_PERIODIC_RELEASE_soon expression 'D > 2' evaluated to TRUE",
        0,
        0,
    )
    assert said("D = 0") == (
        "vacate",
        "The system macro SYSTEM_PERIODIC_VACATE_now expression 'D < 1' evaluated to TRUE",
        0,
        0,
    )
    assert said("A = 1") is None


@pytest.mark.parametrize(
    ("knobs", "told"),
    [
        ({"SYSTEM_PERIODIC_HOLD_NAMES": "gone"}, "SYSTEM_PERIODIC_HOLD_gone is not defined"),
        ({"SYSTEM_PERIODIC_VACATE_NAMES": "a", "SYSTEM_PERIODIC_VACATE_A": "1 +"}, "SYSTEM_PERIODIC_VACATE_a"),
        (
            {
                "SYSTEM_PERIODIC_HOLD_NAMES": "a",
                "SYSTEM_PERIODIC_HOLD_A": "true",
                "SYSTEM_PERIODIC_HOLD_A_REASON": "too much",
            },
            "SYSTEM_PERIODIC_HOLD_a_REASON",
        ),
    ],
)
def test_a_policy_that_can_not_be_read_is_an_error(knobs, told):
    with pytest.raises(ConfigError, match=told):
        settings(**knobs)


@pytest.mark.parametrize(
    ("text", "action", "code"),
    [
        ("", "complete", 0),
        ("OnExitRemove = ExitCode == 0; ExitCode = 0", "complete", 0),
        ("OnExitRemove = ExitCode == 0; ExitCode = 1", "requeue", 0),
        ("OnExitHold = ExitCode =!= 0; ExitCode = 1", "hold", 3),
        ("OnExitHold = true; OnExitRemove = true", "hold", 3),
        ("OnExitRemove = nosuch > 1", "complete", 0),
        ('OnExitHold = "yes"', "complete", 0),
        ("OnExitRemove = 1/0", "complete", 0),
        ("OnExitHold = 3", "hold", 3),
        ("OnExitRemove = 0.0", "requeue", 0),
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
