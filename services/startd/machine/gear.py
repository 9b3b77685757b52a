"""A part of the startd: what slots show of the machine's devices, and their shares of disks that fill and empty."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from services.startd.book.slots import Slot
from services.startd.machine.devices import slot_attributes
from services.startd.machine.disks import rescale
from services.startd.machine.survey import disks
from services.startd.parts import Inside, Part
from shared.errors import PermanentError


class Gear(Part):
    def __init__(self, inside: Inside) -> None:
        super().__init__(inside)
        self._disks: dict[str, int] = {}  # KiB, by partition, when seen last; of none before the first time

    async def setup(self) -> None:
        stock = self.inside.showcase.around.stock
        for problem in stock.problems:
            self.inside.context.log.error("inventory", problem=problem)
        self._disks = self._measure() or {}
        self.inside.showcase.add_source("devices", self._attributes)

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {"disks": self._watch_disks()}

    def _attributes(self, slot: Slot) -> Mapping[str, object]:
        around = self.inside.showcase.around
        return slot_attributes(slot, around.stock, self._disks.get(slot.partition))

    async def _watch_disks(self) -> None:
        while True:
            await self.inside.context.clock.sleep(self.inside.settings.update_interval)
            self.look_at_disks()

    def look_at_disks(self) -> None:
        inside = self.inside
        totals = self._measure()
        if totals is None:
            return
        for run in inside.runs.by_key.values():
            slot = inside.book.slots.get(run.record.slot)
            if slot is not None and slot.partition in totals:
                totals[slot.partition] += int(run.record.usage.get("disk_kib", 0))
        if totals != self._disks:
            self._disks = totals
            rescale(inside.book.slots.values(), totals)
            inside.changed()

    def _measure(self) -> dict[str, int] | None:
        """KiB by partition, without what jobs have; None: it can not be seen, and slots keep what they have."""
        context = self.inside.context
        try:
            return {one.key: one.total_kib for one in disks(context.config, self.inside.disk_of).values()}
        except (OSError, PermanentError) as error:
            context.log.warning("disk_not_seen", reason=str(error))
            return None
