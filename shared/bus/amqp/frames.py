"""Frames from RabbitMQ on their way to the client library.

The library makes an object of every value in the headers of a message, and one that it can not read ends its
connection. A message whose headers fill a frame held the loop for 0.6 s; one with bytes that are no text, or a time
that is none, came again with each new connection and took its reader off the bus for good. So frames are looked at here
first: where a message says more beside its body than any of ours, or what can not be read, that is put away, and the
message says why in its header ODD_HEADER. It goes to the dead letters.

The library also takes frame after frame as long as there are any, and whatever came together was then handled in one
turn of the loop. Others have their turn here.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Iterator
from typing import Final

import pamqp.frame
from pamqp.commands import Basic
from pamqp.header import ContentHeader

#: Header of a message whose properties were put away: why.
ODD_HEADER: Final = "x-roost-odd"
#: Frames that are read in one turn of the loop: a small message has three, a large one a frame for each 128 KiB.
TURN: Final = 24
#: Values in the headers of a message, tables and lists included, and tables within each other. Ours have ten; what
#: RabbitMQ adds when it buries a message has one list of tables.
MOST_VALUES, MOST_DEEP = 256, 8

_HEAD: Final = struct.Struct(">BHI")
_METHOD, _HEADER = 1, 2
#: Bytes that are taken from the stream at a time.
_READ: Final = 1 << 16
#: Methods that name the routing key of a message that comes.
_DELIVER, _GET_OK = b"\0\x3c\0\x3c", b"\0\x3c\0\x47"
#: Where the properties of a message begin in a frame, and the flags before them that say which there are.
_PROPERTIES: Final = 21
_MORE_FLAGS, _TIMESTAMP, _HEADERS, _ENCODING, _CONTENT = 1, 1 << 6, 1 << 13, 1 << 14, 1 << 15
#: Properties in the order of their flags, from the highest on, with their bytes; 0: a text with its length before.
_ORDER: Final = (
    *(("content_type", 0), ("content_encoding", 0), ("headers", 4), ("delivery_mode", 1), ("priority", 1)),
    *(("correlation_id", 0), ("reply_to", 0), ("expiration", 0), ("message_id", 0), ("timestamp", 8)),
    *(("message_type", 0), ("user_id", 0)),
)
#: Of these, what is kept of an odd message, so that who sent it can be told, and whoever looks at dead letters.
_KEPT: Final = frozenset(("correlation_id", "reply_to", "message_id", "message_type", "user_id"))
#: Bytes of values in tables by their kind.
_SIZES: Final = dict(zip(b"tbBsuIiflLdTDV", (1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8, 8, 5, 0), strict=True))
_TABLE, _LIST, _TEXTS = ord("F"), ord("A"), b"Sx"
_NOT_ASCII: Final = bytes.maketrans(bytes(range(0x80, 0x100)), b"?" * 0x80)


class FrameReader:
    """The stream that the library reads from: as much of asyncio.StreamReader as it uses. It asks for each frame in
    pieces: one byte, six, then the rest."""

    def __init__(self, stream: asyncio.StreamReader) -> None:
        self._stream = stream
        self._data = b""
        self._at = 0  # what is before was handed over
        self._end = 0  # of the frame that is handed over, which may go on in the stream
        self._frames = 0

    def at_eof(self) -> bool:
        return self._at >= len(self._data) and self._stream.at_eof()

    async def read(self, size: int = -1) -> bytes:
        return await self._stream.read(size)

    async def readexactly(self, size: int) -> bytes:
        """Raises IncompleteReadError."""
        if self._at >= self._end:
            await self._next()
        first, last = self._at, self._at + size
        self._at = last
        piece = self._data[first:last]
        return piece if len(piece) == size else piece + await self._stream.readexactly(size - len(piece))

    async def _next(self) -> None:
        """Have the next frame looked at; the content of a body is passed on as it is."""
        self._frames += 1
        if self._frames % TURN == 0:
            await asyncio.sleep(0)
        await self._have(_HEAD.size)
        kind, _, length = _HEAD.unpack_from(self._data, self._at)
        size = _HEAD.size + length + 1
        if kind in (_METHOD, _HEADER):
            await self._have(size)
            frame = self._data[self._at : self._at + size]
            looked_at = readable(frame) if kind == _HEADER else _with_readable_key(frame)
            if looked_at is not frame:
                self._data, self._at, size = looked_at + self._data[self._at + size :], 0, len(looked_at)
        self._end = self._at + size

    async def _have(self, size: int) -> None:
        """Have so many bytes more that were not handed over. Raises IncompleteReadError."""
        while len(self._data) - self._at < size:
            more = await self._stream.read(_READ)
            rest = self._data[self._at :]
            if not more:
                raise asyncio.IncompleteReadError(rest, size)
            self._data, self._at = rest + more, 0


def readable(frame: bytes) -> bytes:
    """The frame of a message's properties, if it is as ours are, else one that says why it is not."""
    flags = int.from_bytes(frame[_PROPERTIES - 2 : _PROPERTIES])
    if not flags & (_HEADERS | _TIMESTAMP | _MORE_FLAGS) and frame[_PROPERTIES:-1].isascii():
        return frame
    try:
        table = _headers(frame, flags) if flags & _HEADERS else b""
        _look_through(table)
        # What is no text, or a time that is none, the library alone can tell.
        if flags & (_TIMESTAMP | _MORE_FLAGS) or b"T" in table or not frame[_PROPERTIES:-1].isascii():
            pamqp.frame.unmarshal(frame)
    except Exception as error:  # noqa: BLE001  of all kinds, as the library's
        return _odd(frame, flags, f"its headers or properties can not be read: {type(error).__name__} {error}"[:200])
    return frame


def _headers(frame: bytes, flags: int) -> bytes:
    at = _PROPERTIES
    for flag in (_CONTENT, _ENCODING):
        if flags & flag:
            at += 1 + frame[at]
    size = int.from_bytes(frame[at : at + 4])
    return frame[at + 4 : at + 4 + size]


def _look_through(table: bytes) -> None:
    """Raises ValueError for a table that has too many values or is too deep, and what comes of one that is none."""
    at, left = 0, MOST_VALUES
    ends = [(len(table), True)]  # of the tables and lists around, and whether each value has a name there
    while ends:
        end, named = ends[-1]
        if at > end:
            raise ValueError("a value goes on where its table ends")
        if at == end:
            ends.pop()
            continue
        left -= 1
        if left < 0:
            raise ValueError(f"more than {MOST_VALUES} values")
        if named:
            at += 1 + table[at]
        kind = table[at]
        at += 1
        if kind in (_TABLE, _LIST):
            if len(ends) == MOST_DEEP:
                raise ValueError(f"more than {MOST_DEEP} tables and lists within each other")
            size = int.from_bytes(table[at : at + 4])
            at += 4
            ends.append((at + size, kind == _TABLE))
        elif kind in _TEXTS:
            at += 4 + int.from_bytes(table[at : at + 4])
        else:
            at += _SIZES[kind]


def _odd(frame: bytes, flags: int, reason: str) -> bytes:
    """The frame of an odd message: who wants an answer, and the reason."""
    _, channel, _ = _HEAD.unpack(frame[: _HEAD.size])
    size = int.from_bytes(frame[_PROPERTIES - 10 : _PROPERTIES - 2])
    properties = Basic.Properties(headers={ODD_HEADER: reason})
    with contextlib.suppress(IndexError):  # a text that begins behind the end
        for name, text in _readable_texts(frame, flags):
            setattr(properties, name, text)
    return pamqp.frame.marshal(ContentHeader(body_size=size, properties=properties), channel)


def _readable_texts(frame: bytes, flags: int) -> Iterator[tuple[str, str]]:
    at, flag = _PROPERTIES, _CONTENT
    for name, size in _ORDER:
        if flags & flag:
            if name == "headers":
                size += int.from_bytes(frame[at : at + 4])
            elif size == 0:
                size = 1 + frame[at]
                text = frame[at + 1 : at + size]
                if name in _KEPT and text.isascii():
                    yield name, text.decode()
            at += size
        flag >>= 1


def _with_readable_key(frame: bytes) -> bytes:
    """The frame of a method; the routing key of a message that comes is text."""
    method, at = frame[7:11], 11
    if method == _DELIVER:
        at += 1 + frame[at]
    elif method != _GET_OK:
        return frame
    at += 9  # the number of the delivery, and whether it was one before
    at += 1 + frame[at]  # the exchange
    key = frame[at + 1 : at + 1 + frame[at]]
    try:
        key.decode()
    except UnicodeDecodeError:
        return frame[: at + 1] + key.translate(_NOT_ASCII) + frame[at + 1 + len(key) :]
    return frame
