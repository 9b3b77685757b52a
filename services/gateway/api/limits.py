"""Bodies are bounded before anybody reads them, whatever their sender says of their length; those of who has no valid
token are not read at all."""

from __future__ import annotations

import re
from typing import Final

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.gateway.api.guard import no_token, too_many
from services.gateway.caller import Caller
from services.gateway.rates import Budget

#: Where files are streamed through, and limited where they go.
_FILES: Final = (("PUT", re.compile(r"/v1/jobs/[^/]+/files")), ("POST", re.compile(r"/v1/jobs/description")))
_SUBMIT: Final = "/v1/jobs"


class BodyLimit:
    """Refuses with 413 what is too large, and with 429 what is too much at once. A submit may have `large` bytes,
    everything else but files `small`; budget: bytes that are held at once, by caller."""

    def __init__(self, app: ASGIApp, small: int, large: int, budget: Budget) -> None:
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
                raise no_token(caller)
            size = len(message.get("body", b""))
            if free or not size:
                return message
            if answering:  # nobody waits for this body
                return {"type": "http.disconnect"}
            if got + size > limit:
                raise HTTPException(413, f"the body is larger than {limit} bytes; send it in parts")
            if full := self._budget.take(caller.key, size):
                raise too_many(f"too much is being sent at once: {full} (ROOST_GATEWAY_BODIES_MIB)", 1.0)
            got += size
            return message

        try:
            await self._app(scope, bounded, noted)
        finally:
            if got:
                self._budget.give(caller.key, got)
