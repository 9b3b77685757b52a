"""Runs jobs that are virtual machines, under QEMU: a process like a plain job's, started by the process launcher with
the same isolation, measured, killed and adopted as that does it (VMU-01 to VMU-06).

What is added: the command line (`plan`), orders by QEMU's control socket (QMP: JSON, one object a line), a soft kill
that presses the guest's power button, and whose fault it is when a machine does not come into being, or breaks off.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from services.startd.core.run.failures import Fault, RunFailed
from services.startd.core.run.job_launch import Finished, Launch, Started
from services.startd.exec.api import LauncherHost, LauncherKind
from services.startd.exec.process_based import ProbedLauncher, read_end
from services.startd.exec.vm.plan import (
    COMPLAINTS,
    OVERHEAD_MIB,
    SOCKET,
    BadVm,
    MonitorFound,
    Offline,
    VmPlan,
    VmSettings,
    choose_vm,
    is_machines_fault,
    make_plan,
    read_vm_settings,
    vm_attributes,
)
from shared.classad import ClassAd

#: For its answer, seconds.
ANSWER_S = 10.0
#: One line of it.
_MOST_BYTES = 1 << 20


class NoMonitor(Exception):
    """There is nobody at the socket, or it does not answer as QEMU does."""


async def qmp_command(folder: Path, socket: str, *commands: str) -> list[Any]:
    """Give these orders, and return what was answered to each. The socket is named within its folder, whose path may be
    longer than a socket's name can be. Raises NoMonitor."""
    try:
        async with asyncio.timeout(ANSWER_S), _talk(folder, socket) as (reader, writer):
            if "QMP" not in await _read(reader):
                raise NoMonitor("no greeting")
            return [await _one(reader, writer, command) for command in ("qmp_capabilities", *commands)][1:]
    except (OSError, ValueError, EOFError, TimeoutError, RecursionError) as error:
        raise NoMonitor(f"{type(error).__name__}: {error}") from error


@contextlib.asynccontextmanager
async def _talk(folder: Path, socket: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{place}/{socket}", limit=_MOST_BYTES)
    finally:
        os.close(place)
    try:
        yield reader, writer
    finally:
        writer.close()


async def _one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, command: str) -> Any:
    writer.write(json.dumps({"execute": command}).encode() + b"\n")
    await writer.drain()
    while True:
        said = await _read(reader)
        if "error" in said:
            raise NoMonitor(f"{command}: {str(said['error'])[:200]}")
        if "return" in said:
            return said["return"]


async def _read(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next object; events come between answers."""
    line = await reader.readline()
    if not line:
        raise EOFError("it hung up")
    said = json.loads(line)
    if not isinstance(said, dict):
        raise ValueError(f"not an object: {line[:80]!r}")
    return said


#: How long the monitor may take to say who it is, seconds.
TRY_S = 30.0
#: A machine whose monitor does not answer so long after its start is taken for started all the same, seconds.
UP_S, LOOK_S = 30.0, 0.05
KVM = "/dev/kvm"


class VmLauncher(ProbedLauncher[MonitorFound]):
    def __init__(self, host: LauncherHost) -> None:
        super().__init__(host)
        self.offline: Offline | None = None

    @property
    def rules(self) -> VmSettings:
        """The knobs, as they are now."""
        found = self.host.settings("vm")
        assert isinstance(found, VmSettings)
        return found

    # ---------------------------------------------------------------- whether it works

    def broke(self, reason: str) -> None:
        """The machine failed a job: no further one is to come (VMU-04)."""
        self.offline = Offline(reason, self.host.context.clock.now())
        self.host.changed()

    def mended(self) -> None:
        """A virtual machine runs here, or somebody says that one can (VMU-06)."""
        if self.offline is not None:
            self.offline = None
            self.host.changed()

    def attributes(self, jobs: Sequence[ClassAd]) -> Mapping[str, object]:
        used = sum(int(memory) for job in jobs if isinstance(memory := job.eval("JobVMMemory"), int))
        return vm_attributes(self.rules, self.found, self.offline, used, len(jobs), self.host.memory_mib)

    async def probe(self) -> MonitorFound:
        """VMU-01, VMU-02, VMU-04, VMU-06."""
        return await probe(self.rules)

    def log_found(self, found: MonitorFound) -> None:
        self.host.context.log.info("vm", version=found.version, reason=found.trouble)

    # ---------------------------------------------------------------- the start

    async def prepare(self, launch: Launch) -> None:
        ready, plan = self._made(launch)
        for disk in plan.disks:
            path = launch.scratch / disk.path
            if not await asyncio.to_thread(path.is_file):
                hint = "" if os.path.isabs(disk.path) else ": name it in transfer_input_files, too"
                raise Fault.VM_REFUSED.failure(f"vm_disk: there is no file {disk.path}{hint}")
        await self.processes.prepare(ready)

    def _made(self, launch: Launch) -> tuple[Launch, VmPlan]:
        """The launch of QEMU as a process, and its plan. Raises RunFailed."""
        found = self.found or MonitorFound(trouble="QEMU was not tried yet")
        if not found.program:
            why = found.trouble or "VM_TYPE is not set"
            raise Fault.VM_BROKEN.failure(f"this machine runs no virtual machines: {why}")
        try:
            plan = make_plan(self.rules, launch.job_ad, launch.cpus)
        except BadVm as error:
            raise Fault.VM_REFUSED.failure(str(error)) from error
        account = launch.account
        if account is not None and self.rules.accelerator == "kvm":
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
            in_machine=True,
        )
        return ready, plan

    async def start(self, launch: Launch) -> Started:
        ready, _ = self._made(launch)
        try:
            started = await self.processes.start(ready)
        except RunFailed as error:
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

    def _lost(self, reason: str) -> RunFailed:
        self.broke(reason)
        return Fault.VM_BROKEN.failure(reason)

    async def _is_up(self, launch: Launch) -> bool:
        """Whether its monitor answers; False when the process has ended before."""
        until = time.monotonic() + UP_S
        ended = asyncio.ensure_future(self.processes.finished(launch.run))
        try:
            while not ended.done() and time.monotonic() < until:
                try:
                    await qmp_command(launch.scratch, SOCKET)
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
        scratch = self.host.scratch_of(run)
        if end.exit_code in (0, None) or end.hold_code or scratch is None:
            return end
        said = await asyncio.to_thread(_complaints, scratch)
        if not is_machines_fault(said):
            return end
        self.broke(said)
        return Finished(end.at, end.started_at).lost(Fault.VM_BROKEN, f"the virtual machine broke off: {said}")

    async def signal(self, run: str, number: int) -> None:
        """Its power button is pressed; the guest may shut down in order until its time is over."""
        scratch = self.host.scratch_of(run)
        await self.processes.continue_(run)  # one that stands would not hear of it
        try:
            if scratch is None:
                raise NoMonitor("it has no directory any more")
            await qmp_command(scratch, SOCKET, "system_powerdown")
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


# ---------------------------------------------------------------- a test of the monitor


async def probe(rules: VmSettings) -> MonitorFound:
    """Start the monitor, without a guest, and ask for its version."""
    if not rules.kind:
        return MonitorFound()
    if os.geteuid() != 0:
        return MonitorFound(trouble="virtual machines are only run by a startd that root has started")
    program = shutil.which(rules.program)
    if program is None:
        return MonitorFound(
            trouble=f"there is no program {rules.program}: install QEMU, or name it by ROOST_VM_PROGRAM"
        )
    words = (program, "-machine", f"pc,accel={rules.accelerator}", "-nodefaults", "-display", "none", "-S")
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            *("-qmp", "stdio"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return MonitorFound(trouble=f"{program} can not be run: {error}")
    orders = b"".join(json.dumps({"execute": one}).encode() + b"\n" for one in ("qmp_capabilities", "quit"))
    try:
        async with asyncio.timeout(TRY_S):
            said, complaints = await process.communicate(orders)
    except TimeoutError:
        return MonitorFound(trouble=f"{program} did not answer within {TRY_S:g} s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return read_greeting(program, said, complaints)


def read_greeting(program: str, said: bytes, complaints: bytes) -> MonitorFound:
    """What the monitor's first line tells of it."""
    try:
        numbers = json.loads(said.partition(b"\n")[0])["QMP"]["version"]["qemu"]
        version = ".".join(str(numbers[name]) for name in ("major", "minor", "micro"))
    except (ValueError, KeyError, TypeError):
        words = complaints.decode("utf-8", "replace").strip().splitlines()
        return MonitorFound(trouble=f"QEMU does not run here: {words[-1] if words else 'it said nothing'}")
    return MonitorFound(version, program)


VM = LauncherKind(
    name="vm",
    make=VmLauncher,
    choose=choose_vm,
    read_settings=read_vm_settings,
    absent={"HasVM": False},
    own_files=frozenset((COMPLAINTS,)),
    counts_jobs=True,
)
