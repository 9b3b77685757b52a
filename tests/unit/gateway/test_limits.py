"""How often and how many at once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.gateway.auth.guards import retry_after
from services.gateway.core import limits
from services.gateway.core.limits import ByteBudget, ConcurrencyLimit, FairQueue, RateLimiter


def test_a_burst_passes_and_then_the_rate():
    limiter = RateLimiter(rate=2.0, seconds=5.0)
    assert [limiter.take("a", 100.0) for _ in range(10)] == [0.0] * 10
    assert limiter.take("a", 100.0) == pytest.approx(0.5)
    assert limiter.take("b", 100.0) == 0.0  # another's
    assert limiter.take("a", 100.4) > 0
    assert limiter.take("a", 100.5) == 0.0
    assert limiter.take("a", 100.5) > 0


@given(st.floats(0.1, 1000), st.floats(0, 10), st.lists(st.floats(0, 3), min_size=1, max_size=60))
@settings(max_examples=60)
def test_no_more_pass_than_the_rate_and_the_burst_allow(rate, seconds, pauses):
    limiter, now, passed = RateLimiter(rate, seconds), 50.0, 0
    for pause in pauses:
        now += pause
        wait = limiter.take("a", now)
        passed += not wait
        assert wait >= 0
    assert passed <= max(1.0, rate * seconds) + rate * (now - 50.0) + 1e-6


@given(st.floats(0.1, 1000), st.floats(0, 10), st.integers(1, 30))
@settings(max_examples=60)
def test_who_waits_as_long_as_told_is_let_in(rate, seconds, refusals):
    limiter, now = RateLimiter(rate, seconds), 0.0
    while not (wait := limiter.take("a", now)):
        pass
    for _ in range(refusals):  # asking again does not make it longer
        assert limiter.take("a", now) == pytest.approx(wait)
    assert limiter.take("a", now + wait + 1e-6) == 0.0


def test_no_rate_is_no_limit_and_a_clock_that_steps_back_no_gift():
    assert not any(RateLimiter(0.0, 5.0).take("a", 0.0) for _ in range(1000))
    limiter = RateLimiter(1.0, 1.0)
    assert limiter.take("a", 100.0) == 0.0
    assert limiter.take("a", 50.0) > 0
    assert limiter.take("a", 50.5) > 0


def test_many_keys_take_no_memory(monkeypatch):
    monkeypatch.setattr(limits, "MOST_KEYS", 10)
    limiter = RateLimiter(1.0, 1.0)
    for number in range(100):
        limiter.take(f"address {number}", 0.0)
    assert len(limiter) == 10


def test_a_room_has_so_many_places_for_each_and_for_all():
    room = ConcurrencyLimit(2, 3)
    assert [room.enter("a"), room.enter("a")] == ["", ""]
    assert "2 of yours" in room.enter("a")
    assert room.enter("b") == ""
    assert "3 are open" in room.enter("c")
    room.leave("a")
    assert room.enter("c") == ""
    for key in ("a", "b", "c"):
        room.leave(key)
    assert room.count == 0
    assert not any(ConcurrencyLimit(0).enter("a") for _ in range(1000))


@pytest.mark.parametrize(("wait", "header"), [(0.01, "1"), (1.0, "1"), (1.2, "2"), (59.9, "60")])
def test_the_header_never_says_too_little(wait, header):
    assert retry_after(wait) == {"Retry-After": header}


def test_a_line_lets_keys_in_by_turns():
    line = FairQueue(each=2, total=3)
    assert [line.enter("greedy", n) for n in range(6)] == [True, True, False, False, False, False]
    assert [line.enter("alice", n) for n in "xy"] == [True, False]
    assert [line.enter(name, name) for name in ("bob", "carol", "dan", "eve")] == [True, True, True, False]
    # Six are inside: alice, bob, carol, dan, and two of greedy's.
    assert line.leave("dan") == ["eve"]  # who has none goes before who came earlier
    for name in ("eve", "carol", "bob"):
        assert line.leave(name) == []
    assert line.leave("greedy") == [2]
    assert line.leave("alice") == ["y"]  # it has none any more
    assert line.leave("greedy") == [3]
    line.give_up("greedy", 4)
    assert line.leave("alice") == []  # greedy has its two
    assert line.leave("greedy") == [5]
    assert (line.count, line.waiting) == (2, 0)


@given(
    st.integers(0, 3),
    st.integers(0, 5),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["enter", "leave", "give up"])), max_size=60),
)
@settings(max_examples=100)
def test_nobody_is_forgotten_in_a_line_and_the_limits_hold(each, total, steps):
    line = FairQueue(each, total)
    inside, waiting = {"a": [], "b": [], "c": []}, {"a": [], "b": [], "c": []}
    for number, (key, step) in enumerate(steps):
        if step == "enter":
            (inside if line.enter(key, (key, number)) else waiting)[key].append((key, number))
        elif step == "leave" and inside[key]:
            inside[key].pop()
            for one in line.leave(key):
                assert waiting[one[0]][0] == one  # first come, first served
                inside[one[0]].append(waiting[one[0]].pop(0))
        elif step == "give up" and waiting[key]:
            line.give_up(key, waiting[key].pop())
        count = sum(map(len, inside.values()))
        assert (line.count, line.waiting) == (count, sum(map(len, waiting.values())))
        assert not total or count <= 2 * total
        assert not each or max(map(len, inside.values())) <= each
        for name in "abc":  # who waits has a reason
            most = total if inside[name] else 2 * total
            assert not waiting[name] or (total and count >= most) or (each and len(inside[name]) == each)
    while any(inside.values()):
        key = next(key for key in inside if inside[key])
        inside[key].pop()
        for one in line.leave(key):
            inside[one[0]].append(one)
            waiting[one[0]].remove(one)
    assert not any(waiting.values())


def test_so_much_is_held_of_one_and_of_all():
    budget = ByteBudget(each=10, total=15)
    assert budget.take("a", 10) == ""
    assert "share" in budget.take("a", 1)
    assert "all" in budget.take("b", 6)
    assert budget.take("b", 5) == ""
    budget.give("a", 4)
    assert budget.take("b", 4) == ""
    for key, amount in (("a", 6), ("b", 9)):
        budget.give(key, amount)
    assert (budget.held, budget._held._by_key) == (0, {})
    assert ByteBudget(0, 0).take("a", 1 << 60) == ""
