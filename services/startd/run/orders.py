"""What a run is told from outside: to end, and how."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from services.startd.core.run.exit_status import Stop, StopOrder


class Orders:
    """What one run is told from outside. `stopped`: it is to end; `fast`: at once."""

    def __init__(self, record: Mapping[str, Any] | None) -> None:
        self.stop: StopOrder | None = None
        self.stopped, self.fast = asyncio.Event(), asyncio.Event()
        if record is not None:
            self.add(StopOrder.unpack(record))

    def add(self, order: StopOrder) -> None:
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

    def reason(self) -> tuple[Stop | None, str]:
        return (None, "") if self.stop is None else (self.stop.how, self.stop.message)
