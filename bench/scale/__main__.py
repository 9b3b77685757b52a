"""How large a pool may be: `python -m bench.scale [ROW...] [--machines 250,1000] [--json FILE]`.

Real daemons and servers, each daemon with its role's rights on the broker, and stand-ins for machines
(bench/scale/machines.py). For each number of machines, in one pool that grows, these rows, or only those that are named
(what joining and a quiet pool cost is always told):

    jobs      jobs of no length, as many as --jobs, through each number of --schedds
    streams   the same through one schedd, beside each number of --streams of all events
    users     --users submitters, each of whom submits one job
    storms    as many jobs that begin together and end together; and the broker killed: all machines return at once

All is told as processor time of each role, less what the pool takes when nothing is asked of it, as the machine may be
busy: what a role can do in a second is one second divided by that. Times on the clock are of this machine at its load.
`python -m bench.scale.model FILE` makes the model of a pool of any size from what --json wrote.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.pool import TRUE, description
from bench.scale.pool import Look, Pool, Row, row
from bench.scale.watchers import Watchers

ROWS = ("jobs", "streams", "users", "storms")
#: Who submits at the same time.
CLIENTS = 8


class Bench:
    def __init__(self, options: argparse.Namespace, directory: Path, stack: ExitStack) -> None:
        self.options, self.directory = options, directory
        self.pool = Pool(directory, stack, max(options.schedds))
        self.machines = 0
        self.domain = self._cluster(1).ad.eval_string("FileSystemDomain") or ""
        self.last = self.pool.look()  # where the row begins that comes next
        time.sleep(options.idle)
        self.empty = self.idle = self._row("empty", "no machine", "second")

    def _cluster(self, jobs: int, more: str = "") -> Any:
        return next(description(self.directory, f"{TRUE}{more}queue {jobs}\n").clusters())

    def _row(self, kind: str, what: str, unit: str, units: float = 0.0, idle: Row | None = None) -> Row:
        """What was done since the row before. units: none, seconds."""
        before, self.last = self.last, self.pool.look()
        return self._told(kind, what, unit, units or self.last.at - before.at, before, idle)

    def _told(self, kind: str, what: str, unit: str, units: float, before: Look, idle: Row | None) -> Row:
        made = row(kind, what, unit, units, self.machines, (before, self.last), idle)
        print(made, flush=True)
        return made

    # Machines

    def grow(self, machines: int) -> Iterator[Row]:
        """Machines join; then the pool is left alone."""
        pool, more = self.pool, machines - self.machines
        pool.join(more, self.options.slots, "--interval", str(self.options.interval), "--domain", self.domain)
        self.machines = machines
        yield self._row("join", "all that are new join", "machine", more, self.idle)
        time.sleep(self.options.idle)  # what joining sets off comes to its end
        before = self.last = pool.look()
        time.sleep(self.options.idle)
        self.idle = self._row("quiet", "nothing is asked for", "second")
        yield self.idle
        units = machines * (self.last.at - before.at)
        yield self._told("upkeep", "the same, less a pool of none", "machine and second", units, before, self.empty)
        mib = pool.memory_mib()
        print("    MiB: " + ", ".join(f"{name} {each:.0f}" for name, each in mib.items()), flush=True)
        yield Row("memory", "resident", "MiB", machines, 1, 0, 0, mib, {})

    # Jobs

    def _submit(self, jobs: int, schedds: int = 1) -> int:
        """Submit so many in all, in one cluster for each schedd. Returns how many."""
        each = jobs // schedds
        cluster = self._cluster(each)
        with self.pool.client() as client:
            for name in self.pool.schedds[:schedds]:
                client.submit(cluster.ad, cluster.jobs(), schedd=name)
        return each * schedds

    def _run(self, kind: str, what: str, schedds: int) -> Row:
        ends = self.pool.did()["ends"]
        jobs = self._submit(self.options.jobs, schedds)
        self.pool.until("ends", ends + jobs)
        return self._row(kind, what, "job", jobs, self.idle)

    def jobs(self) -> Iterator[Row]:
        for schedds in self.options.schedds:
            yield self._run("job", f"jobs of no length, {schedds} schedds", schedds)

    def streams(self) -> Iterator[Row]:
        for count in self.options.streams:
            watchers = Watchers(self.pool.url, self.pool.token, count)
            yield self._run("stream", f"jobs of no length, {count} streams of events", 1)
            watchers.close()

    def users(self) -> Iterator[Row]:
        users = self.options.users
        clusters = [self._cluster(1, f"accounting_group_user = u{number}\n") for number in range(users)]
        ends = self.pool.did()["ends"]

        def submit(some: list[Any]) -> None:
            with self.pool.client() as client:
                for cluster in some:
                    client.submit(cluster.ad, cluster.jobs(), schedd=self.pool.schedds[0])

        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(submit, [clusters[first::CLIENTS] for first in range(CLIENTS)]))
        self.pool.until("ends", ends + users)
        yield self._row("users", f"a job of each of {users} submitters", "job", users, self.idle)

    def storms(self) -> Iterator[Row]:
        pool = self.pool
        did = pool.did("last")
        jobs = self._submit(min(self.options.jobs, self.machines * self.options.slots))
        pool.until("starts", did["starts"] + jobs)
        yield self._row("begin", "jobs begin", "job", jobs, self.idle)
        pool.did("end")
        pool.until("ends", did["ends"] + jobs)
        yield self._row("end", "all these end together", "job", jobs, self.idle)
        self.last.broker_is_new()
        pool.rabbit.restart()
        pool.until("connected", self.machines)
        ends = pool.did()["ends"]
        self._submit(1)
        pool.until("ends", ends + 1)
        yield self._row("return", "all return to a new broker, and a job has run", "machine", self.machines, self.idle)


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("rows", nargs="*", choices=[[], *ROWS], metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--machines", type=numbers, default=[250, 1000], help="growing (250,1000)")
    parser.add_argument("--slots", type=int, default=10, help="of a machine (10)")
    parser.add_argument("--interval", type=float, default=300.0, help="UPDATE_INTERVAL of the machines, s (300)")
    parser.add_argument("--idle", type=float, default=30.0, help="how long a quiet pool is watched, s (30)")
    parser.add_argument("--jobs", type=int, default=2000, help="of each row (2000)")
    parser.add_argument("--schedds", type=numbers, default=[1, 2], help="1,2")
    parser.add_argument("--streams", type=numbers, default=[100, 500], help="100,500")
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--json", type=Path, help="write all rows there")
    options = parser.parse_args()
    with ExitStack() as stack:
        bench = Bench(options, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roost-scale-"))), stack)
        found = [bench.empty]
        for machines in options.machines:
            found += bench.grow(machines)
            for name in options.rows or ROWS:
                measure: Callable[[], Iterator[Row]] = getattr(bench, name)
                found += measure()
        print(f"stand-ins: {bench.pool.did()}")
    if options.json:
        told = {"slots": options.slots, "rows": [vars(each) for each in found]}
        options.json.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
