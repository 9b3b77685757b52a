"""Waits between attempts."""

import random

import pytest

from shared.backoff import Backoff, wait_s


def test_waits_double_up_to_the_cap_and_begin_anew_after_a_success():
    backoff = Backoff(0.1, 1.0)
    assert [round(backoff.next_s(), 6) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert backoff.next_s() == 0.1


@pytest.mark.parametrize(("failures", "wait"), [(-1, 0.0), (0, 0.0), (1, 2.0), (2, 6.0), (3, 18.0), (10**9, 60.0)])
def test_any_number_of_failures_has_a_wait(failures, wait):
    assert wait_s(failures, 2.0, 60.0, factor=3.0) == wait


def test_jitter_takes_up_to_half_of_a_wait_and_can_be_repeated():
    waits = [
        [backoff.next_s() for _ in range(5)]
        for backoff in (Backoff(1, 8, jitter=random.Random(7).uniform) for _ in "ab")
    ]
    assert waits[0] == waits[1]
    assert all(plain / 2 <= wait <= plain for wait, plain in zip(waits[0], (1, 2, 4, 8, 8), strict=True))
