"""The table of the fault suite says what its runs did, and what was not run."""

import pytest

from bench.faults.report import by_fault, fits, missed, row, table


def run(fault="one schedd killed", **changes):
    figures = {"fault": fault, "lasts_s": 5.0, "aims": {"match": 1.5}, "load": 2.2, "noted_s": 9.0}
    figures |= {"submit": 0.5, "match": 1.0, "query": 0.1, "leader": 0.2, "two leaders": 0.0}
    return {**figures, "jobs": 10, "lost": [], "twice": [], "log": [], "ran_s": 10.0, "charged_s": 9.5, **changes}


def test_a_row_of_one_run_has_its_seconds_and_aims():
    assert row([run()]) == (
        "| one schedd killed | 5 | 0.5 | 1.0 (aim 1.5) | 0.1 | 0.2 | 0.00 | 10 | 0 | 0 | 0 | -0.5 of 10 | 2 |"
    )


def test_a_row_of_several_runs_has_the_median_the_worst_and_all_that_was_lost():
    runs = [run(), run(match=3.0, lost=["a", "b"], load=6.6), run(match=1.2, **{"two leaders": 0.25}, twice=["c"])]
    assert row(runs) == (
        "| one schedd killed (3 times) | 5 | 0.5, 0.5 | 1.2, 3.0 (aim 1.5) | 0.1, 0.1 | 0.2, 0.2 | 0.25 | 30 | 2 | 1 "
        "| 0 | -1.5 of 30 | 2 to 7 |"
    )


def test_a_table_keeps_the_order_of_faults_and_names_what_was_not_run():
    told = {"runs": [run("b"), run("a"), run("b")], "bad": ["b: match: 3.0 s, aim 1.5 s"], "not_run": ["c", "d"]}
    assert [[one["fault"] for one in runs] for runs in by_fault(told["runs"])] == [["b", "b"], ["a"]]
    lines = table(told).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:4]] == ["b (2 times)", "a"]
    assert "Missed, lost or done twice: b: match: 3.0 s, aim 1.5 s." in lines
    assert lines[-1] == "Not run for want of time: c; d."


@pytest.mark.parametrize(
    ("spent", "longest", "minutes", "fit"),
    [(0.0, 0.0, 1.0, True), (50.0, 10.0, 1.0, True), (50.0, 10.1, 1.0, False), (1e6, 60.0, None, True)],
)
def test_no_run_begins_that_would_end_too_late(spent, longest, minutes, fit):
    assert fits(spent, longest, minutes) is fit


def test_what_is_over_its_aim_is_missed():
    assert missed({"match": 1.5, "query": 0.1}, run(match=1.6)) == ["match: 1.6 s, aim 1.5 s"]
