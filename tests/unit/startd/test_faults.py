"""The table of what goes wrong, its page, and how long a launcher that does not work is not offered."""

from pathlib import Path

import pytest

from services.startd.starter.faults import FIRST_S, LONGEST_S, Fault, Health, page

ROOT = Path(__file__).parents[3]


def test_the_page_is_the_table():
    written = (ROOT / "docs/execution/failures.md").read_text()
    assert written == "\n".join(page()) + "\n", (
        "run python -m services.startd.starter.faults > docs/execution/failures.md"
    )


def test_held_rows_have_a_code_and_others_none():
    for fault in Fault:
        assert bool(fault.code) is (fault.value.then == "held"), fault


def test_a_failure_is_what_its_row_says():
    held = Fault.NO_EXECUTABLE.failure("no", errno=13)
    assert (held.kind, held.code, held.subcode, held.message) == ("hold", 6, 13, "no")
    assert Fault.NO_PROGRAM_IN_IMAGE.failure("no", errno=13).subcode == 2
    away = Fault.ENGINE_AWAY.failure("gone")
    assert (away.kind, away.code) == ("failed", 0)


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
