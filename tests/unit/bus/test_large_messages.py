"""A large message is looked at by its head before there is anything of its body."""

import asyncio
import threading

import msgpack
import pytest
import structlog

from shared import compression
from shared.bus import handling
from shared.bus.api import BusHealth, Exchange, MessageTooLarge, RemoteFailure
from shared.bus.handling import RetryPolicy, answer_request, handle_message, result_of, unpack_checked
from shared.bus.senders import ANSWER, TABLE, Arrival, Denied, Senders
from shared.messages.ads import AdUpdate
from shared.messages.base import BadMessage, Envelope, Head
from shared.messages.orders import Drain
from shared.messages.queue import ActOnJobs, JobPage
from shared.messages.wire import UNCOUNTED

LOG = structlog.get_logger()
INBOX = Arrival(Exchange.RPC, "startd.evil")


def packed(sender, kind="queue.act", order=(), **body):
    said = {"v": 1, "type": kind, "tv": 1, "id": "1", "ts": 0.0, "sender": sender, "body": body}
    return msgpack.packb({key: said.pop(key) for key in order} | said)


def senders():
    return Senders(BusHealth(), LOG, TABLE)


@pytest.fixture
def unpacked(monkeypatch):
    """Sizes of the messages whose bodies were read."""
    sizes = []
    unpack = Envelope.unpack.__func__
    monkeypatch.setattr(Envelope, "unpack", classmethod(lambda cls, data: sizes.append(len(data)) or unpack(cls, data)))
    return sizes


LARGE = "x" * (UNCOUNTED + 1)


@pytest.mark.parametrize(
    ("data", "arrival"),
    [
        (packed("startd.evil", reason=LARGE), INBOX),
        (packed("gateway.gw", reason=LARGE), INBOX),  # in another's name
        (packed("gateway.gw", reason=LARGE), Arrival(Exchange.EVENTS, "gateway.gw")),  # where it does not come
        (packed("gateway.gw", reason=LARGE), Arrival(None)),  # as an answer
        (packed("startd.evil", "ads.update", names=[LARGE]), INBOX),
        (compression.compress(packed("startd.evil", "collector.page", columns=LARGE)), INBOX),
    ],
)
def test_one_that_its_sender_may_not_send_is_not_read(unpacked, data, arrival):
    with pytest.raises(Denied, match=r"nobody else|it does not come|the broker knows"):
        asyncio.run(unpack_checked(data, arrival, senders()))
    assert not unpacked


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (packed("gateway.gw", reason="x" * ActOnJobs.most_bytes), "queue.act of .* at most 1048576 are taken: send it"),
        (packed("gateway.gw", "machine.drain", reason="x" * Drain.most_bytes), "machine.drain of .* at most 1048576"),
        (packed("startd.evil", "ads.update", names=["x" * AdUpdate.most_bytes]), "ads.update of .* at most 8388608"),
        (compression.compress(packed("startd.evil", "ads.update", ads=["x" * AdUpdate.most_bytes])), "at most 8388608"),
        (compression.compress(packed("startd.evil", "claim.lost", reason="x" * 2_000_000)), "claim.lost of .* 1048576"),
        (packed("gateway.gw", "no.such", reason=LARGE), "unknown message type 'no.such'"),
        (packed("gateway.gw", order=("body",), reason=LARGE), "want both first"),
        (b"\xdd" + LARGE.encode(), "want both first"),
    ],
)
def test_nor_is_one_that_is_too_large_or_does_not_say_what_it_is(unpacked, data, says):
    outcome = asyncio.run(answer_request(data, None, LOG, Arrival(Exchange.RPC), senders(), None))
    assert outcome.dead == outcome.answer.reason
    with pytest.raises(BadMessage, match=says):
        raise BadMessage(outcome.dead)
    assert not unpacked


def test_what_has_a_false_size_is_no_message():
    data = bytearray(compression.compress(packed("gateway.gw", reason=LARGE)))
    with pytest.raises(BadMessage):
        Head.of(bytes(data[:6]) + b"\xff" * 8 + bytes(data[14:]))


def test_nor_is_an_answer_of_who_may_not_give_it(unpacked):
    with pytest.raises(RemoteFailure, match="startd"):
        asyncio.run(result_of(packed("startd.evil", "queue.page", next=LARGE), ANSWER, senders()))
    assert not unpacked


def test_a_refused_one_ends_as_a_small_one_does(unpacked):
    async def never(_):
        raise AssertionError

    ends = [
        asyncio.run(handle_message(data, 0, never, RetryPolicy(), LOG, INBOX, senders()))
        for text in ("x", LARGE)
        for data in [packed("startd.evil", user="a@b", action="hold", reason=text)]
    ]
    assert ends[0] == ends[1]
    assert ends[1].dead.startswith("denied: queue.act: from 'startd.evil'")
    assert len(unpacked) == 1


def test_a_large_one_that_may_come_is_read_as_it_is_and_decompressed_off_the_loop(monkeypatch):
    threads = []
    decompress = compression.decompress
    monkeypatch.setattr(
        handling, "decompress", lambda data: threads.append(threading.current_thread()) or decompress(data)
    )
    page = Envelope(JobPage(ads=[LARGE.encode()]), "schedd.ap")
    update = Envelope(
        AdUpdate(my_type="Machine", daemon="startd@ep", start_time=1, sequence=1, names=["a"], ads=[LARGE.encode()]),
        "startd.ep",
    )

    async def read():
        assert await result_of(page.pack(), ANSWER, senders()) == page.body
        came = await unpack_checked(update.pack(), Arrival(Exchange.ADS, "startd.ep"), senders())
        return came, threading.current_thread()

    assert len(update.pack()) < UNCOUNTED < len(page.pack())
    came, loop = asyncio.run(read())
    assert (came.body, came.sender) == (update.body, "startd.ep")
    assert len(threads) == 1
    assert threads[0] is not loop


def test_who_sends_more_than_is_taken_is_told_also_where_it_would_be_small_on_the_way():
    ads = [bytes(1 << 20)] * 9
    update = AdUpdate(my_type="Machine", daemon="startd@ep", start_time=1, sequence=1, names=list("123456789"), ads=ads)
    with pytest.raises(MessageTooLarge, match=r"ads.update of 9437.* at most 8388608 are taken"):
        handling.packed(Envelope(update, "startd.ep"))


def test_of_large_ones_that_came_together_one_is_read_in_a_turn(monkeypatch):
    turn, read = [0], []
    unpack = Envelope.unpack.__func__
    monkeypatch.setattr(Envelope, "unpack", classmethod(lambda cls, data: read.append(turn[0]) or unpack(cls, data)))
    update = AdUpdate(my_type="Machine", daemon="startd@ep", start_time=1, sequence=1, names=[LARGE], ads=[b""])
    data, at = packed("startd.ep", "ads.update", **update.model_dump()), Arrival(Exchange.ADS, "startd.ep")

    async def turns():
        while True:
            turn[0] += 1
            await asyncio.sleep(0)

    async def together():
        counting, ours = asyncio.create_task(turns()), senders()
        await asyncio.gather(*(unpack_checked(data, at, ours) for _ in range(5)))
        counting.cancel()

    asyncio.run(together())
    assert len(set(read)) == len(read) == 5
