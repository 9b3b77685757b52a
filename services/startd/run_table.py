"""The runs that are known: those that go on, and those whose end no schedd has acknowledged yet."""

from __future__ import annotations

from pathlib import Path

from services.startd.core.slots.effects import StopRun, Suspension
from services.startd.run.run import Run


class RunTable:
    def __init__(self) -> None:
        self.by_key: dict[str, Run] = {}  # until their end is acknowledged

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
