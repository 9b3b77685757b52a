"""What a run of a job needs of the daemon around it, and how often it tells."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import aiohttp
import structlog

from services.startd.book.records import RunRecord
from services.startd.hooks.of_run import RunHooks
from services.startd.launchers.api import Account, Launch, Launcher
from services.startd.launchers.apptainer.plan import Rules
from services.startd.metrics import RunCounts
from shared.classad import ClassAd
from shared.daemon.context import Context
from shared.messages.claims import JobReport, JobReportAck

if TYPE_CHECKING:
    from services.startd.starter.run import Run


class Hands(Protocol):
    """What a run needs of the daemon around it."""

    context: Context
    counts: RunCounts

    def launcher(self, name: str) -> Launcher: ...

    def session(self) -> aiohttp.ClientSession: ...

    def machine_ad(self, slot: str) -> ClassAd: ...

    def containers(self) -> Rules:
        """What the knobs say of jobs in containers, now."""

    def hooks(self, job: ClassAd, log: structlog.stdlib.BoundLogger) -> RunHooks:
        """The administrator's programs that prepare, watch and end this job."""

    def view(self, scratch: str) -> Path:
        """Where the startd finds a run's scratch directory."""

    async def enclose(self, launch: Launch) -> None:
        """Give the scratch directory a file system of its own, where that is wanted. Raises LaunchFailed."""

    async def disclose(self, scratch: str) -> None:
        """Remove that file system, if there is one. Raises OSError."""

    def account(self, slot: str, job: ClassAd) -> Account | None:
        """The account of a run; None: the startd's own. Raises LaunchFailed."""

    def noted(self, run: Run, report: JobReport) -> None:
        """What a run tells that no access point waits for: one of fetched work."""

    def save(self, record: RunRecord, *, soon: bool = False) -> None:
        """Write it down; `soon`: with whatever is written next, half a second from now at the latest."""

    async def sync(self) -> None: ...

    def vacate_time(self, slot: str, job: ClassAd) -> float: ...

    def claim_over(self, claim_id: str) -> bool:
        """The run's claim has ended, or ends with it."""

    def run_measured(self, run: Run) -> None:
        """Its usage is known anew: the machine's policy may go by it."""

    def run_ended(self, run: Run) -> None:
        """The processes are gone and the end is written down."""

    def run_told(self, run: Run, ack: JobReportAck | None) -> None:
        """The schedd knows (None: it never answered); forget the run, do what it says next."""

    def in_background(self, work: Coroutine[Any, Any, None], name: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds."""

    first_update: float
    update: float
    startd: str
