"""Quotas and allocations of accounting groups against those in the log of HTCondor's negotiator."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.fairshare.group_tree import GroupTree, group_demand
from engine.fairshare.quotas import allocate, assign_quotas
from engine.policy import group_config
from tests.reference_pools import Recorded, recorded
from tests.spec import spec


@spec(
    "GRP-06",
    "GRP-07",
    "GRP-08",
    "GRP-09",
    "GRP-10",
    "GRP-11",
    "GRP-12",
    "GRP-13",
    "GRP-14",
    "GRP-15",
    "GRP-16",
    "GRP-17",
)
@pytest.mark.parametrize("pool", [p for p in recorded() if "groups" in p.row], ids=lambda pool: pool.name)
def test_the_reference_allocates_the_same_to_groups(pool: Recorded, tmp_path: Path) -> None:
    """Quotas and allocations of the first round, to the digits of the reference's log."""
    groups = group_config(pool.settings(tmp_path))
    tree = GroupTree.of(groups)
    weight = sum(float(str(slot.eval("Cpus"))) for slot in pool.slots())
    asked = group_demand(tree, groups, pool.waiting())
    quotas = assign_quotas(tree, groups, weight)
    allocated = allocate(tree, quotas, [asked.get(group.key, 0.0) for group in tree.groups])
    regrouping = any(group.autoregroup for group in tree.groups)
    for group in tree.groups:
        if group is tree.root and regrouping:
            continue  # it negotiates for members of others too, within the whole pool
        quota, _, given, _ = pool.row["groups"]["allocations"][0][group.name]
        assert quotas.own[group.index] == pytest.approx(quota, rel=1e-5), group.name
        assert allocated[group.index] == pytest.approx(given, rel=1e-5), group.name
