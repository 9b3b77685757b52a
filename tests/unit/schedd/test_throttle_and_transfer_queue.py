"""How fast jobs are started (JOB_START_COUNT, JOB_START_DELAY), and which transfers may go (MAX_CONCURRENT_UPLOADS and
_DOWNLOADS)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.schedd.core.start_throttle import AHEAD_S, StartThrottle
from services.schedd.core.transfer_queue import MOST_KNOWN, TransferQueue
from tests.spec import spec


def test_without_a_delay_all_start_at_once():
    pace = StartThrottle(1, 0)
    assert [pace.book(5.0) for _ in range(1000)] == [0.0] * 1000
    assert pace.room_in_s(5.0) == 0.0


def test_batches_start_one_delay_apart():
    pace = StartThrottle(2, 3)
    assert [pace.book(100.0) for _ in range(5)] == [0, 0, 3, 3, 6]
    assert pace.wait_s(100.0) == 6
    assert pace.room_in_s(100.0) == 6 - AHEAD_S
    assert pace.room_in_s(101.0) == 0
    assert pace.book(106.5) == 0  # the batch of 106 has one more
    assert pace.book(106.5) == 2.5
    assert pace.book(1000.0) == 0


@spec("SUB-08")
def test_a_job_may_want_a_pause_after_its_start():
    pace = StartThrottle()
    assert [pace.book(100.0), pace.book(100.0, 30.0), pace.wait_s(100.0)] == [0.0, 0.0, 30.0]
    assert pace.room_in_s(100.0) == 30.0 - AHEAD_S
    assert pace.room_in_s(126.0) == 0.0
    assert pace.book(126.0, 10.0) == 4.0
    assert pace.wait_s(130.0) == 10.0
    slow = StartThrottle(1, 3)
    assert [slow.book(0.0, 1.0), slow.wait_s(0.0), slow.book(3.0, 7.0), slow.wait_s(3.0)] == [0.0, 3.0, 0.0, 7.0]


@given(
    st.integers(1, 5),
    st.floats(0.1, 20),
    st.lists(st.floats(0, 10), min_size=1, max_size=40),
)
@settings(max_examples=80, deadline=None)
def test_no_more_than_the_count_start_within_a_delay(count, delay, gaps):
    pace, now, starts = StartThrottle(count, delay), 0.0, []
    for gap in gaps:
        now += gap
        if not pace.room_in_s(now):
            wait = pace.book(now)
            assert 0 <= wait <= AHEAD_S + 1e-9
            starts.append(now + wait)
    for at in starts:
        assert sum(at - 1e-9 <= other < at + delay - 1e-6 for other in starts) <= 2 * count  # two batches meet
        assert sum(abs(at - other) < 1e-9 for other in starts) <= count
    assert starts == sorted(starts)


def test_users_take_turns_and_each_keeps_its_order():
    line = TransferQueue(1)
    assert line.come("a1", "ada", "a1")
    for ticket in ("a2", "a3", "a4", "b1", "b2", "c1"):
        assert not line.come(ticket, {"a": "ada", "b": "bob", "c": "cyd"}[ticket[0]], ticket)
    order, now = [], "a1"
    while now:
        order.append(now)
        line.leave(now)
        now = next(iter(line.called()), None)
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]
    assert (line.going, line.waiting) == (0, 0)


def test_one_that_asks_again_has_its_place_still():
    line = TransferQueue(1)
    assert line.come("first", "ada", "1.0")
    assert not line.come("second", "ada", "2.0")
    line.leave("second")
    assert not line.come("third", "ada", "3.0")
    assert not line.come("second again", "ada", "2.0")
    line.leave("first")
    assert line.called() == ["second again"]


@given(st.integers(0, 4), st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.booleans()), max_size=80))
@settings(max_examples=80, deadline=None)
def test_never_more_than_the_limit_and_nobody_waits_beside_room(most, steps):
    line, there, going = TransferQueue(most), [], set()
    for number, (user, which, comes) in enumerate(steps):
        if comes:
            there.append(number)
            if line.come(number, user, (user, which)):
                going.add(number)
        elif there:
            gone = there.pop(which % len(there))
            line.leave(gone)
            going.discard(gone)
        going |= set(line.called())
        assert line.going == len(going)
        assert line.going + line.waiting == len(there)
        assert not most or line.going <= most
        assert not line.waiting or line.going == most


def test_who_never_comes_back_is_forgotten():
    line = TransferQueue(1)
    line.come("x", "u", "x")
    for number in range(MOST_KNOWN + 50):
        line.come(number, "u", number)
        line.leave(number)
    assert len(line._places) == MOST_KNOWN
