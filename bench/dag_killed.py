"""A DAG of thousands of nodes whose daemons are killed in its middle: does every node run once?

    python -m bench.dag_killed [--nodes 10000] [--shape chain|fan|ladder|random] [--no-kills]

The daemons are processes on RabbitMQ and Redis: two central managers, an access point, two execution points and two
gateways. Each kind of them, the DAG's manager, both servers and all daemons at once are killed with SIGKILL, one after
the other, evenly over the nodes, and started again. Printed are nodes a second, the time from the end of a node's last
parent to its own program, the manager's largest memory, and the load of the machine. Exits with 1 where a node ran
twice, or not at all.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.dag import SHAPES
from bench.faults.pool import ROOT, FaultPool
from engine.dag.model import Dag, Kind
from roost.dag.journal import read_dag, read_journal
from tests.servers import Rabbit, Redis
from tests.waiting import wait_until

#: What is killed: kind and name of a daemon, "manager" of the DAG, a server, or "all" daemons and the manager.
VICTIMS: Final = (
    *(("manager", ""), ("collector", "cm1"), ("negotiator", ""), ("had", ""), ("schedd", "ap"), ("startd", "ep1")),
    *(("gateway", "gw1"), ("all", "")),
)
SERVERS: Final = (("broker", ""), ("store", ""))
#: Slots of each execution point.
CPUS: Final = 4
#: For a DAG to get on to the next kill, and to end, seconds.
PATIENCE_S: Final = 3600.0


def write_dag(place: Path, edges: str, names: Sequence[str]) -> None:
    """The file d.dag, of nodes that write down their names and the time (s since 1970) in the file `order`."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "node.sub").write_text(
        f"executable = {place}/work.sh\narguments = $(JOB)\n"
        "transfer_executable = false\nshould_transfer_files = no\nqueue\n"
    )
    (place / "work.sh").write_text(f"#!/bin/bash\nLC_ALL=C\necho $1 $EPOCHREALTIME >>{place}/order\n")
    (place / "work.sh").chmod(0o755)
    (place / "d.dag").write_text("".join(f"JOB {name} node.sub\n" for name in names) + edges)


def ran(place: Path) -> list[tuple[str, float]]:
    """Nodes that ran, in this order, and when."""
    try:
        lines = (place / "order").read_text().split("\n")[:-1]
    except FileNotFoundError:
        return []
    return [(name, float(at)) for name, at in (line.split() for line in lines)]


def environment_of(pool: FaultPool) -> dict[str, str]:
    """Of a user of the pool."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "_CONDOR_", "CONDOR_"))}
    urls = ",".join(f"http://127.0.0.1:{port}" for port in pool._gateways)
    token = str(pool.directory / "gateway-gw1" / "token")
    return {**kept, "PYTHONPATH": str(ROOT), "CONDOR_CONFIG": "ONLY_ENV", "ROOST_URL": urls, "ROOST_TOKEN_FILE": token}


def manager_of(place: Path) -> int:
    """The process of the DAG's manager, which may be gone; 0: it has not begun."""
    try:
        return int((place / "d.dag.dagman.out").read_text().rpartition(", process ")[2].split()[0])
    except (FileNotFoundError, IndexError, ValueError):
        return 0


def kill(pool: FaultPool, place: Path, kind: str, name: str) -> None:
    """With SIGKILL."""
    if kind in ("negotiator", "had"):
        pool[kind, pool.leader()].kill()
    elif kind in ("manager", "all"):
        if kind == "all":
            for member in pool.members.values():
                member.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(manager_of(place), signal.SIGKILL)
    else:
        pool[kind, name].kill()


@dataclass(slots=True)
class Memory:
    """The largest resident memory of a DAG's managers, as far as it was looked at, MiB."""

    place: Path
    most_mib: float = field(default=0.0)

    def look(self) -> None:
        pid = manager_of(self.place)
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if pid and line.startswith("VmHWM:"):
                    self.most_mib = max(self.most_mib, int(line.split()[1]) / 1024)


def count(place: Path) -> int:
    """How many times a node has run."""
    try:
        return (place / "order").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def is_over(place: Path) -> bool:
    """By the last line of the journal, which is long."""
    with (place / "d.dag.journal").open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 100))
        return b'"Finished"' in file.read()


def waits(dag: Dag, when: dict[str, float]) -> list[float]:
    """Seconds from a node's last parent's program to its own, join nodes being passed through."""
    ended: list[float | None] = [when.get(node.name) for node in dag.nodes]

    def last_above(index: int) -> float | None:
        parents = dag.nodes[index].parents
        above = [last_above(one) if dag.nodes[one].kind is Kind.JOIN else ended[one] for one in parents]
        return max((at for at in above if at is not None), default=None)

    found = []
    for node in dag.nodes:
        own, last = ended[node.index], last_above(node.index)
        if own is not None and last is not None:
            found.append(own - last)
    return found


def run(shape: str, nodes: int, *, kills: bool, place: Path) -> bool:
    """Run one DAG, print its line of the table. Whether each node ran once."""
    names = [f"N{number}" for number in range(nodes)]
    write_dag(place / "work", SHAPES[shape](nodes), names)
    work = place / "work"
    with contextlib.ExitStack() as stack:
        rabbit, redis = Rabbit(), Redis()
        for server in (rabbit, redis):
            stack.callback(server.close)
            server.start()
        pool = stack.enter_context(
            FaultPool(place / "pool", rabbit.url, redis.url, CLAIM_WORKLIFE="1200", NUM_CPUS=str(CPUS))
        )
        began, memory = time.time(), Memory(work)
        words = [sys.executable, "-m", "roost", "submit-dag", "d.dag"]
        subprocess.run(words, cwd=work, env=environment_of(pool), check=True, stdout=subprocess.DEVNULL)
        victims = (*VICTIMS, *SERVERS) if kills else ()

        def until(there: Callable[[], bool], what: str) -> None:
            def look() -> bool:
                memory.look()
                return there()

            wait_until(look, PATIENCE_S, what)

        for struck, (kind, name) in enumerate(victims, 1):
            share = nodes * struck // (len(victims) + 1)
            until(lambda share=share: count(work) >= share, f"node {share}")  # type: ignore[misc]
            if (kind, name) in SERVERS:
                (rabbit if kind == "broker" else redis).kill()
                (rabbit if kind == "broker" else redis).restart()
            else:
                kill(pool, work, kind, name)
                pool.revive()
            pool.wait_ready()
        until(lambda: is_over(work), "the end of the DAG")
        took = time.time() - began
    record, found = read_journal(work / "d.dag.journal"), ran(work)
    counts, when = Counter(name for name, _ in found), dict(found)
    twice = [name for name, count in counts.items() if count > 1]
    never = [name for name in names if name not in counts]
    gaps = sorted(1000 * gap for gap in waits(read_dag([str(work / "d.dag")]), when))
    shown = (statistics.median(gaps), gaps[len(gaps) * 9 // 10]) if gaps else (0.0, 0.0)
    print(
        f"| {shape} | {nodes} | {len(victims)} | {took:.0f} | {nodes / took:.1f} | {shown[0]:.0f} | {shown[1]:.0f} "
        f"| {memory.most_mib:.0f} | {len(twice)} | {len(never)} | {os.getloadavg()[0]:.1f} |",
        flush=True,
    )
    good = record is not None and record.code == 0 and not twice and not never
    if not good:
        print(f"twice: {twice[:10]}; never: {never[:10]}; exit code {record.code if record else None}", flush=True)
    return good


def main() -> int:
    arguments = argparse.ArgumentParser(prog="bench.dag_killed", description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--nodes", type=int, default=10_000)
    arguments.add_argument("--shape", choices=sorted(SHAPES), action="append", help="may be repeated; all by default")
    arguments.add_argument("--no-kills", action="store_true")
    asked = arguments.parse_args()
    columns = (
        "shape",
        "nodes",
        "kills",
        "s",
        "nodes/s",
        "to a child, median, ms",
        "90 %",
        "manager, MiB",
        "twice",
        "never",
    )
    print(f"| {' | '.join(columns)} | load |\n|---|{'---:|' * len(columns)}", flush=True)
    good = True
    for shape in asked.shape or SHAPES:
        with tempfile.TemporaryDirectory(prefix="roost-bench-") as folder:
            good &= run(shape, asked.nodes, kills=not asked.no_kills, place=Path(folder))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
