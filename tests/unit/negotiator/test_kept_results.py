"""What a cycle leaves for the next (masks, ranks, orders) changes nothing: a negotiator of many cycles decides as one
that has just begun, whatever changed in between."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.fairshare.priorities import Record
from engine.match.cycle import negotiate
from engine.match.model import CycleConfig, Request, Result
from engine.match.slot_table import SlotTable
from engine.match.sort_orders import SortOrders, best
from shared.classad import ClassAd
from shared.compression import AdCompressor, train_dictionary
from shared.daemon.ad_rows import difference
from tests.unit.negotiator.outcomes import outcome_of
from tests.unit.negotiator.plain_cycle import plain_negotiate
from tests.unit.negotiator.pools import NOW, Pool, ad, random_pool

CYCLES = 4
#: What a slot is as long as it lives.
FOR_GOOD = (
    *("Name", "Machine", "SlotID", "PartitionableSlot", "DynamicSlot", "DSlotID", "MachineResources"),
    *("ConsumptionCpus", "ConsumptionMemory", "ConsumptionDisk", "ConsumptionGPUs"),
)


def requests_of(pool: Pool) -> dict[str, list[Request]]:
    """As they come from schedds: read anew for each cycle."""
    asked: dict[str, list[Request]] = {}
    for ask in pool.asks:
        packed = ClassAd.unpack(ad(ask["ad"]).pack())
        asked.setdefault(ask["submitter"], []).append(Request(ask["schedd"], ask["autocluster"], ask["count"], packed))
    return asked


def put(table: SlotTable, slot: dict[str, str]) -> None:
    name = slot["Name"].strip('"')
    table.put(name, ad(slot).pack())
    table.claims[name] = "claim"


def tell(table: SlotTable, slot: dict[str, str]) -> bool:
    """As a negotiator hears of a change; whether what changed was enough."""
    name = slot["Name"].strip('"')
    enough = table.patch(name, difference(table.packed(name), ad(slot).pack()))
    if not enough:
        put(table, slot)
    return enough


@pytest.fixture(scope="module")
def compressor() -> AdCompressor:
    ads = [ad(slot).pack() for seed in range(100) for slot in random_pool(seed).slots]
    dictionary = train_dictionary(ads, 70000)
    assert dictionary is not None
    made = AdCompressor()
    made.add(70000, dictionary, 1.0)
    return made


def decided(table: SlotTable, pool: Pool, config: CycleConfig, now: float) -> Result:
    records = {name: Record(updated=NOW, **fields) for name, fields in pool.records.items()}
    snapshot = table.snapshot(config, requests_of(pool), records, running=frozenset(pool.running))
    result = negotiate(snapshot, config, now)
    return replace(result, seconds={})


def told(result: Result) -> list[Any]:
    matches = [
        (m.submitter, m.request.autocluster, m.slot, m.count, round(m.weight, 9), m.reason, m.preempts, m.limits)
        for m in result.matches
    ]
    rejected = [
        (r.submitter, r.request.autocluster, r.left, r.code, r.reason, r.counts, r.details) for r in result.rejections
    ]
    return [*matches, *(m.rank for m in result.matches), *rejected]


def changed(rng: random.Random, slots: list[dict[str, str]], seed: int) -> Iterator[int]:
    """Change some slots as their machines would, in place: which ones."""
    others = random_pool(seed).slots
    for index in rng.sample(range(len(slots)), rng.choice((0, 1, 1, 2, len(slots) // 2))):
        slot, other = slots[index], rng.choice(others)
        names = rng.sample(sorted(other), min(len(other), rng.choice((1, 3, 30))))
        slots[index] = slot | {name: other[name] for name in names if name not in FOR_GOOD}
        if "State" in names and other["State"] != '"Claimed"':
            for name in ("RemoteUser", "RemoteOwner", "AccountingGroup", "CurrentRank", "PreemptingUser"):
                slots[index].pop(name, None)
        yield index


@pytest.mark.parametrize("first", range(5010, 5020, 5))
def test_a_negotiator_of_many_cycles_decides_as_a_new_one(first: int, compressor: AdCompressor) -> None:
    enough = 0
    for seed in range(first, first + 5):
        pool, rng = random_pool(seed), random.Random(seed)
        config = pool.cycle_config()
        slots = list(pool.slots)
        kept = SlotTable(config, compressor)
        for slot in slots:
            put(kept, slot)
        for cycle in range(CYCLES):
            kept.compact(rng.choice((0, len(slots) // 2, len(slots))))
            now = NOW + rng.choice((0, 0, 7, 60)) * cycle
            new = SlotTable(config)
            for slot in slots:
                put(new, slot)
            assert told(decided(kept, pool, config, now)) == told(decided(new, pool, config, now)), (seed, cycle)
            for index in changed(rng, slots, seed + 100_000 + cycle):
                enough += tell(kept, slots[index])
            if rng.random() < 0.3:
                pool = replace(pool, asks=[*pool.asks[1:], *random_pool(seed + cycle + 1).asks[:1]])
                pool = replace(pool, asks=[ask for ask in pool.asks if ask["submitter"] in pool.records] or pool.asks)
    assert enough


@pytest.mark.parametrize("seed", range(6000, 6005))
def test_after_many_cycles_the_plain_twin_agrees(seed: int) -> None:
    pool, rng = random_pool(seed), random.Random(seed)
    config = pool.cycle_config()
    slots = list(pool.slots)
    kept = SlotTable(config)
    for cycle in range(CYCLES):
        for slot in slots:
            put(kept, slot)
        decided(kept, pool, config, NOW)
        list(changed(rng, slots, seed + 100_000 + cycle))
    for slot in slots:
        put(kept, slot)
    pool = replace(pool, slots=slots, withheld=[], nameless=[])
    records = {name: Record(updated=NOW, **fields) for name, fields in pool.records.items()}
    plain = pool.snapshot(config)
    snapshot = kept.snapshot(config, requests_of(pool), records, running=frozenset(pool.running))
    snapshot = replace(snapshot, in_use=plain.in_use, total_weight=plain.total_weight)
    assert outcome_of(negotiate(snapshot, config, NOW), snapshot) == plain_negotiate(pool.snapshot(config), config, NOW)


VALUES = (0.0, -0.0, 1.0, 1.0, 2.5, -3.0, 1e300, float("inf"), -float("inf"), 70000.0)


@pytest.mark.parametrize("seed", range(40))
def test_an_order_gives_what_sorting_all_gives(seed: int) -> None:
    rng, random_numbers = random.Random(seed), np.random.default_rng(seed)
    size = rng.choice((1, 3, 50, 3000, 70_000))
    place = random_numbers.permutation(size).astype(np.int64)
    shared = [
        rng.choice(
            (
                random_numbers.choice(VALUES, size),
                random_numbers.random(size),
                np.floor(random_numbers.random(size) * 4),
                np.zeros(size),
            )
        )
        for _ in range(rng.choice((0, 1, 3)))
    ]
    orders = SortOrders()
    for _ in range(2):
        orders.begin(place)
        left, taken = np.ones(size, np.bool_), 0
        for _ in range(6):
            mask = left & (random_numbers.random(size) < rng.choice((0.001, 0.3, 1.0)))
            k = rng.choice((1, 10, 300, size))
            own = [np.floor(random_numbers.random(size) * 3)] if rng.random() < 0.5 else []
            found, complete = orders.best(mask, shared, k, own, taken, left.copy)
            rows = np.flatnonzero(mask)
            assert found.tolist() == best(rows, [*shared, *own], place, k).tolist()
            assert complete is (len(rows) <= k)
            gone = found[: rng.choice((0, 1, size // 3))]
            left[gone] = False
            taken += len(gone)


def test_orders_do_not_grow_with_history() -> None:
    orders, place = SortOrders(), np.arange(100)
    for _ in range(50):
        orders.begin(place)
        keys = [np.random.default_rng(1).random(100)]
        for _ in range(5):
            orders.best(np.ones(100, np.bool_), keys, 3, (), 0, lambda: np.ones(100, np.bool_))
    assert orders.kept <= 2 * 2
