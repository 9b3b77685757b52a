"""Keeps collections of garbage short in a process of daemons, as nothing else happens meanwhile.

A full collection looks at every object that is not frozen (gc.freeze), and frees what waits in cycles. A daemon's
modules, routes and models of messages stay anyway, and so does most of what it knows of jobs, slots and ads, which goes
without leaving a cycle behind: all that is frozen as soon as looking at it takes long. What is between two full
collections is bounded too: Python's own thresholds let 85,000 objects wait, which took a gateway 55 to 80 ms.

What is in the middle of its use when all is frozen, and becomes a cycle later, stays until the daemon ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Mapping
from typing import Any, Final

#: gc.set_threshold: every 700th object that stays a look at the young ones; every 11th of these at the middle-aged too;
#: every 3rd of these at all.
THRESHOLDS: Final = (700, 10, 2)
#: Processor seconds of a full collection after which what it left is frozen.
LONG_S: Final = 0.01
_FULL: Final = 2


class ShortCollections:
    """From `start` to `stop`, on the running loop. There is one garbage collector in a process, so there is one of
    these."""

    def __init__(self, long_s: float = LONG_S) -> None:
        self._long_s = long_s
        self._began = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._before = gc.get_threshold()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        gc.set_threshold(*THRESHOLDS)
        gc.callbacks.append(self._look)
        freeze()

    def stop(self) -> None:
        """What is frozen stays so: a process that ends would look at all of it once more."""
        if self._loop is None:
            return
        self._loop = None
        gc.callbacks.remove(self._look)
        gc.set_threshold(*self._before)

    def _look(self, phase: str, told: Mapping[str, Any]) -> None:
        """Called around each collection, in the thread that needed room."""
        if told["generation"] != _FULL:
            return
        if phase == "start":
            self._began = time.thread_time()
        elif time.thread_time() - self._began >= self._long_s and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._freeze)

    def _freeze(self) -> None:
        if self._loop is not None:
            freeze()


def freeze() -> None:
    """What there is now is looked at no more."""
    gc.freeze()
    # Next to nothing is left to look at. Without this the collector remembers how much it saw the last time, and waits
    # until a quarter of that has come: then that much waits to be freed at once.
    gc.collect()
