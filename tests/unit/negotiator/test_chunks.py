"""The decisions of a large cycle, in messages that a broker takes."""

from hypothesis import given
from hypothesis import strategies as st

from services.negotiator import schedd_client as module
from services.negotiator.schedd_client import CHUNK_BYTES, CHUNK_ITEMS, Chunk, chunks
from shared.messages.base import Envelope
from shared.messages.negotiation import Match, Matches, Rejection


def match(number=0, size=10, **more):
    fields = {"submitter": "a", "autocluster": number, "slot": f"slot{number}", "startd": "s", "claim_id": "c"}
    return Match(**fields | {"slot_ad": b"x" * size} | more)


def rejection(number=0, size=10):
    return Rejection(submitter="a", autocluster=number, code="no-slots", reason="x" * size)


@given(
    st.lists(st.sampled_from([0, 1_000, CHUNK_BYTES // 3, CHUNK_BYTES * 2]), max_size=30),
    st.lists(st.sampled_from([0, 1_000, CHUNK_BYTES // 8]), max_size=30),
)
def test_nothing_is_lost_nor_moved_and_no_message_is_too_large(ads, reasons):
    matches = [match(number, size) for number, size in enumerate(ads)]
    rejections = [rejection(number, size) for number, size in enumerate(reasons)]
    parts = list(chunks(matches, rejections))
    assert [m for part in parts for m in part.matches] == matches
    assert [r for part in parts for r in part.rejections] == rejections
    at = 0
    for part in parts:
        assert part.first == at
        at += len(part.matches)
        items = (*part.matches, *part.rejections)
        assert 0 < len(items) <= CHUNK_ITEMS
        assert len(items) == 1 or sum(len(m.slot_ad) for m in part.matches) <= CHUNK_BYTES


def test_a_small_cycle_is_one_message():
    one, two = match(1), rejection(2)
    assert list(chunks([one], [two])) == [Chunk(0, (one,), (two,))]
    assert list(chunks([], [two])) == [Chunk(0, (), (two,))]


def test_no_decision_is_no_message():
    assert list(chunks([], [])) == []


def test_many_small_ones_are_bounded_by_number():
    parts = list(chunks([match(n) for n in range(2 * CHUNK_ITEMS + 1)], [rejection()]))
    assert [(part.first, len(part.matches), len(part.rejections)) for part in parts] == [
        (0, CHUNK_ITEMS, 0),
        (CHUNK_ITEMS, CHUNK_ITEMS, 0),
        (2 * CHUNK_ITEMS, 1, 1),
    ]


def test_a_full_message_is_one_that_the_bus_takes():
    """What is left out of the estimate must not add up: texts of any characters, many names to preempt."""
    large = match(1, 5_000, preempts=["é" * 50] * 20, claim_id="ü" * 100, concurrency_limits="x" * 300)
    (part, *_) = chunks([large] * 5_000, [])
    message = Matches(negotiator="n", epoch=1, cycle=1, matches=list(part.matches))
    packed = Envelope(sender="negotiator.n", body=message).pack()
    assert len(packed) <= CHUNK_BYTES + 10_000 < message.most_bytes
    assert module._size(large) * len(part.matches) >= len(packed) - 10_000
