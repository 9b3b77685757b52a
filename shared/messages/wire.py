"""Bytes of messages: what one may hold, and what it says before it is read whole.

A message is a map of msgpack with its body last, so that what it is can be told before there is anything of that.
"""

from __future__ import annotations

import sys
from typing import Any

import msgpack

from shared.compression import beginning

#: Bytes of a message, unpacked; entries of one list or map of it; values of the whole, all lists and maps together.
#: A map counts as A_MAP more, as a model is made of most, each of its keys as A_KEY, as it is looked for among all
#: texts that Python knows, and a list as A_LIST. More would hold the loop of whoever reads them: these take a few ms.
MOST_BYTES = 1 << 20
MOST_ENTRIES = 20_000
MOST_VALUES = 1 << 16
A_LIST, A_MAP, A_KEY = 4, 16, 2
#: The same of messages that hold ads, or lists of what is in a whole pool (`Large`): these take 10 to 45 ms.
MOST_LARGE_BYTES = 8 << 20
MOST_LARGE_ENTRIES = 100_000
MOST_LARGE_VALUES = 200_000
#: Of answers that tell much, by daemons whose questions have limits of their own.
MOST_OF_ANSWERS = 2_000_000
#: Messages of so many bytes have no more values than may be, and are read at once: larger ones by their head first.
UNCOUNTED = 1 << 16

#: Bytes of an envelope in which its body begins, but for odd ones; and those in which it has to begin in a large one.
_HEAD_BYTES = 4096
_LONGEST_HEAD = 1 << 16


def too_large(kind: str, size: int, most: int) -> str:
    """Why a message is not taken, or sent."""
    return f"{kind} of {size} bytes; at most {most} are taken: send it in parts"


def packed_body(plain: bytes) -> memoryview:
    """The body in an envelope that could be read, where it stands at the end, as `pack` puts it; else nothing."""
    try:
        begins = _body_begins(plain[:_HEAD_BYTES])
    except msgpack.OutOfData:  # a long name, many scopes
        begins = _body_begins(plain)
    return memoryview(plain)[begins:]


def _body_begins(plain: bytes) -> int:
    """Where the value of an envelope's last entry begins, if that is the body, else past the end. Raises OutOfData
    where these are too few bytes to tell."""
    unpacker = msgpack.Unpacker(read_size=_HEAD_BYTES, max_buffer_size=0)
    unpacker.feed(plain)
    for _ in range(unpacker.read_map_header() - 1):
        unpacker.skip()
        unpacker.skip()
    if unpacker.unpack() != "body":
        return sys.maxsize
    begins: int = unpacker.tell()
    return begins


def read(data: bytes, most: int) -> Any:
    """What msgpack bytes say. Raises ValueError for more than so many values, where possible before there is an object
    for each, and msgpack's own errors."""
    left = most

    def take(found: Any, weight: int = A_LIST) -> Any:
        nonlocal left
        left -= len(found) + weight
        if left < 0:
            raise ValueError(f"it has more than the {most} values that are taken: send it in parts")
        return found

    return msgpack.unpackb(
        data,
        strict_map_key=False,
        list_hook=take,
        object_hook=lambda found: take(found, A_MAP + A_KEY * len(found)),
        max_array_len=most,
        max_map_len=most if most > MOST_LARGE_VALUES else MOST_ENTRIES,
    )


def type_of(data: bytes) -> str:
    """The type a message claims to have, empty where that can not be read: for those who look at dead
    letters."""
    try:
        return claimed(beginning(data, _HEAD_BYTES))[:80]
    except Exception:  # noqa: BLE001  compression has errors of its own
        return ""


def claimed(data: bytes) -> str:
    """The type that msgpack bytes claim, if they do so in the beginning, as all that is packed here; else empty."""
    kind = _said(data[:_HEAD_BYTES], wanted="type").get("type")
    return kind if isinstance(kind, str) else ""


def said_before_body(data: bytes) -> dict[str, Any]:
    """What a message says before its body, compressed or not, as far as it can be read. Raises ValueError."""
    return _said(beginning(data, _LONGEST_HEAD))


def _said(data: bytes, wanted: str = "") -> dict[str, Any]:
    """What the beginning of msgpack bytes says before a body, as far as it can be read; up to the key that is
    wanted."""
    said: dict[str, Any] = {}
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(data)
    try:
        for _ in range(unpacker.read_map_header()):
            key = unpacker.unpack()
            if key == "body" and not wanted:
                break
            if key == "body" or not isinstance(key, str):
                unpacker.skip()
                continue
            said[key] = unpacker.unpack()
            if key == wanted:
                break
    except Exception:  # noqa: BLE001  msgpack raises many unrelated types on garbage
        return said
    return said
