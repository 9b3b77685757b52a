"""How busy GPUs are, line by line, for whoever adds it up: `uuid busy-seconds peak-MiB`, each SECONDS."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from shared.gpus.libraries import DriverLibraries
from shared.gpus.model import Backend

#: Drivers average their rate over about so long; looking more often tells nothing new. Seconds.
LOOK_S = 0.5


def monitor(
    argv: Sequence[str],
    *,
    out: Callable[[str], object],
    backend: Backend | None = None,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    rounds: int = 0,
) -> int:
    """Report until ended; `rounds` reports if that is not 0."""
    source = backend or DriverLibraries()
    every = max(1.0, float(argv[0])) if argv else 10.0
    told = 0
    while not rounds or told < rounds:
        busy: dict[str, float] = {}
        peak: dict[str, int] = {}
        began = before = now()
        while before - began < every:
            sleep(LOOK_S)
            at = now()
            for load in source.loads():
                busy[load.uuid] = busy.get(load.uuid, 0.0) + load.busy * (at - before)
                peak[load.uuid] = max(peak.get(load.uuid, 0), load.memory_mib)
            before = at
        out("".join(f"{uuid} {busy[uuid]:.3f} {peak[uuid]}\n" for uuid in busy) + "-\n")
        told += 1
    return 0
