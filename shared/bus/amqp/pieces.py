"""Large messages on their way to RabbitMQ, in pieces.

The client library makes the frames of a whole message in one step, and copies the message three times for it: with one
of 16 MiB the loop stood still for 20 to 80 ms. Here the frames of a large message are made one by one, and others have
their turn in between. The broker wants them one after the other on their channel, so the channel's lock is held
meanwhile, as the library holds it for any message.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace
from typing import Final

from aiormq.abc import ChannelFrame, ConfirmationFrameType, TaskWrapper
from aiormq.channel import Channel
from pamqp.body import ContentBody
from pamqp.commands import Basic

#: Messages of at most so many bytes go out in one step.
WHOLE: Final = 1 << 18
#: What AMQP puts around the content of a frame: its kind (3: a body), channel and length before, a mark behind.
_HEAD: Final = struct.Struct(">BHI")
_BODY: Final = 3
_END: Final = b"\xce"


class Pieces:
    """Stands between a channel and the queue of what its connection writes: when the channel puts the frames there that
    begin a large message, those of its body follow."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._queue = channel.write_queue
        self._split = channel._split_body
        self._body = memoryview(b"")

    @classmethod
    def of(cls, channel: Channel) -> None:
        """Have this channel write large messages in pieces. The library has no place to be told of that: the two names
        that are set here are where it looks."""
        pieces = cls(channel)
        channel.write_queue = pieces  # type: ignore[assignment]
        channel._split_body = pieces.split  # type: ignore[method-assign]

    def split(self, body: bytes) -> list[ContentBody]:
        """The frames that the library is to make of a body: none of a large one."""
        if len(body) <= WHOLE:
            return self._split(body)
        self._body = memoryview(body)
        return []

    async def put(self, frame: ChannelFrame) -> None:
        """Called by the library with the frames that it made: nobody else has a turn between `split` and this."""
        body, self._body = self._body, memoryview(b"")
        if not body:
            await self._queue.put(frame)
            return
        await self._queue.put(replace(frame, drain_future=None))
        size = self._channel.max_content_size
        for first in range(0, len(body), size):
            piece = body[first : first + size]
            payload = b"".join((_HEAD.pack(_BODY, self._channel.number, len(piece)), piece, _END))
            last = first + size >= len(body)
            await self._queue.put(ChannelFrame(payload, False, frame.drain_future if last else None))
            await asyncio.sleep(0)

    def put_nowait(self, frame: ChannelFrame) -> None:
        """The last word of a channel that is closed."""
        self._queue.put_nowait(frame)


async def publish(
    channel: Channel,
    data: bytes,
    exchange: str,
    key: str,
    properties: Basic.Properties,
    *,
    mandatory: bool = False,
    wait: bool = False,
) -> ConfirmationFrameType | None:
    """As the library's basic_publish, and raises what that does. A large message that was begun goes out to its end
    although its publisher is cancelled: after a part of it the channel could carry nothing else."""
    publishing = channel.basic_publish(
        data, exchange=exchange, routing_key=key, properties=properties, mandatory=mandatory, wait=wait
    )
    if len(data) <= WHOLE:
        return await publishing
    task = channel.create_task(publishing)
    confirmed: ConfirmationFrameType | None = await asyncio.shield(task.task if isinstance(task, TaskWrapper) else task)
    return confirmed
