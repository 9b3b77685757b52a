"""Programs that a manager of a DAG runs: scripts, and managers of the DAGs inside it. They outlive their manager. The
next one waits for those that still run, and learns how the others ended: each program leaves its exit status in a file,
and holds a lock for as long as it runs."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

#: Runs its arguments, and leaves their exit status under its name. A signal counts as 128 more, as shells have it.
_SHELL: Final = '"$@"; code=$?; echo $code >"$0.new" && mv "$0.new" "$0"; exit $code'
#: The exit code of a program that could not be started.
NOT_STARTED: Final = 127


class Programs:
    """The programs of one DAG, by key; `folder` keeps their status."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    async def run(
        self, key: str, words: Sequence[str], directory: Path, *, output: Mapping[str, IO[bytes]] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> int:  # fmt: skip
        """Run a program to its end, unless it was run before: the exit code, -N for signal N."""
        status, lock = self._folder / key, self._folder / f"{key}.lock"
        self._folder.mkdir(exist_ok=True)
        with lock.open("ab") as held:
            await _locked(held)  # a manager before this one may have begun it
            if (code := _read(status)) is None:
                code = await self._start(status, words, directory, output or {}, environment, held)
        return code

    async def _start(
        self, status: Path, words: Sequence[str], directory: Path, output: Mapping[str, Any],
        environment: Mapping[str, str] | None, held: IO[bytes],
    ) -> int:  # fmt: skip
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", _SHELL, str(status), *words, cwd=directory,
                stdin=asyncio.subprocess.DEVNULL, stdout=output.get("stdout", asyncio.subprocess.DEVNULL),
                stderr=output.get("stderr", asyncio.subprocess.DEVNULL), start_new_session=True,
                pass_fds=(held.fileno(),), env={**os.environ, **(environment or {})},
            )  # fmt: skip
        except OSError:
            return NOT_STARTED
        held.write(f"{process.pid}\n".encode())
        held.flush()
        code = await process.wait()
        return 128 - code if code > 128 else code

    def stop(self, key: str, how: signal.Signals = signal.SIGKILL) -> None:
        """End a program, with all that it has started, whoever began it."""
        with suppress(FileNotFoundError, ProcessLookupError, IndexError), (self._folder / f"{key}.lock").open() as held:
            try:
                fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:  # it runs: its number is its own
                os.killpg(int(held.read().split()[-1]), how)

    def forget(self, key: str) -> None:
        """Its end is written down elsewhere."""
        for path in (self._folder / key, self._folder / f"{key}.lock"):
            path.unlink(missing_ok=True)


async def _locked(file: IO[bytes]) -> None:
    """Hold the lock of a file. A program that a dead manager started keeps it until it ends."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)


def _read(status: Path) -> int | None:
    try:
        code = int(status.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return 128 - code if code > 128 else code
