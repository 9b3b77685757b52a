"""Cut a made-up pool down to what still shows a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tests.unit.negotiator.pools import Pool

#: What no partitionable slot is without.
NEEDED = frozenset(("PartitionableSlot", "MachineResources", "Cpus", "Memory", "Disk"))


def cut_down(pool: Pool, is_bad: Callable[[Pool], bool]) -> Pool:
    """The least of a pool that is still bad: no slot, ask, attribute or knob can be left out."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _parts(pool):
            if is_bad(candidate):
                pool, smaller = candidate, True
                break
    return pool


def _parts(pool: Pool) -> Iterator[Pool]:
    for name in ("slots", "asks", "withheld", "nameless", "running"):
        items = getattr(pool, name)
        for i in range(len(items)):
            yield _with(pool, name, items[:i] + items[i + 1 :])
    for name in ("groups", "limits"):
        if getattr(pool, name):
            yield _with(pool, name, {})
    for name in ("config", "records", "groups", "limits"):
        items = getattr(pool, name)
        for key in items:
            yield _with(pool, name, {k: v for k, v in items.items() if k != key})
    for i, ask in enumerate(pool.asks):
        for count in {1, ask["count"] - 1} - {0, ask["count"]}:
            yield replace(pool, asks=[*pool.asks[:i], {**ask, "count": count}, *pool.asks[i + 1 :]])
        for key, value in ask["ad"].items():
            less = {k: v for k, v in ask["ad"].items() if k != key}
            for new in (less, {**less, key: "true"} if key == "Requirements" and value != "true" else less):
                yield replace(pool, asks=[*pool.asks[:i], {**ask, "ad": new}, *pool.asks[i + 1 :]])
    for i, slot in enumerate(pool.slots):
        for key, value in slot.items():
            less = {k: v for k, v in slot.items() if k != key}
            if key == "Name" or ("PartitionableSlot" in slot and key in NEEDED):
                continue
            for new in (less, {**less, key: "true"} if key == "Requirements" and value != "true" else less):
                yield replace(pool, slots=[*pool.slots[:i], new, *pool.slots[i + 1 :]])
    for name, record in pool.records.items():
        for key in record:
            yield replace(pool, records={**pool.records, name: {k: v for k, v in record.items() if k != key}})


def _with(pool: Pool, name: str, value: Any) -> Pool:
    changed: dict[str, Any] = {name: value}
    return replace(pool, **changed)
