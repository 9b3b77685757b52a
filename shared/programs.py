"""Programs that outlive who started them: scripts of DAGs, and jobs of the scheduler universe. Who comes next waits for
those that still run, and learns how the others ended: each program leaves its exit status in a file, and a shell that
stands over it holds a lock for as long as it runs."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

#: Runs its arguments, but the first, from which they read, and leaves their exit status under its name. A signal counts
#: as 128 more, as shells have it. It outlives the signals that the program gets with it. Its number is in its lock
#: before the program can do anything: whoever sees that it runs can stop it.
_SHELL: Final = (
    'echo $$ >&0; trap : HUP INT QUIT USR1 USR2 TERM ALRM TSTP; in=$1; shift; "$@" <"$in"; code=$?; '
    'echo $code >"$0.new" && mv "$0.new" "$0"; exit $code'
)
#: The exit code of a program that could not be started.
NOT_STARTED: Final = 127
#: By this variable a program is known again whose shell was killed over it: it has the path of its status.
_MARK: Final = "_ROOST_PROGRAM"


class Programs:
    """Programs by key; `folder` keeps their status."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    async def run(
        self, key: str, words: Sequence[str], directory: Path, *, output: Mapping[str, IO[bytes] | int] | None = None,
        environment: Mapping[str, str] | None = None, stdin: str = os.devnull, begun: Callable[[], None] | None = None,
    ) -> int:  # fmt: skip
        """Run a program to its end, unless it was run before: the exit code, -N for signal N. environment: the whole of
        it; None: this process's. begun: is called once it can be stopped."""
        status, lock = self._folder / key, self._folder / f"{key}.lock"
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        with lock.open("a+b") as held:
            await _locked(held)  # a process before this one may have begun it
            if (code := _read(status)) is not None:
                return code
            _end_orphans(status)
            own = {**(os.environ if environment is None else environment), _MARK: str(status)}
            try:
                # In a thread: its directory may lie on a file server that does not answer.
                process = await asyncio.to_thread(_start, status, words, directory, output or {}, own, held, stdin)
            except OSError:
                return NOT_STARTED
            if begun is not None:
                begun()
            await _gone(os.pidfd_open(process.pid))
        code = process.wait()
        if code == -signal.SIGKILL:  # the shell: what it stood over may run on
            _end_orphans(status)
        return 128 - code if code > 128 else code

    async def ended(self, key: str) -> int | None:
        """The exit code of a program that was started by somebody, once it has ended; None: it left none."""
        status = self._folder / key
        try:
            with (self._folder / f"{key}.lock").open("rb") as held:
                await _locked(held)
                code = _read(status)
        except FileNotFoundError:
            return None
        if code is None:
            await asyncio.to_thread(_end_orphans, status)
        return code

    def keys(self) -> set[str]:
        """Of the programs that run, or have left their status or their lock."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return set()
        return {name.removesuffix(".lock") for name in names if not name.endswith(".new")}

    def is_running(self, key: str) -> bool:
        with suppress(FileNotFoundError), (self._folder / f"{key}.lock").open("rb") as held:
            return not _free(held)
        return False

    def stop(self, key: str, how: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a program and to what it has started in its group, whoever began it."""
        with suppress(FileNotFoundError, ProcessLookupError, IndexError), (self._folder / f"{key}.lock").open() as held:
            if not _free(held):  # it runs: its number is its own
                os.killpg(int(held.read().split()[-1]), how)

    def forget(self, key: str) -> None:
        """Its end is written down elsewhere."""
        for path in (self._folder / key, self._folder / f"{key}.lock"):
            path.unlink(missing_ok=True)


def _start(
    status: Path, words: Sequence[str], directory: Path, output: Mapping[str, Any], environment: Mapping[str, str],
    held: IO[bytes], stdin: str,
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Raises OSError. No subprocess of the loop's: that ends with it, and has a thread each."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", _SHELL, str(status), stdin, *words], cwd=directory, stdin=held,
        stdout=output.get("stdout", subprocess.DEVNULL), stderr=output.get("stderr", subprocess.DEVNULL),
        start_new_session=True, env=environment,
    )  # fmt: skip
    held.write(f"{process.pid}\n".encode())
    held.flush()
    return process


def _free(file: IO[Any]) -> bool:
    """Whether nobody holds the lock of a file."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


async def _locked(file: IO[bytes]) -> None:
    """Hold the lock of a file. A program that somebody else started keeps it until it ends."""
    if _taken(file):
        return
    file.seek(0)
    numbers = file.read().split()
    with suppress(OSError, ValueError, IndexError):  # it is just being started, or has ended
        await _gone(os.pidfd_open(int(numbers[-1])))
    if not _taken(file):
        await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)


def _taken(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _gone(descriptor: int) -> None:
    """Until a process has ended, by its descriptor, which is closed."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    try:
        loop.add_reader(descriptor, over.set)
        await over.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _end_orphans(status: Path) -> None:
    """Kill what runs on of a program whose shell was killed over it."""
    mark = f"{_MARK}={status}".encode()
    for process in _processes():
        with suppress(OSError):
            if mark in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)


def _processes() -> Iterator[Path]:
    with suppress(OSError):
        yield from (Path("/proc", name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())


def _read(status: Path) -> int | None:
    try:
        code = int(status.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return 128 - code if code > 128 else code
