"""Networks of machines that can be cut in one direction or made bad: each machine reaches the servers through a relay
of TCP here, as the kernel's netem may not be there, and takes all packets of a machine alike.

What a cut direction carries waits, and goes on after it, as TCP sends again what was lost; nobody gets a reset, and
connections that are opened meanwhile wait as well. On a bad network each piece comes 200 ms later, and 30 % of them
are lost again and again with that chance: it, and all behind it, waits for a retransmission, after 0.4 s, 0.8 s, ....
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self

#: As a machine sees them.
HEARS, SPEAKS = "hears", "speaks"
DELAY_S, LOSS, RESENT_S = 0.2, 0.3, 0.4
PIECE_BYTES = 65536


def lateness_s(chance: random.Random) -> float:
    """How late a piece comes on a bad network."""
    late, wait = DELAY_S, RESENT_S
    while chance.random() < LOSS:
        late, wait = late + wait, wait * 2
    return late


class Network:
    """That of one machine."""

    def __init__(self, loop: asyncio.AbstractEventLoop, chance: random.Random) -> None:
        self._loop, self._chance = loop, chance
        self._passes = {direction: asyncio.Event() for direction in (HEARS, SPEAKS)}
        for passes in self._passes.values():
            passes.set()
        self._bad = False
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def relay(self, host: str, port: int) -> int:
        """The port by which this machine reaches a server."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await self._relayed(host, port, reader, writer)
            finally:
                self._tasks.discard(task)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _relayed(self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._passes[SPEAKS].wait()
            far_reader, far_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.transport.abort()
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(SPEAKS, reader, far_writer))
                both.create_task(self._carry(HEARS, far_reader, writer))
        finally:
            writer.transport.abort()
            far_writer.transport.abort()

    async def _carry(self, direction: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Both ends stay open until one of them has closed, or was reset."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(due - self._loop.time())
                await self._passes[direction].wait()
                if not piece:
                    raise ConnectionResetError("closed")
                writer.write(piece)
                await writer.drain()

        async def take() -> None:
            due, piece = 0.0, b"begun"
            while piece:
                with suppress(ConnectionError):
                    piece = b""
                    piece = await reader.read(PIECE_BYTES)
                due = max(due, self._loop.time() + (lateness_s(self._chance) if self._bad else 0.0))
                pieces.put_nowait((due, piece))

        async with asyncio.TaskGroup() as both:
            both.create_task(deliver())
            both.create_task(take())

    def cut(self, directions: Sequence[str]) -> None:
        for direction in directions:
            self._passes[direction].clear()

    def make_bad(self) -> None:
        self._bad = True

    def mend(self) -> None:
        self._bad = False
        for passes in self._passes.values():
            passes.set()

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Networks:
    """Of machines, by name, each with a port for every server. servers: host and port."""

    def __init__(self, machines: Sequence[str], servers: Sequence[tuple[str, int]], seed: int = 1) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda *_: None)  # who is killed resets its connections
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers = servers
        self._networks = {name: Network(self._loop, random.Random(f"{seed} {name}")) for name in machines}
        self.ports: dict[str, list[int]] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        for name, network in self._networks.items():
            self.ports[name] = [self._do(network.relay(*server)) for server in self._servers]
        return self

    def __exit__(self, *_: object) -> None:
        for network in self._networks.values():
            self._do(network.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    @contextmanager
    def cut(self, machine: str, *directions: str) -> Iterator[None]:
        network = self._networks[machine]
        self._loop.call_soon_threadsafe(network.cut, directions)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(network.mend)

    @contextmanager
    def bad(self, *machines: str) -> Iterator[None]:
        for machine in machines:
            self._loop.call_soon_threadsafe(self._networks[machine].make_bad)
        try:
            yield
        finally:
            for machine in machines:
                self._loop.call_soon_threadsafe(self._networks[machine].mend)
