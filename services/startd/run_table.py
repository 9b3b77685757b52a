"""The runs that are known: those that go on, and those whose end no schedd has acknowledged yet; and for a while which
others were here, as an order for one may be slower than the acknowledgement of its end."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Final

from services.startd.core.slots.effects import StopRun, Suspension
from services.startd.run.run import Run

#: Longer than an order is on its way: who gave it waits for its answer for 10 s, and the broker keeps it as long.
LATE_S: Final = 60.0


class RunTable:
    """Times are seconds of a clock that only goes forward."""

    def __init__(self) -> None:
        self.by_key: dict[str, Run] = {}  # until their end is acknowledged
        self._over: OrderedDict[str, float] = OrderedDict()  # when the end of others was acknowledged

    def forget(self, run: Run, now: float) -> None:
        """Its end is acknowledged."""
        if self.by_key.get(run.key) is run:
            del self.by_key[run.key]
        self._over[run.key] = now
        self._over.move_to_end(run.key)
        while next(iter(self._over.values())) < now - LATE_S:
            self._over.popitem(last=False)

    def is_over(self, key: str, now: float) -> bool:
        """Whether the end of such a run was acknowledged not long ago: an order for it is late, and begins nothing."""
        return self._over.get(key, float("-inf")) >= now - LATE_S

    def knows(self, key: str, now: float) -> bool:
        """Whether such a run is or was here."""
        return key in self.by_key or self.is_over(key, now)

    def of_claim(self, claim_id: str) -> list[Run]:
        return [run for run in self.by_key.values() if run.record.claim_id == claim_id]

    def scratch_of(self, name: str) -> Path | None:
        """The scratch directory of a run, by its launcher's name for it; None when it has none any more."""
        return next((one.scratch for one in self.by_key.values() if one.record.name == name), None)

    def stop(self, order: StopRun) -> None:
        run = self.by_key.get(order.run)
        if run is not None:
            run.stop("evicted", "evict", order.reason, fast=order.fast, vacate_code=order.code, hold=order.hold)

    def suspend(self, order: Suspension) -> None:
        run = self.by_key.get(order.run)
        if run is not None:
            run.suspend(order.suspended)
