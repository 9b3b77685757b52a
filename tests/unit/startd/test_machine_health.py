"""When a machine takes no jobs, as they would fail there."""

import pytest

from services.startd.components.machine_check import find_trouble
from services.startd.core.machine.health import FIRST_S, LONGEST_S, MachineHealth
from tests.spec import spec


@spec("SLT-32")
def test_failures_in_a_row_take_a_machine_out_and_a_started_job_ends_the_row():
    health = MachineHealth(limit=3)
    for now in (0.0, 1.0):
        health.run_failed("no cgroup", now)
    health.run_started()
    for now in (2.0, 3.0):
        health.run_failed("no cgroup", now)
    assert health.reason == ""
    health.run_failed("no cgroup", 4.0)
    assert health.reason == "3 runs in a row failed here: no cgroup"
    assert health.wait_s(4.0, 300.0) == FIRST_S


@spec("SLT-32")
def test_a_machine_on_trial_is_out_again_at_its_first_failure_and_for_longer():
    health, now, waits = MachineHealth(limit=3), 0.0, []
    for _ in range(3):
        health.run_failed("no cgroup", now)
    for _ in range(12):
        waits.append(health.wait_s(now, 300.0))
        health.checked("", now)
        assert health.reason, "a check that passes before its time changes nothing"
        now = health.until
        health.checked("", now)
        assert health.reason == ""
        health.run_failed("no cgroup", now)
        assert health.reason
    assert waits == [min(LONGEST_S, FIRST_S * 2**n) for n in range(12)]
    now = health.until
    health.checked("", now)
    health.run_started()
    health.run_failed("no cgroup", now)
    assert health.reason == ""


@spec("SLT-32")
def test_a_check_that_fails_takes_a_machine_out_at_once_and_again_when_it_is_due():
    health = MachineHealth(limit=3)
    health.checked("EXECUTE is not there", 0.0)
    assert (health.reason, health.until) == ("EXECUTE is not there", FIRST_S)
    health.checked("EXECUTE is full", 1.0)
    assert (health.reason, health.until) == ("EXECUTE is full", FIRST_S)
    health.checked("EXECUTE is full", FIRST_S)
    assert health.until == FIRST_S + 2 * FIRST_S
    health.checked("", health.until)
    assert health.reason == ""


@spec("SLT-32")
def test_without_a_limit_failures_change_nothing():
    health = MachineHealth(limit=0)
    for now in range(100):
        health.run_failed("no cgroup", float(now))
    assert health.reason == ""


@spec("SLT-32")
@pytest.mark.parametrize("mode", [None, 0o644, 0o755])
def test_what_is_wrong_with_a_machine(tmp_path, mode):
    wrapper = tmp_path / "wrapper"
    if mode is not None:
        wrapper.touch(mode=mode)
    assert find_trouble([str(tmp_path)], "") == ""
    trouble = {None: "is not there", 0o644: "is not executable", 0o755: ""}[mode]
    found = find_trouble([str(tmp_path)], str(wrapper))
    assert found == (f"USER_JOB_WRAPPER = {wrapper} {trouble}" if trouble else "")
    assert find_trouble([str(tmp_path / "nowhere")], "").startswith(f"EXECUTE = {tmp_path}/nowhere can not be used: No")
    assert not list(tmp_path.glob(".check*"))
