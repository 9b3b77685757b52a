"""What a pool does when its parts die, hang, are cut off or run out of room while jobs run: `python -m bench.faults`.

Every daemon is a process, and what can be had twice is there twice; Redis has two replicas and three sentinels,
RabbitMQ three nodes (--single: one server of each). With --containers it is the pool of compose/compose.ha.yaml, and
networks are cut as well; that takes root, and a Docker engine on this machine (else one is started, as for tests). For
each fault a new workload (one job twice a second, a question ten times a second, one job that runs through it all) goes
on while the fault lasts and until the pool serves again; then all jobs end, and what history, job event logs, the
accountant and the jobs' own notes say is compared. "Without" is the longest time between two answers, from the fault to
the return of service; with nothing wrong it is what the first row says. With --times each has a median and, after a
comma, the worst. Exit status 1 when anything was lost, done twice, or missed its aim.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

from bench.faults.containers import ContainerPool
from bench.faults.faults import (
    Fault,
    endure,
    none,
    of_clocks,
    of_containers,
    of_daemons,
    of_networks,
    of_primary,
    of_rooms,
    of_servers,
    of_single,
    small_disk,
)
from bench.faults.leaders import LeaderWatch
from bench.faults.network import Networks
from bench.faults.pool import CENTRAL, MEMBERS, FaultPool
from bench.faults.report import HEAD, fits, missed, row, table
from bench.faults.servers import RabbitCluster, ReplicatedRedis
from bench.faults.verdict import two_leaders, without_leader
from bench.faults.workload import Workload
from roost.errors import ClientError
from tests.containers.engine import Engine
from tests.servers import Rabbit, Redis

#: Of each daemon, for its LOCAL_DIR.
DISK_MIB = 64


class Bench:
    """Does faults one after the other and prints what came of them. connect, schedds, shared: see Workload."""

    def __init__(self, directory: Path, pool: FaultPool | ContainerPool) -> None:
        self.directory, self.pool = directory, pool
        self.schedds = pool.schedds() if isinstance(pool, ContainerPool) else ()
        self.figures: list[dict[str, Any]] = []
        self.bad: list[str] = []
        self.not_run: list[str] = []
        self._numbers = count()

    def workload(self, number: int) -> Workload:
        if isinstance(self.pool, ContainerPool):
            return Workload(self.pool.execute / f"work{number}", self.pool.connect, schedds=self.schedds, shared=False)
        return Workload(self.directory / f"work{number}", self.pool.connect)

    def watch(self) -> LeaderWatch:
        if isinstance(self.pool, ContainerPool):
            return LeaderWatch([self.pool[name].where for name in self.pool.daemons if name.startswith("negotiator")])
        ports = [self.pool["negotiator", name].port for name in CENTRAL]
        return LeaderWatch([lambda port=port: (0, port) for port in ports])  # type: ignore[misc]

    def run(self, faults: Sequence[Fault], times: int, minutes: float | None) -> None:
        """All runs of a fault one after the other; a row for each fault. What does not come back in time is told of at
        the end; the next ones are done all the same."""
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n{HEAD}", flush=True)
        begun, longest_s = time.monotonic(), 0.0
        for fault in faults:
            runs = []
            for number in range(times):
                began = time.monotonic()
                if not fits(began - begun, longest_s, minutes):
                    self.not_run.append(fault.name if not number else f"{fault.name} ({times - number} of {times})")
                    break
                try:
                    runs.append(self._one(fault))
                except (ClientError, OSError, RuntimeError, subprocess.CalledProcessError) as error:
                    print(f"| {fault.name} | {fault.lasts_s:g} | {str(error).partition(chr(10))[0]} |", flush=True)
                    self.bad.append(f"{fault.name}: {error}")
                    if isinstance(self.pool, FaultPool):
                        self.pool.revive()
                # A fault that lasts for long is not what the next one takes.
                longest_s = max(longest_s * 0.9, time.monotonic() - began - fault.lasts_s)
            self.figures += runs
            if runs:
                print(row(runs), flush=True)
        print(f"load {os.getloadavg()[0]:.1f}; {(time.monotonic() - begun) / 60:.0f} minutes", flush=True)

    def _one(self, fault: Fault) -> dict[str, Any]:
        with fault.within(), self.workload(next(self._numbers)) as work:
            work.start()
            with self.watch() as watch:
                struck, until = endure(fault, work, self.pool)
            load = os.getloadavg()[0]
            without = work.without(struck, until)
            without["leader"] = without_leader(watch.glimpses, struck, until)
            without["two leaders"] = two_leaders(watch.glimpses, struck, until)
            verdict = work.end()
        told = (*verdict.faults(restarts=fault.restarts), *missed(fault.aims, without))
        self.bad += [f"{fault.name}: {what}" for what in told]
        figures = {"fault": fault.name, "lasts_s": fault.lasts_s, "aims": fault.aims, "load": load}
        return {**figures, "noted_s": sum(work.durations()), **without, **asdict(verdict)}

    def told(self) -> dict[str, Any]:
        """All of it: see report.table."""
        return {"runs": self.figures, "bad": self.bad, "not_run": self.not_run}


def by_ports(urls: Sequence[str], servers: Sequence[tuple[str, int]], ports: Sequence[int]) -> dict[str, str]:
    """The knobs of a daemon whose machine reaches the servers by other ports."""
    names = ("ROOST_AMQP_URL", "ROOST_REDIS_URL")
    changed = [
        url.replace(f"{host}:{port}", f"127.0.0.1:{other}")
        for url, (host, port), other in zip(urls, servers, ports, strict=True)
    ]
    return dict(zip(names, changed, strict=True))


def of_processes(stack: ExitStack, directory: Path, options: argparse.Namespace) -> tuple[FaultPool, list[Fault]]:
    if options.single or options.clocks or options.network:
        rabbit, redis = Rabbit(), Redis()
        for server in (rabbit, redis):
            stack.callback(server.close)
            server.start()
        urls = rabbit.url, redis.url
    else:
        replicated, cluster = stack.enter_context(ReplicatedRedis()), stack.enter_context(RabbitCluster())
        urls = cluster.url, replicated.url
    if options.clocks:
        pool = stack.enter_context(FaultPool(directory / "pool", *urls, clocks=True))
        return pool, of_clocks(pool, options.lasts)
    if options.network:
        machines = sorted({name for _, name in MEMBERS})
        servers = [(server.host, server.port) for server in (rabbit, redis)]
        networks = stack.enter_context(Networks(machines, servers))
        own = {(kind, name): by_ports(urls, servers, networks.ports[name]) for kind, name in MEMBERS}
        pool = stack.enter_context(FaultPool(directory / "pool", *urls, own=own))
        return pool, of_networks(pool, networks, options.lasts)
    pool = FaultPool(directory / "pool", *urls)
    for member in pool.members.values():
        stack.enter_context(small_disk(member.home, DISK_MIB))
    stack.enter_context(pool)
    faults = [*of_daemons(pool, options.lasts, options.schedd), of_primary(pool)]
    if options.single:
        faults += of_rooms(pool, lambda: redis, [rabbit], options.lasts)
        faults += of_single(redis, rabbit, options.lasts)
    else:
        faults += of_rooms(pool, replicated.primary, cluster.nodes, options.lasts)
        faults += of_servers(pool, replicated, cluster, options.lasts)
    return pool, faults


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Kill, hang and cut off the parts of a pool while jobs run, and count."
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--single", action="store_true", help="one broker and one Redis, which nothing replaces")
    kind.add_argument(
        "--network", action="store_true", help="ways of machines to the servers cut in one direction, or bad"
    )
    kind.add_argument("--clocks", action="store_true", help="clocks of machines set by an hour (takes cc)")
    kind.add_argument(
        "--containers", action="store_true", help="the highly available compose pool; cuts of networks, too"
    )
    parser.add_argument("--lasts", type=float, default=5.0, metavar="S", help="how long each fault lasts (5)")
    parser.add_argument("--schedd", type=float, default=60.0, metavar="S", help="how long the schedd is dead (60)")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORDS", help="faults whose name has one of these")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep what daemons (and containers) logged in DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="each fault so many times (1)")
    parser.add_argument(
        "--minutes", type=float, metavar="M", help="begin no run that would end later; those with an aim come first"
    )
    parser.add_argument("--table", type=Path, metavar="FILE", help="only print the table of what --json wrote")
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.table.read_text())))
        return
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roost-faults-")))
        directory.chmod(0o755)
        pool: FaultPool | ContainerPool
        if options.containers:
            pool = stack.enter_context(ContainerPool.up(stack.enter_context(Engine.join())))
            faults = of_containers(pool, options.lasts, options.schedd)
        else:
            pool, faults = of_processes(stack, directory, options)
        bench = Bench(directory, pool)
        wanted = [none(options.lasts), *sorted(faults, key=lambda fault: not fault.aims)]
        chosen = [fault for fault in wanted if any(words in fault.name for words in options.only)]
        try:
            bench.run(chosen, options.times, options.minutes)
        finally:
            if options.logs:
                pool.keep_logs(options.logs)
            if options.json:
                options.json.write_text(json.dumps(bench.told(), indent=1) + "\n")
    if bench.not_run:
        print(f"not run for want of time: {'; '.join(bench.not_run)}")
    if bench.bad:
        sys.exit("\n".join(bench.bad))


if __name__ == "__main__":
    main()
