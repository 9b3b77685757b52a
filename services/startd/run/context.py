"""What the runs of a startd share: the machine's means, and what a run must ask of the slots."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from services.startd.core.journal_records import RunRecord
from services.startd.core.run.run_times import Moment
from services.startd.exec.api import Launcher
from services.startd.isolation.manager import IsolationManager
from services.startd.journal_writer import JournalWriter
from services.startd.metrics import RunCounts
from services.startd.run.chirp_server import ChirpServer
from services.startd.run.end_reports import EndReports
from services.startd.run.plugin_table import PluginTable
from services.startd.run.reuse_directory import ReuseDirectory
from services.startd.settings import Settings
from shared.classad import ClassAd, OldTexts
from shared.daemon.context import Context
from shared.transfer.tls import TransferTls


@dataclass(frozen=True, slots=True)
class RunContext:
    daemon: Context
    startd: str  # its name
    boot: str  # which start of the machine this is
    launchers: Mapping[str, Launcher]
    isolation: IsolationManager
    journal: JournalWriter
    counts: RunCounts
    settings: Callable[[], Settings]  # as they are now
    plugins: PluginTable
    reuse: ReuseDirectory
    session: Callable[[], aiohttp.ClientSession]  # for files
    chirp: ChirpServer
    ends: EndReports
    transfer_tls: TransferTls
    machine_ad: Callable[[str], ClassAd]  # of a slot
    cores: Callable[[RunRecord, ClassAd], tuple[int, ...]]  # that a job is to be bound to; none: to all
    vacate_time: Callable[[str, ClassAd], float]  # (slot, job): seconds for the job to end by itself
    claim_over: Callable[[str], bool]  # whether a claim has ended, or ends with its run
    lease_left: Callable[[str], float | None]  # of a claim: seconds until its lease passes; None: it has none
    lease_is_first: Callable[[str], bool]  # of a claim: whether its schedd has not shown yet that it knows of it
    lease_confirmed: Callable[[str, float], None]  # (claim, when): its schedd answered what was said then (boottime)
    in_background: Callable[[Coroutine[Any, Any, None], str], None]
    job_texts: OldTexts = field(default_factory=OldTexts)  # of .job.ad
    machine_texts: OldTexts = field(default_factory=OldTexts)  # of .machine.ad

    def scratch(self, record: RunRecord) -> Path:
        """A run's scratch directory as this process finds it; the job may find another file system there."""
        return self.isolation.volumes.view(record.scratch)

    def moment(self) -> Moment:
        clock = self.daemon.clock
        return Moment(self.boot, clock.boottime(), clock.now())

    def save(self, record: RunRecord, *, soon: bool = False) -> None:
        """Write it down; `soon`: with whatever is written next, half a second from now at the latest."""
        self.journal.put("runs", record.key, record.pack())
        if soon:
            self.journal.write_soon()
        else:
            self.journal.write()
