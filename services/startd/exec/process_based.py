"""What launchers share whose jobs are processes below a program of theirs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, Literal, TypeVar

from services.startd.core.run.job_launch import Measured
from services.startd.exec.api import Launcher, LauncherHost

Found = TypeVar("Found")

#: Of what a runtime or a monitor said at most so much is looked at, bytes.
SAID = 65536


class ProcessBasedLauncher(Launcher):
    """What launchers share whose jobs are processes under a program of theirs, a runtime or a monitor: what they do not
    do otherwise, the process launcher does."""

    processes_are: ClassVar[Literal["started", "below", "of-an-engine"]] = "below"

    processes: Launcher  # the process launcher

    async def adopt(self, runs: set[str]) -> None:
        await self.processes.adopt(runs)

    def knows(self, run: str) -> bool:
        return self.processes.knows(run)

    async def signal(self, run: str, number: int) -> None:
        await self.processes.signal(run, number)

    async def kill(self, run: str) -> None:
        await self.processes.kill(run)

    def lease(self, runs: Mapping[str, float]) -> None:
        self.processes.lease(runs)

    async def suspend(self, run: str) -> None:
        await self.processes.suspend(run)

    async def continue_(self, run: str) -> None:
        await self.processes.continue_(run)

    async def measure(self, run: str) -> Measured:
        return await self.processes.measure(run)

    async def forget(self, run: str) -> None:
        await self.processes.forget(run)

    async def stop(self) -> None:
        """The process launcher is stopped by itself."""


class ProbedLauncher(ProcessBasedLauncher, Generic[Found]):
    """One whose program is tried at the start and when the configuration is read again. Found: what that tells."""

    def __init__(self, host: LauncherHost) -> None:
        assert host.processes is not None
        self.host = host
        self.processes = host.processes
        self.found: Found | None = None  # None: not tried yet
        self._again = asyncio.Event()

    @abstractmethod
    async def probe(self) -> Found:
        """Try the program."""

    @abstractmethod
    def log_found(self, found: Found) -> None:
        """Something else was found than the last time."""

    def again_s(self, found: Found) -> float | None:
        """After how long it is tried again without being asked to; None: never."""
        return None

    def reread(self) -> None:
        self._again.set()

    async def watch(self) -> None:
        while True:
            self._again.clear()
            found = await self.probe()
            if found != self.found:
                self.found = found
                self.log_found(found)
                self.host.changed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.again_s(found)):
                    await self._again.wait()


def read_end(path: str, start: int) -> str:
    """The end of what a file holds after `start`. Only of a plain file, and of no link's."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return ""
        cut = max(start, status.st_size - SAID)
        text = os.pread(descriptor, SAID, cut).decode("utf-8", "replace")
        return text if cut == start else text.partition("\n")[2]
    except OSError:
        return ""
    finally:
        os.close(descriptor)
