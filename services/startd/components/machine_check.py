"""Looks whether this machine can run jobs at all, and takes it out of the offer while it can not.

What is looked at: whether each EXECUTE takes a directory with a file, and whether USER_JOB_WRAPPER can be run; and how
runs end. Engines of containers have a health of their own (HasDocker, HasSingularity, HasVM).
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from services.startd.context import Component, StartdContext
from services.startd.core.machine.health import MachineHealth
from services.startd.core.slots.model import Slot
from services.startd.run.run import Run
from shared.classad import ClassAd
from shared.config.knobs import StartdSettings

#: How often the machine is checked while nothing is wrong, seconds.
CHECK_S: Final = 300.0
#: What a directory for jobs must have room for, bytes: a job's own files before it starts.
ROOM_BYTES: Final = 16384


class MachineCheck(Component):
    def __init__(self, startd: StartdContext) -> None:
        super().__init__(startd)
        self.health = MachineHealth(self._limit())
        self._look = asyncio.Event()
        startd.ads.add_on_top("machine-check", self._attributes)

    def _limit(self) -> int:
        knobs = StartdSettings.from_config(self.startd.context.config)
        return knobs.roost_startd_failures

    async def setup(self) -> None:
        await self._check()

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"machine-check": self._watch()}

    def reread(self) -> None:
        self.health.limit = self._limit()
        self.health.until = self.startd.context.clock.monotonic()  # whoever mended it need not wait
        self._look.set()

    def run_over(self, run: Run) -> None:
        """A job that was started shows that the machine works."""
        if run.machine_fault:
            self.health.run_failed(run.machine_fault, self.startd.context.clock.monotonic())
        elif run.record.launched:
            self.health.run_started()
        self._tell()
        self._look.set()

    async def _watch(self) -> None:
        clock = self.startd.context.clock
        while True:
            self._look.clear()
            try:
                async with asyncio.timeout(self.health.wait_s(clock.monotonic(), CHECK_S)):
                    await self._look.wait()
            except TimeoutError:
                await self._check()
            else:
                if self.health.reason and clock.monotonic() >= self.health.until:
                    await self._check()

    async def _check(self) -> None:
        settings = self.startd.settings
        places = {str(self.startd.context.execute), *(path for slot, path in settings.execute.items() if slot and path)}
        process = settings.launchers.get("process")
        wrapper = process.wrapper if process is not None else ""
        trouble = await asyncio.to_thread(find_trouble, sorted(places), wrapper)
        self.health.checked(trouble, self.startd.context.clock.monotonic())
        self._tell()

    def _tell(self) -> None:
        startd, reason = self.startd, self.health.reason
        if reason == startd.slot_manager.broken:
            return
        if reason:
            startd.context.log.error("machine_broken", reason=reason, spell=self.health.spells)
        else:
            startd.context.log.info("machine_on_trial", spells=self.health.spells)
        startd.effects.carry_out(startd.slot_manager.set_broken(reason, startd.now()))
        startd.publisher.attributes_changed(urgent=True)

    def _attributes(self, slot: Slot, ad: ClassAd) -> Mapping[str, object]:
        if not self.health.reason:
            return {}
        left_s = max(0.0, self.health.until - self.startd.context.clock.monotonic())
        offline = ad.eval("OfflineUniverses")
        return {
            "MachineBrokenReason": self.health.reason,
            "MachineBrokenUntil": int(self.startd.now() + left_s),
            "OfflineUniverses": [*(offline if isinstance(offline, list) else ()), "Vanilla", 5],
        }


def find_trouble(places: Iterable[str], wrapper: str) -> str:
    """Why no job could run here: directories for jobs that take none, a wrapper that is no program. Empty: nothing is
    wrong. Blocking."""
    for place in places:
        try:
            with tempfile.TemporaryDirectory(prefix=".check-", dir=place) as folder:
                Path(folder, "file").write_bytes(bytes(ROOM_BYTES))
        except OSError as error:
            return f"EXECUTE = {place} can not be used: {error.strerror or error}"
    if wrapper and not (os.path.isfile(wrapper) and os.access(wrapper, os.X_OK)):
        what = "is not executable" if os.path.isfile(wrapper) else "is not there"
        return f"USER_JOB_WRAPPER = {wrapper} {what}"
    return ""
