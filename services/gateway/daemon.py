"""The gateway: serves the HTTP API, follows events for its listeners. It decides nothing and keeps no state of the
pool, so any number of gateways may run, and one may be killed at any time."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import ipaddress
import resource
import socket
import ssl
from collections.abc import Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import aiohttp
import uvicorn
from fastapi import FastAPI

from services.gateway.admission import AdmissionQueue
from services.gateway.app import CurrentApp, build
from services.gateway.attention import Attention
from services.gateway.auth.audit import AuditLog
from services.gateway.auth.caller import person
from services.gateway.auth.guards import Guards
from services.gateway.auth.login_settings import make_logins
from services.gateway.auth.logins import Logins
from services.gateway.auth.tokens import TokenStore
from services.gateway.connections import Connection, Connections, Handshake, most_connections
from services.gateway.core.host_check import HostNames
from services.gateway.core.limits import ConcurrencyLimit, FairQueue, RateLimiter
from services.gateway.dashboard import Dashboard
from services.gateway.events import EventStream, JournalBackfill
from services.gateway.local_socket import LocalSocket
from services.gateway.metrics import Metrics, RequestCounts
from services.gateway.other_pools import OtherPools
from services.gateway.pool_client import PoolClient
from services.gateway.routes.context import RouteContext
from shared.bus.api import Exchange
from shared.config.knobs import GatewaySettings
from shared.config.pool_names import pool_names
from shared.daemon.base import Daemon
from shared.daemon.context import Context
from shared.daemon.orders import handle_order
from shared.errors import PermanentError, RoostError
from shared.messages.base import Envelope
from shared.messages.events import TokensChanged
from shared.server_tls import ServerCertificate, own_names
from shared.stored_versions import TOKENS
from shared.tls import ClientTls
from shared.transfer.connections import KeptConnections
from shared.transfer.tls import TransferTls
from shared.user_names import user_of

#: Addresses to listen on that stand for all that the machine has.
EVERYWHERE: Final = ("", "0.0.0.0", "::")


class _Server(uvicorn.Server):
    """Signals belong to the daemon's own main, not to the web server inside it. secure: sockets on which TLS is spoken,
    with its context."""

    def __init__(
        self,
        config: uvicorn.Config,
        connections: Connections,
        context: ssl.SSLContext | None = None,
        secure: list[socket.socket] | None = None,
    ) -> None:
        super().__init__(config)
        self._all = connections
        self._context = context
        self._secure = secure or []

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._context is None:
            return
        accept = partial(Handshake, self._all, self._context, self._connection)
        loop = asyncio.get_running_loop()
        for one in self._secure:
            self.servers.append(await loop.create_server(accept, sock=one, backlog=self.config.backlog))

    def _connection(self) -> Connection:
        return Connection(
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            connections=self._all,
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await self._all.close()
        await super().shutdown(sockets)


class Gateway(Daemon):
    """The daemon that people and scripts talk to."""

    subsystem: ClassVar[str] = "GATEWAY"
    writes: ClassVar[tuple[str, ...]] = (TOKENS,)
    can_be_off: ClassVar[bool] = False  # nobody could switch it on
    at_start: ClassVar[tuple[str, ...]] = (
        "AUTH_SSL_SERVER_*",
        "ROOST_OWN_AUTHORITY*",
        "ROOST_GATEWAY_BIND",
        "ROOST_GATEWAY_PORT",
        "ROOST_GATEWAY_SOCKET",
        "ROOST_GATEWAY_KEY*",
        "ROOST_GATEWAY_SCHEDD",
        "ROOST_GATEWAY_CONNECTIONS",
        "ROOST_GATEWAY_ADDRESS_CONNECTIONS",
        "ROOST_GATEWAY_PROXIES",
        "ROOST_TOKEN_*",
        "*GATEWAY_AUDIT_LOG",
        "UID_DOMAIN",
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = GatewaySettings.from_config(context.config)
        self.pool = PoolClient(context.bus, context.clock, self.settings.roost_gateway_schedd or "", person)
        self.dashboard = Dashboard(self.pool, context.clock)
        self.attention = Attention(self.pool, context.bus, self.dashboard, context.clock)
        self.events = EventStream(JournalBackfill(context.bus), [self.dashboard.on_event, self.attention.on_event])
        self.tokens = TokenStore(context.store, context.clock.now, self._tell_of_tokens, self.settings.uid_domain)
        try:
            owner = user_of(self.settings.roost_token_user or getpass.getuser(), self.settings.uid_domain)
        except ValueError as error:
            raise PermanentError(f"{error}; set ROOST_TOKEN_USER = NAME@DOMAIN, for the first token") from error
        self.owner = owner  # whom the first token stands for
        self.local = LocalSocket(Path(self.settings.roost_gateway_socket or ""), context.log)
        self.audit = AuditLog(
            context.name,
            Path(self.settings.gateway_audit_log) if self.settings.gateway_audit_log else None,
            context.bus,
            context.log,
            most=self.settings.max_gateway_audit_log,
            files=self.settings.max_num_gateway_audit_log,
        )
        self.counts = RequestCounts()
        bind = self.settings.roost_gateway_bind
        named = [] if bind in EVERYWHERE else [bind]
        self.connections = Connections(
            self.settings.roost_gateway_address_connections,
            most_connections(self.settings.roost_gateway_connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
            self.settings.roost_gateway_proxies,
            context.clock.monotonic,
            context.log,
        )
        self.certificate = ServerCertificate(self.settings, "gateway", named, context.clock.now, context.log)
        self.logins, self._told = self._make_logins(self.settings)
        self._former: Logins | None = None  # of before the last reconfiguration: requests under way may ask them
        self._app: CurrentApp | None = None
        context.metrics.register(Metrics(self.counts, lambda: self.events.listeners))
        self._http: aiohttp.ClientSession | None = None
        self._socket: socket.socket | None = None
        self._server: _Server | None = None

    @property
    def port(self) -> int:
        """The port it really listens on (the knob may say 0: any)."""
        assert self._socket is not None, "setup comes first"
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def scheme(self) -> str:
        """https where it speaks TLS, else http."""
        return "https" if self.certificate.live is not None else "http"

    async def setup(self) -> None:
        context = self.context
        tls = await self.certificate.load()
        self.connections.hosts = self._host_names(self.settings)
        self._tell()
        await self.tokens.bootstrap(Path(self.settings.roost_token_file), self.owner)
        await self.audit.close_files()
        patience = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=60.0)
        self._http = aiohttp.ClientSession(connector=KeptConnections(limit=100), timeout=patience)
        await context.bus.listen(Exchange.EVENTS, ["#"], self._on_event)
        await context.bus.serve(f"gateway.{context.name}", partial(handle_order, self))
        self._app = CurrentApp(await self._make_app(self.settings, self.logins))
        self._listen(self._app, tls)

    def _listen(self, app: CurrentApp, tls: ssl.SSLContext | None) -> None:
        context, settings = self.context, self.settings
        bind, port = settings.roost_gateway_bind, settings.roost_gateway_port
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        # Of TCP by name: else asyncio leaves Nagle's algorithm to its connections, and of each answer after the first
        # the body waits 40 ms, until the client acknowledges the head.
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((bind, port))
        except OSError as error:
            raise PermanentError(
                f"can not listen on {bind or 'all addresses'}, port {port}: {error.strerror}; choose another with "
                "ROOST_GATEWAY_PORT (roost up -port; 0: any free one)"
            ) from error
        self._socket.listen(1024)  # who connects before the server runs waits, and is not refused
        self._server = _Server(
            uvicorn.Config(
                app,
                log_config=None,
                log_level="error",  # or anybody fills the log, a line for each request that can not be read
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=2,
                http=self.connections.protocol(),
                ws="websockets-sansio",
                ws_max_size=1 << 16,
                # Anybody may write X-Forwarded-For: who connects is believed only if the configuration says so.
                proxy_headers=bool(settings.roost_gateway_proxies),
                forwarded_allow_ips=list(settings.roost_gateway_proxies),
            ),
            self.connections,
            tls,
            [self._socket],
        )
        if settings.roost_gateway_socket and (problem := self.local.open()):
            context.log.warning("no_local_socket", problem=problem, effect="users of this machine need tokens")
        context.log.info("listening", address=bind, port=self.port, scheme=self.scheme)
        if tls is None and not _is_loopback(bind):
            context.log.warning(
                "gateway_without_tls",
                address=bind,
                reason="tokens pass in clear: who listens on the way can use them",
                mend="set AUTH_SSL_SERVER_CERTFILE or ROOST_OWN_AUTHORITY, or have a proxy speak TLS in front of it",
            )

    async def reconfigure(self) -> None:
        """New limits count from nothing; who is logged in stays so by the new rules, from the next request on."""
        settings = GatewaySettings.from_config(self.context.config)
        logins, told = self._make_logins(settings)
        app = await self._make_app(settings, logins)
        assert self._app is not None, "setup comes first"
        former, self._former, self.logins = self._former, self.logins, logins
        self.settings, self._told, self._app.app = settings, told, app
        self.connections.hosts = self._host_names(settings)
        self._tell()
        if former is not None:
            await former.close()

    def _make_logins(self, settings: GatewaySettings) -> tuple[Logins, list[str]]:
        return make_logins(settings, self.context, self.tokens, self.owner, with_tls=self.certificate.is_wanted)

    def _host_names(self, settings: GatewaySettings) -> HostNames:
        named = [*settings.roost_gateway_hosts, settings.roost_gateway_bind]
        return HostNames.of([*named, *own_names(settings), *self.certificate.names()])

    def _tell(self) -> None:
        for problem in self._told:
            self.context.log.warning("configuration", problem=problem)

    async def _make_app(self, settings: GatewaySettings, logins: Logins) -> FastAPI:
        context = self.context
        assert self._http is not None, "setup comes first"
        guards = Guards(
            ConcurrencyLimit(settings.roost_gateway_at_once),
            ConcurrencyLimit(settings.roost_gateway_streams, settings.roost_gateway_all_streams),
            AdmissionQueue(FairQueue(settings.roost_gateway_heavy, settings.roost_gateway_all_heavy)),
            RateLimiter(settings.roost_gateway_submit_rate, settings.roost_gateway_burst),
            context.clock,
        )
        routes = RouteContext(
            context.bus,
            self.pool,
            self.tokens,
            logins,
            self.events,
            self._http,
            self.audit,
            guards,
            settings,
            context.clock,
            f"gateway.{context.name}",
            self.dashboard,
            self.attention,
            OtherPools(
                pool_names(context.config, "ROOST_GATEWAY_POOLS", settings.roost_gateway_pools),
                Path(settings.roost_gateway_pools_directory),
                ClientTls.of(settings),
                context.clock,
            ),
            self.counts,
            TransferTls.of(settings),
        )
        return await asyncio.to_thread(build, routes)  # 0.1 to 0.2 s of work

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {
            "http": self._serve(),
            "audit": self.audit.run(),
            "local": self._serve_locally(),
            "tokens": self.tokens.run(),
            "connections": self.connections.run(),
            "certificate": self.certificate.run(),
        }

    async def _on_event(self, envelope: Envelope) -> None:
        if isinstance(envelope.body, TokensChanged):
            self._forget(envelope.body.tokens)
        self.audit.heard(envelope)
        await self.events.on_event(envelope)

    def _forget(self, tokens: list[str]) -> None:
        self.tokens.forget(tokens)
        self.events.forget(tokens)

    async def _tell_of_tokens(self, tokens: list[str], by: str) -> None:
        """So that every gateway asks the store anew. One that does not hear it has its own short memory."""
        self._forget(tokens)
        told = TokensChanged(at=self.context.clock.now(), gateway=self.context.name, tokens=tokens, by=by)
        try:
            await self.context.bus.publish(Exchange.EVENTS, told.type, told)
        except RoostError as error:
            self.context.log.warning("token_change_not_told", tokens=tokens, reason=str(error))

    async def _serve(self) -> None:
        assert self._server is not None
        assert self._socket is not None
        plain = [] if self.certificate.live is not None else [self._socket]
        serving = asyncio.ensure_future(self._server.serve(sockets=plain))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self._server.should_exit = True
            await serving
            raise

    async def _serve_locally(self) -> None:
        assert self._server is not None
        await self.local.serve(self._server, self.connections)

    async def close(self) -> None:
        self.local.close()
        await self.audit.close()
        for logins in (self.logins, self._former):
            if logins is not None:
                await logins.close()
        with contextlib.suppress(RoostError):
            await self.tokens.write_uses()
        for made in (self.dashboard, self.attention):
            await made.stop()
        if self._http is not None:
            await self._http.close()
        if self._socket is not None:
            self._socket.close()


def _is_loopback(bind: str) -> bool:
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"
