"""What a large queue does to the daemons, and what it costs: `python -m bench.large_queue [--jobs N,N...]`.

One cluster of N idle jobs in a personal pool that has no slot for them: submitted, looked at, held, released, read
again by a restarted schedd, removed. For each step: the time on the clock as a user sees it (`roost` commands, Python's
start included), processor time of the pool and of the command, the longest pause of the event loop that all daemons
share, and how much memory there is. Where the loop paused longer than 0.1 s, the lines of the product that were at work
then are told. Heartbeats and leases wait while a loop pauses.

    --queries   also the questions that bring all jobs, and the whole history
    --ends K    in place of all that: processor time of the pool for each of K jobs that end while the N others of the
                same cluster wait, and for each of K that end beside N others of which no slot may have one
    --kinds M   with --ends: the jobs that wait are of M kinds (autoclusters)
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

from shared.daemon.garbage import ShortCollections
from tests.integration.inside import InsidePool

ROOT = Path(__file__).parents[1]
#: Runs a command, and writes into a file how much memory it took at most, KiB: what the kernel tells of a child that
#: has ended counts its parent's, before the child was another program.
COMMAND = """
import atexit, runpy, sys
file = sys.argv.pop(1)
def tell():
    line = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    open(file, "w").write(line.split()[1])
atexit.register(tell)
runpy.run_module("roost", run_name="__main__")
"""
#: A pause as long as this is looked into, seconds.
LONG_S = 0.1
EVERY_S = 0.01


class LoopWatch:
    """Sees how long an event loop does not come round, and what it does meanwhile. To be used as a context."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._beat = time.perf_counter()
        self._worked = 0.0
        self._thread_id = 0
        self._stop = threading.Event()
        self.longest = 0.0
        self.longest_work = 0.0
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

    def reset(self) -> tuple[float, float, list[float], Counter[str]]:
        """What was seen since the last call: the longest pause on the clock, and in processor time of the loop's
        thread; all long ones; where they were."""
        seen = self.longest, self.longest_work, self.long, self.at
        self.longest, self.longest_work, self.long, self.at = 0.0, 0.0, [], Counter()
        return seen

    def _tick(self) -> None:
        now, worked = time.perf_counter(), time.thread_time()
        self._thread_id = threading.get_ident()
        pause = now - self._beat - EVERY_S
        self.longest_work = max(self.longest_work, worked - self._worked if self._worked else 0.0)
        self._beat, self._worked = now, worked
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
    def __init__(self, directory: Path, jobs: int, **knobs: str) -> None:
        self.directory, self.jobs = directory, jobs
        directory.mkdir(exist_ok=True)
        limits = dict.fromkeys(("MAX_JOBS_PER_SUBMISSION", "MAX_JOBS_PER_OWNER"), str(max(jobs + 10_000, 100_000)))
        self.pool: Any = InsidePool(directory / "pool", **{"START": "false", **limits, **knobs})
        self.figures: dict[str, Any] = {}
        self.pool.loop.call_soon_threadsafe(ShortCollections().start)  # as `roost up` and daemons do
        self.watch = LoopWatch(self.pool.loop)
        self.command_s = self.command_mib = 0.0  # of the commands of one step

    def roost(self, *words: str) -> str:
        """Run a command; its processor time and its memory count for the step."""
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as told:
            running = subprocess.Popen(
                [sys.executable, "-c", COMMAND, str(self.directory / "memory"), *words],
                cwd=self.directory,
                env=self.pool.environment(),
                stdout=said,
                stderr=told,
            )
            _, status, used = os.wait4(running.pid, 0)
            running.returncode = os.waitstatus_to_exitcode(status)
            self.command_s += used.ru_utime + used.ru_stime
            self.command_mib = max(self.command_mib, int((self.directory / "memory").read_text()) / 1024)
            said.seek(0)
            told.seek(0)
            if running.returncode:
                print(f"  exit {running.returncode}: {told.read().decode().strip()[-500:]}")
            return said.read().decode()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self.watch.reset()
        self.command_s = self.command_mib = 0.0
        begun, worked = time.perf_counter(), time.process_time()
        yield
        took, worked = time.perf_counter() - begun, time.process_time() - worked
        longest, work, long, at = self.watch.reset()
        self.figures[name] = {
            "s": round(took, 2),
            "pool_cpu_s": round(worked, 2),
            "command_cpu_s": round(self.command_s, 2),
            "command_mib": round(self.command_mib),
            "longest_pause_s": round(longest, 3),
            "longest_work_s": round(work, 3),
            "rss_mib": round(memory_mib()),
        }
        collection, self.watch.longest_collection = self.watch.longest_collection, 0.0
        print(
            f"{name:20} {took:7.2f} s   processor: pool {worked:6.2f} s, command {self.command_s:5.2f} s, "
            f"{self.command_mib:4.0f} MiB   longest pause {longest:6.3f} s, of work {work:6.3f} s (garbage "
            f"{collection:.3f} s)   {memory_mib():5.0f} MiB",
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

    def run(self, *, queries: bool) -> None:
        text = "executable = /bin/true\nshould_transfer_files = NO\narguments = $(Process)\noutput = out.$(Process)\n"
        (self.directory / "many.sub").write_text(f"{text}queue {self.jobs}\n")
        (self.directory / "one.sub").write_text(f"{text}queue 1\n")
        with self.watch:
            self.steps(queries)
        self.pool.close()

    def steps(self, queries: bool) -> None:
        def after(name: str, act: Callable[[], object]) -> None:
            with self.step(name):
                act()
            with self.step("  afterwards"):
                self.settle()

        after("submit of one", lambda: self.roost("submit", "one.sub"))
        with self.step("idle"):
            time.sleep(2)
        before, base = memory_mib(), self.figures["submit of one"]["command_mib"]
        after("submit", lambda: self.roost("submit", "many.sub"))
        held = self.figures["submit"]
        a_job = (memory_mib() - before) * 2**20 / self.jobs
        self.figures["bytes_a_job"] = round(a_job)
        print(
            f"  {self.jobs / held['s']:,.0f} jobs/s; a job takes {a_job:.0f} bytes in the pool, and took "
            f"{(held['command_mib'] - base) * 2**20 / self.jobs:.0f} in the command"
        )
        after("q (totals)", lambda: self.roost("q", "-totals"))
        if queries:
            after("q", lambda: self.roost("q"))
            after("q -nobatch", lambda: self.roost("q", "-nobatch"))
            after("q -l of all", lambda: self.roost("q", "-l"))
            after("q -constraint", lambda: self.roost("q", "-constraint", "ProcId % 1000 == 7", "-af", "ProcId"))
        after("look at policies", lambda: self.pool.run(self.schedd.actions.look(), 600.0))
        after("hold", lambda: self.roost("hold", "2"))
        after("release", lambda: self.roost("release", "2"))
        runner = self.pool.runner("schedd")
        after("restart: stop", lambda: self.pool.run(runner.stop(), 600.0))
        after("restart: start", lambda: self.pool.run(runner.start(), 600.0))
        after("rm", lambda: self.roost("rm", "2"))
        if queries:
            after("history -limit 10", lambda: self.roost("history", "-limit", "10"))
            after("history", lambda: self.roost("history"))

    @property
    def schedd(self) -> Any:
        return self.pool.runner("schedd").daemon

    # Ends of jobs

    def ended(self) -> int:
        return int(self.schedd.updates.published.by_name.get(("job.ended",), 0))

    def ends(self, count: int, kinds: int, *, beside: bool) -> None:
        """Processor time of the pool's process for each job that ends; jobs and the fork server are apart. beside: the
        jobs that wait are of another cluster, and no slot may have one."""
        head = "executable = /bin/true\nshould_transfer_files = NO\narguments = $(Process)\n"
        if kinds > 1:
            head += f"request_memory = 1 + $(Process) % {kinds}\n"
        waiting = "requirements = TARGET.HasNoSuchThing =?= true\n"
        (self.directory / "wait.sub").write_text(f"{head}{waiting}queue {self.jobs}\n")
        (self.directory / "run.sub").write_text(f"{head}queue {count + 200 + (0 if beside else self.jobs)}\n")
        if beside:
            self.roost("submit", "wait.sub")
        self.roost("submit", "run.sub")
        self._measure("beside jobs that no slot may have" if beside else "of a cluster whose others wait", count)
        self.pool.close()

    def _measure(self, name: str, count: int) -> None:
        begin = self.ended() + 100
        while self.ended() < begin:
            time.sleep(0.01)
        first, worked, began = self.ended(), time.process_time(), time.perf_counter()
        while self.ended() < begin + count:
            time.sleep(0.01)
        number = self.ended() - first
        each = (time.process_time() - worked) / number * 1000
        self.figures[name] = {"pool_cpu_ms_a_job": round(each, 2)}
        print(
            f"{self.jobs:9} jobs wait, {number} ended {name}: {each:6.2f} ms of processor time each, "
            f"{number / (time.perf_counter() - began):.0f} a second",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--jobs", default="100000", help="how many; several, one after the other: 100000,1000000")
    parser.add_argument("--queries", action="store_true", help="also questions that bring all jobs")
    parser.add_argument("--ends", type=int, default=0, metavar="K", help="only: processor time of K ends of jobs")
    parser.add_argument("--kinds", type=int, default=1, metavar="M", help="with --ends: of so many kinds")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    for jobs in map(int, options.jobs.split(",")):
        print(f"{jobs:,} jobs, load {os.getloadavg()[0]:.1f}", flush=True)
        with tempfile.TemporaryDirectory(prefix="roost-bench-") as folder:
            if not options.ends:
                bench = Bench(Path(folder), jobs)
                bench.run(queries=options.queries)
                figures[str(jobs)] = bench.figures
            for beside in (True, False) if options.ends else ():
                bench = Bench(Path(folder) / str(beside), jobs, START="true", NUM_CPUS="8")
                bench.ends(options.ends, options.kinds, beside=beside)
                figures.setdefault(str(jobs), {}).update(bench.figures)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
