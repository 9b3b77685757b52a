"""Machines with processes that outlive their startds, as the fork server's and Docker's do."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from services.startd.components.launchers import LauncherAds
from services.startd.core.run.job_launch import Finished, Launch, Measured, Started
from services.startd.core.slots.slot_table import SlotTable
from services.startd.daemon import Execution, Startd
from services.startd.exec.api import Launcher
from services.startd.forkserver.server import AFTER_LEASE_S
from services.startd.isolation.manager import no_isolation
from services.startd.journal import JournalFull
from services.startd.journal_writer import JournalWriter
from services.startd.publisher import Publisher
from services.startd.run_table import RunTable
from tests.simulation.loop import LIFE
from tests.startd_pool import Machine as Hardware

#: Lines of what a job with files brings back: some pieces of a connection.
LINES = 5000
#: A job that is asked to leave does so after this time, seconds; one in four does not listen.
LEAVES_S = 2.0


@dataclass(slots=True)
class Process:
    run: str
    job: str  # SIM_ID of its environment: which job of the workload
    host: str
    slot: str
    attempt: int
    cpus: float
    began: float
    ends: float
    exit_code: int
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    ended: float | None = None
    signal: int | None = None
    lost: bool = False
    asked: bool = False  # to leave: where it ended all the same, that counts as nothing
    timer: asyncio.TimerHandle | None = None
    lease: asyncio.TimerHandle | None = None
    lease_over: bool = False
    long_lease: bool = False  # tests/simulation/long_leases.py
    node: int = -1  # of a parallel job
    writes: Path | None = None  # what it brings back
    trouble: str = ""

    @property
    def runs(self) -> str:
        """What may run in one place only: a job, or a node of one."""
        return self.job if self.node < 0 else f"{self.job}, node {self.node},"

    @property
    def alive(self) -> bool:
        return self.ended is None


def output_of(job: str, attempt: int) -> bytes:
    """What a run brings back."""
    return f"{job} {attempt}\n".encode() * LINES


class Host:
    """One machine. `tell(process)` when one begins or ends; `watch(table)` when a startd makes its slots."""

    def __init__(
        self, name: str, cpus: int, tell: Callable[[Process], None], watch: Callable[[SlotTable], None]
    ) -> None:
        self.watch = watch
        self.name = name
        self.hardware = Hardware(cpus=cpus, memory_mib=1024 * cpus)
        self.hardware.detected = replace(self.hardware.detected, hostname=name)
        self.processes: dict[str, Process] = {}
        self.tell = tell

    def start(self, launch: Launch) -> Process:
        now = asyncio.get_running_loop().time()
        lasts, code = float(launch.env["SIM_LASTS"]), int(launch.env["SIM_EXIT"])
        node = int(launch.env.get("_CONDOR_PROCNO", -1))
        lasts *= 1.0 + max(0, node) % 3 / 2
        process = Process(
            run=launch.run,
            job=launch.env["SIM_ID"],
            host=self.name,
            slot=launch.env["_CONDOR_SLOT"],
            attempt=int(launch.labels["roost.attempt"]),
            cpus=launch.cpus,
            began=now,
            ends=now + lasts,
            exit_code=code,
            node=node,
            long_lease="SIM_LONG_LEASE" in launch.env,
        )
        if "SIM_INPUT" in launch.env:
            process.writes = launch.scratch / f"out.{process.job}"
            with contextlib.suppress(OSError):
                process.trouble = "without its whole input"
                if zlib.crc32((launch.scratch / "input").read_bytes()) == int(launch.env["SIM_INPUT"]):
                    process.trouble = ""
        self.processes[launch.run] = process
        if launch.lease_s is not None:
            self.lend(process, launch.lease_s)
        self._at(process, lasts)
        self.tell(process)
        return process

    def _at(self, process: Process, seconds: float, signal: int | None = None) -> None:
        token = LIFE.set(None)  # no daemon's death stops the clock of a job
        try:
            if process.timer is not None:
                process.timer.cancel()
            process.timer = asyncio.get_running_loop().call_later(seconds, self.end, process, signal)
        finally:
            LIFE.reset(token)

    def lend(self, process: Process, left_s: float) -> None:
        """What keeps the processes kills this one after so long, with a startd or without one."""
        token = LIFE.set(None)
        try:
            if process.lease is not None:
                process.lease.cancel()
            after_s = max(0.0, left_s) + AFTER_LEASE_S
            process.lease = asyncio.get_running_loop().call_later(after_s, self._lease_over, process)
        finally:
            LIFE.reset(token)

    def _lease_over(self, process: Process) -> None:
        if process.alive:
            process.lease_over = True
            self.end(process, 9)

    def end(self, process: Process, signal: int | None = None, *, lost: bool = False) -> None:
        if not process.alive:
            return
        process.asked |= signal is not None
        process.ended, process.signal, process.lost = asyncio.get_running_loop().time(), signal, lost
        for timer in (process.timer, process.lease):
            if timer is not None:
                timer.cancel()
        if process.writes is not None and signal is None and not lost:
            with contextlib.suppress(OSError):  # its directory went with the run
                process.writes.write_bytes(output_of(process.job, process.attempt))
        process.gone.set()
        self.tell(process)

    def signal(self, process: Process, number: int) -> None:
        process.asked = True
        if process.alive and zlib.crc32(f"{process.job} {process.attempt}".encode()) % 4:
            self._at(process, LEAVES_S, number)

    def lose_all(self) -> None:
        """The machine goes down: nobody will ever know how its processes ended."""
        for process in self.processes.values():
            self.end(process, lost=True)
            process.lost = True  # one that had ended, too: perhaps that was not written down
        self.processes.clear()


class SimulatedLauncher(Launcher):
    """A launcher with processes of a `Host`."""

    def __init__(self, host: Host, wall: Callable[[], float]) -> None:
        self.host = host
        self.wall = wall

    async def adopt(self, runs: set[str]) -> None: ...

    async def prepare(self, launch: Launch) -> None:
        await asyncio.sleep(0.01)

    async def start(self, launch: Launch) -> Started:
        await asyncio.sleep(0.003)
        self.host.start(launch)
        await asyncio.sleep(0.002)
        return Started(pid=len(self.host.processes), at=self.wall())

    async def finished(self, run: str) -> Finished:
        process = self.host.processes.get(run)
        if process is None:
            return Finished(0.0, 0.0, trouble="the machine was started anew")
        await process.gone.wait()
        assert process.ended is not None
        ago = asyncio.get_running_loop().time() - process.ended
        at = self.wall() - ago
        if process.lost or process.lease_over:
            return Finished(at, at, trouble="its processes were lost, or their lease is over")
        return Finished(
            at=at,
            started_at=at - (process.ended - process.began),
            exit_code=process.exit_code if process.signal is None else None,
            exit_signal=process.signal,
        )

    def knows(self, run: str) -> bool:
        return run in self.host.processes

    async def signal(self, run: str, number: int) -> None:
        if run in self.host.processes:
            self.host.signal(self.host.processes[run], number)

    async def kill(self, run: str) -> None:
        if run in self.host.processes:
            self.host.end(self.host.processes[run], 9)

    def lease(self, runs: Mapping[str, float]) -> None:
        for run, left_s in runs.items():
            if run in self.host.processes and self.host.processes[run].alive:
                self.host.lend(self.host.processes[run], left_s)

    async def suspend(self, run: str) -> None: ...

    async def continue_(self, run: str) -> None: ...

    async def measure(self, run: str) -> Measured:
        return Measured(procs=1, resident_set_kib=1000)

    async def forget(self, run: str) -> None:
        process = self.host.processes.get(run)
        if process is not None and not process.alive:
            del self.host.processes[run]

    async def stop(self) -> None: ...


class ForkServer:
    """All that recovery asks of the real one."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def forget_others(self, known: set[str]) -> None:
        for run, process in list(self.host.processes.items()):
            if run not in known:
                self.host.end(process, 9)
                del self.host.processes[run]


class SimulatedStartd(Startd):
    """The real one, but for what starts processes."""

    kinds_of_components = tuple(kind for kind in Startd.kinds_of_components if kind is LauncherAds)

    def __init__(self, context: Any, host: Host, full: Callable[[], bool]) -> None:
        super().__init__(context, host.hardware)
        self.host = host
        self.full = full

    async def open_launchers(
        self, table: SlotTable, journal_writer: JournalWriter, run_table: RunTable, publisher: Publisher
    ) -> Execution:
        self.host.watch(table)
        journal = journal_writer.journal
        write = journal.write

        def unless_full(changes: Any) -> None:
            if self.full():
                raise JournalFull("database or disk is full")
            write(changes)

        journal.write = unless_full  # type: ignore[method-assign]
        isolation = no_isolation(
            self.current.settings.isolation,
            execute=self.context.execute,
            hostname=self.machine.detected.hostname,
            log=self.context.log,
        )
        launchers = {"process": SimulatedLauncher(self.host, self.context.clock.now)}
        return Execution(ForkServer(self.host), isolation, launchers)
