"""What one message may hold: a hostile size is refused with a clear error, before there is an object for each value,
and reading the largest that is taken holds no loop for long."""

import contextlib
import typing

import msgpack
import pytest

from shared.messages import catalogue
from shared.messages.base import BadMessage, Envelope, Large
from shared.messages.events import Event
from shared.messages.wire import A_KEY, A_MAP, MOST_LARGE_VALUES, type_of
from tests.security.processor_time import SILENCE_S, cost

KINDS = sorted(catalogue().values(), key=lambda kind: (kind.type, kind.version))


def packed(kind, body, **head):
    return msgpack.packb(
        {"v": 1, "type": kind.type, "tv": kind.version, "id": "1", "sender": "x", **head, "body": body}
    )


def containers(kind):
    """Fields of lists and maps."""
    return [
        name
        for name, field in kind.model_fields.items()
        if {list, dict} & {typing.get_origin(one) for one in (field.annotation, *typing.get_args(field.annotation))}
    ]


FIELDS = [(kind, name) for kind in KINDS for name in containers(kind)]


def test_there_are_such_fields():
    assert len(FIELDS) > 50


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=[f"{kind.type}-{name}" for kind, name in FIELDS])
def test_a_list_or_map_that_is_too_long_is_refused_by_its_name(kind, name):
    if kind.most_entries < kind.most_values:
        says = f"^{kind.type}: {name} has {kind.most_entries + 1} entries; at most {kind.most_entries} are taken"
    else:
        says = "max_array_len|more than"
    with pytest.raises(BadMessage, match=says):
        Envelope.unpack(packed(kind, {name: [None] * (kind.most_entries + 1)}))


@pytest.mark.parametrize("kind", KINDS, ids=[kind.type for kind in KINDS])
def test_so_is_a_message_of_too_many_values_wherever_they_are(kind):
    """In what it does not know, too, and in many small lists."""
    many = kind.most_values // 100
    for some in ([[0] * 100] * (many + 1), {str(n): [0] * 99 for n in range(many + 1)}):
        with pytest.raises(BadMessage, match=f"more than the {kind.most_values} values"):
            Envelope.unpack(packed(kind, {"elsewhere": some}))


BOMB = (
    msgpack.packb({"v": 1, "type": "queue.act", "body": 0})[:-1]
    + b"\xdd"
    + (10**7).to_bytes(4, "big")
    + b"\x90" * 10**7
)
LARGE = {
    "ten million lists": BOMB,
    "texts": packed(catalogue()["claim.alive", 1], {"schedd": "a", "sequence": 1, "claim_ids": ["1.0"] * 99_000}),
    "texts that are wrong": packed(catalogue()["job.reports-ack", 1], {"answers": ["x" * 80] * 99_000}),
    "texts that are wrong in a map": packed(
        catalogue()["machine.vacated", 1], {"slots": {str(n): n for n in range(19_999)}}
    ),
    "maps of many keys": packed(
        catalogue()["job.sorted", 1], {"elsewhere": [{f"{n} {m}": m for m in range(19_000)} for n in range(9)]}
    ),
    "lists": packed(catalogue()["job.sorted", 1], {"elsewhere": [[]] * 50_000}),
    "maps": packed(
        catalogue()["negotiation.requests", 1],
        {
            "requests": {
                str(n): [{"autocluster": n, "count": 1, "ad": b"x", "first_job": "1.0"}] * 4
                for n in range(MOST_LARGE_VALUES // (4 * (A_MAP + 4 * (1 + A_KEY)) + 12))
            },
            "more": [],
        },
    ),
    "deep": b"\x91" * 5_000_000,
    "one text": packed(catalogue()["queue.submit", 1], {"user": "x" * 15_000_000}),
    "one text that is not English": packed(catalogue()["queue.submit", 1], {"user": "é" * 7_500_000}),
}


@pytest.mark.parametrize("what", LARGE)
def test_reading_or_refusing_the_largest_holds_no_loop(what):
    def read():
        with contextlib.suppress(BadMessage):
            Envelope.unpack(LARGE[what])

    assert cost(read) < SILENCE_S
    assert cost(lambda: type_of(LARGE[what])) < SILENCE_S


@pytest.mark.parametrize("kind", [catalogue()["queue.act", 1], catalogue()["job.removed", 1]])
def test_so_is_a_message_of_too_many_bytes_before_it_is_read(kind):
    data = packed(kind, {"elsewhere": "x" * kind.most_bytes})
    with pytest.raises(BadMessage, match=f"{kind.type} of {len(data)} bytes; at most {kind.most_bytes} are taken"):
        Envelope.unpack(data)


def test_events_which_everybody_reads_have_no_more_than_others():
    events = [kind.most_bytes for kind in KINDS if issubclass(kind, Event)]
    assert len(events) > 20
    assert set(events) == {Event.most_bytes} == {Large.most_bytes}


def test_the_largest_that_are_taken_are_read():
    assert len(Envelope.unpack(LARGE["texts"]).body.claim_ids) == 99_000
    assert Envelope.unpack(LARGE["maps"]).body.requests["0"][3].first_job == "1.0"


def test_a_refused_one_is_read_and_put_to_the_dead_letters_within_a_turn():
    """Its type is looked for in its beginning only: both happen in one turn of the loop."""
    far = packed_far({"queue": ["1.0"] * 2_000_000})
    assert type_of(far) == ""
    assert cost(lambda: type_of(far)) < 0.001


def packed_far(body):
    """An envelope that says what it is after its body."""
    return msgpack.packb({"v": 1, "body": body, "type": "queue.act"})


def test_a_type_is_found_wherever_it_stands_in_the_beginning_and_nowhere_else():
    assert type_of(msgpack.packb({"body": {"type": "b"}, 7: [1], "type": "a"})) == "a"
    assert type_of(msgpack.packb({"body": {"type": "b"}})) == ""
    assert type_of(msgpack.packb({"type": 7})) == ""
    assert type_of(msgpack.packb(["type", "a"])) == ""
    assert type_of(b"") == ""
    assert type_of(msgpack.packb({"type": "a" * 100})) == "a" * 80
