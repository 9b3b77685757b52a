"""What becomes of many jobs, for programs that wait for them: the pool's events, and a look at the queue where some may
have been missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final, TypeVar, cast

from roost.aio import AsyncClient
from roost.errors import ClientError
from roost.protocol import Event

#: Between two attempts at what the pool can not do now, seconds.
AGAIN_S: Final = 2.0

T = TypeVar("T")


async def until_done(deed: Callable[[], Awaitable[T]], tell: Callable[[str], None] | None = None) -> T:
    """Until the pool can do it; tell: why it could not. Raises ClientError where it will not."""
    while True:
        try:
            return await deed()
        except ClientError as error:
            if not error.retryable:
                raise
            if tell is not None:
                tell(f"{error}; trying again")
        await asyncio.sleep(AGAIN_S)


class EventFollower:
    """names: of the events. heard: gets each. missed: the stream was opened anew, and something may have happened
    meanwhile. opened: set once the first one is open."""

    def __init__(
        self, client: AsyncClient, names: tuple[str, ...], heard: Callable[[Event], None], missed: Callable[[], None]
    ) -> None:
        self.opened = asyncio.Event()
        self._client = client
        self._names = names
        self._heard = heard
        self._missed = missed

    async def follow(self) -> None:
        """Never returns. Raises ClientError where the pool will not tell."""
        events = cast(AsyncGenerator[Event, None], self._client.events(*self._names, on_open=self._on_open))
        async with aclosing(events):
            async for event in events:
                self._heard(event)

    def _on_open(self) -> None:
        if self.opened.is_set():
            self._missed()
        self.opened.set()
