"""The startd: divides its machine into slots, lends them to access points, and runs their jobs.

`Startd.setup` makes everything in one order, and nothing is put together later: the slot table, the ads made of it, the
slot manager, the publisher, the launchers, what carries out the slot manager's effects (`effects`), the runs, the
components. What they share stands in `slot_services.SlotServices`, and with the runs in `context.StartdContext`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from services.startd import settings, timers
from services.startd.ads import slot_ads
from services.startd.ads.ad_cache import AdCache
from services.startd.background import BackgroundTasks, Wakeups
from services.startd.components.backfill import Backfill
from services.startd.components.benchmarks import Benchmarks
from services.startd.components.cron import Cron
from services.startd.components.device_ads import DeviceAds
from services.startd.components.fetch_work import FetchWork
from services.startd.components.gpu_monitor import GpuMonitor
from services.startd.components.hibernation import Hibernation
from services.startd.components.history import History
from services.startd.components.isolation import Isolation
from services.startd.components.launchers import LauncherAds
from services.startd.components.machine_check import MachineCheck
from services.startd.components.noclaim_shutdown import NoClaimShutdown
from services.startd.components.owner_watch import OwnerWatch
from services.startd.components.reuse import Reuse
from services.startd.components.run_statistics import RunStatistics
from services.startd.components.transfer_plugins import TransferPlugins
from services.startd.context import Component, Handler, StartdContext
from services.startd.core import journal_records
from services.startd.core.machine.resources import Output
from services.startd.core.machine.slot_plan import plan_slots
from services.startd.core.slots.drain import OffMode
from services.startd.core.slots.slot_manager import SlotManager
from services.startd.core.slots.slot_table import SlotTable
from services.startd.effects import EffectsDispatcher
from services.startd.exec.api import Launcher, LauncherHost
from services.startd.exec.registry import make_launchers
from services.startd.forkserver.client import ForkServer
from services.startd.isolation import scratch_dirs
from services.startd.isolation.job_view import private_places
from services.startd.isolation.manager import IsolationManager, make_isolation_manager
from services.startd.journal import SCHEMA, Journal
from services.startd.journal_writer import JournalWriter
from services.startd.lease_keeper import LeaseKeeper
from services.startd.machine.detection import RealMachine, Source, take_inventory
from services.startd.metrics import Backlog, Metrics, RunCounts
from services.startd.observers import Observer
from services.startd.publisher import Publisher
from services.startd.recovery import recover
from services.startd.rpc.admin_rpc import AdminRpc
from services.startd.rpc.claim_rpc import ClaimRpc
from services.startd.rpc.ssh_to_job import SshToJob
from services.startd.run.reuse_directory import ReuseDirectory
from services.startd.run_table import RunTable
from services.startd.runs import Runs
from services.startd.slot_services import CurrentSettings, Machine, SlotServices
from shared.config import Config
from shared.daemon.advertiser import Advertiser
from shared.daemon.base import Daemon
from shared.daemon.context import Context
from shared.daemon.invariants import Invariants
from shared.daemon.orders import handle_order
from shared.daemon.shutdown_expression import Shutdown
from shared.daemon.steady_clock import SteadyClock
from shared.host import boot_id
from shared.messages.base import Envelope, Message

#: What a startd has beside slots, claims and runs.
COMPONENTS: tuple[type[Component], ...] = (
    OwnerWatch,
    DeviceAds,
    NoClaimShutdown,
    RunStatistics,
    GpuMonitor,
    Isolation,
    AdminRpc,
    LauncherAds,
    MachineCheck,
    SshToJob,
    History,
    Cron,
    Benchmarks,
    Backfill,
    FetchWork,
    Hibernation,
    TransferPlugins,
    Reuse,
)


@dataclass(frozen=True, slots=True)
class Execution:
    """What starts and isolates processes."""

    fork_server: ForkServer
    isolation: IsolationManager
    launchers: dict[str, Launcher]  # by name


class Startd(Daemon):
    """The execution point's daemon."""

    subsystem: ClassVar[str] = "STARTD"
    uses_store: ClassVar[bool] = False
    keeps: ClassVar[Mapping[str, int]] = MappingProxyType({"startd journal": SCHEMA})
    at_start: ClassVar[tuple[str, ...]] = (
        "NUM_CPUS",
        "COUNT_HYPERTHREAD_CPUS",
        "MEMORY",
        "DISK",
        "RESERVED_*",
        "NUM_SLOTS",
        "NUM_SLOTS_TYPE_*",
        "SLOT_TYPE_[0-9]",
        "SLOT_TYPE_[0-9][0-9]",
        "SLOT_TYPE_*_PARTITIONABLE",
        "MACHINE_RESOURCE_*",
        "SLOT*_EXECUTE",
        "ROOST_STARTD_ORPHAN_TIMEOUT",
        "BASE_CGROUP",
        "MIN_TRACKING_GID",
        "MAX_TRACKING_GID",
        "USE_GID_PROCESS_TRACKING",
        "STARTD_ENFORCE_DISK_LIMITS",
        "LVM_*",
    )
    kinds_of_components: ClassVar[Sequence[type[Component]]] = COMPONENTS

    def __init__(self, context: Context, source: Source | None = None) -> None:
        super().__init__(context)
        self.name = context.name
        source = source or RealMachine()
        self.machine = Machine(source, source.detect(), context)
        self.outputs: Mapping[str, Output] = {}  # of inventory programs
        self.current = CurrentSettings(settings.read(context.config, self.machine.detected))
        self._watch_console()
        self.counts = RunCounts()
        self.components: list[Component] = []
        self._advertiser = Advertiser(context, "Machine", subsystem="STARTD")
        self._invariants = Invariants("startd", context)
        self._background = BackgroundTasks(context.log)
        self._shared: StartdContext | None = None  # until the slots are set up
        self._journal_writer: JournalWriter | None = None
        self._handlers: dict[type[Message], Handler] = {}
        self._started = False
        context.metrics.register(
            Metrics(lambda: self._shared.slot_manager if self._shared else None, self.counts, self._backlog)
        )

    @property
    def shared(self) -> StartdContext:
        """What the rooms of the startd share, once it is set up."""
        assert self._shared is not None, "the startd is not set up"
        return self._shared

    def _backlog(self) -> Backlog:
        if self._shared is None:
            return Backlog()
        writer = self._shared.journal_writer
        untold = sum(run.ended for run in self._shared.run_table.by_key.values())
        return Backlog(writer.unwritten, bool(writer.full), untold)

    # ---------------------------------------------------------------- life

    async def setup(self) -> None:
        context, current, machine = self.context, self.current, self.machine
        context.execute.mkdir(parents=True, exist_ok=True)
        journal = Journal(context.spool / "startd" / f"{self.name}.db")
        journal_writer = self._journal_writer = JournalWriter(journal, context)
        self.outputs = await take_inventory(context.config, context.log)
        found = plan_slots(context.config, machine.detected, machine.disk_of, self.outputs)
        start_time = self._advertiser.start_time
        kept = journal.load("clock").get("machine")
        clock = SteadyClock(context.clock, journal_records.unpack_clock(kept, boot_id()))
        table = SlotTable(
            self.name,
            start_time,
            policy_of=lambda type_id: current.settings.policy(type_id),
            new_secret=lambda: secrets.token_hex(16),
        )
        ads = AdCache(
            table,
            slot_ads.MachineInfo(
                startd=self.name,
                start_time=start_time,
                detected=machine.detected,
                total=found.amounts,
                stock=found.stock,
                slot_count=len(found.slots),
                settings=current.settings,
            ),
            sample=lambda: machine.source.sample(context.execute, context.clock.now()),
            now=clock.now,
            monotonic=context.clock.monotonic,
        )
        slot_manager = SlotManager(
            table,
            ad_of=ads.ad_of,
            carving=current.settings.carving,
            match_timeout_s=current.settings.match_timeout,
            killing_timeout_s=current.settings.killing_timeout,
            check=self._invariants.check,
        )
        publisher = Publisher(
            context,
            self._advertiser,
            slot_manager=slot_manager,
            ads=ads,
            background=self._background,
            update_interval=lambda: current.settings.update_interval,
            now=clock.now,
            follow_clock=self._follow_clock,
        )
        run_table, wakeups, observers = RunTable(), Wakeups(), list[Observer]()
        execution = await self.open_launchers(table, journal_writer, run_table, publisher)
        leases = LeaseKeeper(context.clock, journal_writer, run_table, execution.launchers)
        services = SlotServices(
            context=context,
            clock=clock,
            machine=machine,
            current=current,
            slot_manager=slot_manager,
            effects=EffectsDispatcher(
                context,
                slot_manager=slot_manager,
                leases=leases,
                journal_writer=journal_writer,
                run_table=run_table,
                publisher=publisher,
                ads=ads,
                wakeups=wakeups,
                observers=observers,
            ),
            leases=leases,
            ads=ads,
            journal_writer=journal_writer,
            publisher=publisher,
            run_table=run_table,
            observers=observers,
            background=self._background,
            wakeups=wakeups,
            fork_server=execution.fork_server,
            isolation=execution.isolation,
            launchers=execution.launchers,
            reuse=ReuseDirectory(context.log),
        )
        startd = self._shared = StartdContext.of(services, Runs(services, self.counts))
        self.components += [component(startd) for component in self.kinds_of_components]
        observers += self.components
        for component in self.components:
            await component.setup()
        effects = slot_manager.add_slots(found.slots, startd.now())
        effects.add(await recover(startd, journal))
        self._handlers |= ClaimRpc(startd).handlers()
        for component in self.components:
            self._handlers |= component.handlers()
        startd.effects.carry_out(effects)
        await context.bus.serve(f"startd.{self.name}", self._on_request)
        self._started = True

    async def open_launchers(
        self, table: SlotTable, journal_writer: JournalWriter, run_table: RunTable, publisher: Publisher
    ) -> Execution:
        """Look at the machine and make what starts jobs on it. Simulations have others."""
        context, current, detected = self.context, self.current, self.machine.detected
        folder = context.execute / f".starter-{scratch_dirs.prefix(self.name).strip('_')}"
        folder.mkdir(mode=0o700, exist_ok=True)
        fork_server = ForkServer(
            folder,
            orphan_s=current.settings.orphan,
            now=context.clock.now,
            boottime=context.clock.boottime,
            killing_timeout_s=lambda: current.settings.killing_timeout,
            native=current.settings.native_spawner,
            warn=context.log.warning,
        )
        await fork_server.start()
        context.log.info("fork_server", native=fork_server.native, why_not=fork_server.why_not)
        isolation = await asyncio.to_thread(
            make_isolation_manager,
            current.settings.isolation,
            fork_server,
            execute=context.execute,
            hostname=detected.hostname,
            private=private_places(context.config, os.environ, (context.spool, context.execute)),
            log=context.log,
        )
        launchers = make_launchers(
            LauncherHost(
                context=context,
                startd=self.name,
                identity=journal_writer.journal.identity,
                folder=folder,
                memory_mib=detected.memory_mib,
                orphan_s=current.settings.orphan,
                fork_server=fork_server,
                isolation=isolation,
                journal=journal_writer,
                settings=lambda name: current.settings.launchers[name],
                scratch_of=run_table.scratch_of,
                changed=lambda: publisher.attributes_changed(urgent=True),
            )
        )
        return Execution(fork_server, isolation, launchers)

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        startd = self.shared
        tasks = {
            "advertise": startd.publisher.advertise(),
            "leases": timers.watch_leases(startd),
            "review": timers.review_policies(startd),
        }
        for component in self.components:
            tasks |= component.tasks()
        return tasks

    def check(self, config: Config) -> None:
        settings.read(config, self.machine.detected)
        plan_slots(config, self.machine.detected, self.machine.disk_of, self.outputs)

    async def switch_off(self, shutdown: Shutdown) -> None:
        """A startd that is off stays, as with `roost off`: it takes no jobs, and those it has leave in their time, or
        at once. Another order may only hurry."""
        startd = self._shared
        assert startd is not None  # it has ads, so it was set up
        how = OffMode.FAST if shutdown.fast else OffMode.GRACEFUL
        if startd.slot_manager.machine_orders.off in (how, OffMode.FAST):
            return  # its ads say so again and again
        self.context.log.warning("switched_off", reason=shutdown.reason)
        startd.effects.carry_out(startd.slot_manager.off(how, startd.now()))

    async def reconfigure(self) -> None:
        """Take on the configuration as it is now. How the machine is divided needs a restart; everything else takes
        effect now. Settings that can not be read change nothing. Raises ConfigError, BadSetting,
        ImpossiblePartition."""
        startd, config = self.shared, self.context.config
        found = settings.read(config, self.machine.detected)
        self.check(config)  # the next start must not fail
        self.current.settings = found
        self._watch_console()
        startd.ads.adopt(found)
        startd.slot_manager.adopt(
            carving=found.carving, match_timeout_s=found.match_timeout, killing_timeout_s=found.killing_timeout
        )
        for component in self.components:
            component.reread()
        startd.review()
        startd.publisher.attributes_changed(urgent=True)

    async def drain(self) -> None:
        """Jobs go on without us, and a startd that comes back adopts them. The ads of a machine that is being switched
        off to sleep stay: by them it is woken."""
        if not any(isinstance(component, Hibernation) and component.asleep for component in self.components):
            await self._advertiser.invalidate()

    async def close(self) -> None:
        await self._background.close()
        for component in self.components:
            await component.close()
        if self._shared is not None:
            await self._shared.runs.close()
            for launcher in self._shared.launchers.values():
                await launcher.stop()
            self._shared.publisher.close()
        if self._journal_writer is not None:
            self._journal_writer.close()

    def troubles(self) -> list[str]:
        return self._shared.isolation.troubles() if self._shared is not None else []

    def ready(self) -> str:
        return "" if self._started else "its slots to be set up"

    def _follow_clock(self) -> None:
        if self._shared is not None:
            self._shared.follow_clock()

    async def _on_request(self, envelope: Envelope) -> Message:
        self._follow_clock()
        handler = self._handlers.get(type(envelope.body))
        if handler is None:
            return await handle_order(self, envelope)
        return await handler(envelope)

    def _watch_console(self) -> None:
        source = self.machine.source
        if isinstance(source, RealMachine):
            source.console.devices = self.current.settings.console_devices
