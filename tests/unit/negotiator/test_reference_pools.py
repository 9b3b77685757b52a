"""Our cycle against HTCondor's: made-up pools, and what its negotiator (23.9.6) decided on each in one cycle.

tests/data/reference_pools/README.md tells what is recorded. A pool is compared match by match: who, which of his
requests, which slot, preempting whom, in this order. Where we mean to differ, the comparison ends there, and the pool
says why (`until`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.fairshare.group_tree import GroupConfig, GroupTree, group_demand
from engine.match.cycle import negotiate
from engine.match.model import NO_PREEMPTION, CycleConfig, Matched, Result, Snapshot
from engine.match.slot_table import snapshot_of
from engine.policy import cycle_config, group_config, limit_config
from tests.reference_pools import Recorded, recorded

#: Why a comparison ends before the last match: what `until` in the data may name.
REASONS = {
    "later spins": "later spins divide what is free, as the manual has it (NEG-10, W-13), not the whole pool again",
    "equal slots": "slots of equal rank: which of them is taken is not determined",
}


def config_of(pool: Recorded, tmp_path: Path) -> CycleConfig:
    settings = pool.settings(tmp_path)
    return replace(
        cycle_config(settings),
        preemption_requirements=settings.preemption_requirements,
        preemption_rank=settings.preemption_rank,
        preemption_requirements_stable=settings.preemption_requirements_stable,
        preemption_rank_stable=settings.preemption_rank_stable,
        consider_preemption=settings.negotiator_consider_preemption,
        consider_early_preemption=settings.negotiator_consider_early_preemption,
        matchlist_caching=settings.negotiator_matchlist_caching,
        groups=group_config(settings),
        limits=limit_config(settings),
    )


def decide(
    pool: Recorded, config: CycleConfig, negotiate: Callable[[Snapshot, CycleConfig, float], Result] = negotiate
) -> Result:
    groups = config.groups or GroupConfig()
    tree = GroupTree.of(groups)
    asked = {one.submitter: float(sum(group_demand(tree, groups, [one]).values())) for one in pool.waiting()}
    running = frozenset(one.submitter for one in pool.waiting() if one.running)
    snapshot = snapshot_of(pool.slots(), pool.requests(), pool.records(), config, demand=asked, running=running)
    return negotiate(snapshot, config, float(pool.row["now"]))


def told(match: Matched, users: dict[str, str]) -> Iterator[tuple[str, int, str, str]]:
    """(submitter, autocluster, slot, who is preempted) of each job of a match, in the data's words."""
    if match.reason == NO_PREEMPTION:
        who = "none"
    elif match.preempts == (match.slot,):
        who = users[match.slot]
    else:
        who = f"{len(match.preempts)} dslots"
    for _ in range(match.count):
        yield match.submitter, match.request.autocluster, match.slot, who


def users_of(pool: Recorded) -> dict[str, str]:
    return {str(slot.eval("Name")): str(slot.eval("RemoteUser")) for slot in pool.slots()}


def expected(pool: Recorded) -> list[tuple[str, int, str, str]]:
    jobs = pool.row["jobs"]
    return [(jobs[job]["submitter"], jobs[job]["autocluster"], slot, who) for job, slot, who, _ in pool.row["matches"]]


@pytest.mark.parametrize("pool", recorded(), ids=lambda pool: pool.name)
def test_the_reference_decides_the_same(pool: Recorded, tmp_path: Path) -> None:
    result = decide(pool, config_of(pool, tmp_path))
    users = users_of(pool)
    ours = [one for match in result.matches for one in told(match, users)]
    theirs = expected(pool)
    until = pool.row.get("until", {"matches": len(theirs), "because": ""})
    assert until["because"] in ("", *REASONS)
    if until["because"] == "equal slots":
        ours, theirs = [(who, 0, "", "") for who, *_ in ours], [(who, 0, "", "") for who, *_ in theirs]
    end = until["matches"]
    if end == len(theirs):  # the order is not compared: all jobs on one partitionable slot are one match of ours
        assert Counter(ours) == Counter(theirs)
    else:
        assert ours[:end] == theirs[:end]
