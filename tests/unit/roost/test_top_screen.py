"""The screen of `roost top`, on what a pool was recorded to say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.cli.main import main
from roost.cli.top_screen import SORTS, JobAction, Rates, View, screen, sorted_rows

NOW = 1795358608.0
POOL = {
    "at": 1795358608.417376,
    "waits": {"count": 2, "window_s": 3600.0, "p50": 1.0284, "p90": 8.25, "p99": 9.0},
    "slots": {
        "slots": 100_000,
        "cpus": 200_000.0,
        "gpus": 0.0,
        "states": {"Claimed": {"slots": 75_000, "cpus": 150_000.0}, "Unclaimed": {"slots": 25_000, "cpus": 50_000.0}},
        "used_cpus": 150_000.0,
        "utilisation": 0.75,
    },
    "queue": {"running": 2, "idle": 1, "held": 1, "removed": 0, "total": 4, "schedds": 1},
    "users": {"count": 9, "lines": [{"name": f"user{n}@vm", "running": 2, "idle": n, "held": 0} for n in range(9)]},
    "negotiators": [],
    "hads": [{"Name": "cm1", "HadState": "Leader", "HadEpoch": 3}, {"Name": "cm2", "HadState": "Backup"}],
}


def row(job, status="Idle", **more):
    return {"Id": job, "Status": status, "User": "ann@vm", "Cmd": "/bin/sleep", "Args": "60", "Schedd": "ap"} | more


JOBS = [
    row("1.3", RequestCpus=1, RequestMemory=64),
    row("1.2", "Held", RequestCpus=4, RequestMemory=32, User="Bob@vm", RemoteWallClockTime=90.0),
    row("1.1", "Running", RequestCpus=2, RemoteHost="slot1_2@vm", JobCurrentStartDate=NOW - 3725),
]


def shown(view=None, pool=POOL, jobs=JOBS, rates=None, width=140, height=40):
    return screen(view or View(), pool, jobs, rates, NOW, width, height)


def test_totals_users_and_jobs_are_shown():
    text = "\n".join(shown())
    assert "cm1 leads (epoch 3)" in text
    assert "Slots: 100000 (75000 claimed, 25000 unclaimed); 150000 of 200000 cpus in use, 75%" in text
    assert "Jobs:  2 running, 1 idle, 1 held" in text
    assert "half of the jobs waited 1.0 s or less, 9 of 10 8.2 s" in text
    assert "and 4 more" in text
    (line,) = [line for line in shown() if " 1.1 " in line]
    assert line.split() == ["1.1", "ann@vm", "Running", "0+01:02:05", "2", "slot1_2@vm", "sleep", "60"]


def test_a_part_that_can_not_be_had_does_not_hide_the_others():
    pool = POOL | {"slots": {"error": "collector away"}, "users": {"error": "no"}, "hads": {"error": "gone"}}
    text = "\n".join(shown(pool=pool))
    assert "Slots: collector away" in text
    assert "Users: no" in text
    assert "HADs: gone" in text
    assert " 1.1 " in text


@settings(max_examples=60)
@given(st.integers(1, 200), st.integers(1, 60), st.sampled_from(SORTS), st.text(max_size=30))
def test_any_window_is_kept_to_and_nothing_steers_it(width, height, sort, name):
    view = View(sort=sort, user=name, search=name, typing="user", typed=name)
    lines = shown(view, jobs=[*JOBS, row("9.9", Cmd=name, Args="\x1b[2J\n", User=name)], width=width, height=height)
    assert len(lines) == height
    assert all(len(line) <= width and line.isprintable() for line in lines)
    assert lines[-1].startswith("user: "[:width])


def test_jobs_are_sorted_as_was_chosen():
    for sort, ids in (
        ("newest", ["1.3", "1.2", "1.1"]),
        ("runtime", ["1.1", "1.2", "1.3"]),
        ("cpus", ["1.2", "1.1", "1.3"]),
        ("memory", ["1.3", "1.2", "1.1"]),
        ("user", ["1.3", "1.1", "1.2"]),
    ):
        assert [one["Id"] for one in sorted_rows(View(sort=sort), JOBS, NOW)] == ids
    view = View()
    for expected in (*SORTS[1:], SORTS[0]):
        view.press("s", JOBS, NOW)
        assert view.sort == expected


def press(view, *keys):
    return [deed for key in keys if (deed := view.press(key, JOBS, NOW)) is not None]


@pytest.mark.parametrize(("key", "what"), [("h", "hold"), ("r", "release"), ("x", "remove")])
def test_jobs_are_acted_on_after_a_question_only(key, what):
    view = View()
    assert press(view, key) == []
    assert "arrows" in view.said
    assert press(view, "down", "down", key) == []
    assert shown(view)[-1] == f"{what} job 1.2? y: yes, any other key: no"
    assert press(view, "n") == []
    assert press(view, "y") == [], "the question is over"
    assert press(view, key, "y") == [JobAction(what, "1.2", "ap")]


def test_the_cursor_stays_in_the_list():
    view = View()
    press(view, *["down"] * 9)
    assert view.chosen == "1.1"
    press(view, *["up"] * 9)
    assert view.chosen == "1.3"
    assert [line[:5] for line in shown(view) if line.startswith(">")] == ["> 1.3"]


def test_users_and_words_are_typed():
    view = View()
    assert press(view, "u", *"anx", "backspace", "n", "enter") == [JobAction("fetch")]
    assert (view.user, view.search) == ("ann", "")
    assert press(view, "/", *"qs", "enter") == [JobAction("fetch")]
    assert view.search == "qs", "keys are letters while one types"
    assert press(view, "u", "x", "escape") == []
    assert view.user == "ann"
    assert press(view, "t") == [JobAction("fetch")]
    assert view.status == "Running"


def test_it_pauses_and_ends():
    view = View()
    assert press(view, "p") == []
    assert any("PAUSED" in line for line in shown(view))
    assert press(view, "p") == [JobAction("fetch")]
    assert press(view, "q") == [JobAction("quit")]


def test_the_pace_is_that_of_the_last_minute():
    rates = Rates()
    for at in (0, 10, 50, 65):
        rates.add("job.started", NOW + at)
    assert rates.per_minute("job.started", NOW + 66) == 3
    assert rates.per_minute("job.ended", NOW + 66) == 0
    assert any("in the last minute 0 started" in line for line in shown(rates=Rates()))


@pytest.mark.parametrize(
    ("typed", "says"),
    [("-sort size", "-sort size"), ("-status odd", "-status Odd"), ("-limit 0", "1 to 500"), ("x", "does not belong")],
)
def test_what_is_wrong_is_told(typed, says, capsys):
    assert main(["top", *typed.split()]) == 1
    assert says in capsys.readouterr().err
