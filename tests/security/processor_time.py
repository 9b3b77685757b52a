"""What a piece of work costs a daemon's loop."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

#: Processor seconds for which a loop may be silent.
SILENCE_S: Final = 0.05
#: How often something is done that seemed dear: what else runs on the machine takes caches away.
TRIES: Final = 6


def cost(work: Callable[[], object]) -> float:
    """Processor seconds of a call: of the first one that holds no loop, else of the shortest of some. What a collection
    of garbage takes is not its doing."""
    found = []
    for _ in range(TRIES):
        if found:
            gc.collect()
        began = time.thread_time()
        work()
        found.append(time.thread_time() - began)
        if found[-1] < SILENCE_S:
            break
    return min(found)
