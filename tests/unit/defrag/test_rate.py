"""How many machines a round may begin to drain (DFR-01)."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from services.defrag.core.policy import DAY, HOUR, Allowance, allowance, due
from tests.spec import spec
from tests.unit.defrag.pools import DAY0


def drained(per_hour, interval, seconds, start=DAY0):
    """What all rounds of a time come to."""
    allowed, before, found = allowance(per_hour, interval), start - interval, []
    for now in range(start, start + seconds, interval):
        found.append(due(allowed, before, now, interval))
        before = now
    return found


@spec("DFR-01", "W-33")
@pytest.mark.parametrize(
    ("per_hour", "interval", "wanted"),
    [
        (1.0, 3600, Allowance(1, 0, 0.0)),  # W-33
        (6.0, 600, Allowance(1, 0, 0.0)),  # W-33
        (1.0, 600, Allowance(0, 1, 0.0)),
        (7.0, 600, Allowance(1, 1, 0.0)),
        (0.0, 600, Allowance(0, 0, 0.0)),
        (0.1, 600, Allowance(0, 0, 2.4)),
        (2.5, 600, Allowance(0, 2, 12.0)),
        (0.75, 7200, Allowance(1, 0, 6.0)),
    ],
)
def test_a_rate_is_split_into_rounds_hours_and_days(per_hour, interval, wanted):
    found = allowance(per_hour, interval)
    assert (found.each_round, found.hourly) == (wanted.each_round, wanted.hourly)
    assert found.daily == pytest.approx(wanted.daily)


@spec("DFR-01", "W-33")
def test_every_round_of_the_manuals_example_drains_one():
    assert drained(1.0, 3600, DAY) == [1] * 24
    assert drained(6.0, 600, DAY) == [1] * 144


@spec("DFR-01")
def test_what_no_round_comes_to_is_made_up_hourly_and_daily():
    assert drained(1.0, 600, 4 * HOUR) == [1, 0, 0, 0, 0, 0] * 4
    a_day = drained(2.5, 600, DAY)
    assert sum(a_day) == 60
    assert a_day[0] == 14  # 2 of the hour, 12 of the day
    assert a_day[6::6] == [2] * 23


@spec("DFR-01")
@settings(max_examples=60, deadline=None)
@given(
    per_hour=st.floats(0.005, 50),
    interval=st.sampled_from([7, 60, 600, 601, 3599, 3600, 3601, 7200, DAY, 2 * DAY]),
    start=st.integers(0, 3 * DAY),
)
@example(per_hour=0.01, interval=600, start=0)
@example(per_hour=1 / 3, interval=600, start=17)
def test_in_the_long_run_the_rate_is_kept(per_hour, interval, start):
    """Whatever it is and however long rounds are apart; none has more than what it, its hour and its day come to."""
    span = max(30 * DAY, 60 * interval) if interval > 60 else 2 * DAY
    found = drained(per_hour, interval, span, DAY0 + start)
    wanted = per_hour * span / HOUR
    assert abs(sum(found) - wanted) <= per_hour * 2 * max(interval, DAY) / HOUR + 2
    allowed = allowance(per_hour, interval)
    days = -(-interval // DAY)
    assert max(found) <= allowed.each_round + allowed.hourly + days * (allowed.daily + 1)


@spec("DFR-01")
def test_what_was_not_drained_while_defrag_was_away_stays_so():
    """It comes back in the middle of an hour, after a week: a part of the hour's and of the day's, no more."""
    allowed = allowance(6.5, 3600)
    assert allowed == Allowance(6, 0, 12.0)
    noon = DAY0 + DAY // 2
    assert due(allowed, noon - 7 * DAY, noon, 3600) == 6 + 7  # 13 of 24 hours of 12
    assert due(allowance(3, 600), 0, noon + 1800, 600) == 2  # the first round ever, at half past
    assert due(allowance(3, 600), noon + 1200, noon + 1800, 600) == 0
