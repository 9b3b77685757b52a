"""The gateway: serves the HTTP API, follows events for its listeners. It decides nothing and keeps nothing, so any
number of gateways may run, and one may be killed at any time."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import socket
from collections.abc import Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import uvicorn

from services.gateway.api.app import Doors, build
from services.gateway.pool import PoolView
from services.gateway.stream import EventStream
from services.gateway.tokens import Tokens
from shared.bus.api import Exchange
from shared.config.knobs import GatewaySettings
from shared.daemon.base import Daemon
from shared.daemon.context import Context
from shared.daemon.orders import obey
from shared.errors import PermanentError


class _Server(uvicorn.Server):
    """Signals belong to the daemon's own main, not to the web server inside it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Gateway(Daemon):
    """One door for people and scripts."""

    subsystem: ClassVar[str] = "GATEWAY"
    can_be_off: ClassVar[bool] = False  # nobody could switch it on

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = GatewaySettings.from_config(context.config)
        self.events = EventStream()
        self.tokens = Tokens(context.store, context.clock.now)
        self._http: aiohttp.ClientSession | None = None
        self._socket: socket.socket | None = None
        self._server: _Server | None = None

    @property
    def port(self) -> int:
        """The port it really listens on (the knob may say 0: any)."""
        assert self._socket is not None, "setup comes first"
        port: int = self._socket.getsockname()[1]
        return port

    async def setup(self) -> None:
        context = self.context
        user = self.settings.roost_token_user or f"{getpass.getuser()}@{self.settings.uid_domain}"
        await self.tokens.bootstrap(Path(self.settings.roost_token_file), user)
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=60.0))
        await context.bus.listen(Exchange.EVENTS, ["#"], self.events.on_event)
        await context.bus.serve(f"gateway.{context.name}", partial(obey, self))
        pool = PoolView(context.bus, context.clock, self.settings.roost_gateway_schedd or "")
        app = build(Doors(context.bus, pool, self.tokens, self.events, self._http, f"gateway.{context.name}"))
        family = socket.AF_INET6 if ":" in self.settings.roost_gateway_bind else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bind, port = self.settings.roost_gateway_bind, self.settings.roost_gateway_port
        try:
            self._socket.bind((bind, port))
        except OSError as error:
            raise PermanentError(
                f"can not listen on {bind or 'all addresses'}, port {port}: {error.strerror}; choose another with "
                "ROOST_GATEWAY_PORT (roost up -port; 0: any free one)"
            ) from error
        self._socket.listen(1024)  # who connects before the server runs waits, and is not refused
        self._server = _Server(
            uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=2)
        )
        context.log.info("listening", address=self.settings.roost_gateway_bind, port=self.port)

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"http": self._serve()}

    async def _serve(self) -> None:
        assert self._server is not None
        assert self._socket is not None
        serving = asyncio.ensure_future(self._server.serve(sockets=[self._socket]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self._server.should_exit = True
            await serving
            raise

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
        if self._socket is not None:
            self._socket.close()
