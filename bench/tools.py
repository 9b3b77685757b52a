"""How long `roost q` takes as a user runs it: `python -m bench.tools [--jobs 10000]`.

A personal pool of its own with so many jobs on hold in one cluster; Python's start and HTTP are in it, the processor
time is the command's own. `roost status` of many slots is measured by `python -m bench.collector`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.integration.pools import EmbeddedPool

ROUNDS = 5
COMMANDS = (("version",), ("q",), ("q", "-totals"), ("q", "-nobatch"))


def timed(pool: EmbeddedPool, words: tuple[str, ...]) -> tuple[float, float]:
    """Seconds on the clock and of the processor, of the quickest of some rounds."""
    found = []
    for _ in range(ROUNDS):
        before, began = os.times(), time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "roost", *words],
            env=pool.environment(),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        took, after = time.perf_counter() - began, os.times()
        used = after.children_user - before.children_user + after.children_system - before.children_system
        found.append((took, used))
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    jobs = parser.parse_args().jobs
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roost-bench-")))
        pool = EmbeddedPool(directory / "pool")
        stack.callback(pool.close)
        pool.start()
        (directory / "many.sub").write_text(
            f"executable = /bin/true\narguments = $(Process)\nhold = true\nqueue {jobs}\n"
        )
        pool.submit(directory / "many.sub")
        for words in COMMANDS:
            took, used = timed(pool, words)
            text = " ".join(("roost", *words))
            print(f"{text:<20} {took:.3f} s, {used:.3f} s of processor time, load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
