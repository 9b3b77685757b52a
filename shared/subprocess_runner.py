"""Runs programs of the administrator beside a daemon's work: cron jobs, benchmarks, hooks.

Whatever such a program does, the daemon lives: its output is read piece by piece and bounded, its time too, and nothing
waits for what it left behind. It runs in a session of its own, so all of it can be ended by its group, and it starts
with default handling of every signal: a daemon that was started by `nohup`, or by a shell in the background, ignores
some, and children would inherit that through any number of exec.

It uses `posix_spawn` instead of asyncio's subprocesses, because that sets signals, mask and session without running
Python between fork and exec: no locks of other threads, and no copy of a large daemon's memory tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shared.errors import RoostError

#: Of stdout and stderr each, what is kept of a program that is asked for its whole output, bytes.
MAX_OUTPUT: Final = 1024 * 1024
MAX_ERRORS: Final = 64 * 1024
#: Bytes that are read of a program at once, and then each second: one that prints without end waits meanwhile.
READ_RATE: Final = 1024 * 1024
CHUNK: Final = 16 * 1024
#: Between SIGTERM and SIGKILL, seconds.
GRACE_S: Final = 1.0
#: For output that is still on its way when the program has ended, seconds. What it left running may hold the pipe.
LAST_WORDS_S: Final = 1.0

#: What a program does not get of the daemon's environment: HTCondor's handles for its own children, and secrets.
_KEPT_BACK: Final = re.compile(r"(?i)CONDOR_(PRIVATE_)?INHERIT$|PASSWORD|SECRET|TOKEN|_URL$|^NOTIFY_SOCKET$")
_SHELL_CD: Final = 'cd -- "$1" && shift && exec "$@"'
#: A program that is being written can not be run; tried so often, 0.05 s apart.
_BUSY_ATTEMPTS: Final = 10
_ALL_SIGNALS: Final = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}


class ProgramFailed(RoostError):
    """A program could not be started: the text has its path and the system's reason."""


@dataclass(frozen=True, slots=True)
class CompletedProgram:
    """How a program ended, and what it printed (bytes; cut at the bounds)."""

    exit_code: int | None  # None: by a signal
    exit_signal: int | None
    stdout: bytes = b""
    stderr: bytes = b""
    timed_out: bool = False
    cut: bool = False  # it printed more than was kept

    @property
    def good(self) -> bool:
        return self.exit_code == 0 and not self.timed_out

    def __str__(self) -> str:
        if self.timed_out:
            return "it took too long and was killed"
        return f"signal {self.exit_signal}" if self.exit_signal is not None else f"exit status {self.exit_code}"


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """A daemon's environment without what is not for others."""
    return {name: value for name, value in environment.items() if not _KEPT_BACK.search(name)}


class Program:
    """One running program. Made by `start`."""

    def __init__(self, pid: int, path: str) -> None:
        self.pid = pid
        self.path = path
        self.stderr = bytearray()
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._gone = False  # collected: its number may be another's
        self._transports: list[asyncio.ReadTransport] = []
        self._stdout: asyncio.StreamReader
        self._errors: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: bytes = b"",
        cwd: str = "",
    ) -> Program:
        """argv[0] is a path. stdin: all that it may read. Raises ProgramFailed."""
        # In a thread: a program may lie on a file server that does not answer.
        start = _Start()
        try:
            pid, out_reader, err_reader = await asyncio.to_thread(start, list(argv), dict(env), stdin, cwd)
        except asyncio.CancelledError:
            start.give_up()
            raise
        program = cls(pid, argv[0])
        loop = asyncio.get_running_loop()
        # A thread of its own: the loop's few must stay free, and such programs run for hours.
        threading.Thread(target=program._watch, args=(loop,), name=f"wait:{pid}", daemon=True).start()
        pipes = [out_reader, err_reader]
        try:
            program._stdout = await program._read_pipe(pipes.pop(0))
            errors = await program._read_pipe(pipes.pop(0))
        except BaseException:  # cancelled: nobody else knows of it yet
            program.kill()
            program.close()
            for descriptor in pipes:
                os.close(descriptor)
            raise
        program._errors = asyncio.create_task(program._collect_errors(errors), name=f"stderr:{pid}")
        return program

    async def _read_pipe(self, descriptor: int) -> asyncio.StreamReader:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=CHUNK)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
        )
        self._transports.append(transport)
        return reader

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: wait, without collecting, so that the group's number stays ours until it was killed."""
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        try:
            loop.call_soon_threadsafe(self._collect)
        except RuntimeError:  # the loop has ended: nobody asks any more
            self._collect_status()

    def _collect(self) -> None:
        status = self._collect_status()
        if not self._ended.done():
            self._ended.set_result(status)

    def _collect_status(self) -> int:
        self._signal(signal.SIGKILL)  # what it left behind in its group
        self._gone = True
        try:
            _, status = os.waitpid(self.pid, 0)
        except ChildProcessError:  # somebody collected all children
            return 0
        return os.waitstatus_to_exitcode(status)

    async def _collect_errors(self, reader: asyncio.StreamReader) -> None:
        """The last of stderr, at a bounded rate."""
        async for chunk in _RateLimited(reader):
            self.stderr += chunk
            del self.stderr[:-MAX_ERRORS]

    async def read(self, take: Callable[[bytes], object], rate: float = READ_RATE) -> None:
        """Hand over stdout as it comes, at so many bytes a second, until the program has ended."""
        reading = asyncio.ensure_future(self._read(take, rate))
        try:
            await asyncio.wait((reading, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait((reading,), timeout=LAST_WORDS_S)
            if reading.done():
                reading.result()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, take: Callable[[bytes], object], rate: float) -> None:
        async for chunk in _RateLimited(self._stdout, rate):
            take(chunk)
        await asyncio.shield(self._ended)  # it may close its output and work on

    async def wait(self) -> int:
        """The exit status; minus the signal's number where that ended it. All of its group is gone then, and what it
        wrote to stderr is in `stderr`."""
        status = await asyncio.shield(self._ended)
        if self._errors is not None:
            await asyncio.wait((self._errors,), timeout=LAST_WORDS_S)
        self.close()
        return status

    def terminate(self) -> None:
        """Ask its whole group to end."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """Ask it to end, and end it after its grace."""
        self.terminate()
        await asyncio.wait((self._ended,), timeout=grace_s)
        self.kill()

    def close(self) -> None:
        """Let go of its pipes; it lives on if it has not ended."""
        if self._errors is not None:
            self._errors.cancel()
        for transport in self._transports:
            transport.close()

    def _signal(self, number: int) -> None:
        if not self._gone:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


def _spawn(argv: list[str], env: dict[str, str], stdin: bytes, cwd: str) -> tuple[int, int, int]:
    """The process id, and what reads its stdout and stderr. Raises ProgramFailed."""
    path = argv[0]
    if any("\0" in word for word in (*argv, cwd, *env, *env.values())):
        raise ProgramFailed(f"{path}: a zero byte in its arguments or environment")
    if not os.access(path, os.X_OK) or os.path.isdir(path):
        # Told before the shell that changes the directory would tell it worse.
        reason = "it is not an executable file" if os.path.exists(path) else "it is not there"
        raise ProgramFailed(f"{path} can not be run: {reason}")
    if cwd:
        if not os.path.isdir(cwd):
            raise ProgramFailed(f"{path} can not be run: its directory {cwd} is not there")
        argv = ["/bin/sh", "-c", _SHELL_CD, "sh", cwd, *argv]
    source = os.memfd_create("stdin", os.MFD_CLOEXEC)
    out_reader, out_writer = os.pipe2(os.O_CLOEXEC)
    err_reader, err_writer = os.pipe2(os.O_CLOEXEC)
    try:
        view = memoryview(stdin)
        while view:
            view = view[os.write(source, view) :]
        os.lseek(source, 0, os.SEEK_SET)
        streams = [(os.POSIX_SPAWN_DUP2, one, number) for number, one in enumerate((source, out_writer, err_writer))]
        return _exec(argv, env, streams), out_reader, err_reader
    except (OSError, ValueError) as error:
        os.close(out_reader)
        os.close(err_reader)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ProgramFailed(f"{path} can not be run: {reason}") from error
    finally:
        for descriptor in (source, out_writer, err_writer):
            os.close(descriptor)


def _exec(argv: list[str], env: dict[str, str], streams: list[tuple[int, int, int]]) -> int:
    for attempt in range(_BUSY_ATTEMPTS):
        try:
            return os.posix_spawn(
                argv[0], argv, env, file_actions=streams, setsid=True, setsigmask=(), setsigdef=_ALL_SIGNALS
            )
        except OSError as error:
            # Somebody writes it this moment, or forked while somebody did.
            if error.errno != errno.ETXTBSY or attempt == _BUSY_ATTEMPTS - 1:
                raise
            time.sleep(0.05)
    raise AssertionError("the loop returns or raises")


class _Start:
    """The start of a program, in a thread. Whoever asked may be cancelled meanwhile, and its loop end before the
    program is there: so the thread ends what nobody wants any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: tuple[int, int, int] | None = None
        self._unwanted = False

    def __call__(self, argv: list[str], env: dict[str, str], stdin: bytes, cwd: str) -> tuple[int, int, int]:
        """What _spawn gives."""
        started = _spawn(argv, env, stdin, cwd)
        with self._lock:
            self._started = started
            unwanted = self._unwanted
        if unwanted:
            _end_unwanted(*started)
        return started

    def give_up(self) -> None:
        """End the program, as soon as it is there."""
        with self._lock:
            self._unwanted = True
            started = self._started
        if started is not None:
            _end_unwanted(*started)


def _end_unwanted(pid: int, *pipes: int) -> None:
    for descriptor in pipes:
        os.close(descriptor)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    threading.Thread(target=os.waitpid, args=(pid, 0), name=f"wait:{pid}", daemon=True).start()


class _RateLimited:
    """The chunks of a stream: `rate` bytes at once, and in the long run as many each second."""

    def __init__(self, reader: asyncio.StreamReader, rate: float = READ_RATE) -> None:
        self.reader = reader
        self.rate = self.allowance = float(rate)
        self.at = asyncio.get_running_loop().time()

    def __aiter__(self) -> _RateLimited:
        return self

    async def __anext__(self) -> bytes:
        if self.allowance < 0:
            await asyncio.sleep(-self.allowance / self.rate)
        chunk = await self.reader.read(CHUNK)
        if not chunk:
            raise StopAsyncIteration
        now = asyncio.get_running_loop().time()
        self.allowance = min(self.rate, self.allowance + (now - self.at) * self.rate) - len(chunk)
        self.at = now
        return chunk


async def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: bytes = b"",
    cwd: str = "",
    timeout_s: float,
    started: Callable[[Program], Awaitable[None] | None] | None = None,
) -> CompletedProgram:
    """Run a program to its end, or for so long. Cancelling ends it too. Raises ProgramFailed."""
    program = await Program.start(argv, env=env, stdin=stdin, cwd=cwd)
    if started is not None:
        waiting = started(program)
        if waiting is not None:
            await waiting
    kept, cut = bytearray(), False

    def take(chunk: bytes) -> None:
        nonlocal cut
        room = MAX_OUTPUT - len(kept)
        kept.extend(chunk[:room])
        cut |= len(chunk) > room

    timed_out = False
    try:
        try:
            async with asyncio.timeout(timeout_s):
                await program.read(take)
        except TimeoutError:
            timed_out = True
            await program.stop()
        status = await program.wait()
    finally:
        program.kill()
        program.close()
    code, by = (None, -status) if status < 0 else (status, None)
    return CompletedProgram(code, by, bytes(kept), bytes(program.stderr), timed_out, cut)
