"""Bodies are bounded before anybody reads them, whatever their sender says of their length."""

from __future__ import annotations

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class BodyLimit:
    """Refuses with 413 what is too large. A submit may have `large` bytes, everything else `small`; files are
    streamed through, and limited where they go."""

    def __init__(self, app: ASGIApp, small: int, large: int) -> None:
        self._app = app
        self._small = small
        self._large = large

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].endswith(("/files", "/v1/jobs/description")):
            await self._app(scope, receive, send)
            return
        limit = self._large if scope["path"] == "/v1/jobs" else self._small
        got = 0

        async def bounded() -> Message:
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            if got > limit:
                raise HTTPException(413, f"the body is larger than {limit} bytes; send it in parts")
            return message

        await self._app(scope, bounded, send)
