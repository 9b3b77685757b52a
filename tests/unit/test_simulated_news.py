"""What the simulation would call wrong in what it hears: a check that can not fail sees nothing."""

from types import SimpleNamespace

import pytest

from shared.messages.events import JobEnded, JobEvicted, JobHeld, JobRemoved, JobsSubmitted, JobStarted
from tests.simulation.news import News, log_of, wrong_in_log

ABOUT = {"at": 1.0, "schedd": "ap1", "job_id": "1.0", "owner": "alice"}
SUBMITTED = JobsSubmitted(at=1.0, schedd="ap1", owner="alice", submitter="alice@pool", cluster=1, first_proc=0, count=1)
REMOVED = JobRemoved(**ABOUT, reason="")
HELD = JobHeld(**ABOUT, code=1, subcode=0, reason="")


def started(attempt):
    return JobStarted(**ABOUT, slot="s", attempt=attempt, waited_s=1.0)


def ended(attempt):
    return JobEnded(**ABOUT, slot="s", attempt=attempt, exit_code=0, ran_s=1.0)


def evicted(attempt):
    return JobEvicted(**ABOUT, slot="s", attempt=attempt, reason="")


def wrong(*facts, status=4, starts=1, broke_at=None, apart=1.0):
    """Facts come so many seconds apart."""
    clock = SimpleNamespace(now=0.0)
    news = News(lambda: clock.now)
    for fact in facts:
        clock.now += apart
        if clock.now == broke_at:
            news.broke_off(SimpleNamespace(name="schedd.ap1"))
        news.hear(SimpleNamespace(body=fact))
    return news.wrong_about("schedd.ap1", "1.0", status=status, starts=starts)


def test_what_a_job_does_is_told_once_and_in_order():
    assert not wrong(SUBMITTED, started(1), ended(1))
    assert not wrong(SUBMITTED, started(1), evicted(1), started(2), HELD, started(3), ended(3), starts=3)
    assert not wrong(SUBMITTED, started(1), REMOVED, status=3)


@pytest.mark.parametrize(
    ("facts", "about"),
    [
        ([started(1), ended(1)], "submitted 0 times"),
        ([SUBMITTED, SUBMITTED, started(1), ended(1)], "submitted 2 times"),
        ([SUBMITTED, started(1)], "never ended"),
        ([SUBMITTED, ended(1)], "nobody said that it began"),
        ([SUBMITTED, started(1), started(2), ended(2)], "run 1 was over"),
        ([SUBMITTED, started(1), ended(1), ended(1)], "came twice"),
        ([SUBMITTED, started(1), ended(1), started(2)], "though it was over"),
        ([SUBMITTED, started(1), evicted(1), started(2), ended(2)], "NumJobStarts is 1"),
    ],
)
def test_what_does_not_agree_is_seen(facts, about):
    assert about in " ".join(wrong(*facts))


def test_only_the_death_of_a_schedd_excuses_it():
    assert not wrong(SUBMITTED, started(1), ended(1), ended(1), broke_at=4.0)
    assert "though it was over" in wrong(SUBMITTED, started(1), ended(1), ended(1), broke_at=50.0, apart=50.0)[0]
    assert not wrong(SUBMITTED, started(1), ended(1), ended(1), broke_at=200.0, apart=50.0)


def test_users_logs_have_no_excuse(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "000 (012.000.000) 2027-01-01 00:00:00 Job submitted\n...\n001 (012.000.000) 2027-01-01 00:00:01 ..\n"
    )
    assert log_of([log]) == {"12.0": [0, 1]}
    assert not wrong_in_log([0, 1, 5], status=4, starts=1)
    assert not wrong_in_log([0, 9], status=3, starts=0)
    bad = [
        ([1, 0, 5], 4),
        ([0, 1, 5, 5], 4),
        ([0, 1, 9, 1], 3),
        ([0, 1, 9], 4),
        ([0, 0, 1, 5], 4),
        ([0, 5], 4),
        ([], 4),
    ]
    assert all(wrong_in_log(events, status=status, starts=1) for events, status in bad)
