"""Runs jobs that are virtual machines, under QEMU: a process like a plain job's, started by the process launcher with
the same walls, measured, killed and adopted as that does it (VMU-01 to VMU-06).

What is added: the command line (`plan`), a soft kill that presses the guest's power button, and whose fault it is when
a machine does not come into being, or breaks off.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from services.startd.launchers.api import Finished, Launch, LaunchFailed, Started
from services.startd.launchers.process import OnProcesses, ProcessLauncher, read_end
from services.startd.launchers.vm.plan import COMPLAINTS, OVERHEAD_MIB, SOCKET, BadVm, Plan, make_plan
from services.startd.launchers.vm.qmp import NoMonitor, order
from services.startd.launchers.vm.rules import Found, Offline, Rules, is_machines_fault
from services.startd.starter.faults import Fault

#: A machine whose monitor does not answer so long after its start is taken for started all the same, seconds.
UP_S, LOOK_S = 30.0, 0.05
KVM = "/dev/kvm"


class VmLauncher(OnProcesses):
    """rules: the knobs, as they are now. scratch_of: the directory of a run, None when it has none any more. now: wall
    clock."""

    def __init__(
        self,
        processes: ProcessLauncher,
        rules: Callable[[], Rules],
        scratch_of: Callable[[str], Path | None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self.processes = processes
        self.rules = rules
        self.scratch_of = scratch_of
        self.now = now
        self.found: Found | None = None  # set by who tries the monitor
        self.offline: Offline | None = None
        #: Told when `offline` has changed. Set by who shows it.
        self.changed: Callable[[], None] = _nobody

    # ---------------------------------------------------------------- whether it works

    def broke(self, reason: str) -> None:
        """The machine failed a job: no further one is to come (VMU-04)."""
        self.offline = Offline(reason, self.now())
        self.changed()

    def mended(self) -> None:
        """A virtual machine runs here, or somebody says that one can (VMU-06)."""
        if self.offline is not None:
            self.offline = None
            self.changed()

    # ---------------------------------------------------------------- the start

    async def adopt(self, runs: set[str]) -> None:
        await self.processes.adopt(runs)

    async def prepare(self, launch: Launch) -> None:
        ready, plan = self._made(launch)
        for disk in plan.disks:
            path = launch.scratch / disk.path
            if not await asyncio.to_thread(path.is_file):
                hint = "" if os.path.isabs(disk.path) else ": name it in transfer_input_files, too"
                raise Fault.VM_REFUSED.failure(f"vm_disk: there is no file {disk.path}{hint}")
        await self.processes.prepare(ready)

    def _made(self, launch: Launch) -> tuple[Launch, Plan]:
        """As a process. Raises LaunchFailed."""
        found = self.found or Found(trouble="QEMU was not tried yet")
        if not found.program:
            why = found.trouble or "VM_TYPE is not set"
            raise Fault.VM_BROKEN.failure(f"this machine runs no virtual machines: {why}")
        try:
            plan = make_plan(self.rules(), launch.job_ad, launch.cpus)
        except BadVm as error:
            raise Fault.VM_REFUSED.failure(str(error)) from error
        account = launch.account
        if account is not None and self.rules().accelerator == "kvm":
            try:
                account = replace(account, groups=(*account.groups, os.stat(KVM).st_gid))
            except OSError as error:
                raise self._lost(f"{KVM}: {error.strerror}") from error
        ready = replace(
            launch,
            executable=found.program,
            argv=(found.program, *plan.argv),
            cwd=str(launch.scratch),
            stdin="",
            stdout="",
            stderr=str(launch.scratch / COMPLAINTS),
            append=False,
            memory_mib=launch.memory_mib + OVERHEAD_MIB,
            account=account,
        )
        return ready, plan

    async def start(self, launch: Launch) -> Started:
        ready, _ = self._made(launch)
        try:
            started = await self.processes.start(ready)
        except LaunchFailed as error:
            raise self._lost(f"the monitor can not be started: {error.message}") from error
        if await self._is_up(launch):
            self.mended()
            return started
        end = await self.processes.finished(launch.run)
        if end.exit_code == 0 or end.hold_code:
            return started  # it has done its work already, or what it used up is told with its end
        said = await asyncio.to_thread(_complaints, launch.scratch)
        await self.processes.forget(launch.run)
        message = f"the virtual machine does not start: {said or _status(end)}"
        if end.exit_code is None or is_machines_fault(said):
            raise self._lost(message)
        raise Fault.VM_REFUSED.failure(message)

    def _lost(self, reason: str) -> LaunchFailed:
        self.broke(reason)
        return Fault.VM_BROKEN.failure(reason)

    async def _is_up(self, launch: Launch) -> bool:
        """Whether its monitor answers; False when the process has ended before."""
        until = time.monotonic() + UP_S
        ended = asyncio.ensure_future(self.processes.finished(launch.run))
        try:
            while not ended.done() and time.monotonic() < until:
                try:
                    await order(launch.scratch, SOCKET)
                except NoMonitor:
                    await asyncio.wait({ended}, timeout=LOOK_S)
                else:
                    return True
            return not ended.done()
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)

    # ---------------------------------------------------------------- the end

    async def finished(self, run: str) -> Finished:
        end = await self.processes.finished(run)
        scratch = self.scratch_of(run)
        if end.exit_code in (0, None) or end.hold_code or scratch is None:
            return end
        said = await asyncio.to_thread(_complaints, scratch)
        if not is_machines_fault(said):
            return end
        self.broke(said)
        return Finished(end.at, end.started_at, trouble=f"the virtual machine broke off: {said}")

    async def signal(self, run: str, number: int) -> None:
        """Its power button is pressed; the guest may shut down in order until its time is over."""
        scratch = self.scratch_of(run)
        await self.processes.continue_(run)  # one that stands would not hear of it
        try:
            if scratch is None:
                raise NoMonitor("it has no directory any more")
            await order(scratch, SOCKET, "system_powerdown")
        except NoMonitor:
            await self.processes.signal(run, number)


def _complaints(scratch: Path) -> str:
    """The last lines that the monitor wrote, in one."""
    text = read_end(str(scratch / COMPLAINTS), 0)
    lines = [line.strip() for line in text.splitlines() if line.strip() and ": warning: " not in line]
    return "; ".join(lines[-3:])


def _status(end: Finished) -> str:
    if end.exit_code is not None:
        return f"QEMU ended with status {end.exit_code}"
    return end.trouble or f"QEMU ended by signal {end.exit_signal}"


def _nobody() -> None:
    return None
