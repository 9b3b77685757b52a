"""The programs behind the attributes Mips and KFlops: `python -I benchmark_programs.py mips` or `kflops` (CRN-12).

They run beside the startd as processes of their own and print `Mips = N` or `KFlops = N`, on the scale of HTCondor's
condor_mips (Dhrystone, VAX MIPS) and condor_kflops (LINPACK): a machine twice as fast says twice as much, and ranks
and requirements written for HTCondor's numbers mean what they meant. The best of several short runs counts, as other
processes only ever make one slower.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

#: Runs, and how long each one takes at least, seconds of processor time.
RUNS: Final = 5
RUN_S: Final = 0.2
#: From what is counted here to HTCondor's scale. On one quiet AMD EPYC condor_mips and condor_kflops of 23.9 say 49,000
#: and 5.3 million (medians of three), where these two make 12.5 million passes and 3.75 million KFLOPS a second.
MIPS_OF_A_PASS: Final = 0.0039
KFLOPS: Final = 1.4
#: Elements of a vector: in the first cache, as LINPACK's are.
LENGTH: Final = 2048


def _integers(passes: int) -> int:
    """What Dhrystone does, by its kind: calls, assignments, records, text, comparisons; no floating point."""
    record = {"next": 0, "kind": 1, "text": "DHRYSTONE PROGRAM, SOME STRING"}
    found = 0
    for count in range(passes):
        record["next"] = (found + count) & 255
        found = _compare(record, count)
    return found


def _compare(record: dict[str, object], count: int) -> int:
    text = record["text"]
    return count * 7 // 3 if text != "DHRYSTONE PROGRAM, 2'ND STRING" else 0


def mips() -> int:
    """Millions of instructions a second, of one core."""
    return round(_best(_integers) * MIPS_OF_A_PASS)


def kflops() -> int:
    """Thousands of floating point operations a second, of one core: LINPACK's inner loop, y += a * x."""
    import numpy as np

    x, y, scratch = np.linspace(1.0, 2.0, LENGTH), np.zeros(LENGTH), np.empty(LENGTH)

    def axpy(passes: int) -> None:
        for _ in range(passes):
            np.multiply(x, 1e-9, out=scratch)
            np.add(y, scratch, out=y)

    return round(_best(axpy) * 2 * LENGTH / 1000 * KFLOPS)


def _best(work: Callable[[int], object]) -> float:
    """Passes a second of processor time."""
    passes, best = 1, 0.0
    while True:  # how many take long enough
        start = time.process_time()
        work(passes)
        took = time.process_time() - start
        if took >= RUN_S / 4:
            break
        passes *= 2
    passes = max(1, int(passes * RUN_S / took))
    for _ in range(RUNS):
        start = time.process_time()
        work(passes)
        best = max(best, passes / (time.process_time() - start))
    return best


if __name__ == "__main__":
    if sys.argv[1:] == ["kflops"]:
        print(f"KFlops = {kflops()}")  # noqa: T201  that is the answer
    elif sys.argv[1:] == ["mips"]:
        print(f"Mips = {mips()}")  # noqa: T201
    else:
        sys.exit("usage: speed.py mips|kflops")
