"""Connections between startds and schedds' file servers, in memory: HTTP as it is, on wires that are slow, or cut, or
that are dead and say nothing of it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import aiohttp
from aiohttp import web
from aiohttp.client_proto import ResponseHandler

from shared.transfer.connections import KeptConnections
from shared.transfer.extraction import Extraction
from tests.simulation.loop import LIFE

#: What it takes until bytes arrive, seconds, where nothing is wrong.
LATENCY_S = 0.001
FIRST_PORT = 40_001
#: After so long the kernel of who waits on a dead connection gives it up, as shared.transfer.connections has it.
GIVEN_UP_S = 90.0


class Wires:
    """All connections of a pool. slow_s: what bytes may take. cuts: with which probability bytes end their connection
    in place of arriving. closed: nobody comes in any more. kept: connections are, between transfers.
    full(daemon): whether its disk is.
    mistake(what): is told of requests that failed otherwise than by their connection."""

    def __init__(self, chance: random.Random, full: Callable[[str], bool], mistake: Callable[[str], None]) -> None:
        self.slow_s = LATENCY_S
        self.cuts = 0.0
        self.closed = False
        self.kept = False
        self._chance = chance
        self._full = full
        self._mistake = mistake
        self._ports = itertools.count(FIRST_PORT)
        self._doors: dict[int, tuple[Any, web.AppRunner]] = {}
        self._ends: dict[_End, None] = {}

    @contextlib.contextmanager
    def instead_of_sockets(self) -> Iterator[None]:
        """Who serves or fetches files does so here."""
        feed = Extraction._feed

        def unless_full(extraction: Extraction, data: bytes) -> None:
            life = LIFE.get()
            if life is not None and self._full(life.name):
                raise OSError(errno.ENOSPC, "No space left on device")
            feed(extraction, data)

        wires = self

        class Mistakes(logging.Handler):
            """Hears of requests that a file server did not expect."""

            def emit(self, record: logging.LogRecord) -> None:
                error = record.exc_info[1] if record.exc_info else None
                if not isinstance(error, ConnectionError | aiohttp.ClientConnectionError):
                    wires._mistake(f"{record.getMessage()}: {error!r}")

        class Site(web.BaseSite):
            """Where a schedd serves files."""

            def __init__(self, runner: web.AppRunner, host: str | None, port: int, *, ssl_context: Any = None) -> None:
                super().__init__(runner)
                self._port = port or next(wires._ports)

            @property
            def name(self) -> str:
                return f"memory:{self._port}"

            async def start(self) -> None:
                await super().start()
                self._server: Any = _Door(self._port)
                assert isinstance(self._runner, web.AppRunner)
                wires._doors[self._port] = (LIFE.get(), self._runner)

        async def connected(connector: aiohttp.BaseConnector, req: Any) -> ResponseHandler:
            protocol: ResponseHandler = connector._factory()
            try:
                await wires._connect(int(req.url.port), protocol)
            except OSError as error:
                raise aiohttp.ClientConnectorError(req.connection_key, error) from error
            return protocol

        class Connector(aiohttp.BaseConnector):
            """What a startd fetches files through."""

            def __init__(self) -> None:
                super().__init__(limit=0, force_close=True)

            async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> ResponseHandler:
                return await connected(self, req)

        class Kept(KeptConnections):
            """The same, as the product keeps them."""

            def __del__(self) -> None:
                """Who is killed closes nothing, and is not told of it."""

            async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> ResponseHandler:
                return await connected(self, req)

        log, mistakes = logging.getLogger("aiohttp.server"), Mistakes()
        with (
            mock.patch("aiohttp.web.TCPSite", Site),
            mock.patch("services.startd.runs.KeptConnections", Kept if self.kept else Connector),
            mock.patch.object(Extraction, "_feed", unless_full),
            mock.patch.object(log, "propagate", False),
        ):
            log.addHandler(mistakes)
            try:
                yield
            finally:
                log.removeHandler(mistakes)

    async def _connect(self, port: int, protocol: asyncio.Protocol) -> None:
        caller = LIFE.get()
        await asyncio.sleep(LATENCY_S)
        owner, runner = self._doors.get(port, (None, None))
        if owner is None or owner.dead or self.closed or runner is None or runner.server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        near, far = _End(self, caller, protocol), _End(self, owner, runner.server())
        near.asks = True
        near.peer, far.peer = far, near
        self._ends |= {near: None, far: None}
        for end in (far, near):
            end.call(end.protocol.connection_made, end)

    def takes(self) -> float:
        """Seconds that the next bytes are under way; below 0: they never arrive."""
        if self.cuts and self._chance.random() < self.cuts:
            return -1.0
        return LATENCY_S + self._chance.uniform(0.0, self.slow_s)

    def cut(self, life: Any = None) -> None:
        """All connections, or those of a daemon that died."""
        for end in list(self._ends):
            if life is None or end.life is life:
                end.break_off()

    def die_unnoticed(self, *, resets: bool) -> None:
        """All connections are dead, and who asks over them is not told: the next that he sends is answered by a reset,
        or by nothing at all."""
        for end in [end for end in self._ends if end.asks and not end.gone]:
            end.go_unnoticed(resets=resets)

    def forget(self, end: _End) -> None:
        self._ends.pop(end, None)


class _Door:
    """What a site of aiohttp knows of its server."""

    def __init__(self, port: int) -> None:
        self._port = port

    @property
    def sockets(self) -> list[_Door]:
        return [self]

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self._port

    def close(self) -> None: ...


class _End(asyncio.Transport):
    """One end of a connection: what its daemon writes comes out of the other end later, in order."""

    peer: _End
    asks = False  # its daemon opened the connection
    gone = ""  # its peer hears nothing any more: "resets", "silent"

    def __init__(self, wires: Wires, life: Any, protocol: Any) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.life = life
        self.protocol = protocol
        self._wires = wires
        self._coming: deque[bytes | None] = deque()
        self._paused = self._closing = self._lost = False
        self._due = 0.0

    def call(self, what: Callable[..., object], *args: object) -> None:
        """As part of the life of whose end this is."""
        token = LIFE.set(self.life)
        try:
            what(*args)
        finally:
            LIFE.reset(token)

    # What its daemon does

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.gone == "resets":
            self.break_off()
        elif not self._closing and data and not self.gone:
            takes = self._wires.takes()
            if takes < 0:
                self.break_off()
            else:
                self.peer.receive(bytes(data), takes)

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.peer.receive(None, LATENCY_S)
            asyncio.get_running_loop().call_soon(self._lose, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            self._later(LATENCY_S, len(self._coming))

    def is_reading(self) -> bool:
        return not self._paused

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    # What comes

    def receive(self, data: bytes | None, takes: float) -> None:
        """data: None: the other end is closed."""
        if self.gone:
            return
        self._coming.append(data)
        self._later(takes, 1)

    def _later(self, takes: float, times: int) -> None:
        loop = asyncio.get_running_loop()
        self._due = max(self._due, loop.time() + takes)
        token = LIFE.set(self.life)
        try:
            for _ in range(times):
                loop.call_at(self._due, self._deliver)
        finally:
            LIFE.reset(token)

    def _deliver(self) -> None:
        if self._paused or self._lost or not self._coming or (self._wires.kept and self._closing):
            return
        data = self._coming.popleft()
        if data is None:
            self._closing = True
            self._lose(None)
        else:
            self.protocol.data_received(data)

    def go_unnoticed(self, *, resets: bool) -> None:
        """The other end is lost, and this one does not know."""
        loop = asyncio.get_running_loop()
        lost = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        self.gone = self.peer.gone = "resets" if resets else "silent"
        self._coming.clear()
        if resets:
            loop.call_soon(self.peer._lose, lost)
        else:
            for end in (self, self.peer):
                loop.call_later(GIVEN_UP_S, end._lose, lost)

    def break_off(self) -> None:
        """Both ends hear that the connection is gone, and nothing else of what was under way."""
        loop = asyncio.get_running_loop()
        for end in (self, self.peer):
            end._closing = True
            end._coming.clear()
            loop.call_soon(end._lose, ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._wires.forget(self)
        if self.life is None or not self.life.dead:
            self.call(self.protocol.connection_lost, error)
