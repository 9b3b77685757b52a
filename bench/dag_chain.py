"""How long after a node's end the next one begins: a chain of nodes in a personal pool.

    python -m bench.dag_chain [--nodes 30] [--hold-claims SECONDS]

Node to node is from one job's program to the next one's: all that a program does is to write down the time, first and
last. So it has everything in it: the end's way to the manager, the submit, the way to a slot, the launch. The facts of
the DAG's journal tell these stages apart. The load of the machine is printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from engine.dag.run import Fact, JobEnded, Submitted
from roost.dag.journal import read_journal
from tests.integration.pools import EmbeddedPool
from tests.waiting import wait_until


def main() -> None:
    arguments = argparse.ArgumentParser(prog="bench.dag_chain", description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--nodes", type=int, default=30)
    arguments.add_argument("--hold-claims", type=int, default=-1, help="DAGMAN_HOLD_CLAIM_TIME; -1: as it is")
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as folder:
        place = Path(folder)
        pool = EmbeddedPool(place / "pool")
        pool.start()
        try:
            pool.wait_for_slots()
            times, facts = run(pool, place, asked.nodes, asked.hold_claims)
        finally:
            pool.close()
    print(f"load {os.getloadavg()[0]:.1f}; {len(times) - 1} times from node to node, ms:")
    print("| | least | median | 90 % | 99 % | most |\n|---|---:|---:|---:|---:|---:|")
    for name, gaps in stages(times, facts).items():
        some = sorted(gap * 1000 for gap in gaps)
        shown = [some[0], statistics.median(some), some[len(some) * 9 // 10], some[len(some) * 99 // 100], some[-1]]
        print(f"| {name} | {' | '.join(f'{one:.0f}' for one in shown)} |")


def stages(times: list[float], facts: list[tuple[Fact, float]]) -> dict[str, list[float]]:
    """Seconds of each stage, for each pair of nodes. times: of each node's program; facts: of the DAG's journal."""
    ended = {fact.node: at for fact, at in facts if isinstance(fact, JobEnded)}
    queued = {fact.node: at for fact, at in facts if isinstance(fact, Submitted)}
    nodes = range(1, len(times))
    return {
        "node to node": [times[node] - times[node - 1] for node in nodes],
        "a program's start until its end is known": [ended[node - 1] - times[node - 1] for node in nodes],
        "until the next node is in the queue": [queued[node] - ended[node - 1] for node in nodes],
        "until its program starts": [times[node] - queued[node] for node in nodes],
    }


def run(pool: EmbeddedPool, place: Path, nodes: int, hold_claims: int) -> tuple[list[float], list[tuple[Fact, float]]]:
    """When each node's job said that it ran, seconds since 1970, and what the manager learned when."""
    (place / "note.sh").write_text(f"#!/bin/bash\nLC_ALL=C\necho $EPOCHREALTIME >>{place}/times\n")
    (place / "note.sh").chmod(0o755)
    (place / "node.sub").write_text(
        f"executable = {place}/note.sh\ntransfer_executable = false\nshould_transfer_files = no\nqueue\n"
    )
    lines = [f"JOB N{number} node.sub\n" for number in range(nodes)]
    lines += [f"PARENT N{number} CHILD N{number + 1}\n" for number in range(nodes - 1)]
    (place / "chain.dag").write_text("".join(lines))
    environment = pool.environment()
    if hold_claims >= 0:
        environment["_CONDOR_DAGMAN_HOLD_CLAIM_TIME"] = str(hold_claims)
    words = [sys.executable, "-m", "roost", "submit-dag", "chain.dag"]
    subprocess.run(words, cwd=place, env=environment, check=True, stdout=subprocess.DEVNULL)
    journal = place / "chain.dag.journal"
    wait_until(lambda: (found := read_journal(journal)) is not None and found.finished, 600, "the end of the DAG")
    record = read_journal(journal)
    assert record is not None
    return [float(line) for line in (place / "times").read_text().split()], record.facts


if __name__ == "__main__":
    main()
