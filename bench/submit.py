"""What `roost submit` costs before anything goes over the wire: start, expansion of the jobs, packing.

    python -m bench.submit               a table
    python -m bench.submit --json FILE   the figures, for machines

Figures are processor time of one process, the least of five runs, so that other work on the machine hardly counts.
bench.pool measures the whole way into a queue.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from roost.submit import Description, here

JOBS = 20_000
RUNS = 5
HEAD = "executable = /bin/true\n"
SHAPES = {
    "alike": "",
    "arguments": "arguments = -n $(Process)\n",
    "arguments, output": "arguments = -n $(Process)\noutput = out.$(Process)\n",
    "arguments, output, error, attribute": (
        "arguments = -n $(Process)\noutput = out.$(Process)\nerror = err.$(Process)\n+Number = $(Process)\n"
    ),
    "environment in the new form": "environment = \"N=$(Process) M='a b'\"\n",
    "a function in the arguments": "arguments = $INT(Process,%05d)\n",
    "memory": "request_memory = $(Process)\n",
}


def expansion(text: str, directory: Path) -> tuple[float, float]:
    """Microseconds a job: reading and expanding, making and packing the ads."""
    best = [float("inf"), float("inf")]
    place = here("bench.sub", directory)
    for _ in range(RUNS):
        began = time.process_time()
        clusters = list(Description(f"{HEAD}{text}queue {JOBS}\n", place, now=time.time()).clusters())
        expanded = time.process_time()
        packed = [ad.pack() for cluster in clusters for ad in cluster.jobs()]
        ended = time.process_time()
        assert len(packed) == JOBS
        best = [min(best[0], expanded - began), min(best[1], ended - expanded)]
    return best[0] / JOBS * 1e6, best[1] / JOBS * 1e6


def start_s() -> float:
    """Seconds of processor time until the command could begin to work."""
    best = float("inf")
    for _ in range(RUNS):
        before = os.times()
        subprocess.run([sys.executable, "-c", "import roost.cli.submit"], check=True)
        after = os.times()
        best = min(
            best,
            after.children_user + after.children_system - before.children_user - before.children_system,
        )
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {name: expansion(text, Path(folder)) for name, text in SHAPES.items()}
    start = start_s()
    print(f"start and imports: {start * 1000:.0f} ms")
    print(f"{'what differs from job to job':40} {'expand':>10} {'pack':>10}   us a job, {JOBS} jobs")
    for name, (expand, pack) in found.items():
        print(f"{name:40} {expand:10.1f} {pack:10.1f}")
    if chosen.json:
        chosen.json.write_text(json.dumps({"start_s": start, "us_a_job": found}, indent=1))


if __name__ == "__main__":
    main()
