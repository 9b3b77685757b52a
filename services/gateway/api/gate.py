"""The gate in front of all doors: names each request, finds out who asks, turns away who asks too often, and tells the
audit log what came of it."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.gateway.api.guard import Guards, retry_after
from services.gateway.api.web import is_page
from services.gateway.api.wire import problem
from services.gateway.audit import Audit
from services.gateway.caller import CALLER, Caller
from services.gateway.metrics import RequestCounts
from services.gateway.rates import Limiter
from services.gateway.tokens import Tokens
from shared.daemon.clock import Clock
from shared.errors import RetryableError
from shared.messages.base import new_id

#: A request's own id is kept when it looks like this.
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
#: How a browser, which can set no header, sends a token with a WebSocket: as a subprotocol of this beginning, the token
#: in base64url without padding.
PROTOCOL: Final = "roost.bearer."


class Gate:
    """ASGI middleware, the outermost one."""

    def __init__(
        self,
        app: ASGIApp,
        tokens: Tokens,
        audit: Audit,
        clock: Clock,
        rates: Limiter,
        anonymous: Limiter,
        counts: RequestCounts,
        guards: Guards,
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._audit = audit
        self._clock = clock
        self._rates = rates
        self._anonymous = anonymous
        self._counts = counts
        self._guards = guards

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        given = connection.headers.get("x-request-id", "")
        caller = Caller(
            request_id=given if _REQUEST_ID.fullmatch(given) else new_id(),
            address=connection.client.host if connection.client is not None else "",
        )
        scope["roost.caller"] = caller
        began = self._clock.monotonic()
        mark = CALLER.set(caller)

        async def answer(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                caller.status = message["status"]
                named = (b"x-request-id", caller.request_id.encode())
                message = {**message, "headers": [*message.get("headers", ()), named]}
            elif message["type"] == "websocket.accept":
                caller.status = 101
            await send(message)

        try:
            try:
                caller.identity, caller.why = await self._tokens.look(bearer(connection))
            except RetryableError as error:
                caller.code = "unavailable"
                refusal = problem("unavailable", f"tokens can not be looked up: {error}", True, 503)
                await refusal(scope, receive, answer)
                return
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
        finally:
            caller.left()
            CALLER.reset(mark)
            method = scope.get("method", "WEBSOCKET")
            took_s = self._clock.monotonic() - began
            self._counts.add(method, getattr(scope.get("route"), "path", ""), caller.status, took_s)
            self._audit.request(caller, method, scope["path"], self._clock.now(), took_s)


def bearer(connection: HTTPConnection) -> str:
    """The token of a request, or empty. In headers only: what stands in an address ends in logs."""
    given = connection.headers.getlist("authorization")
    if len(given) > 1:
        return ""  # a proxy may have looked at the other one
    scheme, _, token = given[0].partition(" ") if given else ("", "", "")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    if connection.scope["type"] == "websocket":
        for protocol in connection.scope.get("subprotocols", ()):
            if protocol.startswith(PROTOCOL):
                text = protocol.removeprefix(PROTOCOL)
                try:
                    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
                except (ValueError, binascii.Error):
                    return ""
    return ""
