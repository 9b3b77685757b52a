"""Listens for the jobs of this machine that speak Chirp. One port for each address at which jobs find it: the cookie
says which job speaks, and a wrong one gives nothing."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, Final

from structlog.stdlib import BoundLogger

from services.startd.core.run.chirp import LINE_BYTES
from services.startd.run.chirp_session import ChirpJob, ChirpSession

#: Connections whose cookie has not come: of more the oldest is closed, so that nobody keeps others out.
MOST_STRANGERS: Final = 256
#: Connections of one job.
MOST_OF_A_JOB: Final = 32


def _digest(cookie: bytes) -> bytes:
    """By what a cookie is looked up: how long that takes tells nothing of it."""
    return hashlib.sha256(cookie).digest()


class ChirpServer:
    """spawn: has work done in the background, under a name."""

    def __init__(self, log: BoundLogger, spawn: Callable[[Coroutine[Any, Any, None], str], None]) -> None:
        self._log = log
        self._spawn = spawn
        self._servers: dict[str, asyncio.Server] = {}  # by address
        self._opening = asyncio.Lock()
        self._jobs: dict[bytes, ChirpJob] = {}
        self._strangers: dict[ChirpSession, None] = {}
        self._closed = False

    async def admit(self, job: ChirpJob, address: str, port: int = 0, cookie: str = "") -> tuple[int, str]:
        """Let a job in, on this address. port, cookie: what it was told by an earlier life. Returns what it is to be
        told: the port may be another. Raises OSError: nobody can listen there."""
        found = await self._listen(address, port)
        cookie = cookie or secrets.token_hex(16)
        self._jobs[_digest(cookie.encode())] = job
        return found, cookie

    async def _listen(self, address: str, port: int) -> int:
        async with self._opening:
            server = self._servers.get(address)
            if server is None:
                try:
                    server = await self._bound(address, port)
                except OSError:
                    if not port:
                        raise
                    server = await self._bound(address, 0)
                self._servers[address] = server
                await server.start_serving()
                self._log.info("chirp_listens", address=address, port=server.sockets[0].getsockname()[1])
            bound: int = server.sockets[0].getsockname()[1]
            return bound

    async def _bound(self, address: str, port: int) -> asyncio.Server:
        """It does not listen yet: whoever is cancelled while it begins to would leave it to nobody."""
        return await asyncio.start_server(self._connected, address, port, limit=LINE_BYTES + 2, start_serving=False)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = ChirpSession(reader, writer, lambda cookie: self._jobs.get(_digest(cookie)))
        if self._closed:
            session.close()
            return
        if len(self._strangers) >= MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.close()
        self._strangers[session] = None
        self._spawn(self._serve(session), "chirp")

    async def _serve(self, session: ChirpSession) -> None:
        task = asyncio.current_task()
        assert task is not None

        def known(job: ChirpJob) -> None:
            self._strangers.pop(session, None)
            job.sessions.add(task)
            if len(job.sessions) > MOST_OF_A_JOB:
                session.close()

        try:
            await session.serve(known)
        finally:
            self._strangers.pop(session, None)
            if session.job is not None:
                session.job.sessions.discard(task)

    def dismiss(self, cookie: str) -> None:
        """No further connections of a job."""
        self._jobs.pop(_digest(cookie.encode()), None)

    async def finished(self, job: ChirpJob, within_s: float) -> None:
        """The job has ended: what it has sent is still done, in this time; then its connections are ended."""
        sessions = set(job.sessions)
        if sessions:
            await asyncio.wait(sessions, timeout=within_s)
        for session in sessions:
            session.cancel()

    async def close(self) -> None:
        self._closed = True
        for server in self._servers.values():
            server.close()
        for session in list(self._strangers):
            session.close()
        for job in self._jobs.values():
            for task in list(job.sessions):
                task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.gather(*(server.wait_closed() for server in self._servers.values()))
        self._servers.clear()
