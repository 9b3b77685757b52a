"""Sessions in running jobs, as the startd keeps them: what the user's program prints until the other end has it, and
what is typed until the program takes it. Both are bounded: who does not read stops the program, not the startd.

`ProcessSession` is the one for jobs that are processes of this machine; see `forkserver.session_process` for what it
starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import socket
import struct
import sys
import termios
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from services.startd.forkserver import Frames, pack, session_process
from services.startd.forkserver.processes import children_of, descendants_of
from shared.messages.visits import MAX_CHUNK, Wish

Kind = Literal["out", "err"]
#: Output that is kept until it is confirmed, and input until it is taken, bytes.
OUTPUT_LIMIT, INPUT_LIMIT = 512 * 1024, 256 * 1024
#: What a program left running keeps its output open: it is waited for no longer than this after the program's end.
LINGER_S = 1.0
#: For a job's program to be there, when the container is just being made; seconds.
APPEAR_S = 10.0
#: For the helper to be in the job's surroundings, seconds: a job that is suspended lets nobody in.
START_S = 15.0
#: For it to end, when all is said; seconds.
REAP_S = 10.0
_START = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from services.startd.forkserver.session_process import main; main(sys.argv[2])"
)
_ROOT = Path(session_process.__file__).parents[3]
_READ = 65536


class SessionRefused(Exception):
    """The visitor can not be let in, or asks for what is not there: why."""


class Output:
    """What was printed and not yet confirmed, by its place in the stream (bytes)."""

    def __init__(self, limit: int = OUTPUT_LIMIT) -> None:
        self.limit = limit
        self.start = 0  # of the first byte that is kept
        self.size = 0
        self._parts: deque[tuple[Kind, bytes]] = deque()

    @property
    def room(self) -> int:
        return max(0, self.limit - self.size)

    def add(self, kind: Kind, data: bytes) -> None:
        if data:
            self._parts.append((kind, data))
            self.size += len(data)

    def confirm(self, after: int) -> None:
        """All before this place has arrived."""
        while self._parts and self.start < after:
            kind, data = self._parts.popleft()
            gone = min(len(data), after - self.start)
            self.start += gone
            self.size -= gone
            if gone < len(data):
                self._parts.appendleft((kind, data[gone:]))

    def first(self, most: int) -> list[tuple[Kind, bytes]]:
        """What was printed from a place on, at most so many bytes."""
        found: list[tuple[Kind, bytes]] = []
        for kind, data in self._parts:
            if most <= 0:
                break
            found.append((kind, data[:most]))
            most -= len(data)
        return found


@dataclass(frozen=True, slots=True)
class End:
    exit_code: int | None = None
    exit_signal: int | None = None
    reason: str = ""


class JobSession:
    """One visit, whatever the launcher. `user` may talk to it; `run` is the key of the run it is a visit to."""

    def __init__(self, user: str, run: str) -> None:
        self.user = user
        self.run = run
        self.output = Output()
        self.end: End | None = None
        self.heard = 0.0  # monotonic, of the last question for output
        self._input = bytearray()
        self._taken = 0
        self._eof = False
        self._news: set[asyncio.Event] = set()

    # -- for the other end

    async def read(self, after: int, wait_s: float) -> tuple[int, list[tuple[Kind, bytes]], End | None]:
        """Output after this place, where it starts, and the end if nothing comes after it. Waits for news."""
        self.output.confirm(after)
        self.resume()
        if not self.output.size and self.end is None:
            await self._wait(wait_s)
        parts = self.output.first(MAX_CHUNK)
        whole = sum(len(data) for _, data in parts) == self.output.size
        return self.output.start, parts, self.end if whole else None

    async def write(self, start: int, data: bytes, eof: bool, wait_s: float) -> tuple[int, bool]:
        """Take input that is new; how much came in all, and whether nobody reads on."""
        if self.end is None and self._taken - start >= 0:
            fresh = data[self._taken - start :]
            if fresh and len(self._input) >= INPUT_LIMIT:
                await self._wait(wait_s)
                fresh = data[max(0, self._taken - start) :]
            fresh = fresh[: max(0, INPUT_LIMIT - len(self._input))]
            self._input += fresh
            self._taken += len(fresh)
            if eof and start + len(data) == self._taken:
                self._eof = True
            self.feed()
        return self._taken, self.end is not None

    async def _wait(self, wait_s: float) -> None:
        event = asyncio.Event()
        self._news.add(event)
        try:
            async with asyncio.timeout(wait_s):
                await event.wait()
        except TimeoutError:
            pass
        finally:
            self._news.discard(event)

    def news(self) -> None:
        for event in self._news:
            event.set()

    def finish(self, end: End) -> None:
        if self.end is None:
            self.end = end
            self._input.clear()
            self.news()

    # -- what launchers fill in

    def resume(self) -> None:
        """There is room for output again."""

    def feed(self) -> None:
        """There is input, or its end."""

    def resize(self, rows: int, columns: int) -> None: ...

    def signal(self, number: int) -> None: ...

    def leave(self) -> None:
        """The visitor goes: end what is left."""

    def job_over(self) -> None:
        """The job's processes are gone."""

    async def close(self) -> None:
        """End it, and return when nothing of it is left."""


class ProcessSession(JobSession):
    """A program beside a job's process, by way of a helper process (`forkserver.session_process`)."""

    def __init__(self, user: str, run: str) -> None:
        super().__init__(user, run)
        self._channel: socket.socket | None = None
        self._helper: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._streams: dict[int, Kind] = {}  # our ends, of what is printed
        self._paused: set[int] = set()
        self._stdin = -1
        self._tty = -1

    async def start(self, plan: Mapping[str, Any], wish: Wish, owner: int) -> None:
        """Raises VisitRefused, OSError. owner: the account that the terminal is to belong to."""
        ours, theirs = socket.socketpair()
        try:
            ends = self._open_terminal(wish, owner) if wish.tty else self._open_pipes(wish)
            try:
                self._helper = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *("-I", "-S", "-c", _START, str(_ROOT), str(theirs.fileno())),
                    stdin=ends[0],
                    stdout=ends[1],
                    stderr=ends[2],
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    env={"PATH": os.defpath, "LANG": "C.UTF-8"},
                )
            finally:
                for end in set(ends):
                    os.close(end)
                theirs.close()
            ours.setblocking(False)
            self._channel = ours
            await asyncio.get_running_loop().sock_sendall(ours, pack({"tty": wish.tty, **plan}))
        except BaseException:
            ours.close()
            self._close_streams()
            raise
        frames = Frames()
        first: list[dict[str, Any]] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_S):
                first = await self._next(frames)
        if not first or first[0].get("op") != "ready":
            await self.close()
            message = str(first[0].get("message", "")) if first else "the helper process does not answer"
            raise SessionRefused(message)
        self.resume()
        self._task = asyncio.create_task(self._follow(frames, first[1:]), name=f"visit:{self.run}")

    def _open_terminal(self, wish: Wish, owner: int) -> tuple[int, int, int]:
        """A terminal of the right size before anything runs in it."""
        ours, theirs = pty.openpty()
        self._tty = self._stdin = ours
        self._streams[ours] = "out"
        self.resize(wish.rows, wish.columns)
        with contextlib.suppress(PermissionError):
            os.fchown(theirs, owner, -1)
        os.set_blocking(ours, False)
        return theirs, theirs, theirs

    def _open_pipes(self, wish: Wish) -> tuple[int, int, int]:
        given: list[int] = []
        if wish.kind == "tail":
            given.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        else:
            reader, self._stdin = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self._stdin, False)
            given.append(reader)
        kinds: tuple[Kind, Kind] = ("out", "err")
        for kind in kinds:
            reader, writer = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(reader, False)
            self._streams[reader] = kind
            given.append(writer)
        return given[0], given[1], given[2]

    # -- the helper

    async def _next(self, frames: Frames) -> list[dict[str, Any]]:
        """Further frames; empty: the helper is gone."""
        assert self._channel is not None
        while True:
            try:
                data = await asyncio.get_running_loop().sock_recv(self._channel, _READ)
            except OSError:
                return []
            if not data:
                return []
            if found := frames.feed(data):
                return found

    async def _follow(self, frames: Frames, seen: list[dict[str, Any]]) -> None:
        end = End(reason="the visit was lost")
        try:
            todo = seen
            while todo or (todo := await self._next(frames)):
                frame = todo.pop(0)
                if frame.get("op") == "ended":
                    end = _end_of(frame)
                    break
            await self._drain()
        finally:
            self._close_streams()
            self.finish(end)
            await self._reap()

    async def _drain(self) -> None:
        """Wait until all that was printed is read; what keeps a stream open without printing is not waited for."""
        quiet = 0.0
        while self._streams and quiet < LINGER_S:
            size = self.output.start + self.output.size
            await asyncio.sleep(0.02)
            moved = self.output.start + self.output.size != size
            quiet = 0.0 if moved or self._paused else quiet + 0.02

    async def _reap(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._helper is not None:
            try:
                async with asyncio.timeout(REAP_S):
                    await self._helper.wait()
            except TimeoutError:
                # It can not end what it has started: a frozen cgroup, say. That ends as soon as it can.
                with contextlib.suppress(ProcessLookupError):
                    self._helper.kill()
                await self._helper.wait()

    def _tell(self, frame: dict[str, Any]) -> None:
        if self._channel is not None:
            with contextlib.suppress(OSError):  # full, or gone: either way it does not matter any more
                self._channel.send(pack(frame))

    # -- streams

    def resume(self) -> None:
        if self.output.room:
            loop = asyncio.get_running_loop()
            for stream in self._streams:
                loop.add_reader(stream, self._printed, stream)
            self._paused.clear()

    def _printed(self, stream: int) -> None:
        if not self.output.room:
            asyncio.get_running_loop().remove_reader(stream)
            self._paused.add(stream)
            return
        try:
            data = os.read(stream, min(_READ, self.output.room))
        except BlockingIOError:
            return
        except OSError:  # a terminal that nobody has open any more
            data = b""
        if data:
            self.output.add(self._streams[stream], data)
        else:
            self._close_stream(stream)
        self.news()

    def _close_stream(self, stream: int) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(stream)
        self._streams.pop(stream, None)
        self._paused.discard(stream)
        if stream == self._stdin:
            loop.remove_writer(stream)
            self._stdin = self._tty = -1
        os.close(stream)

    def _close_streams(self) -> None:
        for stream in list(self._streams):
            self._close_stream(stream)
        self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin >= 0 and self._stdin != self._tty:
            asyncio.get_running_loop().remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1

    def feed(self) -> None:
        if self._stdin < 0:
            self._input.clear()
            return
        loop = asyncio.get_running_loop()
        if self._eof and self._stdin == self._tty:
            self._eof = False
            self.signal(signal.SIGHUP)  # the visitor's own terminal is gone
        try:
            while self._input:
                del self._input[: os.write(self._stdin, self._input)]
        except BlockingIOError:
            loop.add_writer(self._stdin, self._writable)
            self.news()  # there may be room again
            return
        except OSError:  # nobody reads
            self._input.clear()
            self._close_stdin()
            return
        if self._eof:
            self._close_stdin()
        self.news()

    def _writable(self) -> None:
        asyncio.get_running_loop().remove_writer(self._stdin)
        self.feed()

    def resize(self, rows: int, columns: int) -> None:
        if self._tty >= 0 and rows and columns:
            fcntl.ioctl(self._tty, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def signal(self, number: int) -> None:
        self._tell({"op": "signal", "signal": number})

    def leave(self) -> None:
        self._tell({"op": "leave"})

    def job_over(self) -> None:
        self._tell({"op": "over"})

    async def close(self) -> None:
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.shutdown(socket.SHUT_RDWR)  # the helper sees it, and our reader too
        if self._task is not None:
            await asyncio.wait({self._task})  # not gather, which would be cancelled with us, and it with that
        else:
            self._close_streams()
            await self._reap()
        self.finish(End(reason="the visit was ended"))


def _end_of(frame: Mapping[str, Any]) -> End:
    code = os.waitstatus_to_exitcode(int(frame["status"]))
    if frame.get("job_over") and code == -signal.SIGKILL:
        return End(reason="the job has ended")
    return End(exit_code=code) if code >= 0 else End(exit_signal=-code)


# ---------------------------------------------------------------- whose surroundings


async def find_target(main: int, *, below: bool, sleep: Callable[[float], Any] = asyncio.sleep) -> tuple[int, int]:
    """The process whose surroundings a visitor gets, and when it began: the job's own, which a container's runtime
    keeps in a PID namespace. main: what the launcher started. below: the job is
    in a PID namespace below it. Raises VisitRefused."""
    waited = 0.0
    while True:
        pid = await asyncio.to_thread(payload_of, main) if below else main
        began = session_process.start_of(pid) if pid else 0
        if began:
            return pid, began
        if waited >= APPEAR_S or not session_process.start_of(main):
            raise SessionRefused("the job's program does not run (yet, or any more)")
        await sleep(0.1)
        waited += 0.1


def payload_of(main: int) -> int:
    """The job in a container that a runtime made: the first child of its PID namespace's first process, or that itself
    where it is the job. 0: not there yet."""
    depth = len(_numbers(main))
    for pid in descendants_of(main):
        numbers = _numbers(pid)
        if len(numbers) > depth and numbers[-1] == 1:
            inside = [(session_process.start_of(child), child) for child in children_of(pid)]
            return min(inside)[1] if inside else 0
    return 0


def _numbers(pid: int) -> list[int]:
    """A process's numbers in the PID namespaces that it is in, outermost first."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return []
    found = next((line for line in text.splitlines() if line.startswith("NSpid:")), "")
    return [int(word) for word in found.split()[1:]]
