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
from typing import Any

from roost import protocol
from roost.aio_transport import AsyncTransport
from roost.errors import ClientError
from roost.protocol import VISIT_CHUNK, VISIT_QUIET_S, Frames, VisitInput


class AsyncVisit:
    """Output is to be read while input is written, from another task where there is much of both: a program that can
    write no more may read no more. To be closed, or used with `async with`. Raises ClientError."""

    def __init__(self, transport: AsyncTransport, name: str) -> None:
        self.name = name
        self._transport = transport
        self._turn = asyncio.Lock()  # input and window sizes in their order
        self._input = VisitInput(name)
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
                await self._transport.read(protocol.visit_steer(self.name, {"leave": True}))

    async def output(self) -> AsyncGenerator[tuple[str, bytes], None]:
        """("out" or "err", bytes) until the end, which `end` then tells of. Who stops before leaves."""
        frames = Frames()
        try:
            # The gateway says at least every 10 s that there is nothing new.
            stream = self._transport.stream(protocol.visit_output(self.name), VISIT_QUIET_S)
            async with aclosing(stream) as coming:
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
                await self._transport.read(protocol.visit_steer(self.name, what))

    async def _write(self, data: bytes, *, eof: bool = False) -> None:
        self._input.give(data, eof=eof)
        while not self._over and (request := self._input.request()) is not None:
            self._input.answered(protocol.decoded(self._transport.url, await self._transport.read(request)))
