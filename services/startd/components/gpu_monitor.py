"""Watches GPUs, and tells slots and jobs how busy theirs are (GPU-05).

The drivers are asked by a process of its own, which they may end or keep.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Coroutine, Mapping
from typing import Any

from services.startd.context import Component, StartdContext
from services.startd.core.machine.gpu_usage import Meter, monitors, uuids_of
from services.startd.core.machine.resources import Resource
from services.startd.core.slots.model import Slot
from services.startd.run.run import Run
from shared.backoff import Backoff
from shared.config.knobs import StartdSettings
from shared.subprocess_runner import Program, ProgramFailed, clean_environment

#: Between reports, seconds.
EVERY_S = 10
#: A monitor that ends is started again after so long, at most 16 times that.
AGAIN_S = 60.0
#: Longer lines are no report.
_LONGEST = 65536


class GpuMonitor(Component):
    #: Its words are followed by the seconds between reports. Tests have another.
    program: tuple[str, ...] = (sys.executable, "-m", "shared.gpus", "monitor")

    def __init__(self, startd: StartdContext) -> None:
        super().__init__(startd)
        self.meter = Meter(startd.now())
        self._gpus: Resource | None = None

    async def setup(self) -> None:
        startd = self.startd
        knobs = StartdSettings.from_config(startd.context.config)
        self._gpus = monitors(knobs.startd_cron_joblist, startd.ads.machine.stock.resources)
        if self._gpus is not None:
            startd.ads.add_source("gpu-usage", self._attributes)

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {} if self._gpus is None else {"gpu-monitor": self._watch()}

    def _uuids(self, slot: Slot | None) -> list[str]:
        if self._gpus is None or slot is None:
            return []
        return uuids_of(slot.total.ids.get(self._gpus.name, ()), self._gpus)

    def _attributes(self, slot: Slot) -> Mapping[str, object]:
        return self.meter.of_slot(self._uuids(slot), self.startd.now())

    def run_started(self, run: Run) -> None:
        self.meter.begin(run.key, self._uuids(self.startd.slot_manager.slots.get(run.record.slot)), self.startd.now())

    def run_over(self, run: Run) -> None:
        self._tell(run)
        self.meter.end(run.key)

    def _tell(self, run: Run) -> None:
        run.extras.update(self.meter.of_run(run.key, self.startd.now()))

    async def _watch(self) -> None:
        clock, log = self.startd.context.clock, self.startd.context.log
        backoff = Backoff(AGAIN_S, 16 * AGAIN_S)
        while True:
            reports = 0
            try:
                reports = await self._one_life()
                log.warning("gpu_monitor_ended", reports=reports)
            except ProgramFailed as error:
                log.error("gpu_monitor_not_started", reason=str(error))
            if reports:
                backoff.reset()
            await clock.sleep(backoff.next_s())

    async def _one_life(self) -> int:
        """Reports that the monitor made before it ended."""
        reports = 0
        rest = b""

        def take(chunk: bytes) -> None:
            nonlocal reports, rest
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-_LONGEST:]
            for line in lines:
                if line.strip() == b"-":
                    reports += 1
                    self._reported()
                else:
                    self.meter.take(line.decode("ascii", "replace"))

        program = await Program.start([*self.program, str(EVERY_S)], env=clean_environment(os.environ))
        try:
            await program.read(take)
            await program.wait()
        finally:
            program.kill()
            program.close()
        return reports

    def _reported(self) -> None:
        """Ads have it when they are made anew, and go to the pool when they would anyway."""
        startd = self.startd
        for slot in startd.slot_manager.slots.values():
            if self._uuids(slot):
                startd.ads.forget(slot.name)
        for run in startd.runs.by_key.values():
            self._tell(run)
