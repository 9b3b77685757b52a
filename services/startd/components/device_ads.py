"""What slots show of the machine's devices, and their shares of disks that fill and empty."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from services.startd.context import Component, StartdContext
from services.startd.core.machine.devices import slot_attributes
from services.startd.core.machine.slot_plan import disks
from services.startd.core.machine.slot_types import rescale_disks
from services.startd.core.slots.model import Slot
from shared.errors import PermanentError


class DeviceAds(Component):
    def __init__(self, startd: StartdContext) -> None:
        super().__init__(startd)
        self._disks: dict[str, int] = {}  # KiB, by partition, when seen last; of none before the first time

    async def setup(self) -> None:
        stock = self.startd.ads.machine.stock
        for problem in stock.problems:
            self.startd.context.log.error("inventory", problem=problem)
        self._disks = self._measure() or {}
        self.startd.ads.add_source("devices", self._attributes)

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"disks": self._watch_disks()}

    def _attributes(self, slot: Slot) -> Mapping[str, object]:
        around = self.startd.ads.machine
        return slot_attributes(slot, around.stock, self._disks.get(slot.partition))

    async def _watch_disks(self) -> None:
        while True:
            await self.startd.context.clock.sleep(self.startd.settings.update_interval)
            self.look_at_disks()

    def look_at_disks(self) -> None:
        startd = self.startd
        totals = self._measure()
        if totals is None:
            return
        for run in startd.runs.by_key.values():
            slot = startd.slot_manager.slots.get(run.record.slot)
            if slot is not None and slot.partition in totals:
                totals[slot.partition] += int(run.record.usage.get("disk_kib", 0))
        if totals != self._disks:
            self._disks = totals
            rescale_disks(startd.slot_manager.slots.values(), totals)
            startd.publisher.attributes_changed()

    def _measure(self) -> dict[str, int] | None:
        """KiB by partition, without what jobs have; None: it can not be seen, and slots keep what they have."""
        context = self.startd.context
        try:
            return {one.key: one.total_kib for one in disks(context.config, self.startd.machine.disk_of).values()}
        except (OSError, PermanentError) as error:
            context.log.warning("disk_not_seen", reason=str(error))
            return None
