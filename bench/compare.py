"""Whether a revision makes jobs dearer than another: processor time and messages a job, of two pools side by side.

    python -m bench.compare OLD NEW           revisions of this repository, or directories of checkouts
    python -m bench.compare HEAD .            what is not committed yet, against the last commit
    python -m bench.compare OLD NEW --json FILE

Each tree's daemons are processes on a RabbitMQ and a Redis of their own. Rounds of jobs go to one pool and the other
in turn: a burst of /bin/true in one cluster, then single jobs, each submitted when the one before has ended. What a
round cost is what all daemons and servers used of the processors meanwhile, nannies and jobs included, and what the
broker was given, less what the idle pool does in as much time; of the rounds the median counts. No clock on the wall
is in it but for that, so the machine may be busy: two rounds that come one after the other have the same neighbours.
Exits with 1 where NEW needs more than 10 % more (`--limit`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.pool import TRUE, Listener, description, messages, processor_s
from tests.integration.pools import ProcessPool
from tests.servers import Rabbit, Redis, free_port

ROOT = Path(__file__).parents[1]
#: A daemon that used less a job than this, ms, is not told: the kernel counts in steps of 10 ms.
TOLD_MS = 0.05
#: After the first jobs a pool is left alone for a while, s, and then watched for a while as it does nothing.
SETTLE_S, IDLE_S = 3.0, 10.0


@dataclass
class Costs:
    """What rounds cost, a job each: processor time by daemon, ms, and messages that were published and delivered."""

    processor_ms: list[dict[str, float]] = field(default_factory=list)
    messages: list[dict[str, float]] = field(default_factory=list)

    def of(self, name: str) -> float:
        """The median of a daemon's processor time."""
        return statistics.median(each.get(name, 0.0) for each in self.processor_ms)

    def totals(self) -> list[float]:
        return [sum(each.values()) for each in self.processor_ms]


class Side:
    """The pool of one tree, and what its rounds cost: "burst" and "single"."""

    def __init__(self, directory: Path, tree: Path, stack: ExitStack) -> None:
        self.rabbit, self.redis = Rabbit(), Redis()
        for server in (self.rabbit, self.redis):
            stack.callback(server.close)
            server.start()
        self.pool = ProcessPool(
            directory / "pool",
            self.rabbit.url,
            self.redis.url,
            free_port(),
            tree=tree,
            NUM_CPUS="8",
            MEMORY="16384",
            DOCKER="",
        )
        stack.callback(self.pool.close)
        self.pool.start()
        self.work = directory / "work"
        self.work.mkdir()
        self.ended = Listener(self.pool, "job.ended")
        self.costs = {"burst": Costs(), "single": Costs()}
        self._jobs = 0
        self._idle_s: dict[str, float] = {}  # processor time that an idle second takes, by daemon
        self._idle_messages: dict[str, float] = {}
        self._began_idle = self._used()

    def _pids(self) -> dict[str, int]:
        pids = {name: daemon.pid for name, daemon in self.pool.daemons.items()}
        for server in (self.rabbit, self.redis):
            assert server.process is not None
            pids[server.program] = server.process.pid
        return pids

    def _used(self) -> tuple[float, dict[str, float], dict[str, int]]:
        """So far: the time of the clock, processor time of each daemon, s, and messages."""
        used, said = processor_s(self._pids()), messages(self.rabbit)
        return time.monotonic(), used, said

    def begin_idle(self) -> None:
        self._began_idle = self._used()

    def end_idle(self) -> None:
        """Note what the pool did since `begin_idle`, a second."""
        began, before, said = self._began_idle
        ended, after, heard = self._used()
        seconds = ended - began
        self._idle_s = {name: (used - before.get(name, 0.0)) / seconds for name, used in after.items()}
        self._idle_messages = {name: (total - said[name]) / seconds for name, total in heard.items()}

    def round(self, kind: str, clusters: int, jobs: int) -> None:
        """Clusters one after the other, each of so many jobs."""
        began, before, said = self._used()
        self._run(clusters, jobs)
        ended, after, heard = self._used()
        seconds, count, costs = ended - began, clusters * jobs, self.costs[kind]
        costs.processor_ms.append(
            {
                name: max(0.0, used - before.get(name, 0.0) - self._idle_s.get(name, 0.0) * seconds) / count * 1e3
                for name, used in after.items()
            }
        )
        costs.messages.append(
            {name: (total - said[name] - self._idle_messages[name] * seconds) / count for name, total in heard.items()}
        )

    def _run(self, clusters: int, jobs: int) -> None:
        cluster = next(description(self.work, f"{TRUE}queue {jobs}\n").clusters())
        with self.pool.client() as client:
            for _ in range(clusters):
                client.submit(cluster.ad, cluster.jobs())
                self._jobs += jobs
                self.ended.wait_for(self._jobs, 300)

    def warm(self) -> None:
        """What only the first jobs of a pool cost is no part of any round."""
        self._run(3, 20)


@contextmanager
def tree_of(name: str) -> Iterator[Path]:
    """The directory of a checkout, or a revision of this repository in a worktree."""
    if (Path(name) / "services").is_dir():
        yield Path(name).resolve()
        return
    with tempfile.TemporaryDirectory(prefix="roost-compare-") as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        made = subprocess.run([*git, "add", "--quiet", "--detach", str(tree), name], check=False)
        if made.returncode:
            sys.exit(f"bench.compare: {name} is neither a checkout of Roost nor a revision of {ROOT}")
        spawner = tree / "services/startd/forkserver/build.py"
        if spawner.is_file():  # as bin/setup does
            subprocess.run([sys.executable, "-I", str(spawner)], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def table(old: Costs, new: Costs) -> Iterator[str]:
    """What each daemon used a job, and the messages."""
    names = sorted({name for costs in (old, new) for each in costs.processor_ms for name in each})
    for name in names:
        if max(old.of(name), new.of(name)) >= TOLD_MS:
            yield f"  {name:<18} {old.of(name):>8.2f} {new.of(name):>8.2f} ms"
    for name in old.messages[0]:
        before, after = (statistics.median(each[name] for each in costs.messages) for costs in (old, new))
        yield f"  {'messages ' + name:<18} {before:>8.2f} {after:>8.2f}"


def ratios(old: Costs, new: Costs) -> dict[str, float]:
    """NEW to OLD: the median of the ratios of rounds that were run one after the other."""
    published = [
        after["published"] / before["published"] for before, after in zip(old.messages, new.messages, strict=True)
    ]
    used = [after / before for before, after in zip(old.totals(), new.totals(), strict=True)]
    return {"processor time": statistics.median(used), "messages published": statistics.median(published)}


def dearer(figures: Mapping[str, Mapping[str, float]], limit: float) -> list[str]:
    """What NEW needs more of than the limit allows, in words. figures: by kind of round, as `ratios` gives them."""
    return [
        f"{kind}: {what} {ratio:.3f} of old"
        for kind, each in figures.items()
        for what, ratio in each.items()
        if ratio > 1 + limit
    ]


def compare(old: Path, new: Path, rounds: int, burst: int, single: int) -> dict[str, tuple[Costs, Costs]]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roost-bench-")))
        sides = []
        for name, tree in (("old", old), ("new", new)):
            (directory / name).mkdir()
            sides.append(Side(directory / name, tree, stack))
        for side in sides:
            side.warm()
        time.sleep(SETTLE_S)
        for side in sides:
            side.begin_idle()
        time.sleep(IDLE_S)
        for side in sides:
            side.end_idle()
        for number in range(rounds):
            for side in sides if number % 2 == 0 else reversed(sides):
                side.round("burst", 1, burst)
                side.round("single", single, 1)
        return {kind: (sides[0].costs[kind], sides[1].costs[kind]) for kind in sides[0].costs}


def main() -> None:
    parser = argparse.ArgumentParser(description="Processor time and messages a job of two revisions.")
    parser.add_argument("old", help="revision, or directory of a checkout")
    parser.add_argument("new", help="the same")
    parser.add_argument("--rounds", type=int, default=5, help="of each (5)")
    parser.add_argument("--burst", type=int, default=200, help="jobs of a burst (200)")
    parser.add_argument("--single", type=int, default=15, help="single jobs of a round (15)")
    parser.add_argument("--limit", type=float, default=0.10, help="what more is too much (0.10)")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    with tree_of(options.old) as old, tree_of(options.new) as new:
        found = compare(old, new, options.rounds, options.burst, options.single)
    figures = {}
    for kind, (before, after) in found.items():
        print(f"{kind:<20} {'old':>8} {'new':>8}   a job")
        print(*table(before, after), sep="\n")
        figures[kind] = ratios(before, after)
        for what, ratio in figures[kind].items():
            print(f"  {what:<18} {'':>8} {ratio:>8.3f} of old")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    if worse := dearer(figures, options.limit):
        sys.exit("bench.compare: dearer by more than the limit: " + ", ".join(worse))


if __name__ == "__main__":
    main()
