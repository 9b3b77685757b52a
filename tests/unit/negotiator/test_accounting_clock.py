import pytest

from engine.fairshare.accounting_clock import (
    APART_S,
    LATELY_S,
    SLOWEST_WRITE_S,
    clock_ahead,
    clock_behind,
    presumed_ahead,
)
from tests.spec import spec

T0 = 1_600_000_000.0
HOUR = 3600.0


@spec("ACC-22")
@pytest.mark.parametrize("passed_s", [0.0, 20.0, 2 * HOUR])
@pytest.mark.parametrize("writer_s", [-HOUR, -20.0, -2.0, 0.0, 2.0, 20.0, HOUR])
def test_a_writers_clock_that_was_set_is_found_out(passed_s, writer_s):
    """Redis's clock and ours are right. A clock that was behind by a few seconds is taken for a slow write, and where
    one was ahead by less than passed, that much is charged to nobody."""
    now = T0 + passed_s
    behind = clock_behind(T0 + writer_s, now, passed_s)
    told = writer_s < -SLOWEST_WRITE_S or writer_s > passed_s
    assert behind == (-writer_s if told else 0.0)


@pytest.mark.parametrize("late_s", [0.0, 5.0, SLOWEST_WRITE_S])
def test_a_write_that_was_late_is_no_clock_that_was_set(late_s):
    assert clock_behind(T0, T0 + late_s + 30.0, 30.0) == 0.0


@pytest.mark.parametrize("apart_s", [-APART_S, -0.1, 0.1])
def test_clocks_of_two_machines_are_never_quite_the_same(apart_s):
    assert clock_behind(T0, T0 + apart_s, 0.0) == 0.0


@pytest.mark.parametrize("redis_s", [-HOUR, HOUR])
def test_a_redis_whose_clock_was_set_charges_nobody_for_that(redis_s):
    assert T0 + clock_behind(T0, T0 + 20.0, 20.0 + redis_s) == pytest.approx(T0, abs=1e-6)


def test_what_no_clock_can_tell_is_charged_to_nobody():
    """Both say that less than no time passed."""
    assert T0 + clock_behind(T0, T0 - HOUR, -HOUR / 2) == T0 - HOUR


def test_where_redis_did_not_note_it_a_clock_that_was_ahead_is_found_out_nevertheless():
    assert clock_behind(T0 + HOUR, T0, None) == -HOUR
    assert clock_behind(T0 + APART_S, T0, None) == 0.0
    assert clock_behind(T0, T0 + HOUR, None) == 0.0


@pytest.mark.parametrize("wrong_s", [-HOUR, HOUR])
def test_whose_clock_differs_from_the_writers_and_from_rediss_is_wrong_himself(wrong_s):
    now = T0 + 20.0 + wrong_s
    behind = clock_behind(T0, now, 20.0)
    assert clock_ahead(behind, now, T0 + 20.0) == wrong_s
    assert clock_ahead(behind, now, T0 + 20.0 - SLOWEST_WRITE_S) == wrong_s + SLOWEST_WRITE_S


@pytest.mark.parametrize("wrong_s", [-HOUR, HOUR])
def test_one_clock_that_differs_from_ours_does_not_make_ours_wrong(wrong_s):
    assert clock_ahead(clock_behind(T0 + wrong_s, T0, 0.0), T0, T0) == 0.0  # the writer's
    assert clock_ahead(clock_behind(T0, T0 + 1.0, 1.0), T0 + 1.0, T0 + wrong_s) == 0.0  # Redis's


@spec("ACC-22")
@pytest.mark.parametrize("wrong_s", [-HOUR, HOUR])
@pytest.mark.parametrize("silent_s", [-APART_S, 0.0, LATELY_S])
def test_who_wrote_the_records_by_a_clock_that_is_wrong_still_is_told_by_redis_and_the_collectors(wrong_s, silent_s):
    """In its former life. The simulation's seed 200002: claims that had just begun were charged from when they were
    heard of."""
    now = T0 + wrong_s
    assert clock_ahead(clock_behind(now, now, 0.0), now, T0) == 0.0
    assert presumed_ahead(0.0, wrong_s, now, T0 - silent_s) == wrong_s


@pytest.mark.parametrize("wrong_s", [-HOUR, HOUR])
def test_a_redis_or_collectors_that_are_alone_with_their_time_are_not_believed(wrong_s):
    assert presumed_ahead(0.0, -wrong_s, T0, T0 - 1.0) == 0.0  # Redis's clock was set
    assert presumed_ahead(0.0, 0.0, T0, T0 + wrong_s) == 0.0  # the collectors'
    assert presumed_ahead(0.0, wrong_s, T0 + wrong_s, T0 - LATELY_S - 1.0) == 0.0  # nothing was heard for long
    assert presumed_ahead(0.0, None, T0 + wrong_s, T0) == 0.0
    assert presumed_ahead(0.0, wrong_s, T0 + wrong_s, None) == 0.0
    assert presumed_ahead(5.0, wrong_s, T0 + wrong_s, T0) == 5.0
