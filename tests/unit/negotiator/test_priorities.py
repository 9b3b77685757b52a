"""Real and effective priorities: the manual's numbers (worked examples W-09, W-11, W-12, W-14)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.negotiator.priorities import Factors, Record, advance, change, choose_factor, effective

DAY = 86400.0
HOUR = 3600.0
T0 = 1_000_000_000.0


def after(record: Record, seconds: float, in_use: float) -> Record:
    started = advance(record, T0, DAY, in_use, int(in_use))
    return advance(started, T0 + seconds, DAY, in_use, int(in_use))


@pytest.mark.parametrize(("days", "expected"), [(1, 5.0), (2, 2.5), (3, 1.25), (4.33, 0.5), (10, 0.5)])
def test_priority_decays_by_half_a_day_down_to_the_floor(days: float, expected: float) -> None:
    """ACC-06, W-09."""
    idle = after(Record(priority=10.0, factor=1.0), days * DAY, 0.0)
    assert idle.priority == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(
    ("hours", "expected"),
    [(1, 3.3326), (6, 16.3308), (12, 29.6429), (24, 50.25), (36, 64.8214), (48, 75.125), (72, 87.5625)],
)
def test_priority_grows_towards_what_is_in_use(hours: float, expected: float) -> None:
    """ACC-03, ACC-07, W-11."""
    assert after(Record(factor=1.0), hours * HOUR, 100.0).priority == pytest.approx(expected, abs=1e-3)


@given(
    parts=st.lists(st.floats(1.0, 50_000.0), min_size=1, max_size=20),
    start=st.floats(0.5, 1000.0),
    use=st.floats(1.0, 500.0),
)
def test_splitting_an_interval_changes_nothing(parts: list[float], start: float, use: float) -> None:
    """ACC-05."""
    whole = Record(priority=start, factor=1.0, in_use=use, slots_in_use=3, updated=T0)
    split, now = whole, T0
    for part in parts:
        now += part
        split = advance(split, now, DAY, use, 3)
    once = advance(whole, now, DAY, use, 3)
    assert split.priority == pytest.approx(once.priority, rel=1e-9)
    assert split.weighted_usage == pytest.approx(once.weighted_usage, rel=1e-9)


def test_every_second_of_use_is_charged_once() -> None:
    record = advance(Record(factor=1.0, updated=T0), T0, DAY, 4.0, 2)
    record = advance(record, T0 + 10, DAY, 1.0, 1)
    record = advance(record, T0 + 25, DAY, 0.0, 0)
    record = advance(record, T0 + 100, DAY, 0.0, 0)
    assert (record.weighted_usage, record.usage) == (4.0 * 10 + 1.0 * 15, 2 * 10 + 1 * 15)
    assert (record.begin, record.last) == (T0, T0 + 25)


def test_clock_that_steps_back_charges_nothing() -> None:
    """ACC-22."""
    record = Record(priority=7.0, factor=1.0, in_use=5.0, slots_in_use=5, updated=T0)
    back = advance(record, T0 - 500, DAY, 5.0, 5)
    assert (back.priority, back.weighted_usage, back.updated) == (7.0, 0.0, T0 - 500)


def test_factors_by_kind_of_submitter() -> None:
    """ACC-09 to ACC-11, W-14."""
    factors = Factors(local_domain="here.org", groups=(("physics", 300.0),))
    assert choose_factor("alice@here.org", factors) == 1000.0
    assert choose_factor("alice@elsewhere.org", factors) == 1e7
    assert choose_factor("nice-user.alice@here.org", factors) == 1e10
    assert choose_factor("physics.alice@here.org", factors) == 300.0
    assert choose_factor("physics.hep.alice@here.org", factors) == 1000.0  # not inherited
    assert choose_factor("bob@elsewhere.org", Factors()) == 1000.0  # no local domain: nobody is remote
    assert effective(Record(factor=1000.0)) == 500.0


@pytest.mark.parametrize(
    ("what", "value"), [("factor", 0.5), ("priority", 0.1), ("floor", -1.0), ("factor", None), ("speed", 3.0)]
)
def test_nonsense_changes_are_refused(what: str, value: float | None) -> None:
    with pytest.raises(ValueError):
        change(Record(factor=1.0), what, value, T0)


def test_changes_touch_only_what_they_name() -> None:
    record = Record(priority=3.0, factor=1000.0, weighted_usage=50.0, updated=T0)
    assert change(record, "factor", 10.0, T0).factor == 10.0
    assert change(record, "ceiling", 12.0, T0).ceiling == 12.0
    reset = change(record, "reset", None, T0 + 5)
    assert (reset.weighted_usage, reset.begin, reset.priority) == (0.0, T0 + 5, 3.0)
