"""When it is told how far a transfer is, and in which words."""

from itertools import pairwise

import pytest

from shared.transfer.progress import NOTABLE_S, PAUSE_S, Progress, in_words


def told(seconds, total=0, pieces_per_s=10, size=1000):
    """What is told of a transfer that takes so long: (when, Standing)."""
    progress = Progress(100.0, total)
    found = []
    for number in range(1, int(seconds * pieces_per_s) + 1):
        now = 100.0 + number / pieces_per_s
        if standing := progress.moved(size, now):
            found.append((now - 100.0, standing))
    return found


def test_what_is_over_soon_is_not_told_at_all():
    assert told(PAUSE_S[0] - 0.1) == []


def test_it_is_told_often_at_first_and_seldom_later():
    times = [at for at, _ in told(3600)]
    pauses = [later - before for before, later in pairwise([0.0, *times])]
    assert pauses[0] == pytest.approx(PAUSE_S[0], abs=0.11)
    assert all(later > before - 0.11 for before, later in pairwise(pauses))  # pieces come every 0.1 s
    assert pauses[-1] == pytest.approx(PAUSE_S[1], abs=0.11)
    assert len(times) < 100


def test_events_come_whenever_it_took_twice_as_long():
    times = [at for at, standing in told(1000) if standing.notable]
    assert NOTABLE_S <= times[0] < NOTABLE_S * 1.3
    assert all(later >= 2 * before for before, later in pairwise(times))
    assert 5 <= len(times) <= 7


def test_bytes_and_their_rate():
    _, first = told(3, total=50_000)[0]
    assert (first.done, first.total, first.bytes_per_s) == (20_000, 50_000, 10_000)


def test_one_that_begins_again_has_no_rate_below_nothing():
    progress = Progress(0.0)
    progress.stands(9_000, 0, 2.0)
    assert progress.stands(10, 0, 9.0).bytes_per_s == 0


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((0, 0, 0), "0 B"),
        ((999, 0, 0), "999 B"),
        ((5, 999, 1), "5 of 999 B, 1 B/s, 16 min left"),
        ((1_200_000_000, 5_000_000_000, 80_000_000), "1.2 of 5.0 GB, 80 MB/s, 47 s left"),
        ((1_500, 5_000_000, 1_000), "0.0 of 5.0 MB, 1 kB/s, 83 min left"),
        ((3 * 10**15, 0, 10**9), "3000.0 TB, 1 GB/s"),
        ((5_000, 5_000, 10), "5.0 of 5.0 kB, 10 B/s"),
        ((0, 10**13, 10**6), "0.0 of 10.0 TB, 1 MB/s, 2777 h left"),
    ],
)
def test_words(numbers, words):
    assert in_words(*numbers) == words
