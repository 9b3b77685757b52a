"""What every launcher offers, what it gets of the startd, and how it is registered.

A run has a name that is unique for ever. It outlives the startd: a restarted one asks `knows` and goes on waiting.

To add a launcher is to add a folder here, with a `LauncherKind`, and to name that in `registry.KINDS`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from services.startd.core.run.job_launch import Choice, Finished, Launch, Measured, Started
from services.startd.exec.job_session import JobSession
from services.startd.forkserver.client import ForkServer
from services.startd.isolation.manager import IsolationManager
from services.startd.journal_writer import JournalWriter
from shared.classad import ClassAd
from shared.config.knobs import StartdSettings
from shared.daemon.context import Context
from shared.messages.visits import Wish

#: This machine's address for jobs that have its network.
LOOPBACK: Final = "127.0.0.1"


class Launcher(ABC):
    #: Where the processes of its jobs are: the one that was started is the job's; or the job is below it, in a PID
    #: namespace; or an engine has them, and they are not this startd's.
    processes_are: ClassVar[Literal["started", "below", "of-an-engine"]] = "started"

    #: Its ends do not tell what a run used: it is measured so soon after its start for the first time, seconds, and
    #: then again and again. None: they do.
    sampled_from_s: ClassVar[float | None] = None

    # ---------------------------------------------------------------- runs

    async def adopt(self, runs: set[str]) -> None:  # noqa: B027  not every launcher has to
        """Look for these runs of an earlier life."""

    def reader(self, launch: Launch) -> tuple[int, int] | None:
        """uid and gid of the job; none: they are the startd's. Raises RunFailed: they are not known."""
        return (launch.account.uid, launch.account.gid) if launch.account is not None else None

    async def reaches(self, launch: Launch) -> str:
        """The address of this machine at which the job finds what listens here; empty: it finds nothing."""
        return ""

    @abstractmethod
    async def prepare(self, launch: Launch) -> None:
        """Do what may take long before a start, such as fetching an image. May be cancelled. Raises RunFailed."""

    @abstractmethod
    async def start(self, launch: Launch) -> Started:
        """Quick, and never cancelled. Raises RunFailed."""

    @abstractmethod
    async def finished(self, run: str) -> Finished:
        """Wait for its end. May be asked again, until `forget`. A run that is not known is lost."""

    @abstractmethod
    def knows(self, run: str) -> bool:
        """Whether the run is under way, or ended and was not forgotten."""

    @abstractmethod
    async def signal(self, run: str, number: int) -> None:
        """Signal the job's main process; nothing happens when it has ended."""

    @abstractmethod
    async def kill(self, run: str) -> None:
        """End every process of the run, at once."""

    @abstractmethod
    def lease(self, runs: Mapping[str, float]) -> None:
        """Let these runs live for so many seconds from now: then they are killed, also where no startd is (LEA-02).
        Runs that are not there are passed over."""

    @abstractmethod
    async def suspend(self, run: str) -> None:
        """Stop every process of the run where it is, until `continue_`. Nothing happens when it has ended or is
        stopped already; `kill` ends a stopped run, too."""

    @abstractmethod
    async def continue_(self, run: str) -> None:
        """Let a stopped run go on."""

    @abstractmethod
    async def measure(self, run: str) -> Measured: ...

    @abstractmethod
    async def forget(self, run: str) -> None:
        """Remove what is left of a run whose end is on record."""

    async def open_session(self, user: str, key: str, run: str, wish: Wish) -> JobSession | None:
        """Run a program in the surroundings of the job. key: the run's for the startd. None: it is done from outside,
        by a process of the job, as `processes_are` says. Raises SessionRefused."""
        return None

    @abstractmethod
    async def stop(self) -> None:
        """The startd ends; what runs goes on."""

    # ---------------------------------------------------------------- whether it works

    def attributes(self, jobs: Sequence[ClassAd]) -> Mapping[str, object]:
        """What the ads of all slots say of it. jobs: the ads of its jobs that have not ended."""
        return {}

    async def watch(self) -> None:
        """Try whether it works, as often as is useful, and tell the startd what has changed. Never returns."""
        await asyncio.Event().wait()

    def reread(self) -> None:  # noqa: B027  not every launcher has to
        """The configuration was read again."""


@dataclass(frozen=True, slots=True)
class LauncherHost:
    """What the startd offers its launchers."""

    context: Context
    startd: str  # its name
    identity: str  # of the startd's journal; no other startd has it
    folder: Path  # which only the startd may enter
    memory_mib: int  # the machine's
    orphan_s: float  # how long jobs live on without any startd
    fork_server: ForkServer
    isolation: IsolationManager
    journal: JournalWriter
    settings: Callable[[str], Any]  # of a launcher, by its name, as they are now
    scratch_of: Callable[[str], Path | None]  # the directory of a run; None when it has none any more
    changed: Callable[[], None]  # to be told when `attributes` are others
    processes: Launcher | None = None  # the process launcher, for those whose jobs are under a program of theirs


@dataclass(frozen=True, slots=True)
class LauncherKind:
    """A launcher as it is registered."""

    name: str
    make: Callable[[LauncherHost], Launcher]
    #: Whether this launcher starts a job: (job, the slot's ad, its settings) -> its choice. Raises RunFailed.
    choose: Callable[[ClassAd, ClassAd, Any], Choice | None]
    #: Its settings, from the knobs. Raises ConfigError, PermanentError.
    read_settings: Callable[[StartdSettings], Any] = lambda knobs: None
    #: What the slots say where there is no such launcher.
    absent: Mapping[str, object] = field(default_factory=dict)
    #: What it puts into scratch directories that never counts as output.
    own_files: frozenset[str] = frozenset()
    #: Whether `Launcher.attributes` tell of its jobs.
    counts_jobs: bool = False
