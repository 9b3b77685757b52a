"""What goes into a container's standard input, and what comes out of it, while it runs.

The engine gives one connection for all of it, opened before the start, so nothing is missed. What came over it whole
needs no second copy; where it broke (the startd was restarted, say), the output is copied from the engine's log at the
end.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

#: Read at a time, bytes.
CHUNK = 1 << 18
_HEADER = 8
_STDERR = 2


class NoRegularFile(OSError):
    """There is something at the path that must not be written: a pipe, say, which would never take it."""


def open_output(path: str, append: bool) -> int:
    """Open a file for what a container prints. The job could have left a link or a pipe there, to have the startd
    write where the job may not, or wait for ever. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags | (os.O_APPEND if append else os.O_TRUNC), 0o644)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise NoRegularFile(errno.EINVAL, "it is no regular file", path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def write_all(fd: int, data: memoryview | bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


class Outputs:
    """The open files of a run."""

    def __init__(self, stdout: str, stderr: str, append: bool) -> None:
        """Raises OSError with the file's name."""
        self._files: dict[int, int] = {}
        try:
            if stdout:
                self._files[1] = open_output(stdout, append)
            if stderr:
                self._files[_STDERR] = self._files[1] if stderr == stdout else open_output(stderr, append)
        except BaseException:
            self.close()
            raise

    def write(self, stream: int, data: memoryview | bytes) -> None:
        """Raises OSError."""
        fd = self._files.get(stream)
        if fd is not None:
            write_all(fd, data)

    def close(self) -> None:
        for fd in set(self._files.values()):
            os.close(fd)
        self._files.clear()


class Streams:
    """One run's connection. failed: called when the output can not be written."""

    def __init__(
        self,
        attached: Any,
        outputs: Outputs,
        source: int | None,
        threads: ThreadPoolExecutor,
        failed: Callable[[OSError], None],
    ) -> None:
        """attached: as the SDK's `attach_socket` gave it. source: what goes in. All are closed here."""
        self.ended_at = 0.0  # seconds since the epoch, when the last of it arrived
        self._attached = attached
        self._socket: socket.socket = getattr(attached, "_sock", attached)
        self._socket.setblocking(False)
        self._outputs = outputs
        self._source = source
        self._threads = threads
        self._failed = failed
        self._tasks = [asyncio.create_task(self._take(), name="docker-output")]
        if source is not None:
            self._tasks.append(asyncio.create_task(self._feed(), name="docker-input"))

    async def over(self, timeout_s: float) -> None:
        """Wait for the end of the output."""
        await asyncio.wait(self._tasks[:1], timeout=timeout_s)

    @property
    def ended(self) -> bool:
        """Whether the output has ended, or was broken off."""
        return self._tasks[0].done()

    def at_end(self, call: Callable[[], object]) -> None:
        """Call that when the output has ended."""
        self._tasks[0].add_done_callback(lambda _: call())

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._outputs.close()
        if self._source is not None:
            os.close(self._source)
            self._source = None
        with contextlib.suppress(OSError):
            self._attached._response.close()
        self._socket.close()

    async def _take(self) -> None:
        """Frames: a byte for the stream, three of nothing, four for the length, the data."""
        loop = asyncio.get_running_loop()
        pending = bytearray()
        stream = left = 0
        failed = False
        while True:
            try:
                data = await loop.sock_recv(self._socket, CHUNK)
            except OSError:
                return
            if not data:
                self.ended_at = 0.0 if pending or left else time.time()
                return
            pending += data
            pieces: list[tuple[int, bytes]] = []
            while pending:
                if not left:
                    if len(pending) < _HEADER:
                        break
                    stream, left = pending[0], int.from_bytes(pending[4:_HEADER], "big")
                    del pending[:_HEADER]
                    continue
                pieces.append((stream, bytes(pending[:left])))
                del pending[: len(pieces[-1][1])]
                left -= len(pieces[-1][1])
            if failed:  # what nobody reads would hold up the engine, even in killing the container
                await asyncio.sleep(0)
                continue
            try:
                # In a thread: a disk that does not answer must not hold up anybody else.
                await loop.run_in_executor(self._threads, self._write, pieces)
            except OSError as error:
                failed = True
                self._failed(error)

    def _write(self, pieces: list[tuple[int, bytes]]) -> None:
        for stream, data in pieces:
            self._outputs.write(stream, data)

    async def _feed(self) -> None:
        loop = asyncio.get_running_loop()
        source = self._source
        assert source is not None
        with contextlib.suppress(OSError):  # the job closed its input or ended
            while chunk := await loop.run_in_executor(self._threads, os.read, source, CHUNK):
                await loop.sock_sendall(self._socket, chunk)
            self._socket.shutdown(socket.SHUT_WR)
