r"""A visit to a running job, for asyncio: what `roost.visit.Visit` does, awaited.

async with await client.visit("12.0", {"kind": "run", "command": ["sh"]}) as visit:
    await visit.write(b"ls\n")
    await visit.end_input()
    async for kind, data in visit.output():
        ...
    print(visit.end)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from roost.calls import VISIT_CHUNK, Frames
from roost.errors import ClientError

if TYPE_CHECKING:
    from roost.aio import AsyncClient


class AsyncVisit:
    """Output is to be read while input is written, from another task where there is much of both: a program that can
    write no more may read no more. To be closed, or used with `async with`. Raises ClientError."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self.name = name
        self._client = client
        self._turn = asyncio.Lock()  # input and window sizes in their order
        self._sent = 0
        self._over = False
        #: How it ended: exit_code, exit_signal, reason.
        self.end: dict[str, Any] = {}

    async def __aenter__(self) -> AsyncVisit:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave: what still runs is ended."""
        if not self._over:
            self._over = True
            with contextlib.suppress(ClientError):  # it has ended, or ends when nobody asks for its output any more
                await self._client.visit_steer(self.name, leave=True)

    async def output(self) -> AsyncGenerator[tuple[str, bytes], None]:
        """("out" or "err", bytes) until the end, which `end` then tells of. Who stops before leaves."""
        frames = Frames()
        try:
            async with aclosing(cast("AsyncGenerator[bytes, None]", self._client.visit_output(self.name))) as coming:
                async for data in coming:
                    for one in frames.feed(data):
                        yield one
                    if frames.end is not None:
                        self.end = frames.end
                        return
            raise ValueError("it ended in the middle")
        except ValueError as error:
            raise ClientError(f"the connection to the visit broke off: {error}", "unavailable") from error
        finally:
            self._over = True

    async def write(self, data: bytes) -> None:
        """Standard input; returns when the program's side has taken it."""
        async with self._turn:
            for at in range(0, len(data), VISIT_CHUNK):
                await self._write(data[at : at + VISIT_CHUNK])

    async def end_input(self) -> None:
        async with self._turn:
            await self._write(b"", eof=True)

    async def steer(self, **what: Any) -> None:
        """rows and columns, or signal."""
        async with self._turn:
            if not self._over:
                await self._client.visit_steer(self.name, **what)

    async def _write(self, data: bytes, *, eof: bool = False) -> None:
        end = self._sent + len(data)
        while not self._over:  # the other side waits a while for room, and says how much it took
            rest = data[len(data) - (end - self._sent) :]
            answer = await self._client.visit_input(self.name, self._sent, rest, eof=eof)
            self._sent = max(self._sent, int(answer["taken"]))
            if answer["ended"] or self._sent >= end:
                return
