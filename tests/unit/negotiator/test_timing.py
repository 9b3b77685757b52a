"""When cycles start (spec rows NEG-01 to NEG-03)."""

from __future__ import annotations

import pytest

from services.negotiator.timing import LastCycle, Timing, next_start


def test_first_cycle_starts_at_once() -> None:
    assert next_start(Timing(), None, triggered=False) == float("-inf")


def test_trigger_after_a_quiet_spell_starts_at_once() -> None:
    assert next_start(Timing(), LastCycle(0.0, 0.05), triggered=True) < 10.0


def test_storm_of_triggers_is_coalesced_by_the_length_of_a_cycle() -> None:
    short = next_start(Timing(), LastCycle(10.0, 10.001), triggered=True)
    long = next_start(Timing(), LastCycle(10.0, 10.1), triggered=True)
    assert short == pytest.approx(10.01)
    assert long == pytest.approx(10.2)  # never more than ROOST_NEGOTIATOR_COALESCE


def test_without_trigger_the_periodic_cycle_comes_after_the_interval() -> None:
    assert next_start(Timing(interval=60.0), LastCycle(100.0, 100.3), triggered=False) == 160.0


@pytest.mark.parametrize(
    ("ended", "triggered", "expected"),
    [(50.0, False, 70.0), (3.0, False, 60.0), (3.0, True, 23.0)],
)
def test_knobs_that_an_administrator_set_bind_as_in_htcondor(ended: float, triggered: bool, expected: float) -> None:
    """W-07: INTERVAL 60, MIN_INTERVAL 5, CYCLE_DELAY 20."""
    timing = Timing(interval=60.0, min_interval=5.0, cycle_delay=20.0)
    assert next_start(timing, LastCycle(0.0, ended), triggered) == expected


def test_minimum_interval_counts_from_the_start() -> None:
    assert next_start(Timing(min_interval=5.0), LastCycle(0.0, 3.0), triggered=True) == 5.0
