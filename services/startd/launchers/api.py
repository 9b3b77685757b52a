"""What every launcher offers. A run goes by a name that is unique for ever, and outlives the startd: a restarted one
asks `knows` and goes on waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from services.startd.launchers.apptainer.plan import Plan
from shared.classad import ClassAd


@dataclass(frozen=True, slots=True)
class Account:
    """The system account that a run's processes have, as `walls.accounts` chose it. Hooks and visits of a run use the
    same."""

    name: str  # for the environment (USER, LOGNAME); may be made up when the uid has no name
    uid: int
    gid: int
    groups: tuple[int, ...] = ()  # supplementary
    home: str = "/"
    dedicated: bool = False  # for jobs only: what it owns may be killed by uid when none of them runs
    shared: bool = False  # jobs of others may have it at the same time


@dataclass(frozen=True, slots=True)
class Launch:
    """One job, ready to be started."""

    run: str
    executable: str  # empty: what the image has
    argv: tuple[str, ...]  # with argv[0]; empty when there is no executable
    env: Mapping[str, str]
    cwd: str
    stdin: str  # paths; empty: /dev/null
    stdout: str
    stderr: str
    scratch: Path
    cpus: float
    memory_mib: int
    append: bool = False  # stdout and stderr are added to
    limits: Mapping[str, int] = field(default_factory=dict)  # RLIMIT_*: value
    image: str = ""
    container: Plan | None = None  # of the apptainer launcher
    network: str = ""  # Docker: none, host, or the engine's default
    labels: Mapping[str, str] = field(default_factory=dict)
    slot: str = ""  # slot1_2@host
    account: Account | None = None  # None: the startd's own
    job_ad: ClassAd = field(default_factory=ClassAd)
    machine_ad: ClassAd = field(default_factory=ClassAd)  # of the slot, as .machine.ad has it


class LaunchFailed(Exception):
    """The job could not be started. `hold`: the job is at fault; `failed`: this machine is."""

    def __init__(self, kind: Literal["hold", "failed"], message: str, code: int = 0, subcode: int = 0) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.code = code
        self.subcode = subcode


@dataclass(frozen=True, slots=True)
class Started:
    pid: int
    at: float
    updates: Mapping[str, object] = field(default_factory=dict)  # further job attributes


@dataclass(frozen=True, slots=True)
class Finished:
    """How a run ended. All of exit_code, exit_signal None: it was lost, nobody knows."""

    at: float
    started_at: float
    exit_code: int | None = None
    exit_signal: int | None = None
    core_dumped: bool = False
    user_cpu_s: float = 0.0
    sys_cpu_s: float = 0.0
    max_rss_kib: int = 0
    hold_code: int = 0  # the launcher saw that the job must be held
    hold_subcode: int = 0
    hold_message: str = ""
    trouble: str = ""  # why it was lost, or ended by the machine's fault: its exit status says nothing about it
    updates: Mapping[str, object] = field(default_factory=dict)  # further job attributes


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run's processes use now (cpu: so far)."""

    user_cpu_s: float = 0.0
    sys_cpu_s: float = 0.0
    image_size_kib: int = 0
    resident_set_kib: int = 0
    procs: int = 0
    attributes: Mapping[str, object] = field(default_factory=dict)  # further ones of the job: bytes of its network, ...


class Launcher(Protocol):
    async def adopt(self, runs: set[str]) -> None:
        """Runs of an earlier life that this launcher is to look for."""

    async def prepare(self, launch: Launch) -> None:
        """What may take long before a start, such as fetching an image. May be cancelled. Raises LaunchFailed."""

    async def start(self, launch: Launch) -> Started:
        """Quick, and never cancelled. Raises LaunchFailed."""

    async def finished(self, run: str) -> Finished:
        """Wait for its end. May be asked again, until `forget`. A run that is not known is lost."""

    def knows(self, run: str) -> bool:
        """Whether the run is under way, or ended and was not forgotten."""

    async def signal(self, run: str, number: int) -> None:
        """To the job's main process; nothing happens when it has ended."""

    async def kill(self, run: str) -> None:
        """End every process of the run, at once."""

    async def suspend(self, run: str) -> None:
        """Stop every process of the run where it stands, until `continue_`. Nothing happens when it has ended or
        stands already; `kill` ends a run that stands, too."""

    async def continue_(self, run: str) -> None:
        """Let a run that stands go on."""

    async def measure(self, run: str) -> Measured: ...

    async def forget(self, run: str) -> None:
        """Its end is on record: remove what is left of it."""

    async def stop(self) -> None:
        """The startd ends; what runs goes on."""
