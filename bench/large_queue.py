"""What a large queue does to the daemons: `python -m bench.large_queue [--jobs N]`.

One cluster of N idle jobs in a personal pool that has no slot for them: submitted, looked at, held, released, read
again by a restarted schedd, removed. For each step the time on the clock as a user sees it (`roost` commands, Python's
start included) and the longest pause of the event loop that all daemons share; where it paused longer than 0.1 s, the
lines of the product that were at work then. Heartbeats and leases wait while a loop pauses.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from tests.integration.inside import InsidePool

ROOT = Path(__file__).parents[1]
#: A pause as long as this is looked into, seconds.
LONG_S = 0.1
EVERY_S = 0.01


class LoopWatch:
    """Sees how long an event loop does not come round, and what it does meanwhile. To be used as a context."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._beat = time.perf_counter()
        self._thread_id = 0
        self._stop = threading.Event()
        self._told = False
        self.longest = 0.0
        self.long: list[float] = []
        self.at: Counter[str] = Counter()
        self._collecting = 0.0
        self.longest_collection = 0.0

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.perf_counter()
        else:
            self.longest_collection = max(self.longest_collection, time.perf_counter() - self._collecting)

    def __enter__(self) -> LoopWatch:
        self._loop.call_soon_threadsafe(self._tick)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        gc.callbacks.append(self._on_collection)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._on_collection)
        self._stop.set()
        self._thread.join()

    def reset(self) -> tuple[float, list[float], Counter[str]]:
        """What was seen since the last call."""
        seen = self.longest, self.long, self.at
        self.longest, self.long, self.at = 0.0, [], Counter()
        return seen

    def _tick(self) -> None:
        now = time.perf_counter()
        self._thread_id = threading.get_ident()
        pause = now - self._beat - EVERY_S
        self._beat = now
        self.longest = max(self.longest, pause)
        if pause > LONG_S:
            self.long.append(pause)
        if not self._stop.is_set():
            self._loop.call_later(EVERY_S, self._tick)

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            if time.perf_counter() - self._beat > LONG_S and self._thread_id:
                frame = sys._current_frames().get(self._thread_id)
                self.at[_place(frame)] += 1


def _place(frame: FrameType | None) -> str:
    """The innermost lines of ours in a stack."""
    lines = [
        f"{Path(entry.filename).relative_to(ROOT)}:{entry.lineno} {entry.name}"
        for entry in traceback.extract_stack(frame)
        if entry.filename.startswith(str(ROOT)) and ".venv" not in entry.filename
    ]
    return " < ".join(reversed(lines[-3:])) or "elsewhere (a callback of a library, the collector of garbage)"


def memory_mib() -> float:
    """Of this process, now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Bench:
    def __init__(self, directory: Path, jobs: int) -> None:
        self.directory, self.jobs = directory, jobs
        limits = dict.fromkeys(("MAX_JOBS_PER_SUBMISSION", "MAX_JOBS_PER_OWNER"), str(max(jobs, 100_000)))
        self.pool: Any = InsidePool(directory / "pool", START="false", **limits)
        self.figures: dict[str, Any] = {}
        self.watch = LoopWatch(self.pool.loop)

    def roost(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "roost", *words],
            cwd=self.directory,
            env=self.pool.environment(),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        if done.returncode:
            print(f"  exit {done.returncode}: {done.stderr.strip()[-500:]}")
        return done.stdout

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self.watch.reset()
        begun = time.perf_counter()
        yield
        took = time.perf_counter() - begun
        longest, long, at = self.watch.reset()
        self.figures[name] = {"s": round(took, 2), "longest_pause_s": round(longest, 3), "rss_mib": round(memory_mib())}
        collection, self.watch.longest_collection = self.watch.longest_collection, 0.0
        print(
            f"{name:20} {took:7.2f} s   longest pause {longest:6.3f} s (collection of garbage {collection:.3f} s)   "
            f"{memory_mib():5.0f} MiB",
            flush=True,
        )
        if long:
            print(f"  {len(long)} pauses over {LONG_S} s, together {sum(long):.2f} s")
        for place, count in at.most_common(6):
            print(f"  {count:4} x {place}")

    def settle(self) -> None:
        """Let what a step set off come to its end."""
        quiet = 0
        while quiet < 10:
            before = self.pool.run(asyncio.sleep(0.05, self.watch.longest))
            quiet = quiet + 1 if before < LONG_S else 0
            self.watch.longest = 0.0

    def run(self) -> None:
        text = "executable = /bin/true\nshould_transfer_files = NO\narguments = $(Process)\noutput = out.$(Process)\n"
        (self.directory / "many.sub").write_text(f"{text}queue {self.jobs}\n")
        with self.watch:
            self.steps()
        self.pool.close()

    def steps(self) -> None:
        def after(name: str, act: Callable[[], object]) -> None:
            with self.step(name):
                act()
            with self.step("  afterwards"):
                self.settle()

        with self.step("idle"):
            time.sleep(2)
        after("submit", lambda: self.roost("submit", "many.sub"))
        after("q (totals)", lambda: self.roost("q", "-totals"))
        after("q", lambda: self.roost("q"))
        after("q -nobatch", lambda: self.roost("q", "-nobatch"))
        after("q -l of all", lambda: self.roost("q", "-l"))
        after("q -constraint", lambda: self.roost("q", "-constraint", "ProcId % 1000 == 7", "-af", "ProcId"))
        after("hold", lambda: self.roost("hold", "1"))
        after("release", lambda: self.roost("release", "1"))
        after("restart: stop", lambda: self.pool.stop_daemon("schedd"))
        after("restart: start", lambda: self.pool.start_daemon("schedd"))
        after("rm", lambda: self.roost("rm", "1"))
        after("history -limit 10", lambda: self.roost("history", "-limit", "10"))
        after("history", lambda: self.roost("history"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as folder:
        bench = Bench(Path(folder), options.jobs)
        bench.run()
        if options.json:
            options.json.write_text(json.dumps(bench.figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
