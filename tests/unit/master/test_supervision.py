import signal

import pytest

from services.master.core.daemon_words import Program
from services.master.core.supervision import AGAIN, OVER, Kill, State, Supervision
from shared.daemon.runner import FIRST_BACKOFF_S, GOOD_LIFE_S, LONGEST_BACKOFF_S

SCHEDD, STARTD = Program("SCHEDD", "services.schedd"), Program("STARTD", "services.startd")


def running(*programs, now=0.0, not_responding_s=60.0):
    """A master whose daemons have pids 100, 101... and do their work."""
    made = Supervision(not_responding_s, stop_s=25.0)
    made.want(programs, now)
    for pid, one in enumerate(made.due(now), 100):
        made.started(one.program.word, pid, now)
        made.told(one.program.word, {"READY": "1"}, now)
    return made


def due(made, now):
    return [one.program.word for one in made.due(now)]


def test_it_is_ready_when_each_daemon_is():
    made = Supervision(60.0, 25.0)
    made.want([SCHEDD, STARTD], 0.0)
    assert due(made, 0.0) == ["SCHEDD", "STARTD"]
    for pid, word in enumerate(("SCHEDD", "STARTD"), 100):
        made.started(word, pid, 0.0)
    assert (due(made, 0.0), made.ready) == ([], False)
    made.told("SCHEDD", {"READY": "1", "STATUS": "does its work"}, 1.0)
    made.told("STARTD", {"STATUS": "waits for bus: a connection"}, 1.0)
    assert not made.ready
    assert made.status() == "SCHEDD: does its work; STARTD: waits for bus: a connection"
    made.told("STARTD", {"READY": "1"}, 2.0)
    assert made.ready


def test_who_dies_is_started_again_at_once_and_later_each_time_it_dies_again():
    made, now, waits = running(SCHEDD), 0.0, []
    for number in range(15):
        ended = made.ended(100 + number, 1, now)
        waits.append(ended.due - now)
        assert due(made, now) == []
        now = ended.due
        assert due(made, now) == ["SCHEDD"]
        made.started("SCHEDD", 101 + number, now)
    assert waits[0] == FIRST_BACKOFF_S
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_BACKOFF_S
    ended = made.ended(115, -signal.SIGKILL, now + GOOD_LIFE_S + 1)
    assert ended.last == "signal SIGKILL"
    assert ended.due - (now + GOOD_LIFE_S + 1) == pytest.approx(FIRST_BACKOFF_S)


def test_who_was_told_to_restart_is_started_at_once():
    made = running(SCHEDD)
    made.ended(100, AGAIN, 5.0)
    assert due(made, 5.0) == ["SCHEDD"]


@pytest.mark.parametrize("status", [2, 78, OVER])
def test_who_can_not_run_is_left_until_the_configuration_is_read_anew(status):
    made = running(SCHEDD, STARTD)
    assert made.ended(100, status, 5.0).state is State.OVER
    assert (due(made, 1e9), made.ready) == ([], True)
    assert made.status() == f"SCHEDD: over after exit status {status}; STARTD: running"
    assert made.want([SCHEDD, STARTD], 10.0) == []
    assert due(made, 10.0) == ["SCHEDD"]


def test_who_hangs_is_killed_and_started_again():
    made = running(SCHEDD)
    made.told("SCHEDD", {"WATCHDOG": "1"}, 50.0)
    assert made.next_due() == 110.0
    assert made.overdue(109.9) == []
    assert made.overdue(110.0) == [Kill(100, signal.SIGKILL, "it said nothing for 60 s")]
    assert made.overdue(110.1) == []
    made.ended(100, -signal.SIGKILL, 110.2)
    assert due(made, 111.0) == ["SCHEDD"]


def test_who_is_not_ready_yet_may_be_silent_and_who_is_not_watched_too():
    made = Supervision(60.0, 25.0)
    made.want([SCHEDD], 0.0)
    made.started("SCHEDD", 100, 0.0)
    assert made.overdue(1e9) == []
    assert running(SCHEDD, not_responding_s=0.0).overdue(1e9) == []


def test_what_is_listed_no_more_ends_and_what_changed_begins_anew():
    made = running(SCHEDD, STARTD)
    other = Program("SCHEDD", "services.schedd", ("-name", "b"))
    kills = made.want([other], 5.0)
    assert [(kill.pid, kill.signal) for kill in kills] == [(100, signal.SIGTERM), (101, signal.SIGTERM)]
    made.ended(101, 0, 6.0)
    made.ended(100, 0, 6.0)
    assert [one.program for one in made.due(6.0)] == [other]
    assert list(made.watched) == ["SCHEDD"]


def test_a_stop_ends_all_and_kills_who_does_not_end():
    made = running(SCHEDD, STARTD)
    assert [kill.pid for kill in made.stop(5.0)] == [100, 101]
    assert made.stop(6.0) == []  # told already
    made.ended(100, 0, 6.0)
    assert (due(made, 1e9), made.empty, made.next_due()) == ([], False, 30.0)
    assert made.overdue(30.0) == [Kill(101, signal.SIGKILL, "it did not end")]
    made.ended(101, -signal.SIGKILL, 31.0)
    assert (due(made, 1e9), made.empty) == ([], True)


def test_a_strangers_end_changes_nothing():
    made = running(SCHEDD)
    assert made.ended(7, 1, 5.0) is None
    assert made.watched["SCHEDD"].pid == 100
