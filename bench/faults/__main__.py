"""What a pool does when its parts die, hang or run out of room while jobs run: `python -m bench.faults`.

Every daemon is a process, and what can be had twice is there twice; Redis has two replicas and three sentinels,
RabbitMQ three nodes (--single: one server of each). For each fault a new workload (one job twice a second, a question
ten times a second, one job that runs through it all) goes on while the fault lasts and until the pool serves again;
then all jobs end, and what history, job event logs, the accountant and the jobs' own notes say is compared. "Without"
is the longest time between two answers, from the fault to the return of service; with nothing wrong it is what the
first row says. Exit status 1 when anything was lost, done twice, or missed its aim.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.faults.faults import Fault, endure, none, of_daemons, of_servers
from bench.faults.pool import FaultPool
from bench.faults.servers import RabbitCluster, ReplicatedRedis
from bench.faults.verdict import Verdict
from bench.faults.workload import Workload
from tests.servers import Rabbit, Redis

WANTED = ("submit", "match", "query")
SPOOL_MIB = 64


@contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """A file system of its own, to be filled (takes root)."""
    directory.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SPOOL_MIB}m", "tmpfs", str(directory)]
    subprocess.run(mount, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def row(fault: Fault, without: dict[str, float], verdict: Verdict) -> str:
    def cell(what: str) -> str:
        aim = fault.aims.get(what)
        return f"{without[what]:.1f}" + (f" (aim {aim:g})" if aim is not None else "")

    cells = [fault.name, f"{fault.lasts_s:g}", *(cell(what) for what in WANTED)]
    cells += [str(count) for count in (verdict.jobs, len(verdict.lost), len(verdict.twice), len(verdict.log))]
    cells.append(f"{verdict.charged_s - verdict.ran_s:+.1f} of {verdict.ran_s:.0f}")
    return f"| {' | '.join(cells)} |"


HEAD = (
    "| fault | lasts s | without submit s | match s | query s | jobs | lost | run twice | log faults "
    "| charged - used s |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def missed(fault: Fault, without: dict[str, float]) -> list[str]:
    return [f"{what}: {without[what]:.1f} s, aim {aim:g} s" for what, aim in fault.aims.items() if without[what] > aim]


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill and hang the parts of a pool while jobs run, and count.")
    parser.add_argument("--single", action="store_true", help="one broker and one Redis; no faults of servers")
    parser.add_argument("--lasts", type=float, default=5.0, metavar="S", help="how long each fault lasts (5)")
    parser.add_argument("--schedd", type=float, default=60.0, metavar="S", help="how long the schedd is dead (60)")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORDS", help="faults whose name has one of these")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    options = parser.parse_args()
    figures: list[dict[str, Any]] = []
    bad: list[str] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roost-faults-")))
        directory.chmod(0o755)
        if options.single:
            rabbit, redis = Rabbit(), Redis()
            for server in (rabbit, redis):
                stack.callback(server.close)
                server.start()
            urls = rabbit.url, redis.url
        else:
            replicated, cluster = stack.enter_context(ReplicatedRedis()), stack.enter_context(RabbitCluster())
            urls = cluster.url, replicated.url
        pool = FaultPool(directory / "pool", *urls)
        if not options.single:
            stack.enter_context(small_disk(pool.spool))
        stack.enter_context(pool)
        faults = [none(options.lasts), *of_daemons(pool, options.lasts, options.schedd)]
        if not options.single:
            faults += of_servers(pool, replicated, cluster, options.lasts)
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n{HEAD}", flush=True)
        for number, fault in enumerate(fault for fault in faults if any(words in fault.name for words in options.only)):
            with Workload(directory / f"work{number}", pool.connect) as work:
                work.start()
                without = endure(fault, work, pool)
                verdict = work.end()
            print(row(fault, without, verdict), flush=True)
            bad += [f"{fault.name}: {what}" for what in (*verdict.faults(), *missed(fault, without))]
            figures.append({"fault": fault.name, "lasts_s": fault.lasts_s, **without, **asdict(verdict)})
        print(f"load {os.getloadavg()[0]:.1f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    if bad:
        sys.exit("\n".join(bad))


if __name__ == "__main__":
    main()
