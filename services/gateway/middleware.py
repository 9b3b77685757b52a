"""The gateway's ASGI middleware. RequestMiddleware, the outermost, names each request, finds out who asks, turns away
who asks too often, and tells the audit log how the request ended. BodyLimitMiddleware bounds bodies before anybody
reads them, whatever their sender says of their length; the body of a request without a valid token is not read at
all."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Final

from fastapi import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.gateway.auth.audit import AuditLog
from services.gateway.auth.caller import CALLER, QUESTIONS, Caller, bearer
from services.gateway.auth.guards import Guards, retry_after, too_many_requests, unauthenticated
from services.gateway.auth.local_peer import local_address
from services.gateway.auth.logins import Logins
from services.gateway.connections import HUNG_UP
from services.gateway.core.authorization import digest
from services.gateway.core.failed_logins import FailedLogins
from services.gateway.core.limits import ByteBudget, RateLimiter
from services.gateway.core.peer_certificate import PEER_CERTIFICATE
from services.gateway.metrics import RequestCounts
from services.gateway.routes.static_files import is_page
from services.gateway.serialization import problem
from shared.daemon.clock import Clock
from shared.errors import RetryableError
from shared.messages.base import new_id

#: A request's own id is kept when it looks like this.
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class RequestMiddleware:
    """ASGI middleware, the outermost one."""

    def __init__(
        self,
        app: ASGIApp,
        logins: Logins,
        audit: AuditLog,
        clock: Clock,
        rates: RateLimiter,
        anonymous: RateLimiter,
        counts: RequestCounts,
        guards: Guards,
        failures: FailedLogins,
        hsts_s: int,
    ) -> None:
        self._app = app
        self._logins = logins
        self._audit = audit
        self._clock = clock
        self._rates = rates
        self._anonymous = anonymous
        self._counts = counts
        self._guards = guards
        self._failures = failures
        self._hsts = f"max-age={hsts_s}".encode() if hsts_s else b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        given = connection.headers.get("x-request-id", "")
        caller = Caller(
            request_id=given if _REQUEST_ID.fullmatch(given) else new_id(),
            address=connection.client.host if connection.client is not None else local_address(scope),
        )
        scope["roost.caller"] = caller
        if scope["type"] == "http" and scope["method"] in QUESTIONS:
            caller.work = asyncio.current_task()
            scope[HUNG_UP] = caller.hang_up
        if (shown := scope.get("state", {}).pop(PEER_CERTIFICATE, None)) is not None:
            scope[PEER_CERTIFICATE] = shown
        began = self._clock.monotonic()
        added = [(b"x-request-id", caller.request_id.encode()), *self._added(scope, connection)]
        mark = CALLER.set(caller)

        async def answer(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                caller.status = message["status"]
                given = message.get("headers", ())
                has = {name.lower() for name, _ in given}
                message = {**message, "headers": [*given, *(one for one in added if one[0] not in has)]}
            elif message["type"] == "websocket.accept":
                caller.status = 101
            await send(message)

        try:
            token = bearer(connection)
            secret = digest(token) if token else ""
            if token and (wait := self._failures.wait(caller.address, secret, began)):
                caller.code = "too-many"
                text = f"too many failed logins from {caller.address}, or with this token: it is not looked at now"
                refusal = problem("too-many", text, True, 429)
                refusal.headers.update(retry_after(wait))
                await refusal(scope, receive, answer)
                return
            try:
                caller.identity, caller.why = await self._logins.look(token, scope, caller.address)
            except RetryableError as error:
                caller.code = "unavailable"
                refusal = problem("unavailable", f"tokens can not be looked up: {error}", True, 503)
                await refusal(scope, receive, answer)
                return
            if token and caller.identity is not None:
                self._failures.succeeded(secret, began)
            elif token:
                self._failures.failed(caller.address, secret, began)
            limiter = self._anonymous if caller.identity is None else self._rates
            counted = not is_page(scope["path"])
            if counted and (wait := limiter.take(caller.key, self._clock.monotonic())):
                whose = f"from {caller.address}" if caller.identity is None else "with this token"
                caller.code = "too-many"
                refusal = problem("too-many", f"too many requests {whose}", True, 429)
                refusal.headers.update(retry_after(wait))
                await refusal(scope, receive, answer)
                return
            if scope["type"] == "http" and counted and (full := self._guards.begin(caller)):
                caller.code = "too-many"
                refusal = problem("too-many", full, True, 429)
                await refusal(scope, receive, answer)
                return
            await self._app(scope, receive, answer)
        except asyncio.CancelledError:
            if not caller.gone:
                raise
            _uncancel()
        finally:
            self._counts.gone += caller.gone
            caller.work = None
            caller.left()
            CALLER.reset(mark)
            method = scope.get("method", "WEBSOCKET")
            took_s = self._clock.monotonic() - began
            self._counts.add(method, getattr(scope.get("route"), "path", ""), caller.status, took_s)
            self._audit.request(caller, method, scope["path"], self._clock.now(), took_s)

    def _added(self, scope: Scope, connection: HTTPConnection) -> Iterator[tuple[bytes, bytes]]:
        """Headers for whatever has none of that name: no browser may take an answer, such as a job's output, for a page
        of this gateway, or a script, or put it into a frame."""
        yield from _CLOSED
        # It holds for all ports of a host: not for this machine's own name for itself, where others' pages are too.
        host = connection.headers.get("host", "").partition(":")[0].lower()
        if self._hsts and scope["scheme"] in ("https", "wss") and host not in ("", "localhost"):
            yield b"strict-transport-security", self._hsts


def _uncancel() -> None:
    """This task goes on, to its end: what cancelled it was that its caller has gone."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()


#: For answers that set none of their own.
_CLOSED: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
#: Where files are streamed through, and limited where they go.
_FILES: Final = (("PUT", re.compile(r"/v1/jobs/[^/]+/files")), ("POST", re.compile(r"/v1/jobs/description")))
_SUBMIT: Final = "/v1/jobs"


class BodyLimitMiddleware:
    """Refuses with 413 what is too large, and with 429 what is too much at once. A submit may have `large` bytes,
    everything else but files `small`; budget: bytes that are held at once, by caller."""

    def __init__(self, app: ASGIApp, small: int, large: int, budget: ByteBudget) -> None:
        self._app = app
        self._small = small
        self._large = large
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller: Caller = scope["roost.caller"]
        path = scope["path"]
        free = any(scope["method"] == method and place.fullmatch(path) for method, place in _FILES)
        limit = self._large if path == _SUBMIT else self._small
        got = 0
        answering = False

        async def noted(message: Message) -> None:
            nonlocal answering
            answering = True
            await send(message)

        async def bounded() -> Message:
            nonlocal got
            message = await receive()
            if message["type"] != "http.request":
                return message
            if caller.identity is None:
                raise unauthenticated(caller)
            size = len(message.get("body", b""))
            if free or not size:
                return message
            if answering:  # nobody waits for this body
                return {"type": "http.disconnect"}
            if got + size > limit:
                raise HTTPException(413, f"the body is larger than {limit} bytes; send it in parts")
            if full := self._budget.take(caller.key, size):
                raise too_many_requests(f"too much is being sent at once: {full} (ROOST_GATEWAY_BODIES_MIB)", 1.0)
            got += size
            return message

        try:
            await self._app(scope, bounded, noted)
        finally:
            if got:
                self._budget.give(caller.key, got)
