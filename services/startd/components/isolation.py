"""Keeps the isolation of jobs in order: what an earlier life left, disks that are full, cgroups of slots that are
free.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from services.startd.context import Component
from services.startd.core.slots.effects import SlotEffects
from services.startd.isolation import scratch_dirs
from services.startd.run.run import Run


class Isolation(Component):
    async def setup(self) -> None:
        startd = self.startd
        for run, process in startd.fork_server.running.items():
            startd.isolation.adopt(run, process.group, process.tracking_gid)
        startd.isolation.sweep()
        kept = {record["scratch"] for record in startd.journal_writer.journal.load("runs").values()}
        try:
            await startd.isolation.volumes.adopt(scratch_dirs.prefix(startd.name), kept)
        except OSError as error:
            startd.context.log.warning("volumes_not_removed", reason=str(error))

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"disk-limits": self._watch_disks()} if self.startd.settings.isolation.disk.enforce else {}

    async def _watch_disks(self) -> None:
        """Measuring takes as long as it takes: it may not be most of what this machine does."""
        startd = self.startd
        clock = startd.context.clock
        while True:
            began = clock.monotonic()
            for run in await startd.isolation.check_disks():
                await startd.launchers["process"].kill(run)
            took = clock.monotonic() - began
            await clock.sleep(max(startd.isolation.rules.disk_interval, 10 * took))

    def run_started(self, run: Run) -> None:
        slot = self.startd.slot_manager.slots.get(run.record.slot)
        disk = int(slot.total.get("Disk", 0)) if slot is not None else 0
        scratch = self.startd.context.execute / run.record.scratch
        self.startd.isolation.restore(run.record.name, scratch, run.memory_mib, disk)

    def on_changes(self, changes: SlotEffects) -> None:
        manager = self.startd.isolation
        for ended in changes.ended:
            manager.release_slot(ended.claim.slot)
        for slot in changes.gone:
            manager.release_slot(slot)

    def reread(self) -> None:
        self.startd.isolation.reread(self.startd.settings.isolation)

    async def close(self) -> None:
        self.startd.isolation.close()
