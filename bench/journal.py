"""What the journal costs.

    python -m bench.journal                     # all of it, a minute or two
    python -m bench.journal --slots 10000 --autoclusters 1000 --rounds 7

1. In the negotiator: cycles of a pool with and without what is told to the journal, in turns, on the clock; telling is
   everything up to the packed message, which leaves when the cycle is over. A cycle here is deciding alone, without
   what the daemon does besides (asking schedds, writing the books, handing out), so the share is an upper bound.
2. In the journal: events written down a second, bytes of each, and how long an explanation takes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.negotiator.__main__ import NOW, Bench
from bench.negotiator.pools import Shape
from engine.fairshare.group_tree import GroupConfig, GroupTree
from engine.match.cycle import negotiate
from engine.match.model import Result, Snapshot
from services.journal.core.rows import rows_of
from services.journal.queries import JournalQueries
from services.journal.store import Store, url_of
from services.negotiator.cycle_events import JournalEvents, journal_events
from shared.daemon.clock import SystemClock
from shared.messages.base import Envelope
from shared.messages.events import (
    Event,
    JobEnded,
    JobKind,
    JobMatched,
    JobsSorted,
    JobsSubmitted,
    JobStarted,
    Reason,
    ReasonsChanged,
)
from shared.messages.journal import AskJob

#: Events in one transaction, as they come to a busy journal.
BATCH = 1000


def negotiator(slots: int, autoclusters: int, rounds: int, jobs: int) -> dict[str, Any]:
    """Seconds of a cycle, and of telling, by what there is to tell: `steady`, as in the cycle before (but for matches,
    which are new in each); `new`, all of it."""
    bench = Bench(Shape(slots, autoclusters, 100, jobs=jobs))
    tree = GroupTree.of(bench.config.groups or GroupConfig())
    requests = bench.requests()
    negotiate(bench.snapshot(requests), bench.config, NOW)
    known = JournalEvents(tree)
    plain: list[float] = []
    told: dict[str, list[float]] = {"steady": [], "new": []}
    sizes: dict[str, int] = {}
    packed = 0
    for number in range(rounds):
        now = NOW + number
        snapshot = bench.snapshot(requests)
        began = time.perf_counter()
        result = negotiate(snapshot, bench.config, now)
        plain.append(time.perf_counter() - began)
        for kind, chronicle in (("steady", known), ("new", JournalEvents(tree))):
            began = time.perf_counter()
            packed = sum(len(Envelope(event).pack()) for event in _events(chronicle, result, snapshot, bench, now))
            if number:  # in the first one all is new to everybody
                told[kind].append(time.perf_counter() - began)
                sizes[kind] = packed
    cycle = statistics.median(plain)
    return {
        "slots": slots,
        "autoclusters": autoclusters,
        "jobs": sum(bench.counts),
        "matches": len(result.matches),
        "rejections": len(result.rejections),
        "cycle_s": round(cycle, 5),
        **{
            kind: {
                "told_s": round(statistics.median(times), 5),
                "share": f"{100 * statistics.median(times) / cycle:.1f} %",
                "bytes": sizes[kind],
            }
            for kind, times in told.items()
        },
    }


def _events(chronicle: JournalEvents, result: Result, snapshot: Snapshot, bench: Bench, now: float) -> list[Event]:
    return journal_events(
        chronicle,
        result,
        result.matches,
        in_use=snapshot.in_use,
        pool=snapshot.total_weight,
        records=bench.records,
        requested={},
        silent=(),
        half_life=86400.0,
        by={"at": now, "negotiator": "cm", "epoch": 1, "cycle": int(now - NOW), "shard": ""},
    )


def _life(cluster: int, rng: random.Random) -> Iterator[Event]:
    """The events of a job that waits for a while."""
    at = NOW + cluster * 0.01
    who: dict[str, Any] = {"schedd": "ap", "job_id": f"{cluster}.0", "owner": f"u{cluster % 50}"}
    slot = f"slot{rng.randrange(64)}@node{rng.randrange(200)}"
    yield JobsSubmitted(
        at=at, schedd="ap", owner=who["owner"], submitter=f"{who['owner']}@pool", cluster=cluster, first_proc=0, count=1
    )
    kind = JobKind(autocluster=cluster % 1000, submitter=f"{who['owner']}@pool", jobs=[[cluster, 0, 0]])
    yield JobsSorted(at=at, schedd="ap", kinds=[kind])
    yield JobMatched(at=at + 60, **who, slot=slot, negotiator="cm", cycle=cluster)
    yield JobStarted(at=at + 61, **who, slot=slot, attempt=1, waited_s=60.0, began=at + 60)
    yield JobEnded(at=at + 600, **who, slot=slot, attempt=1, exit_code=0, ran_s=539.0)


def _why(cycle: int) -> Event:
    """A cycle in which twenty reasons changed."""
    counts = {"claimed": 9000 + cycle % 7, "job-requirements": 900}
    text = "of 10000 slots, 9000 are busy, 900 do not satisfy the job's Requirements"
    return ReasonsChanged(
        at=NOW + cycle,
        negotiator="cm",
        epoch=1,
        cycle=cycle,
        reasons=[
            Reason(
                schedd="ap",
                submitter=f"u{number % 50}@pool",
                autocluster=(cycle * 20 + number) % 1000,
                code="no-match",
                text=text,
                left=5,
                counts=counts,
            )
            for number in range(20)
        ],
    )


async def journal(jobs: int) -> dict[str, Any]:
    """Events a second, bytes of an event, seconds of an explanation."""
    rng = random.Random(1)
    events = [event for cluster in range(1, jobs + 1) for event in _life(cluster, rng)]
    events += [_why(cycle) for cycle in range(jobs // 10)]
    events.sort(key=lambda event: event.at)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(url_of(None, Path(folder)))
        await store.open()
        began = time.perf_counter()
        for start in range(0, len(events), BATCH):
            await store.write([rows_of(Envelope(event)) for event in events[start : start + BATCH]])
        wrote = time.perf_counter() - began
        _, size = await store.forget(0.0, 1 << 62)
        answers = JournalQueries(store, SystemClock())
        took = []
        for _ in range(50):
            asked = AskJob(job_id=f"{rng.randrange(1, jobs + 1)}.0")
            began = time.perf_counter()
            await answers.job(asked)
            took.append(time.perf_counter() - began)
        await store.close()
    return {
        "events": len(events),
        "events_per_s": round(len(events) / wrote),
        "bytes_per_event": round(size / len(events)),
        "explanation_s": round(statistics.median(took), 5),
        "explanation_worst_s": round(max(took), 5),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.journal", description=__doc__)
    parser.add_argument("--slots", type=int, default=10_000)
    parser.add_argument("--autoclusters", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=20_000, help="of the journal's part; 0: leave it out")
    options = parser.parse_args()
    for each in (1, 20):
        jobs = options.slots * each
        _say("negotiator", lambda jobs=jobs: negotiator(options.slots, options.autoclusters, options.rounds, jobs))  # type: ignore[misc]
    if options.jobs:
        _say("journal", lambda: asyncio.run(journal(options.jobs)))
    return 0


def _say(what: str, measure: Callable[[], dict[str, Any]]) -> None:
    print(json.dumps({what: measure()}))


if __name__ == "__main__":
    sys.exit(main())
