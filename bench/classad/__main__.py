"""ClassAds against the reference, one thread: `python -m bench.classad [--slots N] [--json FILE]`.

The reference is HTCondor's own library through its Python bindings (the wheel of the development dependencies). What
a call of a binding costs by itself is measured with ads of nothing but `Requirements = true`, and subtracted to
estimate what the library takes without bindings; it has no entry that loops over ads in C++.

Times of the scalar part are processor time of this thread, best of several rounds; those of the columnar part are what
passes on the clock. The pool is synthetic (ads.py).
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from bench.classad import ads
from shared.classad import ClassAd, parse_ad, parse_ads, symmetric_match
from shared.classad.columnar import Matching, Table

ROUNDS: Final = 7
JOBS: Final = 12


class Report:
    """Figures as they are measured: printed, and kept for --json."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}

    def add(self, name: str, value: float, unit: str, note: str = "") -> None:
        self.figures[name] = value
        shown = f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"
        print(f"{name:<58}{shown:>14} {unit:<8}{note}", flush=True)


def best(work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """Processor seconds of the quickest of some rounds."""
    times = []
    for _ in range(rounds):
        begun = time.thread_time()
        work()
        times.append(time.thread_time() - begun)
    return min(times)


def reference() -> Any:
    """The reference's module; None if it is not installed. The daemon's library must come first: it adds functions."""
    try:
        importlib.import_module("htcondor2")
        return importlib.import_module("classad2")
    except ImportError:
        return None


def matching(report: Report, classad: Any, pairs: int = 3000) -> None:
    """Symmetric matches of 134-attribute machine ads with 89-attribute job ads."""
    machine_texts = [ads.machine(number) for number in range(pairs)]
    job_texts = [ads.job(number) for number in range(JOBS)]
    machines = [parse_ad(text, "old") for text in machine_texts]
    jobs = [parse_ad(text, "old") for text in job_texts]
    total = pairs * JOBS

    def plain() -> None:
        for job in jobs:
            for machine in machines[:200]:
                symmetric_match(job, machine, 0.0)

    report.add("match, evaluator", 200 * JOBS / best(plain, 3), "/s")
    if classad is None:
        return
    theirs = [classad.parseOne(text, classad.ParserType.Old) for text in machine_texts]
    their_jobs = [classad.parseOne(text, classad.ParserType.Old) for text in job_texts]

    def bound() -> None:
        for job in their_jobs:
            for machine in theirs:
                job.symmetricMatch(machine)

    trivial = [classad.ClassAd("[ Requirements = true ]") for _ in range(2)]

    def calls() -> None:
        for _ in range(total):
            trivial[0].symmetricMatch(trivial[1])

    through, overhead = best(bound, 3), best(calls, 3)
    rate = report.figures["match, evaluator"]
    report.add("match, reference through its bindings", total / through, "/s")
    report.add("match, reference's call overhead", overhead / total * 1e6, "us")
    inside = max(through - overhead, 1e-9)
    report.add("match, reference without bindings, estimated", total / inside, "/s", "call overhead subtracted")
    report.add("match, evaluator : reference through bindings", rate * through / total, "x")
    report.add("match, evaluator : reference without bindings", rate * inside / total, "x")
    wrong = sum(
        bool(their_jobs[j].symmetricMatch(theirs[m])) is not symmetric_match(jobs[j], machines[m], 0.0)
        for j in range(JOBS)
        for m in range(0, pairs, 7)
    )
    report.add("match, disagreements with the reference", wrong, "", f"of {JOBS * len(range(0, pairs, 7))}")


def parsing(report: Report, classad: Any, count: int = 2000) -> None:
    """A stream of machine ads in old syntax, most lines of which repeat."""
    stream = "\n".join(ads.machine(number) for number in range(count))

    def ours() -> None:
        for _ in parse_ads(stream):
            pass

    ours()
    rate = count / best(ours, 5)
    report.add("parse, stream of machine ads", rate, "ads/s", "aim 17,000")
    if classad is not None:

        def theirs() -> None:
            for _ in classad.parseAds(stream, classad.ParserType.Old):
                pass

        taken = count / best(theirs, 5)
        report.add("parse, reference through its bindings", taken, "ads/s")
        report.add("parse, ours : reference", rate / taken, "x", "aim 1")


def columns(report: Report, slots: int, autoclusters: int) -> None:
    """Conditions over a whole pool."""
    packed = [(f"slot{number}", parse_ad(ads.machine(number), "old").pack()) for number in range(slots)]
    jobs = [parse_ad(ads.job(number), "old") for number in range(autoclusters)]
    table = Table()
    for key, each in packed:
        table.put(key, each)
    report.add("columnar, load", best(table.flush, 1) / slots * 1e6, "us/ad", f"{len(table.columns)} columns")
    match = Matching(table, 0.0)
    for job in jobs[:JOBS]:  # builds the columns that the jobs name
        match.match(job)
        match.job_rank(job)
    steps: Iterable[tuple[str, Callable[[ClassAd], Any], str]] = (
        ("job Requirements", match.job_mask, "aim 100"),
        ("machine Requirements", match.row_mask, ""),
        ("both sides", match.match, "aim 250"),
        ("job Rank", match.job_rank, ""),
    )
    for name, ask, aim in steps:
        match.clear()
        for state in ("cache filling", "again"):
            times = []
            for job in jobs:
                begun = time.perf_counter()
                ask(job)
                times.append((time.perf_counter() - begun) * 1e6)
            report.add(f"columnar, {name}, {state}, median", statistics.median(times), "us", aim)
            report.add(f"columnar, {name}, {state}, mean", statistics.fmean(times), "us", aim)
        report.add(f"columnar, {name}, cache", match.cached_bytes / 1e6, "MB", f"{autoclusters} autoclusters")
    fresh = packed[: min(2000, slots)]
    for key, each in fresh:
        table.put(key, each)
    report.add("columnar, update", best(table.flush, 1) / len(fresh) * 1e6, "us/ad", f"{len(fresh)} at once")


def memory(report: Report, count: int = 5000) -> None:
    """An ad that is stored and not evaluated."""
    packed = [parse_ad(ads.machine(number), "old").pack() for number in range(count)]
    size = sum(map(len, packed)) / count
    report.add("memory, packed", size, "B/ad")
    for name, build in (("unpacked ads", _kept), ("table rows", _tabled)):
        gc.collect()
        tracemalloc.start()
        kept = build(packed)
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] / count
        tracemalloc.stop()
        report.add(f"memory, {name}", taken, "B/ad")
        report.add(f"memory, {name} : packed", taken / size, "x", "aim at most 2")
        del kept


def _kept(packed: list[bytes]) -> object:
    """Ads from copies of the bytes, as they come from the bus."""
    return [ClassAd.unpack(bytes(bytearray(each))) for each in packed]


def _tabled(packed: list[bytes]) -> object:
    table = Table()
    for number, each in enumerate(packed):
        table.put(f"slot{number}", bytes(bytearray(each)))
    table.flush()
    return table


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.classad", description="Times the ClassAd library.")
    parser.add_argument("--slots", type=int, default=100_000, help="rows of the columnar part (default 100000)")
    parser.add_argument("--autoclusters", type=int, default=1000, help="jobs of the columnar part (default 1000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures to FILE")
    options = parser.parse_args(arguments)
    report = Report()
    classad = reference()
    if classad is None:
        print("the reference is not installed: no ratios")
    matching(report, classad)
    parsing(report, classad)
    memory(report)
    columns(report, options.slots, options.autoclusters)
    if options.json is not None:
        options.json.write_text(json.dumps(report.figures, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
