"""Limits how many connections there may be, and ends those on which nothing moves.

Whoever connects may say nothing, or send a request letter by letter, or not read what is sent to it. None of this may
keep a place for ever that another needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

import h11
import structlog
from uvicorn.protocols.http.h11_impl import H11Protocol

from services.gateway.core import peer_certificate
from services.gateway.core.host_check import ANY, HostNames
from services.gateway.core.http_framing import MAX_HEAD, Framing, Head, Refusal
from services.gateway.core.limits import ConcurrencyLimit
from services.gateway.core.peer_certificate import PEER_CERTIFICATE

#: Seconds for the head of a request; without a byte of a body that is awaited; for the rest of a body after the answer;
#: without a reader taking what waits for it (some 50 KB); for the last of an answer after the end.
HEAD_S: Final = 20.0
BODY_S: Final = 60.0
REST_S: Final = 10.0
READER_S: Final = 30.0
CLOSING_S: Final = 30.0
#: Seconds for a handshake of TLS, and for its end.
HANDSHAKE_S: Final = 10.0
GOODBYE_S: Final = 10.0
#: Of the scope of a request: what is called when its connection is lost before the whole answer was sent.
HUNG_UP: Final = "roost.hung-up"
#: How often that is looked at.
LOOK_S: Final = 2.0
#: What h11 refuses of what the framing has let pass.
_UNREADABLE: Final = Refusal(400, "bad-request", "this is no request in HTTP/1.1")


@dataclass(slots=True)
class Progress:
    """When something moved last on a connection (monotonic seconds). None: that is not what it waits for."""

    head: float | None = None  # a request's head is awaited since then
    body: float | None = None  # the last byte of a body came then, and more is awaited
    rest: float | None = None  # it was answered then, and still sends its body
    reader: float | None = None  # nothing was taken of what is sent since then
    closing: float | None = None  # it is closed but for what is on its way


def overdue(moves: Progress, now: float) -> str:
    """What a connection has waited for too long; empty: nothing."""
    waits = (
        ("head", moves.head, HEAD_S),
        ("body", moves.body, BODY_S),
        ("rest", moves.rest, REST_S),
        ("reader", moves.reader, READER_S),
        ("closing", moves.closing, CLOSING_S),
    )
    return next((what for what, since, longest in waits if since is not None and now - since > longest), "")


def most_connections(wanted: int, files: int) -> int:
    """How many may be open where a process may have so many files open: it needs some for other ends."""
    if files < 0:  # no limit
        return wanted
    most = max(1, files * 3 // 4)
    return min(wanted, most) if wanted else most


def refusal(status: int, code: str, message: str) -> bytes:
    """A whole answer, for where there is no application to make one."""
    text = json.dumps({"error": {"code": code, "message": message, "retryable": status == 429}}).encode()
    again = "Retry-After: 1\r\n" if status == 429 else ""
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
    return f"{head}{again}Content-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode() + text


class Connections:
    """All connections of a gateway. each, total: how many from one address and in all may be open, 0: no limit;
    unlimited: addresses (of proxies) that stand for many; hosts: names that the gateway answers to."""

    def __init__(
        self,
        each: int,
        total: int,
        unlimited: Collection[str],
        monotonic: Callable[[], float],
        log: structlog.stdlib.BoundLogger,
        hosts: HostNames | None = None,
    ) -> None:
        self.hosts = hosts or HostNames.of([ANY])
        self._room = ConcurrencyLimit(each, total)
        self._unlimited = frozenset(unlimited)
        self.monotonic = monotonic
        self._log = log
        self._open: set[Connection | Handshake] = set()
        self._made = 0

    def protocol(self) -> type[asyncio.Protocol]:
        """What a uvicorn server makes its connections of."""
        return cast("type[asyncio.Protocol]", partial(Connection, connections=self))

    def enter(self, connection: Connection | Handshake) -> str:
        """Empty when there is room, else which limit is reached."""
        full = self._room.enter(self._key(connection))
        if not full:
            self._open.add(connection)
        return full

    def become(self, before: Handshake, connection: Connection) -> None:
        """The same place is another's from now on."""
        self._open.discard(before)
        self._open.add(connection)

    def leave(self, connection: Connection | Handshake) -> None:
        """It is gone; one that was not let in was never here."""
        if connection in self._open:
            self._open.discard(connection)
            self._room.leave(self._key(connection))

    def _key(self, connection: Connection | Handshake) -> str:
        # Each connection of a proxy is a key of its own.
        return f"proxy {connection.number}" if connection.address in self._unlimited else connection.address

    def __len__(self) -> int:
        return len(self._open)

    def count(self) -> int:
        """A number for a connection."""
        self._made += 1
        return self._made

    async def close(self) -> None:
        """End the handshakes that are under way."""
        for one in list(self._open):
            if isinstance(one, Handshake):
                await one.close()

    async def run(self) -> None:
        """End what does not move any more, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        now = self.monotonic()
        cut: Counter[str] = Counter()
        for connection in list(self._open):
            if what := overdue(connection.moves(), now):
                cut[what] += 1
                connection.transport.abort()
        if cut:
            self._log.info("connections_cut", **cut)


class Handshake(asyncio.Protocol):
    """A connection that has yet to agree on TLS. It has its place among all connections from its first moment, so that
    who never agrees takes no more of them than who never asks. make: makes what it becomes."""

    def __init__(self, connections: Connections, context: ssl.SSLContext, make: Callable[[], Connection]) -> None:
        self._all = connections
        self._context = context
        self._make = make
        self._began = connections.monotonic()
        self._task: asyncio.Task[None] | None = None
        self._early = bytearray()
        self.number = connections.count()
        self.address = ""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        if self._all.enter(self):
            self.transport.abort()  # there is nothing that could be said yet
            return
        self._task = asyncio.get_running_loop().create_task(self._agree(), name="handshake")

    def data_received(self, data: bytes) -> None:
        """What comes before `_agree` has begun: on a busy machine the client is quicker, and uvloop reads at once."""
        self._early += data

    async def _agree(self) -> None:
        if self.transport.is_closing():  # whoever it was has gone
            self._all.leave(self)
            return
        early = _Early()
        loop = asyncio.get_running_loop()
        agreeing = loop.create_task(
            loop.start_tls(
                self.transport,
                early,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=GOODBYE_S,
            ),
            name="handshake of TLS",
        )
        # It has its first turn next, which makes TLS the transport's protocol, which is told so in the turn after that.
        loop.call_soon(loop.call_soon, self._pass_on)
        try:
            secure = await agreeing
        except (OSError, ValueError):  # ssl.SSLError is an OSError
            secure = None
        except BaseException:
            self._all.leave(self)
            self.transport.abort()
            raise
        if secure is None or early.lost:
            self._all.leave(self)
            return
        connection = self._make()
        connection.number = self.number
        connection.take_place_of(self)
        secure.set_protocol(connection)
        connection.connection_made(secure)
        if early.data:
            connection.data_received(bytes(early.data))

    def _pass_on(self) -> None:
        """Give TLS what came before it."""
        protocol = cast("asyncio.BufferedProtocol", self.transport.get_protocol())
        while self._early and not self.transport.is_closing():
            place = memoryview(protocol.get_buffer(len(self._early)))
            count = min(len(place), len(self._early))
            place[:count] = self._early[:count]
            del self._early[:count]
            protocol.buffer_updated(count)

    def moves(self) -> Progress:
        """What it waits for."""
        return Progress(head=self._began)

    async def close(self) -> None:
        """End the attempt, if it is still under way."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task


class _Early(asyncio.Protocol):
    """Keeps what comes between the end of a handshake and the moment at which somebody takes over."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Connection(H11Protocol):
    """One connection, with an eye on the clock."""

    def __init__(self, *arguments: Any, connections: Connections, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._all = connections
        self._place: Handshake | None = None
        self.number = connections.count()
        self.address = ""
        self._refused = False
        self._framing = Framing(self._check)
        # The framing bounds a head. h11's own bound is a fourth of that, and holds only where a head comes in pieces.
        self.conn = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD)
        now = connections.monotonic()
        self._heard = now  # the last byte
        self._idle = now  # the last answer's end, or the beginning
        self._full: float | None = None
        self._closing: float | None = None

    def take_place_of(self, handshake: Handshake) -> None:
        """Before it is made: it counts already."""
        self._place = handshake

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.address_of(transport)
        if self._place is not None:
            self._all.become(self._place, self)
            self._place = None
            shown = peer_certificate.of_connection(transport.get_extra_info("ssl_object"))
            if shown is not None:  # for every request of this connection, WebSockets too
                self.app_state = {**self.app_state, PEER_CERTIFICATE: shown}
        elif full := self._all.enter(self):
            self._refused = True
            transport.write(refusal(429, "too-many", f"too many connections to this gateway: {full}"))
            transport.close()

    def address_of(self, transport: asyncio.Transport) -> str:
        """Whose connections are counted together."""
        return self.client[0] if self.client is not None else ""

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._heard = self._all.monotonic()
        if refused := self._framing.feed(data):
            # Nothing of what came with it is taken either: where one request ends and the next begins is in doubt.
            self._refuse(refused)
            return
        super().data_received(data)

    def _check(self, head: Head) -> Refusal | None:
        return self._all.hosts.check(head)

    def send_400_response(self, msg: str) -> None:
        """What came can not be read."""
        self._refuse(_UNREADABLE)

    def _refuse(self, refused: Refusal) -> None:
        """The answer is the last thing that is sent; what still comes is read and dropped for a while, as a connection
        that is closed with something unread takes the answer along."""
        self._refused = True
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started:
                self.transport.abort()
                return
            cycle.disconnected = True  # whoever reads the body is told that it broke off
            cycle.message_event.set()
        self.transport.write(refusal(refused.status, refused.code, refused.message))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:  # TLS has an end of its own, which reads on too
            self.transport.close()
        self.flow.resume_reading()
        self._idle = self._all.monotonic()

    def on_response_complete(self) -> None:
        self._idle = self._all.monotonic()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._full = self._all.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._full = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.leave(self)
        cycle = self.cycle
        super().connection_lost(exc)
        if cycle is not None and not cycle.response_complete:
            hung_up = cast("Callable[[], None] | None", cycle.scope.get(HUNG_UP))
            if hung_up is not None:
                hung_up()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Another protocol takes over, which has an eye on its reader itself; it keeps its place here."""
        super().handle_websocket_upgrade(event)
        protocol = self.transport.get_protocol()
        lost = protocol.connection_lost

        def leave(exc: Exception | None) -> None:
            self._all.leave(self)
            lost(exc)

        setattr(protocol, "connection_lost", leave)  # noqa: B010  a method, for mypy
        self._heard = float("inf")

    def moves(self) -> Progress:
        """What it waits for."""
        found = Progress(reader=self._full)
        if self._heard == float("inf"):
            return found
        if self._refused:
            found.rest = self._idle
            return found
        if self.transport.is_closing():
            self._closing = self._closing or self._all.monotonic()
            found.closing = self._closing
            return found
        theirs, ours = self.conn.their_state, self.conn.our_state
        if theirs is h11.IDLE:
            found.head = self._idle
        elif theirs is h11.SEND_BODY and ours in (h11.DONE, h11.MUST_CLOSE):
            found.rest = self._idle
        elif theirs is h11.SEND_BODY and not self.flow.read_paused:
            found.body = self._heard
        return found
