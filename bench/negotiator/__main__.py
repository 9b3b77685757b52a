"""Times whole negotiation cycles.

    python -m bench.negotiator --slots 10000 --autoclusters 200 --submitters 100 [--pslots] [--claimed F] [--groups G]
        [--changed F]
    python -m bench.negotiator                 # the table of the aims; some minutes

A cycle is everything between data in hand and decisions in hand: from the resident table of slots, with the ads of
requests read, to the list of matches and rejections with their reasons. Not in it: drawing the pool, and what the first
cycle alone does (reading the columns that jobs and policies name, and planning); that is `first_s`. Figures are the
best of some rounds, on the clock; cpu_s is processor time of the same round.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from bench.negotiator import pools
from bench.negotiator.pools import Shape
from engine.fairshare.group_tree import GroupConfig
from engine.fairshare.priorities import Record
from engine.match.cycle import negotiate
from engine.match.model import CycleConfig, Request, Result, Snapshot
from engine.match.slot_table import SlotTable
from shared.classad import ClassAd, parse_expr
from shared.compression import AdCompressor, train_dictionary
from shared.daemon.ad_rows import Patch

ROUNDS = 5
UPDATES = 2_000
SAMPLES = 1_000  # ads of which a dictionary is made, as a collector does
MEASURED = 5_000  # slots for the memory of one
NOW = 1_700_000_000.0
PRE_JOB_RANK = "(10000000 * My.Rank) + (1000000 * (RemoteOwner =?= UNDEFINED)) - (100000 * Cpus) - Memory"
POST_JOB_RANK = (
    "(RemoteOwner =?= UNDEFINED) * (ifthenElse(isUndefined(KFlops), 1000, Kflops) - SlotID - 1.0e10*(Offline=?=True))"
)
PREEMPTION_RANK = "(RemoteUserPrio * 1000000) - ifThenElse(isUndefined(TotalJobRunTime), 0, TotalJobRunTime)"
PREEMPTION_REQUIREMENTS = "RemoteUserPrio > SubmitterUserPrio * 1.2"
#: Name, shape, aim in seconds (None: no aim of its own).
AIMS: tuple[tuple[str, Shape, float | None], ...] = (
    ("10,000 slots x 200", Shape(10_000, 200, 100), 0.06),
    ("10,000 slots x 1,000", Shape(10_000, 1_000, 100), 0.2),
    ("10,000 slots x 200, half claimed, preemption", Shape(10_000, 200, 100, claimed=0.5), 0.15),
    ("10,000 slots x 200, 20 groups", Shape(10_000, 200, 100, groups=20), None),
    ("5,000 machines of 64 cores x 200, 40,000 jobs", Shape(5_000, 200, 100, pslots=True, jobs=40_000), 0.6),
    ("100,000 slots x 200", Shape(100_000, 200, 100), 0.4),
    ("100,000 slots x 1,000", Shape(100_000, 1_000, 100), 1.0),
)


class Bench:
    """A resident table with a pool, and what asks for its slots."""

    def __init__(self, shape: Shape, drawn: list[tuple[str, bytes]] | None = None) -> None:
        self.shape = shape
        self.drawn = drawn if drawn is not None else list(pools.machines(shape))
        groups = GroupConfig()
        if shape.groups:
            names = tuple(f"group{number}" for number in range(shape.groups))
            groups = GroupConfig(
                names=names, dynamic_quota=dict.fromkeys(names, 1.0 / shape.groups), accept_surplus=True
            )
        self.config = CycleConfig(
            pre_job_rank=parse_expr(PRE_JOB_RANK),
            post_job_rank=parse_expr(POST_JOB_RANK),
            preemption_rank=parse_expr(PREEMPTION_RANK),
            preemption_requirements=parse_expr(PREEMPTION_REQUIREMENTS) if shape.claimed else None,
            groups=groups,
        )
        self.compressor = AdCompressor()
        dictionary = train_dictionary([packed for _, packed in self.drawn[:SAMPLES]], 1 << 16)
        if dictionary is not None:
            self.compressor.add(1 << 16, dictionary, NOW)
        self.table = SlotTable(self.config, self.compressor)
        for name, packed in self.drawn:
            self.table.put(name, packed)
            self.table.claims[name] = f"<{name}>#1#1#secret"
        rng = random.Random(1)
        self.records = {
            pools.submitter(shape, number): Record(priority=0.5 + rng.random() * 100, factor=1000.0)
            for number in range(shape.submitters)
        }
        jobs = shape.jobs or shape.slots * (64 if shape.pslots else 1)
        self.counts = split_among(jobs, [0.5 + rng.random() for _ in range(shape.autoclusters)])
        self.jobs = [pools.job(shape, number) for number in range(shape.autoclusters)]

    def requests(self) -> dict[str, list[Request]]:
        """Anew, read and checked, as the daemon has them before a cycle."""
        asked: dict[str, list[Request]] = {}
        for number, packed in enumerate(self.jobs):
            name = pools.submitter(self.shape, number % self.shape.submitters)
            ad = ClassAd.unpack(packed).check()
            asked.setdefault(name, []).append(Request("schedd.a", number, self.counts[number], ad))
        return asked

    def snapshot(self, requests: dict[str, list[Request]] | None = None) -> Snapshot:
        return self.table.snapshot(self.config, self.requests() if requests is None else requests, self.records)

    def news(self, part: float, rng: random.Random) -> None:
        """Newer ads of some slots: their load and idle times are others."""
        for name, packed in rng.sample(self.drawn, int(len(self.drawn) * part)):
            ad = ClassAd.unpack(packed)
            ad["LoadAvg"] = round(rng.random(), 3)
            ad["KeyboardIdle"] = rng.randrange(5000)
            ad["MyCurrentTime"] = 1_700_001_000 + rng.randrange(1000)
            self.table.put(name, ad.pack())

    def run(self, changed: float = 0.0) -> dict[str, Any]:
        began = time.perf_counter()
        self.snapshot()
        load = time.perf_counter() - began
        began = time.perf_counter()
        result = negotiate(self.snapshot(), self.config, NOW)
        first = time.perf_counter() - began
        best = cpu = snap = float("inf")
        gc.collect()
        gc.freeze()
        rng = random.Random(2)
        for number in range(ROUNDS):
            self.news(changed, rng)
            requests = self.requests()
            began, used = time.perf_counter(), time.process_time()
            snapshot = self.snapshot(requests)
            taken = time.perf_counter() - began
            result = negotiate(snapshot, self.config, NOW + number)
            if time.perf_counter() - began < best:
                best, cpu, snap = time.perf_counter() - began, time.process_time() - used, taken
        gc.unfreeze()
        split = negotiate(self.snapshot(), replace(self.config, monotonic=time.perf_counter), NOW).seconds
        return {
            "cycle_s": round(best, 4),
            "cpu_s": round(cpu, 4),
            "snapshot_s": round(snap, 4),
            "load_s": round(load, 3),
            "first_s": round(first, 3),
            "set_up_s": round(split.get("set-up", 0.0), 4),
            "evaluate_s": round(split.get("evaluate", 0.0), 4),
            "select_s": round(split.get("select", 0.0) - split.get("evaluate", 0.0), 4),
            "hand_out_s": round(split.get("hand-out", 0.0), 4),
            **counts(result),
            "update_us": round(self.update_us(self.whole()), 1),
            "change_us": round(self.update_us(self.changes()), 1),
            "conjunct_cache_mb": round(self.snapshot().slots.matching.cached_bytes / 1e6, 1),
        }

    def whole(self) -> Callable[[], None]:
        """Whole ads of some slots."""
        some = self.drawn[:UPDATES]

        def put() -> None:
            for name, packed in some:
                self.table.put(name, packed)

        return put

    def changes(self) -> Callable[[], None]:
        """What machines say from time to time of these slots: what differs from the last time."""
        rng = random.Random(3)
        names = [name for name, _ in self.drawn[:UPDATES]]

        def tell() -> None:
            for name in names:
                load, idle = round(rng.random(), 3), rng.randrange(5000)
                assert self.table.patch(name, Patch.of({"LoadAvg": load, "KeyboardIdle": idle, "MyCurrentTime": idle}))

        return tell

    def update_us(self, tell: Callable[[], None]) -> float:
        """An update of an ad: taken in between cycles, written at the next. Processor time."""
        best = float("inf")
        for _ in range(ROUNDS):
            began = time.process_time()
            tell()
            self.table.snapshot(self.config, {}, {})
            best = min(best, time.process_time() - began)
        return best / min(UPDATES, len(self.drawn)) * 1e6


def split_among(jobs: int, parts: list[float]) -> list[int]:
    """So many jobs in all, as whole numbers in these ratios."""
    ends = [round(jobs * total / sum(parts)) for total in accumulate(parts)]
    return [max(1, end - begin) for begin, end in pairwise([0, *ends])]


def counts(result: Result) -> dict[str, Any]:
    return {
        "matches": sum(match.count for match in result.matches),
        "slots_given": len({match.slot for match in result.matches}),
        "preempting": sum(1 for match in result.matches if match.preempts),
        "rejections": len(result.rejections),
        "spins": result.spins,
        "pairs": result.considered,
    }


def memory(shape: Shape) -> dict[str, float]:
    """What a slot costs in the resident table, with the columns that the jobs of a first cycle asked for."""
    few = replace(shape, slots=min(shape.slots, MEASURED))
    drawn = list(pools.machines(few))
    Bench(few, drawn).run()  # texts, codes and expressions that all tables share
    gc.collect()
    tracemalloc.start()
    bench = Bench(few, [(name, bytes(bytearray(packed))) for name, packed in drawn])
    kept = bench.table
    negotiate(bench.snapshot(), bench.config, NOW)
    kept.snapshot(bench.config, {}, {}).slots.matching.clear()
    kept.compact(len(drawn))
    size, packed_bytes = len(drawn), sum(len(packed) for _, packed in drawn)
    bench.drawn, bench.jobs = [], []
    drawn.clear()
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return {
        "bytes_per_slot": round(taken / size),
        "packed_bytes": round(packed_bytes / size),
    }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.negotiator", description="Times whole negotiation cycles.")
    parser.add_argument("--slots", type=int, help="slots; without it the table of the aims is measured")
    parser.add_argument("--autoclusters", type=int, default=200)
    parser.add_argument("--submitters", type=int, default=100)
    parser.add_argument("--pslots", action="store_true", help="partitionable slots of 64 cores")
    parser.add_argument("--claimed", type=float, default=0.0, help="part of the slots in use, with preemption on")
    parser.add_argument("--groups", type=int, default=0, help="accounting groups")
    parser.add_argument("--jobs", type=int, default=0, help="jobs in all (default: as many as there is room for)")
    parser.add_argument("--changed", type=float, default=0.0, help="part of the slots with newer ads in each cycle")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args(arguments)
    if options.slots is None:
        report: Any = table()
    else:
        shape = Shape(
            options.slots,
            options.autoclusters,
            options.submitters,
            options.pslots,
            options.claimed,
            options.groups,
            options.jobs,
        )
        report = {**Bench(shape).run(options.changed), **memory(shape)}
        for name, value in report.items():
            print(f"{name:<22}{value:>14,}")
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=2) + "\n")


def table() -> dict[str, Any]:
    report: dict[str, Any] = {}
    print(f"{'':<48}{'cycle':>9}{'aim':>8}{'cpu':>9}{'first':>9}{'matches':>10}")
    for name, shape, aim in AIMS:
        found = report[name] = Bench(shape).run()
        aimed = "" if aim is None else f"{aim:.2f}"
        print(
            f"{name:<48}{found['cycle_s']:>9.3f}{aimed:>8}{found['cpu_s']:>9.3f}{found['first_s']:>9.2f}"
            f"{found['matches']:>10,}",
            flush=True,
        )
    without, grouped = report[AIMS[0][0]]["cycle_s"], report[AIMS[3][0]]["cycle_s"]
    print(f"{'20 groups : none':<48}{grouped / without:>8.2f}x{'1.50':>8}")
    report |= memory(AIMS[0][1])
    print(f"{'memory of a slot':<48}{report['bytes_per_slot']:>7} B{'3000':>8}")
    print(f"{'an ad that comes whole':<48}{report[AIMS[0][0]]['update_us']:>6.1f} us{'20':>8}")
    print(f"{'what changed in an ad':<48}{report[AIMS[0][0]]['change_us']:>6.1f} us{'20':>8}")
    return report


if __name__ == "__main__":
    main(sys.argv[1:])
