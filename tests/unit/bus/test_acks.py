"""Acknowledgements of one channel: each delivery once, none early, few frames."""

from hypothesis import given
from hypothesis import strategies as st

from shared.bus.amqp.acks import AckWindow


@given(st.lists(st.sampled_from(["arrive", "take", 0, 1, 2, 3]), max_size=60))
def test_every_delivery_is_acknowledged_once_and_never_before_it_is_done(steps):
    window, tag, in_hand, done, acknowledged = AckWindow(), 0, [], set(), []

    def take():
        for last, multiple in window.take():
            covered = [t for t in range(1, last + 1) if t not in acknowledged] if multiple else [last]
            assert set(covered) <= done, "acknowledged before it was done"
            assert not set(covered) & set(acknowledged)
            acknowledged.extend(covered)

    for step in steps:
        if step == "arrive":
            tag += 1
            window.arrived(tag)
            in_hand.append(tag)
        elif step == "take":
            take()
        elif step < len(in_hand):
            done.add(in_hand[step])
            window.done(in_hand.pop(step))
    take()
    assert sorted(acknowledged) == sorted(done)
    assert len(window) == len(in_hand)


def test_deliveries_done_in_order_cost_one_frame():
    window = AckWindow()
    for tag in range(1, 101):
        window.arrived(tag)
        window.done(tag)
    assert window.take() == [(100, True)]
    assert window.take() == []


def test_slow_delivery_holds_up_only_itself():
    window = AckWindow()
    for tag in range(1, 5):
        window.arrived(tag)
    window.done(2)
    window.done(4)
    assert window.take() == [(2, False), (4, False)]
    window.done(1)
    window.done(3)
    assert window.take() == [(3, True)]


def test_unknown_or_repeated_tags_are_ignored():
    window = AckWindow()
    window.arrived(1)
    window.done(7)
    window.done(1)
    window.done(1)
    assert window.take() == [(1, True)]
    window.done(1)
    assert window.take() == []
