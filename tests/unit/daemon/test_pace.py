"""Changes that nobody waits for are told many at a time."""

from shared.daemon.pace import Pace

FIRST_S, LONGEST_S = 0.2, 1.0


def test_changes_are_gathered_for_longer_while_they_go_on() -> None:
    pace, now, waits = Pace(FIRST_S, LONGEST_S), 100.0, []
    for _ in range(5):  # each change comes right after the last ones were told
        waits.append(pace.wait_s(now))
        now += waits[-1]
        pace.told(now)
    assert waits == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, LONGEST_S, LONGEST_S]


def test_a_change_after_a_pause_is_told_soon() -> None:
    pace = Pace(FIRST_S, LONGEST_S)
    assert pace.wait_s(0.0) == FIRST_S
    pace.told(0.2)
    assert pace.wait_s(0.3) == 2 * FIRST_S
    pace.told(0.7)
    assert pace.wait_s(1.2) == FIRST_S
    pace.told(1.4)
    assert pace.wait_s(1.7) == FIRST_S
