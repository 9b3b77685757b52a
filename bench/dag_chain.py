"""How long after a node's end the next one begins: a chain of nodes in a personal pool.

    python -m bench.dag_chain [--nodes 30] [--hold-claims SECONDS]

Node to node is from the start of one job's program to the start of the next one's, of /bin/true, so it has everything
in it: the end's way to the manager, the submit, the way to a slot, the launch. The load of the machine is printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

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
            times = run(pool, place, asked.nodes, asked.hold_claims)
        finally:
            pool.close()
    gaps = sorted((b - a) * 1000 for a, b in pairwise(times))
    print(f"load {os.getloadavg()[0]:.1f}; {len(gaps)} times from node to node, ms:")
    print("| least | median | 90 % | most |\n|---:|---:|---:|---:|")
    ninety = gaps[int(len(gaps) * 0.9)]
    print(f"| {gaps[0]:.0f} | {statistics.median(gaps):.0f} | {ninety:.0f} | {gaps[-1]:.0f} |")


def run(pool: EmbeddedPool, place: Path, nodes: int, hold_claims: int) -> list[float]:
    """When each node's job said that it ran, seconds since 1970."""
    (place / "note.sh").write_text(f"#!/bin/sh\ndate +%s.%N >>{place}/times\n")
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
    return [float(line) for line in (place / "times").read_text().split()]


if __name__ == "__main__":
    main()
