"""What everything in a startd that changes slots or looks at them works with. Made once, by the daemon."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from services.startd.ads.ad_cache import AdCache
from services.startd.background import BackgroundTasks, Wakeups
from services.startd.core import journal_records
from services.startd.core.machine.detected import Detected
from services.startd.core.machine.slot_types import Partition
from services.startd.core.slots.slot_manager import SlotManager
from services.startd.effects import EffectsDispatcher
from services.startd.exec.api import Launcher
from services.startd.forkserver.client import ForkServer
from services.startd.isolation.manager import IsolationManager
from services.startd.journal_writer import JournalWriter
from services.startd.lease_keeper import LeaseKeeper
from services.startd.machine.detection import Source
from services.startd.observers import Observer
from services.startd.publisher import Publisher
from services.startd.run.plugin_table import PluginTable
from services.startd.run.reuse_directory import ReuseDirectory
from services.startd.run_table import RunTable
from services.startd.settings import Settings
from shared.daemon.context import Context
from shared.daemon.steady_clock import SteadyClock
from shared.host import boot_id


@dataclass(slots=True)
class CurrentSettings:
    """The settings that count now: replaced whole when the configuration is read again."""

    settings: Settings


@dataclass(slots=True)
class Machine:
    """The machine that the startd is on. Tests have others."""

    source: Source
    detected: Detected
    context: Context

    def disk_of(self, execute: str) -> Partition:
        """The file system that a directory is on, and what is free there."""
        path = Path(execute or self.context.execute)
        path.mkdir(parents=True, exist_ok=True)
        free = self.source.sample(path, self.context.clock.now()).disk_kib
        return Partition(str(path.stat().st_dev), free)


@dataclass(slots=True, kw_only=True)
class SlotServices:
    """What the rooms of a startd share."""

    context: Context
    clock: SteadyClock
    machine: Machine
    current: CurrentSettings
    slot_manager: SlotManager
    effects: EffectsDispatcher
    leases: LeaseKeeper
    ads: AdCache
    journal_writer: JournalWriter
    publisher: Publisher
    run_table: RunTable
    observers: list[Observer]
    background: BackgroundTasks
    wakeups: Wakeups
    fork_server: ForkServer
    isolation: IsolationManager
    launchers: dict[str, Launcher]  # by name: process, docker, ...
    reuse: ReuseDirectory
    plugins: PluginTable = field(default_factory=PluginTable)

    @property
    def name(self) -> str:
        return self.context.name

    @property
    def settings(self) -> Settings:
        """As they are now."""
        return self.current.settings

    @property
    def detected(self) -> Detected:
        return self.machine.detected

    def now(self) -> float:
        """Seconds since 1970: the wall clock, but that it goes on evenly until `follow_clock` when that is set."""
        return self.clock.now()

    def follow_clock(self) -> None:
        """Go by the wall clock again, if it was set: nothing is older or younger for that."""
        if seconds := self.clock.set_by():
            self.context.log.warning("clock_set", seconds=round(seconds, 1))
            self.clock.follow(seconds)
            self.keep_clock()
            self.effects.carry_out(self.slot_manager.clock_set(seconds))

    def keep_clock(self) -> None:
        """Have written down by which clock all the rest is."""
        self.journal_writer.put("clock", "machine", journal_records.pack_clock(boot_id(), self.clock.ahead))

    def review(self) -> None:
        """Look at the policy of all slots now."""
        self.follow_clock()
        self.ads.refresh()
        self.effects.carry_out(self.slot_manager.review(self.now()))

    def look(self) -> None:
        """Have the policy looked at soon: something that it reads has changed."""
        self.background.spawn(self._review_soon(), "review")

    async def _review_soon(self) -> None:
        self.review()
