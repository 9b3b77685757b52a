"""Tries QEMU at the start and when the configuration is read again, and tells of it in the slots' ads: HasVM and what
goes with it (VMU-01, VMU-02, VMU-04, VMU-06)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from services.startd.book.slots import Slot
from services.startd.launchers.vm.launcher import VmLauncher
from services.startd.launchers.vm.rules import Found, Rules, attributes
from services.startd.parts import Inside, Part

if TYPE_CHECKING:
    from services.startd.starter.run import Run

#: How long the monitor may take to say who it is, seconds.
TRY_S = 30.0


class VmWatch(Part):
    def __init__(self, inside: Inside) -> None:
        super().__init__(inside)
        launcher = inside.launchers.get("vm")
        self._launcher = launcher if isinstance(launcher, VmLauncher) else None
        self._again = asyncio.Event()
        if self._launcher is not None:
            self._launcher.changed = self._tell
        inside.showcase.add_source("vm", self._attributes)

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"vm": self._watch()} if self._launcher is not None else {}

    def reread(self) -> None:
        self._again.set()

    def run_started(self, run: Run) -> None:
        if run.record.launcher == "vm":
            self.inside.changed()

    def run_over(self, run: Run) -> None:
        self.run_started(run)

    def _attributes(self, slot: Slot) -> Mapping[str, object]:
        if self._launcher is None:
            return {"HasVM": False}
        jobs = [run.job for run in self.inside.runs.by_key.values() if run.record.launcher == "vm" and not run.ended]
        used = sum(int(memory) for job in jobs if isinstance(memory := job.eval("JobVMMemory"), int))
        machine = self.inside.showcase.around.detected.memory_mib
        return attributes(
            self.inside.settings.vm, self._launcher.found, self._launcher.offline, used, len(jobs), machine
        )

    def _tell(self) -> None:
        self.inside.changed(urgent=True)

    async def _watch(self) -> None:
        launcher = self._launcher
        assert launcher is not None
        while True:
            self._again.clear()
            found = await probe(self.inside.settings.vm)
            if found != launcher.found:
                launcher.found = found
                log = self.inside.context.log
                log.info("vm", version=found.version, reason=found.trouble)
                self._tell()
            await self._again.wait()


async def probe(rules: Rules) -> Found:
    """Start the monitor, without a guest, and ask for its version."""
    if not rules.kind:
        return Found()
    if os.geteuid() != 0:
        return Found(trouble="virtual machines are only run by a startd that root has started")
    program = shutil.which(rules.program)
    if program is None:
        return Found(trouble=f"there is no program {rules.program}: install QEMU, or name it by ROOST_VM_PROGRAM")
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
        return Found(trouble=f"{program} can not be run: {error}")
    orders = b"".join(json.dumps({"execute": one}).encode() + b"\n" for one in ("qmp_capabilities", "quit"))
    try:
        async with asyncio.timeout(TRY_S):
            said, complaints = await process.communicate(orders)
    except TimeoutError:
        return Found(trouble=f"{program} did not answer within {TRY_S:g} s")
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return read_greeting(program, said, complaints)


def read_greeting(program: str, said: bytes, complaints: bytes) -> Found:
    """What the monitor's first line tells of it."""
    try:
        numbers = json.loads(said.partition(b"\n")[0])["QMP"]["version"]["qemu"]
        version = ".".join(str(numbers[name]) for name in ("major", "minor", "micro"))
    except (ValueError, KeyError, TypeError):
        words = complaints.decode("utf-8", "replace").strip().splitlines()
        return Found(trouble=f"QEMU does not run here: {words[-1] if words else 'it said nothing'}")
    return Found(version, program)
