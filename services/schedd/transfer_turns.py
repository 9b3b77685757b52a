"""Lets transfers of files wait for their turn (transfer_line)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable
from typing import Final

from services.schedd.settings import Settings
from services.schedd.transfer_line import TransferLine
from shared.errors import RetryableError

#: Seconds that a transfer waits in one request; the execution point asks again then, and has its place.
TURN_S: Final = 20.0


class NotYet(RetryableError):
    """Others travel first: ask again."""


class TransferTurns:
    """Of one schedd, in both directions."""

    def __init__(self) -> None:
        self.lines = {"input": TransferLine(), "output": TransferLine()}
        self._waiting: dict[Hashable, asyncio.Future[None]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, what: str, user: str, name: Hashable, settings: Settings) -> AsyncIterator[None]:
        """Inside, the transfer may go. what: input or output. name: what is transferred. Raises NotYet after TURN_S."""
        line = self.lines[what]
        line.most = settings.max_uploads if what == "input" else settings.max_downloads
        ticket = object()
        try:
            if not line.come(ticket, user, name):
                await self._called(ticket, line)
            yield
        finally:
            self._waiting.pop(ticket, None)
            line.leave(ticket)
            for called in line.called():
                self._waiting[called].set_result(None)

    async def _called(self, ticket: Hashable, line: TransferLine) -> None:
        called = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(TURN_S):
                await called
        except TimeoutError:
            raise NotYet(f"{line.going} transfers are under way and {line.waiting} wait: ask again") from None
