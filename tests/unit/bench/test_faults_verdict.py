"""The checker of the fault suite finds what it is there to find."""

from dataclasses import replace

import pytest

from bench.faults.verdict import Facts, Glimpse, Line, Recorded, judge, lines, longest_gap, two_leaders, without_leader


def facts(**changes):
    log = "000 (7.000.000) x\n...\n001 (7.000.000) x\n...\n005 (7.000.000) x\n\t(1) Normal termination\n...\n"
    whole = Facts(
        acknowledged={"short1": "7.0"},
        history=[Recorded("7.0", "short1", 4, 0, 1, 2.5)],
        lines=[Line("begin", "short1", 1.0), Line("end", "short1", 2.0)],
        logs={"short1": log},
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
    log = facts().logs["short1"]
    torn = facts(logs={"short1": log.replace("005 (", "xxx (")})
    assert judge(torn).log == ("short1 (7.0): event 005 0 times, not 1",)
    doubled = facts(logs={"short1": log + "001 (7.000.000) x\n"})
    assert judge(doubled).log == ("short1 (7.0): event 001 2 times, not 1",)
    assert len(judge(facts(logs={})).log) == 3
    # What the queue started twice is told of twice; ids of another schedd's jobs may be the same.
    again = facts(
        logs={"short1": log + "001 (7.000.000) x\n", "short2": log},
        history=[Recorded("7.0", "short1", 4, 0, 2, 2.5)],
    )
    assert judge(again).log == ()


def test_a_job_that_lived_in_what_was_killed_may_begin_again_but_is_in_the_history_once():
    begun = [Line("begin", "short1", 1.0), Line("begin", "short1", 1.1), Line("end", "short1", 2.0)]
    assert judge(facts(lines=begun)).faults(restarts=True) == []
    ended = [*begun, Line("end", "short1", 2.1)]
    assert judge(facts(lines=ended)).faults(restarts=True) == []
    assert judge(facts(lines=ended)).faults() == ["run twice: short1", "ended twice: short1"]
    twice = facts(history=[*facts().history, *facts().history])
    assert judge(twice).faults(restarts=True) == ["twice in the history: short1"]


def glimpses(leads, every_s=0.1):
    return [Glimpse(at * every_s, at * every_s + 0.01, word == "L") for at, word in enumerate(leads)]


@pytest.mark.parametrize(
    ("said", "nobody", "two"),
    [
        (["LLLLLLLL", "--------"], 0.1, 0.0),
        (["LLL-----", "-----LLL"], 0.3, 0.0),
        (["LLLL----", "----LLLL"], 0.1, 0.0),
        (["LLLLL---", "---LLLLL"], 0.1, 0.09),  # from 0.31 to 0.40
        (["LLL--LLL", "--LLLL--"], 0.1, 0.0),
        (["--------", "--------"], 0.7, 0.0),
    ],
)
def test_time_without_a_leader_and_with_two(said, nobody, two):
    glances = [glimpses(one) for one in said]
    assert without_leader(glances, 0.01, 0.71) == pytest.approx(nobody)
    assert two_leaders(glances, 0.0, 0.8) == pytest.approx(two)


def test_gaps_count_both_ends():
    assert longest_gap([1.0, 2.0, 4.0], since=1.5, until=5.0) == 2.0
    assert longest_gap([], since=1.0, until=5.0) == 4.0
    assert longest_gap([1.0, 2.0], since=0.0, until=9.0) == 7.0


def test_lines_of_jobs():
    assert lines("begin a 1.5\nend a 2.5\n") == [Line("begin", "a", 1.5), Line("end", "a", 2.5)]
    with pytest.raises(ValueError):
        lines("begin a\n")
