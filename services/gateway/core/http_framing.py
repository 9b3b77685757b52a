"""Where each request of a connection begins and ends, read more strictly than HTTP's oldest readers do. Two readers on
one way (a proxy, then the gateway) that do not agree on it can be made to take one request for two, so whatever may be
read in two ways is refused, and the connection ends: RFC 9112, sections 2.2, 5, 6.3 and 11.2.

The parser behind this one (h11) gets only what has passed here.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

#: Bytes of a request's first line and headers together, of a chunk's first line, and of the trailers of a body.
MAX_HEAD: Final = 64 << 10
MAX_CHUNK_LINE: Final = 1 << 10
MAX_TRAILERS: Final = 8 << 10
#: Headers of a request.
MAX_HEADERS: Final = 100

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE: Final = re.compile(rb"(" + _TOKEN + rb") ([!-~]+) HTTP/1\.([01])")
_HEADER: Final = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[\t -~]*)?")
_NOT_IN_TRAILERS: Final = frozenset((b"content-length", b"transfer-encoding", b"host", b"authorization"))
#: Headers whose second one another reader may prefer.
_ONCE: Final = frozenset((b"host", b"content-length", b"transfer-encoding", b"origin"))


@dataclass(frozen=True, slots=True)
class Refusal:
    """status: of HTTP. code, message: of the answer."""

    status: int
    code: str
    message: str


@dataclass(slots=True)
class Head:
    """What the first line and the headers of a request say of where it is for, and of its body."""

    method: bytes
    target: bytes
    minor: int  # of HTTP/1.x
    seen: dict[bytes, bytes] = field(default_factory=dict)  # of those headers that are looked at here
    headers: int = 0


class _State(enum.Enum):
    HEAD = enum.auto()
    BODY = enum.auto()
    CHUNK_LINE = enum.auto()
    CHUNK = enum.auto()
    CHUNK_END = enum.auto()
    TRAILERS = enum.auto()


_LINES: Final = frozenset((_State.HEAD, _State.CHUNK_LINE, _State.CHUNK_END, _State.TRAILERS))
_LOOKED_AT: Final = frozenset((*_ONCE, b"upgrade"))


class Framing:
    """One connection. check: what else is wrong with a request, once its head is whole."""

    def __init__(self, check: Callable[[Head], Refusal | None]) -> None:
        self._check = check
        self._state = _State.HEAD
        self._line = bytearray()
        self._size = 0  # of the lines of this head, or of these trailers
        self._left = 0  # of a body or chunk
        self._head: Head | None = None

    def feed(self, data: bytes) -> Refusal | None:
        """What came next. None: it is well so far. After a refusal there is nothing more to be fed."""
        at, end = 0, len(data)
        while at < end:
            if self._state not in _LINES:
                taken = min(self._left, end - at)
                at += taken
                self._left -= taken
                if not self._left:
                    self._state = _State.HEAD if self._state is _State.BODY else _State.CHUNK_END
                continue
            stop = data.find(b"\n", at)
            piece = data[at : stop + 1] if stop >= 0 else data[at:]
            self._line += piece
            at += len(piece)
            if full := self._too_long():
                return full
            if stop < 0:
                return None
            line, self._line = bytes(self._line), bytearray()
            self._size += len(line)
            if not line.endswith(b"\r\n"):
                return _bad("a line ends without a carriage return")
            if refused := self._take(line[:-2]):
                return refused
        return None

    def _too_long(self) -> Refusal | None:
        if self._state is _State.HEAD and self._size + len(self._line) > MAX_HEAD:
            return Refusal(
                431, "bad-request", "the address and the headers have more than 64 KiB: ask for fewer things at a time"
            )
        if self._state in (_State.CHUNK_LINE, _State.CHUNK_END) and len(self._line) > MAX_CHUNK_LINE:
            return _bad("the first line of a chunk is too long")
        if self._state is _State.TRAILERS and self._size + len(self._line) > MAX_TRAILERS:
            return _bad("the trailers of a body are too long")
        return None

    def _take(self, line: bytes) -> Refusal | None:
        """A line without its end."""
        match self._state:
            case _State.CHUNK_LINE:
                return self._chunk_line(line)
            case _State.CHUNK_END:
                self._state = _State.CHUNK_LINE
                return _bad("a chunk is longer than it says") if line else None
            case _State.TRAILERS:
                return self._trailer(line)
            case _:
                return self._head_line(line)

    def _head_line(self, line: bytes) -> Refusal | None:
        head = self._head
        if head is None:
            found = _REQUEST_LINE.fullmatch(line)
            if found is None:
                return _bad("its first line is not METHOD TARGET HTTP/1.1")
            self._head = Head(found[1], found[2], int(found[3]))
            return None
        if not line:
            self._head, self._size = None, 0
            return self._begin_body(head)
        if line[0] in b" \t":
            return _bad("a header is folded over several lines")
        named = _HEADER.fullmatch(line)
        if named is None:
            return _bad("a header is not NAME: VALUE (a blank before the colon, or what can not be printed)")
        head.headers += 1
        if head.headers > MAX_HEADERS:
            return Refusal(431, "bad-request", f"the request has more than {MAX_HEADERS} headers")
        name = named[1].lower()
        if name in _LOOKED_AT:
            if name in _ONCE and name in head.seen:
                return _bad(f"it has more than one {name.decode().title()}")
            head.seen[name] = named[2]
        return None

    def _begin_body(self, head: Head) -> Refusal | None:
        length, coding = head.seen.get(b"content-length"), head.seen.get(b"transfer-encoding")
        if head.minor and b"host" not in head.seen:
            return _bad("it has no Host")
        if coding is not None:
            if length is not None:
                return _bad("it has both Content-Length and Transfer-Encoding")
            if not head.minor:
                return _bad("HTTP/1.0 has no Transfer-Encoding")
            if coding.lower() != b"chunked":
                return _bad("its Transfer-Encoding is not chunked")
        elif length is not None and not _LENGTH.fullmatch(length):
            return _bad("its Content-Length is no number")
        if refused := self._check(head):
            return refused
        if coding is not None:
            self._state = _State.CHUNK_LINE
        elif length is not None and int(length):
            self._state, self._left = _State.BODY, int(length)
        return None

    def _chunk_line(self, line: bytes) -> Refusal | None:
        found = _CHUNK.fullmatch(line)
        if found is None:
            return _bad("the size of a chunk is no hexadecimal number")
        self._size = 0
        self._left = int(found[1], 16)
        self._state = _State.CHUNK if self._left else _State.TRAILERS
        return None

    def _trailer(self, line: bytes) -> Refusal | None:
        if not line:
            self._state, self._size = _State.HEAD, 0
            return None
        named = _HEADER.fullmatch(line)
        if named is None or named[1].lower() in _NOT_IN_TRAILERS:
            return _bad("a trailer of its body is no header that may stand there")
        return None


def _bad(what: str) -> Refusal:
    return Refusal(400, "bad-request", f"this is no request in HTTP/1.1 that can be read in one way only: {what}")
