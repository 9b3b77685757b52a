"""What `python -m bench.restart` takes for a fault."""

import pytest

from bench.restart.verdict import Attempt, attempts, faults, totals

ONCE = "begin 7 1.0\nalive 7 1.5\nend 7 2.0\n"
LOG = "000 (1.0.0) x\n001 (1.0.0) x\n005 (1.0.0) x\n"
WELL = {"status": 4, "exit_code": 0, "starts": 1}


def test_a_job_that_ran_once_has_no_fault():
    assert attempts(ONCE + "ali") == [Attempt("7", 1.0, 2.0, True)]
    assert faults(ONCE, LOG, **WELL) == []
    with pytest.raises(ValueError, match="no line of a job"):
        attempts("begin 7 1.0\nstop 7 2.0\n")


@pytest.mark.parametrize(
    ("wrote", "log", "recorded", "fault"),
    [
        (ONCE, LOG, {**WELL, "status": None}, "not completed: status None"),
        (ONCE, LOG, {**WELL, "exit_code": 1}, "exit code 1"),
        ("begin 7 1.0\n", LOG, WELL, "0 attempts came to their end"),
        (f"begin 6 0.0\nend 6 0.5\n{ONCE}", LOG, {**WELL, "starts": 2}, "2 attempts came to their end"),
        (f"begin 6 0.0\nalive 6 1.1\n{ONCE}", LOG, {**WELL, "starts": 2}, "two attempts at a time"),
        (f"begin 6 0.0\n{ONCE}", LOG, {**WELL, "starts": 2}, "2 attempts, 0 reasons"),
        (f"begin 6 0.0\n{ONCE}", LOG + "007 (1.0.0) x\n", WELL, "2 attempts, 1 events of a start"),
        (ONCE, LOG + "004 (1.0.0) x\n", WELL, "evicted 1 times"),
        (ONCE, LOG + "005 (1.0.0) x\n", WELL, "2 events of its end"),
    ],
)
def test_each_fault_is_told(wrote, log, recorded, fault):
    assert any(fault in told for told in faults(wrote, log, **recorded))


def test_a_second_attempt_with_a_reason_is_none():
    wrote, log = f"begin 6 0.0\n{ONCE}", LOG + "001 (1.0.0) x\n024 (1.0.0) x\n"
    found = totals([("a", wrote, log, 4, 0, 2), ("b", ONCE, LOG, 4, 0, 1), ("c", "", LOG, 4, 0, 1)])
    assert (found.jobs, found.attempts, found.explained) == (3, 3, 1)
    assert found.faults == {"c": ["0 attempts came to their end"]}
