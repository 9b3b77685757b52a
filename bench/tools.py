"""How long the tools take on a large pool, from shell to prompt, beside what they aim at.

    python -m bench.tools [--slots 100000] [--jobs 10000] [--rounds 7] [--only status|q|history] [--json FILE]

Slots lie in a collector that runs as a process, with a gateway, on a RabbitMQ and a Redis of the benchmark's own (as in
bench.collector); jobs are held ones of one cluster, or a quarter each of four, in a personal pool; a history is a file.
Python's start and HTTP are in all figures, standard output goes to nowhere. A figure is the median of some rounds.
Beside the clock stands the processor time, of the command and of the daemons it asks, which says more where others work
on the machine; and how many times as much as a yardstick's the command's is: a program in Python that makes a million
small strings, run in the same rounds, so that figures of different machines can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psutil

from bench.collector.pool import Pool, cpu
from tests.integration.pools import EmbeddedPool

ROOT: Final = Path(__file__).parents[1]
YARDSTICK: Final = "for n in range(1000000): str(n)"
#: Seconds from shell to prompt on two cores that do nothing else.
AIMS: Final[Mapping[str, float]] = {
    "first status": 1.3,
    "status": 1.3,
    "status -total": 1.3,
    "q": 0.3,
    "q -nobatch": 0.3,
    "q -totals": 0.3,
}
STATUS: Final = ("status", "status -total", "status -state", "status -compact")
QUEUE: Final = ("version", "q", "q -totals", "q -nobatch", "q -nobatch -run", "userprio -all")


def spent(argv: Sequence[str], env: Mapping[str, str]) -> tuple[float, float]:
    """Seconds on the clock and of the processor that a program took."""
    before, began = os.times(), time.perf_counter()
    subprocess.run(argv, env=dict(env), cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    took, after = time.perf_counter() - began, os.times()
    used = after.children_user - before.children_user + after.children_system - before.children_system
    return took, used


class Bench:
    """Figures by name."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.figures: dict[str, dict[str, Any]] = {}
        headings = f"{'clock':>8} {'aim':>6} {'':>6} {'command':>9} {'daemons':>9} {'yardsticks':>10} {'load':>6}"
        print(f"{'roost ...':<24} {headings}")

    def measure(
        self, name: str, command: str, env: Mapping[str, str], daemons: Callable[[], float], rounds: int = 0
    ) -> None:
        """Run a command some times. daemons: processor seconds that those who answer have had."""
        # As an installed program: compiled once.
        env = {name: text for name, text in env.items() if name != "PYTHONDONTWRITEBYTECODE"}
        clocks, own, others, sticks = [], [], [], []
        for _ in range(rounds or self.rounds):
            sticks.append(spent([sys.executable, "-S", "-c", YARDSTICK], env)[1])
            before = daemons()
            took, used = spent([sys.executable, "-m", "roost", *command.split()], env)
            clocks.append(took)
            own.append(used)
            others.append(daemons() - before)
        middle = statistics.median
        clock, aim = middle(clocks), AIMS.get(name)
        figure = {
            "clock_s": round(clock, 3),
            "clocks_s": [round(one, 3) for one in clocks],
            "aim_s": aim,
            "command_s": round(middle(own), 3),
            "daemons_s": round(middle(others), 3),
            "yardsticks": round(middle(own) / middle(sticks), 2),
            "load": round(os.getloadavg()[0], 1),
        }
        self.figures[name] = figure
        verdict = "" if aim is None else "met" if clock <= aim else "missed"
        print(
            f"{name:<24} {figure['clock_s']:>6.3f} s {aim or '':>6} {verdict:>6} {figure['command_s']:>7.3f} s"
            f" {figure['daemons_s']:>7.3f} s {figure['yardsticks']:>10.2f} {figure['load']:>6.1f}",
            flush=True,
        )


def of_slots(bench: Bench, slots: int) -> None:
    """`roost status`; the first one as soon as all slots have come and the columns follow them."""
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as place, ExitStack() as stack:
        pool = Pool(Path(place), stack)
        pool.feed("whole", slots, 1)
        parts = pool.processes()
        settled(parts["collector"])
        env = {**os.environ, "ROOST_POOL_DIR": place, "PYTHONPATH": str(ROOT)}

        def used() -> float:
            return sum(cpu(parts[name]) for name in ("collector", "gateway", "broker"))

        spent([sys.executable, "-m", "roost", "status", "-help"], env)  # so that it is compiled
        bench.measure("first status", "status", env, used, rounds=1)
        for command in STATUS:
            bench.measure(command, command, env, used)


def settled(process: psutil.Process) -> None:
    """Wait until it has nothing to do for a while."""
    quiet = 0
    while quiet < 3:
        before = cpu(process)
        time.sleep(1.0)
        quiet = quiet + 1 if cpu(process) - before < 0.1 else 0


def of_jobs(bench: Bench, jobs: int) -> None:
    """`roost q` of one cluster and of four."""
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as place, ExitStack() as stack:
        directory = Path(place)
        pool = EmbeddedPool(directory / "pool")
        stack.callback(pool.close)
        pool.start()
        described = json.loads((directory / "pool" / "pool.json").read_text())
        daemons = psutil.Process(described["pid"])
        env = {**pool.environment(), "PYTHONPATH": str(ROOT)}
        for clusters, title in ((1, ""), (4, " (4 clusters)")):
            (directory / "many.sub").write_text(
                f"executable = /bin/true\narguments = $(Process)\nhold = true\nqueue {jobs // clusters}\n"
            )
            for _ in range(clusters):
                pool.submit(directory / "many.sub")
            for command in QUEUE if clusters == 1 else ("q", "q -nobatch"):
                bench.measure(command + title, command, env, lambda: cpu(daemons))
            spent([sys.executable, "-m", "roost", "rm", "-all"], env)


def of_history(bench: Bench, jobs: int) -> None:
    """`roost history` of a file, as condor_schedd and our schedd write it."""
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as place:
        file = Path(place, "history")
        with file.open("w") as out:
            out.writelines(records(jobs))
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        for command in (f"history -file {file}", f"history -file {file} -limit 10"):
            bench.measure(command.replace(f" -file {file}", " FILE"), command, env, lambda: 0.0, rounds=3)


def records(jobs: int) -> Iterator[str]:
    """Jobs that left the queue, of 60 attributes each."""
    more = "".join(f'Attribute{n} = "{"x" * (n % 30)}"\n' for n in range(48))
    for number in range(jobs):
        yield (
            f'ClusterId = {number // 100}\nProcId = {number % 100}\nOwner = "user{number % 37}"\nJobStatus = 4\n'
            f"QDate = {1_700_000_000 + number}\nCompletionDate = {1_700_003_600 + number}\nExitCode = 0\n"
            f'RemoteWallClockTime = {number % 5000}.0\nCmd = "/bin/sleep"\nArgs = "{number}"\n'
            f"Requirements = (TARGET.Memory >= RequestMemory)\nRequestMemory = {number % 64}\n{more}"
            f'*** Offset = 0 ClusterId = {number // 100} ProcId = {number % 100} Owner = "user" CompletionDate = 1\n'
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=("status", "q", "history"))
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    bench = Bench(options.rounds)
    if options.only in (None, "status"):
        of_slots(bench, options.slots)
    if options.only in (None, "q"):
        of_jobs(bench, options.jobs)
    if options.only in (None, "history"):
        of_history(bench, 10 * options.jobs)
    if options.json:
        options.json.write_text(json.dumps(bench.figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
