"""How long a run took, by its machine's own clock."""

import pytest

from services.startd.core import journal_records
from services.startd.core.journal_records import RunRecord
from services.startd.core.run import run_times
from services.startd.core.run.run_times import Moment
from tests.spec import spec


def record(**fields):
    return RunRecord("n", "c", "slot1@ep", "ap", "1.0", 1, b"", "", "", "dir", 0.0, 2400.0, **fields)


@spec("LEA-12")
@pytest.mark.parametrize("jump", [0.0, 3600.0, -3600.0])
def test_a_clock_that_is_set_meanwhile_changes_nothing(jump):
    run = record()
    run_times.begin(run, Moment("a", 100.0, 5000.0))
    run.started_at = 5001.5
    run_times.end(run, Moment("a", 130.0, 5030.0 + jump))
    run = RunRecord.unpack(run.pack())  # by a later life of the startd
    assert (run_times.had_s(run), run_times.ran_s(run)) == (30.0, 28.5)
    assert run_times.over_s(run, Moment("a", 190.0, 5090.0 - jump)) == 60.0


def test_of_a_machine_that_was_started_anew_the_wall_clock_tells():
    run = record()
    run_times.begin(run, Moment("a", 9000.0, 5000.0))
    run_times.end(run, Moment("b", 20.0, 5100.0))
    assert (run_times.had_s(run), run_times.ran_s(run)) == (100.0, 0.0)
    assert run_times.over_s(run, Moment("b", 25.0, 5105.0)) == 5.0
    assert run_times.over_s(run, Moment("c", 1.0, 5200.0)) == 100.0
    assert run_times.over_s(run, Moment("c", 1.0, 4000.0)) == 0.0


def test_a_run_that_an_older_release_began_has_the_wall_clocks_time():
    run = record(started_at=5002.0)
    run.began = 5000.0
    run_times.end(run, Moment("a", 20.0, 5100.0))
    assert (run_times.had_s(run), run_times.ran_s(run)) == (100.0, 98.0)


def test_how_far_the_clock_was_ahead_is_known_until_the_machine_is_started_anew():
    kept = journal_records.pack_clock("a", 1234.5)
    assert journal_records.unpack_clock(kept, "a") == 1234.5
    assert journal_records.unpack_clock(kept, "b") is None
    assert journal_records.unpack_clock(None, "a") is None
