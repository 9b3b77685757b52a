"""The batch of jobs that must give the same results in every kind of pool: with input and output files, some failing,
some held; and the check of what came back."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: Of twenty jobs.
GOOD, FAILING, HELD_BY_POLICY, HELD_FOR_INPUT = 14, 2, 2, 2
#: Each kind of end comes again every twenty jobs: of a pool that crashes after fifteen ends, with eight jobs at a time,
#: jobs of each kind end in two lives at least. Where nothing crashes each kind once.
JOBS, ONCE = 60, 20

SCRIPT = """\
#!/bin/sh
# usage: work.sh KIND NUMBER
set -e
n=$2
sha256sum < input.$n.txt | cut -d' ' -f1 > result.$n.txt
tr a-z A-Z < input.$n.txt >> result.$n.txt
echo "out $n"
echo "err $n" >&2
case $1 in
  fail) exit 3;;
  policy) exit 7;;
esac
"""

SUBMIT = """\
executable              = work.sh
arguments               = $(kind) $(n)
universe                = {universe}
{image}
should_transfer_files   = YES
transfer_input_files    = input.$(n).txt
transfer_output_files   = result.$(n).txt
transfer_output_remaps  = "result.$(n).txt = results/result.$(n).txt"
output                  = out/$(n).out
error                   = out/$(n).err
log                     = batch.log
request_cpus            = 1
request_memory          = 32M
request_disk            = 1M
on_exit_hold            = ExitCode =?= 7
on_exit_hold_reason     = "exit code 7 is not welcome"
on_exit_hold_subcode    = 42
queue kind, n from jobs.txt
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """A prepared directory: submit it with `roost submit batch.sub` there."""

    directory: Path
    total: int

    def kind(self, number: int) -> str:
        place = number % (GOOD + FAILING + HELD_BY_POLICY + HELD_FOR_INPUT)
        for kind, count in (("good", GOOD), ("fail", FAILING), ("policy", HELD_BY_POLICY)):
            if place < count:
                return kind
            place -= count
        return "input"


def prepare(directory: Path, total: int, *, image: str = "") -> Batch:
    """Write inputs, script and submit file. With `image` the jobs run in Docker containers of it."""
    for name in ("out", "results"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    batch = Batch(directory, total)
    (directory / "work.sh").write_text(SCRIPT)
    (directory / "work.sh").chmod(0o755)
    lines = []
    for number in range(total):
        kind = batch.kind(number)
        lines.append(f"{kind}, {number}")
        if kind != "input":  # those jobs name an input file that does not exist
            (directory / f"input.{number}.txt").write_text(_input(number))
    (directory / "jobs.txt").write_text("\n".join(lines) + "\n")
    universe = "docker" if image else "vanilla"
    (directory / "batch.sub").write_text(
        SUBMIT.format(universe=universe, image=f"docker_image = {image}" if image else "")
    )
    return batch


def _input(number: int) -> str:
    return "".join(f"line {line} of input {number}\n" for line in range(number % 17 + 1))


def expected_result(number: int) -> str:
    text = _input(number)
    return hashlib.sha256(text.encode()).hexdigest() + "\n" + text.upper()


def problems(batch: Batch, final: Mapping[int, tuple[int, int | None, int | None]]) -> list[str]:
    """What is wrong after all jobs have come to rest; empty when all is as it must be.

    final: proc -> (JobStatus, ExitCode, HoldReasonCode).
    """
    found = []
    if len(final) != batch.total:
        found.append(f"{batch.total - len(final)} jobs are lost")
    ends = terminations(batch.directory / "batch.log")
    for number, (status, code, hold) in sorted(final.items()):
        kind = batch.kind(number)
        wanted = {"good": (4, 0), "fail": (4, 3), "policy": (5, 7), "input": (5, None)}[kind]
        if (status, code) != wanted:
            found.append(f"job {number} ({kind}): status {status}, exit code {code}; {wanted} expected")
        if kind == "policy" and hold != 3:
            found.append(f"job {number}: hold code {hold}, not 3 (job policy)")
        if kind == "input" and hold != 13:
            found.append(f"job {number}: hold code {hold}, not 13 (input transfer failed)")
        if kind in ("good", "fail"):
            found += _check_files(batch, number)
            if ends[number] != 1:
                found.append(f"job {number}: {ends[number]} termination events in the job log")
    return found


def _check_files(batch: Batch, number: int) -> list[str]:
    wanted = {
        f"results/result.{number}.txt": expected_result(number),
        f"out/{number}.out": f"out {number}\n",
        f"out/{number}.err": f"err {number}\n",
    }
    found = []
    for name, text in wanted.items():
        path = batch.directory / name
        if not path.exists():
            found.append(f"{name} is missing")
        elif path.read_text() != text:
            found.append(f"{name} has {path.read_text()[:60]!r}")
    return found


def terminations(log: Path) -> Counter[int]:
    """How often each proc terminated, by the job event log (event 005)."""
    return Counter(int(proc) for proc in re.findall(r"^005 \(\d+\.(\d+)\.\d+\)", log.read_text(), re.MULTILINE))
