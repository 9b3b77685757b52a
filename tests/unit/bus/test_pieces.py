"""Large messages in pieces: counted by frames and turns of the loop, on the client library's own channel."""

import asyncio
from types import SimpleNamespace

import pamqp.frame
import pytest
from aiormq.base import FutureStore
from aiormq.channel import Channel
from pamqp.body import ContentBody
from pamqp.commands import Basic
from pamqp.header import ContentHeader

from shared.bus.amqp.pieces import WHOLE, Pieces, publish

FRAME = 131_072
#: What frames have besides content.
AROUND = 8


class Wire:
    """Channels, and what they have their connection write."""

    publisher_confirms = True
    is_opened = True

    def __init__(self):
        self.loop = asyncio.get_running_loop()
        self.write_queue = asyncio.Queue()
        self.tasks = FutureStore(self.loop)
        self.connection_tune = SimpleNamespace(frame_max=FRAME)

    def _future_store_child(self):
        return self.tasks

    def channel(self, number=7):
        channel = Channel(self, number, publisher_confirms=False)
        Pieces.of(channel)
        return channel

    def written(self):
        """What was to be written so far."""
        return [self.write_queue.get_nowait() for _ in range(self.write_queue.qsize())]


@pytest.fixture
async def wire():
    wire = Wire()
    yield wire
    await wire.tasks.reject_all(asyncio.CancelledError())


async def others(turns):
    for _ in range(turns):
        await asyncio.sleep(0)


async def out(channel, body, **options):
    return await publish(channel, body, "x", "key", Basic.Properties(message_id="1"), **options)


def content(frames):
    """The frames of AMQP in what was written."""
    data, found = b"".join(frame.payload for frame in frames), []
    while data:
        size, channel, one = pamqp.frame.unmarshal(data)
        found.append((channel, one))
        data = data[size:]
    return found


@pytest.mark.parametrize("size", [WHOLE + 1, FRAME * 3 - AROUND * 3, 5_000_000])
async def test_a_large_message_has_a_turn_for_each_frame(wire, size):
    body, turns = (bytes(range(251)) * (size // 251 + 1))[:size], 0

    async def count():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    await out(wire.channel(), body)
    counting.cancel()
    frames = wire.written()
    assert max(len(frame.payload) for frame in frames) <= FRAME
    pieces = -(-size // (FRAME - AROUND))
    assert len(frames) == 1 + pieces
    assert turns >= pieces
    (_, method), (_, header), *rest = content(frames)
    assert isinstance(method, Basic.Publish)
    assert isinstance(header, ContentHeader)
    assert header.body_size == size
    assert all(channel == 7 and isinstance(one, ContentBody) for channel, one in rest)
    assert b"".join(one.value for _, one in rest) == body


async def test_a_small_message_goes_out_as_the_library_writes_it(wire):
    body = b"x" * WHOLE
    await out(wire.channel(), body)
    (frame,) = wire.written()
    assert b"".join(one.value for _, one in content([frame]) if isinstance(one, ContentBody)) == body


async def test_who_waits_until_it_is_written_waits_for_the_last_piece(wire):
    waiting = asyncio.create_task(out(wire.channel(), b"x" * 1_000_000, wait=True))
    await others(50)
    frames = wire.written()
    assert [frame.should_drain for frame in frames] == [False] * 8 + [True]
    assert not waiting.done()
    frames[-1].drain()
    await waiting


async def test_what_was_begun_goes_out_whole_and_what_follows_comes_behind_it(wire):
    channel = wire.channel()
    first = asyncio.create_task(out(channel, b"a" * 1_000_000))
    await others(2)
    assert wire.write_queue.qsize() == 2  # of ten
    first.cancel()
    await out(channel, b"b")
    with pytest.raises(asyncio.CancelledError):
        await first
    bodies = [one.value for _, one in content(wire.written()) if isinstance(one, ContentBody)]
    assert b"".join(bodies[:-1]) == b"a" * 1_000_000
    assert bodies[-1] == b"b"


async def test_other_channels_write_in_between(wire):
    large, small = wire.channel(1), wire.channel(2)
    sending = asyncio.create_task(out(large, b"a" * 1_000_000))
    await others(3)
    await out(small, b"b")
    await sending
    channels = [channel for channel, one in content(wire.written()) if isinstance(one, ContentBody)]
    assert channels.index(2) < len(channels) - 1
