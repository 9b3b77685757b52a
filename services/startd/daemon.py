"""The startd: divides its machine into slots, lends them to access points, and runs their jobs.

This shell puts the rooms together (`parts` says how they fit) and carries out what the book decides: what is written
down is written before it is answered.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from services.startd import settings
from services.startd.ads import slot_ads
from services.startd.ads.showcase import Showcase
from services.startd.book import records
from services.startd.book.answers import Changes
from services.startd.book.claims import Book
from services.startd.book.leases import Leases
from services.startd.book.partition import SlotKind
from services.startd.book.slots import Claim
from services.startd.book.transitions import Activity, State
from services.startd.chores.backfill import Backfill
from services.startd.chores.benchmarks import Benchmarks
from services.startd.chores.cron import Cron
from services.startd.chores.history import History
from services.startd.clockwork import Clockwork
from services.startd.docker_watch import DockerWatch
from services.startd.doors.command import Command
from services.startd.doors.desk import Desk
from services.startd.doors.sessions import Sessions
from services.startd.herald import Herald
from services.startd.hooks.fetch import FetchWork
from services.startd.journal import Journal
from services.startd.launchers.api import Launcher
from services.startd.launchers.apptainer.launcher import ApptainerLauncher
from services.startd.launchers.apptainer.watch import ApptainerWatch
from services.startd.launchers.docker.launcher import DockerLauncher
from services.startd.launchers.docker.orphans import Watcher
from services.startd.launchers.process import ProcessLauncher
from services.startd.launchers.vm.launcher import VmLauncher
from services.startd.launchers.vm.watch import VmWatch
from services.startd.ledger import Ledger
from services.startd.machine.detection import RealMachine, Source
from services.startd.machine.division import Partition
from services.startd.machine.gear import Gear
from services.startd.machine.gpu_monitor import GpuMonitor
from services.startd.machine.inventory import take_inventory
from services.startd.machine.owner_watch import OwnerWatch
from services.startd.machine.resources import Output
from services.startd.machine.survey import survey
from services.startd.metrics import Backlog, Metrics, RunCounts
from services.startd.parts import Handler, Part
from services.startd.power.hibernation import Hibernation
from services.startd.recovery import recover
from services.startd.runs import Runs
from services.startd.sandbox import directories
from services.startd.starter.client import ForkServer
from services.startd.walls.keep import Walls, make_warden, no_walls
from shared.config import Config
from shared.daemon.advertiser import Advertiser
from shared.daemon.base import Daemon
from shared.daemon.context import Context
from shared.daemon.orders import obey
from shared.messages.base import Envelope, Message

#: What a startd has beside slots, claims and runs.
PARTS: tuple[type[Part], ...] = (
    OwnerWatch,
    Gear,
    GpuMonitor,
    Walls,
    Command,
    DockerWatch,
    ApptainerWatch,
    VmWatch,
    Sessions,
    History,
    Cron,
    Benchmarks,
    Backfill,
    FetchWork,
    Hibernation,
)
#: Activities that time ends.
_PASSING = (Activity.RETIRING, Activity.VACATING, Activity.KILLING)


class Startd(Daemon):
    """See the module. It is what `parts.Inside` says."""

    subsystem: ClassVar[str] = "STARTD"
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
    kinds_of_parts: ClassVar[Sequence[type[Part]]] = PARTS

    book: Book
    showcase: Showcase
    ledger: Ledger
    runs: Runs

    def __init__(self, context: Context, machine: Source | None = None) -> None:
        super().__init__(context)
        self.name = context.name
        self.machine = machine or RealMachine()
        self.detected = self.machine.detect()
        self.outputs: Mapping[str, Output] = {}  # of inventory programs
        self.settings = settings.read(context.config, self.detected)
        self._watch_console()
        self.leases = Leases()
        self.counts = RunCounts()
        context.metrics.register(Metrics(lambda: getattr(self, "book", None), self.counts, self._backlog))
        self.launchers: dict[str, Launcher] = {}
        self.warden = no_walls(self)
        self.parts: list[Part] = []
        self.herald = Herald(self, Advertiser(context, "Machine", subsystem="STARTD"))
        self.clockwork = Clockwork(self)
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers: dict[type[Message], Handler] = {}
        self._shown: dict[str, tuple[object, ...]] = {}  # by slot: what others act on, as last given out
        self._offered: dict[str, tuple[str, int]] = {}  # by slot: what the journal knows of its offer
        self._started = False
        self._closing = False

    def _backlog(self) -> Backlog:
        if not hasattr(self, "runs"):  # before setup
            return Backlog()
        untold = sum(run.ended for run in self.runs.by_key.values())
        return Backlog(self.ledger.unwritten, bool(self.ledger.full), untold)

    # ---------------------------------------------------------------- life

    async def setup(self) -> None:
        context = self.context
        context.execute.mkdir(parents=True, exist_ok=True)
        journal = Journal(context.spool / "startd" / f"{self.name}.db")
        self.ledger = Ledger(journal, context)
        self.outputs = await take_inventory(context.config, context.log)
        found = survey(context.config, self.detected, self.disk_of, self.outputs)
        plans = found.slots
        around = slot_ads.Surroundings(
            startd=self.name,
            start_time=self.herald.advertiser.start_time,
            detected=self.detected,
            total=found.amounts,
            stock=found.stock,
            slot_count=len(plans),
            settings=self.settings,
        )
        self.showcase = Showcase(
            around,
            sample=lambda: self.machine.sample(context.execute, self.now()),
            now=context.clock.now,
            monotonic=context.clock.monotonic,
        )
        self.book = Book(
            self.name,
            self.herald.advertiser.start_time,
            ad_of=self.showcase.ad_of,
            policy_of=lambda type_id: self.settings.policy(type_id),
            carving=self.settings.carving,
            new_secret=lambda: secrets.token_hex(16),
            match_timeout_s=self.settings.match_timeout,
            killing_timeout_s=self.settings.killing_timeout,
        )
        self.showcase.book = self.book
        await self.open_launchers(journal.identity)
        self.runs = Runs(self, self.parts, self.counts)
        self.parts += [part(self) for part in self.kinds_of_parts]
        for part in self.parts:
            await part.setup()
        self.book.add_slots(plans, self.now())
        await recover(self, journal)
        self._handlers |= Desk(self).handlers()
        for part in self.parts:
            self._handlers |= part.handlers()
        await context.bus.serve(f"startd.{self.name}", self._on_request)
        self.write_down()
        self._started = True

    async def open_launchers(self, identity: str) -> None:
        """Fill `launchers`. identity: of this startd's journal; no other startd has it."""
        context = self.context
        folder = context.execute / f".starter-{directories.prefix(self.name).strip('_')}"
        folder.mkdir(mode=0o700, exist_ok=True)
        self.fork_server = ForkServer(folder, orphan_s=self.settings.orphan, now=context.clock.now)
        await self.fork_server.start()
        self.warden = await asyncio.to_thread(make_warden, self)
        processes = ProcessLauncher(self.fork_server, self.warden, lambda: self.settings.wrapper)
        self.launchers["process"] = processes
        self.launchers["apptainer"] = ApptainerLauncher(
            context, processes, lambda: self.settings.containers, folder / "apptainer"
        )
        self.launchers["vm"] = VmLauncher(processes, lambda: self.settings.vm, self._scratch_of, context.clock.now)
        self.launchers["docker"] = DockerLauncher(
            f"{self.name}-{identity}",
            self.settings.docker,
            context.execute,
            self.ledger,
            self.ledger.journal.load("images"),
            Watcher(f"{self.name}-{identity}", folder, self.settings.orphan),
        )

    def _scratch_of(self, run: str) -> Path | None:
        """Of a run by its launcher's name for it."""
        return next((one.scratch for one in self.runs.by_key.values() if one.record.name == run), None)

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        tasks = {
            "advertise": self.herald.advertise(),
            "leases": self.clockwork.watch_leases(),
            "review": self.clockwork.review(),
        }
        for part in self.parts:
            tasks |= part.tasks()
        return tasks

    def check(self, config: Config) -> None:
        settings.read(config, self.detected)
        survey(config, self.detected, self.disk_of, self.outputs)

    async def reconfigure(self) -> None:
        """What a division of the machine stands on needs a restart; everything else takes effect now. Settings that
        can not be read change nothing. Raises ConfigError, BadSetting, ImpossiblePartition."""
        config = self.context.config
        found = settings.read(config, self.detected)
        survey(config, self.detected, self.disk_of, self.outputs)  # the next start must not fail
        self.settings = found
        self._watch_console()
        self.showcase.adopt(self.settings)
        self.book.adopt(
            carving=self.settings.carving,
            match_timeout_s=self.settings.match_timeout,
            killing_timeout_s=self.settings.killing_timeout,
        )
        for part in self.parts:
            part.reread()
        self.clockwork.review_now()
        self.changed(urgent=True)

    async def drain(self) -> None:
        """Jobs go on without us, and a startd that comes back adopts them. The ads of a machine that is being switched
        off to sleep stay: by them it is woken."""
        if not any(isinstance(part, Hibernation) and part.asleep for part in self.parts):
            await self.herald.advertiser.invalidate()

    async def close(self) -> None:
        self._closing = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for part in self.parts:
            await part.close()
        if hasattr(self, "runs"):
            await self.runs.close()
        for launcher in self.launchers.values():
            await launcher.stop()
        self.herald.close()
        if hasattr(self, "ledger"):
            self.ledger.close()

    def ready(self) -> str:
        return "" if self._started else "its slots to be set up"

    async def _on_request(self, envelope: Envelope) -> Message:
        handler = self._handlers.get(type(envelope.body))
        if handler is None:
            return await obey(self, envelope)
        return await handler(envelope)

    def disk_of(self, execute: str) -> Partition:
        """What is free where this EXECUTE is. Tests' machines have one disk."""
        path = Path(execute or self.context.execute)
        path.mkdir(parents=True, exist_ok=True)
        free = self.machine.sample(path, self.now()).disk_kib
        return Partition(str(path.stat().st_dev), free)

    def _watch_console(self) -> None:
        if isinstance(self.machine, RealMachine):
            self.machine.console.devices = self.settings.console_devices

    # ---------------------------------------------------------------- for the rooms (Inside)

    def now(self) -> float:
        return self.context.clock.now()

    def look(self) -> None:
        self.spawn(self._review_soon(), "review")

    async def _review_soon(self) -> None:
        self.clockwork.review_now()

    def changed(self, slots: Iterable[str] | None = None, *, urgent: bool = False) -> None:
        names = list(self.book.slots) if slots is None else list(slots)
        for name in names:
            self.showcase.forget(name)
        self.herald.changed(names, urgent=urgent)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._closing:
            work.close()
            return
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The one place for mistakes of ours outside of the root tasks: loud, and the daemon goes on.
            self.context.log.error("task_failed", task=task.get_name(), exc_info=error)

    def leased(self, claim: Claim) -> None:
        self.leases.grant(claim.claim_id, claim.lease_s, self.context.clock.monotonic())
        self.clockwork.leased()

    # ---------------------------------------------------------------- carrying out

    def write_down(self) -> None:
        """Carry out what the book has changed: journal, leases, events, ads."""
        changes = self.book.take_changes()
        if not changes:
            self.ledger.write()
            return
        urgent = self._note(changes)
        self.ledger.write()
        for suspension in changes.suspensions:
            self.runs.suspend(suspension)
        for stop in changes.stops:
            self.runs.stop(stop)
        for ended in changes.ended:
            self.herald.claim_ended(ended.claim, ended.reason)
            # Its schedd is told, if it does not learn it from the end of a run.
            if ended.broken and not self.runs.of_claim(ended.claim.claim_id):
                self.herald.lost(ended.claim.schedd, ended.claim.slot, ended.claim.claim_id, ended.reason)
        for claim in changes.ready:
            self.leased(claim)
            self.herald.claim_made(claim)
            self.context.log.info("claim_ready", slot=claim.slot, schedd=claim.schedd)
            self.herald.ready(claim)
        for name in changes.gone:
            self.showcase.forget(name)
            self._shown.pop(name, None)
        others = self.book.slots if self.showcase.siblings_changed() else ()
        self.herald.changed({*changes.slots, *others}, changes.gone, urgent=urgent)
        for part in self.parts:
            part.on_changes(changes)

    def _note(self, changes: Changes) -> bool:
        """What is to be written down of these changes, and leases of claims that are gone. True when the pool should
        hear of them at once: somebody may act on them."""
        put = self.ledger.put
        urgent = bool(changes.gone) or changes.steering
        if changes.steering:
            put("steering", "machine", self.book.steering.pack())
        for claim_id, claim in changes.claims.items():
            if claim is not None and self.book.claims.get(claim_id) is claim:
                put("claims", claim_id, records.pack_claim(claim, self.book.slots[claim.slot]))
            else:
                self.leases.drop(claim_id)
                put("claims", claim_id, None)
        for claim_id, waiting in changes.waiting.items():
            put("waiting", claim_id, None if waiting is None else records.pack_waiting(waiting))
            if waiting is None and claim_id not in self.book.claims:
                self.leases.drop(claim_id)
        for name in changes.slots:
            slot = self.book.slots.get(name)
            if slot is None:
                continue
            partitionable = slot.kind is SlotKind.PARTITIONABLE
            if partitionable and self._offered.get(name) != (slot.offer, slot.children):
                self._offered[name] = (slot.offer, slot.children)
                put("offers", name, {"claim_id": slot.offer, "children": slot.children})
            if changes.ended and slot.past:
                put("past", name, records.pack_past(slot.past))
            shown = (slot.state, slot.offer, slot.waiting, slot.asked, slot.free if partitionable else None)
            if self._shown.get(name) != shown:
                self._shown[name] = shown
                urgent = True
            if slot.activity in _PASSING or slot.state is State.MATCHED:
                self.clockwork.look()
        self.clockwork.claims_changed()
        return urgent
