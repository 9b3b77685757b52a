"""What a piece of work costs a daemon's loop."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

from tests.yardstick import slowness

#: Processor seconds for which a loop may be silent.
SILENCE_S: Final = 0.05
#: How often something is done that seemed dear: what else runs on the machine takes caches away.
TRIES: Final = 6


def cost(work: Callable[[], object]) -> float:
    """Processor seconds of a call, as on a quiet machine: of the first one that holds no loop, else of the shortest of
    some. What a collection of garbage takes is not its doing."""
    found = []
    for _ in range(TRIES):
        if found:
            gc.collect()
        began = time.thread_time()
        work()
        spent = time.thread_time() - began
        found.append(spent if spent < SILENCE_S / 2 else spent / slowness())
        if found[-1] < SILENCE_S:
            break
    return min(found)
