"""Events on their way to the broker: in order, some twice, none lost but for lack of room."""

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.bus.outbox import AGAIN_S, TRIES, Lost, Outbox, PendingEvent


def event(number: int, size: int = 10) -> PendingEvent:
    return PendingEvent("job.started", b"x" * size, str(number), "job.started", 1000.0 + number)


def send_all(outbox: Outbox, now: float) -> list[str]:
    gone = []
    while (one := outbox.next()) is not None:
        outbox.mark_sent(one, now)
        gone.append(one.id)
    return gone


def test_facts_leave_in_their_order_and_are_forgotten_when_the_broker_has_them():
    outbox = Outbox()
    for number in range(3):
        outbox.add(event(number))
    assert send_all(outbox, 0.0) == ["0", "1", "2"]
    assert outbox.unconfirmed == 3
    outbox.confirm(outbox.checkpoint(), 1.0)
    assert outbox.unconfirmed == 0
    outbox.connection_lost(0.5 + AGAIN_S)
    assert send_all(outbox, 10.0) == []


def test_what_the_broker_has_had_for_a_moment_only_goes_out_again_first():
    outbox = Outbox()
    outbox.add(event(0))
    send_all(outbox, 0.0)
    outbox.confirm(outbox.checkpoint(), 0.1)
    outbox.add(event(1))
    send_all(outbox, 1.0)
    outbox.connection_lost(2.0)
    outbox.add(event(2))
    assert send_all(outbox, 3.0) == ["0", "1", "2"]


def test_what_a_hung_broker_never_answered_for_goes_out_again_however_old():
    outbox = Outbox()
    outbox.add(event(0))
    send_all(outbox, 0.0)
    asked = outbox.checkpoint()
    outbox.add(event(1))
    send_all(outbox, 1.0)
    outbox.confirm(asked, 1.1)
    outbox.connection_lost(100.0)
    assert send_all(outbox, 101.0) == ["1"]


def test_where_there_is_no_room_the_oldest_are_lost_and_told():
    outbox = Outbox(most=3)
    for number in range(5):
        outbox.add(event(number))
    assert outbox.take_lost() == Lost(2, 1000.0, 1001.0)
    assert outbox.take_lost() == Lost()
    assert send_all(outbox, 0.0) == ["2", "3", "4"]
    large = Outbox(most_bytes=100)
    for number in range(5):
        large.add(event(number, 40))
    assert len(large) == 2
    assert large.crowded
    large.add(event(9, 1000))
    assert send_all(large, 0.0) == ["9"]  # one of any size is taken


def test_what_was_sent_makes_room_without_being_lost():
    outbox = Outbox(most=3)
    for number in range(3):
        outbox.add(event(number))
    send_all(outbox, 0.0)
    outbox.add(event(3))
    assert outbox.take_lost() == Lost()
    outbox.connection_lost(1.0)
    assert send_all(outbox, 2.0) == ["1", "2", "3"]


def test_a_fact_that_breaks_every_connection_is_given_up():
    outbox = Outbox()
    outbox.add(event(0))
    for turn in range(TRIES):
        assert send_all(outbox, float(turn)) == ["0"]
        outbox.connection_lost(turn + 0.5)
    assert send_all(outbox, 9.0) == []
    assert outbox.take_lost().events == 1


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["say", "send", "ask", "break", "wait"]), max_size=60))
def test_every_fact_arrives_in_order_whatever_the_connection_does(steps):
    """A broker that loses what it had not answered for, and what it had for less than AGAIN_S."""
    outbox, now, said = Outbox(), 0.0, 0
    held: list[tuple[float, str]] = []  # in the broker, may be lost
    known = 0  # so many of them it has answered for
    safe: list[str] = []
    breaks: dict[str, int] = {}
    for step in steps:
        now += 0.5
        if step == "say":
            outbox.add(event(said))
            said += 1
        elif step == "send":
            held += [(now, one) for one in send_all(outbox, now)]
        elif step == "ask":
            outbox.confirm(outbox.checkpoint(), now)
            safe += [one for at, one in held if at <= now - AGAIN_S]
            held = [(at, one) for at, one in held if at > now - AGAIN_S]
            known = len(held)
        elif step == "break":
            for place, (at, one) in enumerate(held):
                if place < known and at <= now - AGAIN_S:
                    safe.append(one)
                else:
                    breaks[one] = breaks.get(one, 0) + 1
            held, known = [], 0
            outbox.connection_lost(now)
        else:
            now += 2.0
    safe += [one for _, one in held] + send_all(outbox, now)
    patient = [str(number) for number in range(said) if breaks.get(str(number), 0) < TRIES]
    assert set(patient) <= set(safe)
    firsts = list(dict.fromkeys(reversed(safe)))[::-1]  # the last time that each came
    assert [int(one) for one in firsts] == sorted(int(one) for one in firsts)
