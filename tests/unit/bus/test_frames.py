"""Frames on their way to the client library: what it can not read, or only at a cost, does not get there. Counted in
values and turns of the loop."""

import asyncio
import struct

import pamqp.decode
import pamqp.frame
import pytest
from aiormq.connection import FrameReceiver
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from shared.bus.amqp.frames import MOST_DEEP, MOST_VALUES, ODD_HEADER, TURN, FrameReader, readable

#: Bytes of headers that fill a frame.
FULL = 130_000


def header(properties, channel=3, size=5):
    return pamqp.frame.marshal(ContentHeader(body_size=size, properties=properties), channel)


def with_table(table, more=b"", flags=1 << 13):
    """The frame of a message with these bytes for headers, and what follows them."""
    content = struct.pack(">HHQH", 60, 0, 5, flags) + struct.pack(">I", len(table)) + table + more
    return struct.pack(">BHI", 2, 3, len(content)) + content + b"\xce"


def listed(content):
    return b"\x01aA" + struct.pack(">I", len(content)) + content


def nested(kind, deep):
    content = b""
    for _ in range(deep):
        content = (b"\x01a" if kind == b"F" else b"") + kind + struct.pack(">I", len(content)) + content
    return content if kind == b"F" else b"\x01a" + content


ODD = {
    "a frame full of names": with_table(b"".join(b"\x04%04dV" % number for number in range(FULL // 6))),
    "a frame full of nothing": with_table(listed(b"V" * FULL)),
    "a frame full of tables": with_table(listed(b"F\0\0\0\0" * (FULL // 5))),
    "tables in tables": with_table(nested(b"F", 10_000)),
    "lists in lists": with_table(nested(b"A", 10_000)),
    "a few more lists in lists": with_table(nested(b"A", MOST_DEEP)),
    "one value too many": with_table(listed(b"V" * MOST_VALUES)),
    "a name that is no text": with_table(b"\x01\xffV"),
    "a kind that there is not": with_table(b"\x01aq"),
    "a table that goes on": with_table(b"\x01aS\0\1\0\0x"),
    "a time that is none": with_table(b"\x01aT" + b"\x7f" * 8),
    "a time of the message that is none": with_table(b"", b"\x7f" * 8, 1 << 13 | 1 << 6),
    "properties that are cut off": with_table(listed(b"V" * MOST_VALUES), b"\x02", 1 << 13 | 1 << 10 | 1 << 9),
    "a reply that is no text": with_table(b"", b"\x02\xff\xfe", 1 << 13 | 1 << 9),
}
#: What a message of ours may say, and RabbitMQ adds.
USUAL = {
    "nothing": Basic.Properties(),
    "an answer": Basic.Properties(correlation_id="1", message_id="2", message_type="ack", user_id="schedd.ap"),
    "a count": Basic.Properties(headers={"x-delivery-count": 4000}, delivery_mode=2),
    "what was buried": Basic.Properties(
        headers={
            "reason": "é" * 1000,
            "at_ms": 1_800_000_000_000,
            "x-death": [{"count": 1, "queue": "q", "routing-keys": ["a", "b"], "ok": True, "x": 0.5, "no": None}] * 3,
        },
        content_type="a",
        content_encoding="b",
        reply_to="amq.rabbitmq.reply-to." + "x" * 100,
    ),
}


@pytest.mark.parametrize("what", ODD)
def test_what_the_library_can_not_read_is_put_away_and_told(what, monkeypatch):
    read = count_of_values(monkeypatch)
    frame = readable(ODD[what])
    _, channel, told = pamqp.frame.unmarshal(frame)
    assert (channel, told.body_size) == (3, 5)
    assert list(told.properties.headers) == [ODD_HEADER]
    assert told.properties.headers[ODD_HEADER].startswith("its headers or properties can not be read: ")
    assert len(read) <= MOST_VALUES + 10


def count_of_values(monkeypatch):
    """Values in headers that the library makes objects of from now on."""
    read = []
    real = pamqp.decode.embedded_value

    def counted(value):
        read.append(1)
        return real(value)

    monkeypatch.setattr(pamqp.decode, "embedded_value", counted)
    return read


def test_most_would_have_ended_a_connection_or_held_a_loop(monkeypatch):
    """So these frames are worth their place here."""
    read = count_of_values(monkeypatch)
    for what, frame in ODD.items():
        read.clear()
        try:
            pamqp.frame.unmarshal(frame)
        except Exception:  # whatever it is, the library ends the connection for it
            continue
        assert len(read) > MOST_VALUES or what in ("a few more lists in lists", "a table that goes on"), what


@pytest.mark.parametrize("what", USUAL)
def test_what_ours_say_stays_as_it_is(what):
    frame = header(USUAL[what])
    assert readable(frame) is frame


def test_who_asked_and_who_sent_it_is_kept():
    said = Basic.Properties(
        correlation_id="7", reply_to="amq.reply", message_id="m", message_type="queue.query", user_id="gateway.gw"
    )
    frame = bytearray(header(said))
    flags = int.from_bytes(frame[19:21]) | 1 << 15
    content = bytes(frame[7:19]) + flags.to_bytes(2) + b"\x02\xff\xff" + bytes(frame[21:-1])
    told = pamqp.frame.unmarshal(readable(struct.pack(">BHI", 2, 3, len(content)) + content + b"\xce"))[2].properties
    assert told.headers[ODD_HEADER]
    assert told.content_type is None
    for name in ("correlation_id", "reply_to", "message_id", "message_type", "user_id"):
        assert getattr(told, name) == getattr(said, name)


async def frames_of(data):
    stream = asyncio.StreamReader()
    stream.feed_data(data)
    stream.feed_eof()
    reader = FrameReader(stream)
    library = FrameReceiver(reader)
    found = []
    while not reader.at_eof():
        found.append(await library.get_frame())
    return found


async def test_the_library_reads_the_same_frames():
    key = "update.Machine.startd@é"
    sent = [
        Basic.Deliver("tag", 255, True, "roost.ads", key),
        ContentHeader(body_size=200_000, properties=USUAL["what was buried"]),
        ContentBody(b"\xff" * 131_000),
        ContentBody(b"a" * 69_000),
        Heartbeat(),
        Basic.GetOk(9, False, "", "key", 3),
        Basic.QosOk(),
    ]
    found = await frames_of(b"".join(pamqp.frame.marshal(frame, 2) for frame in sent))
    assert [type(frame) for _, _, frame in found] == [type(frame) for frame in sent]
    assert found[0][2].routing_key == key
    assert found[2][2].value == b"\xff" * 131_000


@pytest.mark.parametrize(
    "method", [Basic.Deliver("tag", 200, False, "x", "k__k"), Basic.GetOk(200, False, "x", "k__k", 1)]
)
async def test_a_routing_key_that_is_no_text_is_read_as_one(method):
    data = pamqp.frame.marshal(method, 2)
    ((_, _, found),) = await frames_of(data.replace(b"k__k", b"k\xff\xfek"))
    assert (found.exchange, found.routing_key) == ("x", "k??k")


async def test_others_have_their_turn_between_frames_that_came_together():
    data = pamqp.frame.marshal(Basic.QosOk(), 1) * (10 * TURN)
    reading = asyncio.create_task(frames_of(data))
    turns = 0
    while not reading.done():
        await asyncio.sleep(0)
        turns += 1
    assert len(reading.result()) == 10 * TURN
    assert turns >= 10
