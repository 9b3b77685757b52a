"""What a run is told from outside: to end, and how."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from services.startd.starter.job import Stop


@dataclass(slots=True)
class StopOrder:
    how: Stop
    why: str  # remove, hold, vacate, evict
    message: str
    fast: bool
    want_output: bool
    vacate_code: int = 0
    hold: tuple[str, int] | None = None  # it is to be held then, with this reason and subcode

    @classmethod
    def unpack(cls, record: Mapping[str, Any]) -> StopOrder:
        hold = record.get("hold")
        return cls(**{**record, "hold": None if hold is None else (hold[0], hold[1])})


class Orders:
    """Of one run. `stopped`: it is to end; `fast`: at once."""

    def __init__(self, record: Mapping[str, Any] | None) -> None:
        self.stop: StopOrder | None = None
        self.stopped, self.fast = asyncio.Event(), asyncio.Event()
        if record is not None:
            self.take(StopOrder.unpack(record))

    def take(self, order: StopOrder) -> None:
        """The first order stands; a later one may only hurry."""
        if self.stop is None:
            self.stop = order
            self.stopped.set()
        if order.fast:
            self.hurry()

    def hurry(self) -> None:
        if self.stop is not None:
            self.stop.fast = True
            self.fast.set()

    def words(self) -> tuple[Stop | None, str]:
        return (None, "") if self.stop is None else (self.stop.how, self.stop.message)
