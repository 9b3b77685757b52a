"""The table of what goes wrong, its page, and how long a launcher that does not work is not offered."""

import ast
import re
from pathlib import Path

import pytest

from services.startd.core.run.exit_status import StopOrder, unsent
from services.startd.core.run.failures import FIRST_S, LONGEST_S, Fault, Health, page
from shared.messages.claims import JobExit

ROOT = Path(__file__).parents[3]


def test_the_page_is_the_table():
    written = (ROOT / "docs/execution/failures.md").read_text()
    assert written == "\n".join(page()) + "\n", (
        "run python -m services.startd.core.run.failures > docs/execution/failures.md"
    )


def test_held_rows_have_a_code_and_others_none():
    for fault in Fault:
        assert bool(fault.code) is (fault.value.then == "held"), fault


def test_a_failure_is_what_its_row_says():
    held = Fault.NO_EXECUTABLE.failure("no", 13)
    assert (held.kind, held.code, held.subcode, held.message) == ("hold", 6, 13, "no")
    assert Fault.NO_PROGRAM_IN_IMAGE.failure("no", 13).subcode == 2
    away = Fault.ENGINE_AWAY.failure("gone")
    assert (away.kind, away.code) == ("failed", 0)
    assert held.exit() == Fault.NO_EXECUTABLE.exit("hold", "no", 13)
    lost = Fault.PROCESS_LOST.exit("evicted", "gone")
    assert (lost.reason, lost.message, lost.hold_code) == ("evicted", "gone", 0)


def sources():
    for path in sorted((ROOT / "services/startd").rglob("*.py")):
        if path.name != "failures.py":
            yield path, path.read_text()


def test_every_row_is_named_by_code():
    named = {name for _, text in sources() for name in re.findall(r"\bFault\.([A-Z_]+)", text)}
    assert {fault.name for fault in Fault} - named == set()


def test_no_other_module_has_a_number_of_a_hold():
    """Neither as an argument nor as a constant: who holds a job names a row."""
    wrong = []
    for path, text in sources():
        for node in ast.walk(ast.parse(text)):
            number = None
            if isinstance(node, ast.keyword) and node.arg in ("hold_code", "hold_subcode", "vacate_code"):
                number = node.value
            elif isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value in ("hold_code", "hold_subcode", "vacate_code"):
                        number = value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "RunFailed":
                number = node.func
            elif isinstance(node, ast.Assign) and re.match(r"HOLD_|VACATE_", ast.unparse(node.targets[0]).lstrip("(")):
                number = node.value
            if number is not None and not isinstance(number, ast.Attribute | ast.Call | ast.Subscript):
                wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert wrong == []


def test_a_launcher_that_keeps_failing_is_tried_less_and_less():
    health, now, waits = Health(), 100.0, []
    health.passed()
    for _ in range(12):
        health.broke("why", now)
        waits.append(health.wait_s(now, 60.0))
        now = health.until
        health.passed()
        assert health.wait_s(now, 60.0) == 60.0
    assert waits[:4] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]
    assert waits[-1] == LONGEST_S
    health.broke("why", now)
    health.proved()
    assert (health.reason, health.failures) == ("", 0)
    health.broke("why", now)
    assert health.wait_s(now, 60.0) == FIRST_S


def test_many_failures_of_one_trouble_count_once():
    health = Health()
    for _ in range(100):
        health.broke("why", 50.0)
    assert (health.failures, health.until) == (1, 50.0 + FIRST_S)


@pytest.mark.parametrize("failures", [1, 40, 4000])
def test_the_wait_is_bounded(failures):
    health = Health(failures=failures)
    health.broke("", 0.0)
    assert 0 < health.until <= LONGEST_S
    assert health.reason


def test_a_job_whose_output_could_not_be_sent_still_says_why_it_had_to_leave():
    preempted = JobExit(reason="evicted", message="preempted: bob has the better priority", vacate_code=1019)
    wanted = "preempted: bob has the better priority; output could not be sent: no time was left for it"
    assert unsent(preempted, None, "no time was left for it") == wanted
    order = StopOrder("evicted", "evict", "preempted: bob has the better priority", fast=True, want_output=False)
    done = JobExit(reason="exited", exit_code=0)  # it had come to its end before it had to leave
    assert unsent(done, order, "no time was left for it") == wanted
    assert unsent(done, None, "refused") == "output could not be sent: refused"
