"""The cycle against its plain twin on made-up pools, and what holds of it whatever the pool.

Here some dozens of pools are decided. For more: `python -m tests.unit.negotiator.pools --seeds 10000`, which also cuts
down what differs.
"""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from engine.fairshare.group_tree import GroupTree
from engine.fairshare.quotas import assign_quotas
from engine.match.concurrency_limits import LimitCounters
from engine.match.cycle import negotiate
from engine.match.model import NO_PREEMPTION, RANK_PREEMPTION, CycleConfig, Result, Snapshot
from shared.job_limits import parse
from tests.spec import spec
from tests.unit.negotiator.outcomes import outcome_of
from tests.unit.negotiator.pools import NOW, Pool, both, random_pool, report

ROOT = Path(__file__).parents[3]
CHUNK = 10


def chunks(first: int, number: int) -> list[range]:
    return [range(start, start + CHUNK) for start in range(first, first + number, CHUNK)]


def decided(pool: Pool) -> tuple[CycleConfig, Snapshot, Result]:
    config = pool.cycle_config()
    snapshot = pool.snapshot(config)
    return config, snapshot, negotiate(snapshot, config, NOW)


@pytest.mark.parametrize("seeds", chunks(0, 60), ids=str)
def test_the_cycle_decides_as_the_plain_loops_do(seeds: range) -> None:
    for seed in seeds:
        pool = random_pool(seed)
        fast, plain = both(pool)
        assert fast == plain, f"seed {seed}\n{report(pool)}"


@pytest.mark.parametrize("seeds", chunks(1000, 20), ids=str)
def test_no_slot_is_given_twice_and_nobody_gets_more_than_was_asked(seeds: range) -> None:
    for seed in seeds:
        pool = random_pool(seed)
        _, snapshot, result = decided(pool)
        whole = {slot["Name"].strip('"') for slot in pool.slots if "PartitionableSlot" not in slot}
        taken = [match.slot for match in result.matches if match.slot in whole]
        taken += [name for match in result.matches for name in match.preempts if name != match.slot]
        assert len(taken) == len(set(taken)), seed
        assert not set(taken) & {*pool.withheld, *pool.nameless}, seed
        left = {id(no.request): no.left for no in result.rejections}
        got: dict[tuple[str, str, int], int] = {}
        for match in result.matches:
            key = (match.submitter, match.request.schedd, match.request.autocluster)
            got[key] = got.get(key, 0) + match.count
        asked: dict[tuple[str, str, int], int] = {}
        for name, requests in snapshot.requests.items():
            for request in requests:
                key = (name, request.schedd, request.autocluster)
                asked[key] = asked.get(key, 0) + request.count - left.get(id(request), 0)
        assert {key: number for key, number in asked.items() if number} == got, seed


@pytest.mark.parametrize("seeds", chunks(1100, 20), ids=str)
def test_no_partitionable_slot_is_carved_beyond_what_it_has(seeds: range) -> None:
    """Custom resources, and cpus where the job asks for a plain number of them."""
    for seed in seeds:
        pool = random_pool(seed)
        _, _, result = decided(pool)
        for slot in pool.slots:
            if "PartitionableSlot" not in slot:
                continue
            for resource in ("Cpus", "Memory", "Disk"):
                used = 0.0
                for match in result.matches:
                    asked = match.request.ad.eval(f"Request{resource}")
                    if match.slot == slot["Name"].strip('"') and isinstance(asked, int | float):
                        used += match.count * max(0.0, float(asked))
                assert used <= float(slot[resource]), (seed, slot["Name"], resource)


@spec("NEG-12", "GRP-29", "LIM-07")
@pytest.mark.parametrize("seeds", chunks(1200, 20), ids=str)
def test_ceilings_quotas_and_limits_are_exceeded_by_roundings_at_most(seeds: range) -> None:
    """By less than one slot; a limit never."""
    for seed in seeds:
        pool = random_pool(seed)
        config, snapshot, result = decided(pool)
        use = {name: weight for name, (weight, _) in snapshot.in_use.items()}
        given: dict[str, float] = {}
        heaviest: dict[str, float] = {}
        for match in result.matches:
            name = match.submitter
            given[name] = given.get(name, 0.0) + match.weight
            heaviest[name] = max(heaviest.get(name, 0.0), match.weight)
        for name, weight in given.items():
            ceiling = snapshot.records[name].ceiling if name in snapshot.records else -1.0
            if ceiling >= 0.0:
                assert use.get(name, 0.0) + weight < ceiling + heaviest[name] + 1e-9 or weight == 0.0, (seed, name)
        counters = LimitCounters(config.limits, snapshot.limits_in_use)
        for match in result.matches:
            counters.take(parse(match.limits), match.count)
        for name, units in counters.in_use.items():
            assert units <= max(config.limits.capacity(name), snapshot.limits_in_use.get(name, 0.0)) + 1e-6, (
                seed,
                name,
            )
        if config.groups is None or not config.groups.strict_enforce:
            continue
        tree = GroupTree.of(config.groups)
        quotas = assign_quotas(tree, config.groups, snapshot.total_weight)
        for group in tree.groups[1:]:
            members = [name for name in given if tree.group_of(name) == group.key]
            if group.accepts_surplus or group.autoregroup or not members:
                continue
            # Each submitter may round up by a slot in each round; RANK preemption knows no quota (NEG-14).
            by_rank = sum(m.weight for m in result.matches if m.submitter in members and m.reason == RANK_PREEMPTION)
            quota = group.config_quota if group.static else quotas.subtree[group.index]
            rounding = sum(heaviest[name] for name in members) * config.groups.max_allocation_rounds
            assert sum(given[name] for name in members) - by_rank < quota + rounding + 1e-9, (seed, group.key)


@spec("PRE-05", "PRE-19")
@pytest.mark.parametrize("seeds", chunks(1300, 20), ids=str)
def test_preemption_ends_claims_of_others_only_and_free_slots_need_none(seeds: range) -> None:
    for seed in seeds:
        pool = random_pool(seed)
        config, _, result = decided(pool)
        slots = {slot["Name"].strip('"'): slot for slot in pool.slots}
        for match in result.matches:
            slot = slots[match.slot]
            in_use = slot["State"] in ('"Claimed"', '"Preempting"') and "PartitionableSlot" not in slot
            assert bool(match.preempts) == (match.reason != NO_PREEMPTION) == in_use, (seed, match.slot)
            assert config.consider_preemption or not in_use, seed
            if match.reason not in (NO_PREEMPTION, RANK_PREEMPTION):
                assert slot["RemoteUser"] != f'"{match.submitter}"' or "PreemptingUser" in slot, seed


@pytest.mark.parametrize("seeds", chunks(1400, 20), ids=str)
def test_the_order_of_what_has_no_order_does_not_matter(seeds: range) -> None:
    """Slots, submitters and records in another order: the same decisions. So do they come out the second time."""
    for seed in seeds:
        pool = random_pool(seed)
        config, snapshot, result = decided(pool)
        first = outcome_of(result, snapshot)
        assert outcome_of(negotiate(snapshot, config, NOW), snapshot) == first, seed
        other = pool.snapshot(config, random.Random(seed))
        assert outcome_of(negotiate(other, config, NOW), other) == first, seed


def test_pools_made_of_a_seed_are_small_and_mixed() -> None:
    """A twin that is only asked easy questions proves nothing."""
    pools = [random_pool(seed) for seed in range(120)]
    results = [decided(pool)[2] for pool in pools[:30]]
    assert sum(len(result.matches) for result in results) > 100
    assert sum(any(m.reason != NO_PREEMPTION for m in result.matches) for result in results) > 4
    assert sum(any(m.count > 1 for m in result.matches) for result in results) > 4
    assert sum(any(m.limits for m in result.matches) for result in results) > 1
    assert sum(bool(pool.groups) for pool in pools) > 20
    assert max(len(pool.slots) for pool in pools) <= 30
    assert not any(math.isnan(m.weight) for result in results for m in result.matches)


_DIGEST = """
from tests.unit.negotiator.outcomes import outcome_of
from tests.unit.negotiator.pools import NOW, random_pool
from engine.match.cycle import negotiate

for seed in range(6):
    pool = random_pool(seed)
    config = pool.cycle_config()
    snapshot = pool.snapshot(config)
    result = negotiate(snapshot, config, NOW)
    print([(m.submitter, m.slot, m.count) for m in result.matches], outcome_of(result, snapshot))
"""


def test_hash_seeds_do_not_matter() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", _DIGEST],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "4711")
    ]
    assert told[0] == told[1]
    assert told[0].count("Outcome") == 6
