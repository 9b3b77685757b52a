"""The checker of the fault suite finds what it is there to find."""

from dataclasses import replace

import pytest

from bench.faults.verdict import Facts, Line, Recorded, judge, lines, longest_gap


def facts(**changes):
    log = "000 (7.000.000) x\n...\n001 (7.000.000) x\n...\n005 (7.000.000) x\n\t(1) Normal termination\n...\n"
    whole = Facts(
        acknowledged={"short1": "7.0"},
        history=[Recorded("7.0", "short1", 4, 0, 1, 2.5)],
        lines=[Line("begin", "short1", 1.0), Line("end", "short1", 2.0)],
        logs=[log],
        charged_s=2.75,
    )
    return replace(whole, **changes)


def test_a_job_that_ran_once_is_no_fault():
    verdict = judge(facts())
    assert verdict.faults() == []
    assert (verdict.jobs, verdict.ran_s, verdict.charged_s) == (1, 2.5, 2.75)


@pytest.mark.parametrize(
    "changes",
    [
        {"history": []},
        {"history": [Recorded("7.0", "short1", 3, None, 1, 0.0)]},
        {"history": [Recorded("7.0", "short1", 4, 1, 1, 0.0)]},
        {"lines": [Line("begin", "short1", 1.0)]},
        {"lines": []},
    ],
)
def test_an_acknowledged_job_without_a_good_end_is_lost(changes):
    assert judge(facts(**changes)).lost == ("short1",)


def test_a_job_that_began_twice_is_found_by_what_it_wrote_and_by_what_the_queue_counted():
    begun = [Line("begin", "short1", 1.0), Line("begin", "short1", 1.1), Line("end", "short1", 2.0)]
    assert judge(facts(lines=begun)).twice == ("short1",)
    assert judge(facts(history=[Recorded("7.0", "short1", 4, 0, 2, 2.5)])).twice == ("short1",)
    unacknowledged = [Line("begin", "short2", 1.0), Line("begin", "short2", 1.1)]
    assert judge(facts(lines=[*facts().lines, *unacknowledged])).twice == ("short2",)


def test_a_job_that_is_in_the_history_twice_is_found():
    assert judge(facts(history=[*facts().history, *facts().history])).doubled == ("short1",)


def test_an_event_that_lacks_or_is_there_twice_is_found():
    (log,) = facts().logs
    assert judge(facts(logs=[log.replace("005 (", "xxx (")])).log == ("7.0: event 005 0 times",)
    assert judge(facts(logs=[log, "001 (7.000.000) x\n"])).log == ("7.0: event 001 2 times",)


def test_gaps_count_both_ends():
    assert longest_gap([1.0, 2.0, 4.0], since=1.5, until=5.0) == 2.0
    assert longest_gap([], since=1.0, until=5.0) == 4.0
    assert longest_gap([1.0, 2.0], since=0.0, until=9.0) == 7.0


def test_lines_of_jobs():
    assert lines("begin a 1.5\nend a 2.5\n") == [Line("begin", "a", 1.5), Line("end", "a", 2.5)]
    with pytest.raises(ValueError):
        lines("begin a\n")
