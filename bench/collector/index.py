"""The collector's index alone, in this process: taking ads in, answering, coming back with everything. Columns against
a look at each ad."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import structlog

from bench.collector.ads import updates
from services.collector.core.acceptance import AbsentPolicy
from services.collector.core.queries import Page, Query, answer, read
from services.collector.directory import AdIndex, Directory, StoredColumns
from services.collector.search import Search
from shared.daemon.ad_rows import pack
from shared.daemon.clock import SystemClock
from shared.messages.ads import AdDelta, AdHeartbeat
from shared.state import open_store
from shared.state.api import Store

ROUNDS = 3
QUESTIONS = {
    "few fit": ('State == "Unclaimed" && Cpus >= 8 && Memory > 30000 && OpSysAndVer == "Debian12"', ["Name"]),
    "a tenth fit, four attributes": ("SlotID == 3 || SlotID == 11", ["Name", "State", "Cpus", "Memory"]),
    "none fits": ('State == "Nonsense"', []),
    "expressions of the ads": ("Start =!= false && Cpus > 4 && SlotID == 1", ["Name"]),
}


def directory(store: Store) -> tuple[Directory, Search]:
    clock = SystemClock()
    index = AdIndex(900.0)
    search = Search(index.table, index.order, index.absentees, clock, StoredColumns(store))
    made = Directory(store, clock, structlog.get_logger(), index, AbsentPolicy(), search.note)
    return made, search


async def timed(work: Callable[[], Awaitable[Any]], rounds: int = ROUNDS) -> tuple[float, Any]:
    best, result = float("inf"), None
    for _ in range(rounds):
        began = time.perf_counter()
        result = await work()
        best = min(best, time.perf_counter() - began)
    return best, result


async def ask(search: Search, constraint: str, projection: list[str]) -> int:
    found, after = 0, ""
    while True:
        page = await search.answer(read(["Machine"], constraint, projection, 0, after, absent=False))
        found += len(page.ads)
        if not page.next:
            return found
        after = page.next


def one_by_one(made: Directory, query: Query, share: int) -> float:
    """Seconds for all ads, from the first of `share` parts of them."""
    looked, after, began = 0, "", time.perf_counter()
    while looked < len(made.table) / share:
        page = Page([])
        part = read(["Machine"], str(query.constraint), list(query.projection), 0, after, absent=False)
        for _ in answer(page, part, made.order, {}, time.time()):
            pass
        looked += 500
        after = page.next
        if not after:
            break
    return (time.perf_counter() - began) * len(made.table) / looked


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def measure(ads: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"ads": ads}
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as place:
        store = open_store("private:", Path(place))
        await store.start()
        try:
            await full(store, ads, figures)
            gc.collect()
            figures["restart"] = await restart(store, ads)
        finally:
            await store.stop()
    return figures


async def full(store: Store, ads: int, figures: dict[str, Any]) -> None:
    """Fill a collector, change its ads, ask it."""
    messages = list(updates(ads))
    gc.collect()
    before = resident_mib()
    made, search = directory(store)
    began = time.perf_counter()
    for message in messages:
        search.changed(made.apply(message))
    figures["take whole ads, a second"] = round(ads / (time.perf_counter() - began))
    began = time.perf_counter()
    while made.writer.waiting:
        await made.writer.write_some()
    figures["write to Redis, s"] = round(time.perf_counter() - began, 2)
    began = time.perf_counter()
    for message in messages:
        beat = AdHeartbeat(my_type="Machine", daemon=message.daemon, start_time=1, base=1, sequence=2)
        search.changed(made.apply(beat))
    figures["heartbeats, a second"] = round(len(messages) / (time.perf_counter() - began))
    began, used = time.perf_counter(), time.process_time()
    await ask(search, 'State == "Nonsense"', [])
    figures["make the columns, s"] = round(time.perf_counter() - began, 2)
    figures["make the columns, processor s"] = round(time.process_time() - used, 2)
    change = pack({"LoadAvg": 0.5, "State": "Claimed"})
    for message in messages:
        delta = AdDelta(
            my_type="Machine", daemon=message.daemon, start_time=1, base=1, sequence=3,
            names=message.names[:1], changes=[change], removed_attrs=[[]],
        )  # fmt: skip
        search.changed(made.apply(delta))
    used = time.process_time()
    await ask(search, 'State == "Nonsense"', [])
    figures["follow a changed ad, processor us"] = round((time.process_time() - used) / len(messages) * 1e6, 1)
    figures["memory of an ad besides its bytes, bytes"] = round((resident_mib() - before) * 2**20 / ads)
    figures["questions"] = {}
    for name, (constraint, projection) in QUESTIONS.items():
        figures["questions"][name] = await question(made, search, constraint, projection)


async def question(made: Directory, search: Search, constraint: str, projection: list[str]) -> dict[str, Any]:
    await ask(search, constraint, projection)
    seconds, found = await timed(lambda: ask(search, constraint, projection))
    plain = one_by_one(made, read(["Machine"], constraint, projection, 0, "", absent=False), 10)
    return {
        "found": found,
        "ms": round(seconds * 1e3, 1),
        "one by one, ms": round(plain * 1e3),
        "ratio": round(plain / seconds),
    }


async def restart(store: Store, ads: int) -> dict[str, Any]:
    """A collector that begins with what Redis has."""
    began, used = time.perf_counter(), time.process_time()
    made, search = directory(store)
    assert await made.load() == ads
    loaded, used = time.perf_counter() - began, time.process_time() - used
    name = next(iter(next(iter(made.table.groups())).rows))
    found = await ask(search, f'Name == "{name}"', [])
    first = time.perf_counter() - began
    assert found == 1
    began = time.perf_counter()
    await ask(search, 'State == "Nonsense"', [])
    return {
        "loaded, s": round(loaded, 2),
        "loaded, processor s": round(used, 2),
        "first answer, s": round(first, 2),
        "first constraint over all, s more": round(time.perf_counter() - began, 2),
    }
