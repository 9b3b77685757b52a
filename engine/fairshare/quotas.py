"""Quotas of accounting groups: as configured, as set by an administrator, and with their parts of the surplus (spec
rows GRP-03, GRP-06 to GRP-16). Pure.

`assign_quotas` hands the pool down the tree.

An administrator may set a quota while the pool runs, in place of the configuration's (`QuotaSetting`). It is part of
the accounting records: whichever negotiator leads has it, and it is copied and restored with them. The configuration
that a negotiator goes by has it as a macro on top of its files' (`with_quotas`), so whatever reads GROUP_QUOTA_<group>,
or tells where it comes from, knows of no other way: the journal's replays among them.

`allocate` says what each group may use in a round: its quota, and its part of what others leave. Surplus goes
bottom-up. A group first divides what it and the groups below it leave among those of them that still want more; what
they can not use goes to its parent, and there to the parent and all of its children again. Only a group that accepts
surplus takes part, for itself and for what lies below it.

Without slot weights there are whole slots only: fractions of slots are taken back and handed out one by one, first to
the group that waited longest (`allocate_whole`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from engine.fairshare.group_tree import Group, GroupConfig, GroupTree
from shared.config import Config
from shared.config.errors import Source
from shared.config.knobs.base import to_list


@dataclass(frozen=True, slots=True)
class GroupQuotas:
    """Slot weight, by `Group.index`.

    own: what the group's own submitters may use. subtree: what came from above, for it and all groups below it.
    """

    own: tuple[float, ...]
    subtree: tuple[float, ...]


def assign_quotas(tree: GroupTree, config: GroupConfig, pool_weight: float) -> GroupQuotas:
    """Hand the pool down the tree.

    Static children of a group are served first. Where they ask for more than it has, they keep their quotas if
    oversubscription is allowed, and are scaled down to fit otherwise (GRP-07, GRP-08). Dynamic children have their
    parts of what is left, scaled down if the parts come to more than 1 (GRP-06, GRP-10). Nobody is ever scaled up
    (GRP-09).

    A group that has children keeps for itself what they leave of its quota. With oversubscription it keeps all of it,
    so that parent and children share one quota; the root never does, or the pool would be given away twice (GRP-11).
    Below a quota of 0 every quota is 0.
    """
    own = [0.0] * len(tree.groups)
    subtree = [0.0] * len(tree.groups)
    subtree[0] = max(0.0, pool_weight)
    for group in tree.groups:  # parents come before their children
        quota = subtree[group.index]
        if quota <= 0.0:
            continue
        children = [tree.groups[index] for index in group.children]
        fixed = sum(child.config_quota for child in children if child.static)
        parts = sum(child.config_quota for child in children if not child.static)
        scale = 1.0 if config.allow_oversubscription or fixed <= quota else quota / fixed
        remaining = max(0.0, quota - fixed * scale) / max(parts, 1.0)
        handed_down = 0.0
        for child in children:
            subtree[child.index] = child.config_quota * (scale if child.static else remaining)
            handed_down += subtree[child.index]
        shared = config.allow_oversubscription and group is not tree.root
        own[group.index] = quota if shared else max(0.0, quota - handed_down)
    return GroupQuotas(tuple(own), tuple(subtree))


#: Where such a macro comes from.
QUOTA_SOURCE: Final = Source("<set by roost userprio>")
MAX_QUOTA: Final = 1e12


@dataclass(frozen=True, slots=True)
class QuotaSetting:
    """value: slot weight; `dynamic`: a part of the parent's quota, 0 to 1."""

    value: float
    dynamic: bool = False


def read_quota_change(what: str, value: float | None) -> QuotaSetting | None:
    """The quota that a change means; None: the configuration's. Raises ValueError."""
    if what == "no-quota":
        if value is not None:
            raise ValueError("no-quota takes no value: the group has the configuration's quota again")
        return None
    if value is None:
        raise ValueError(f"{what} wants a number")
    return QuotaSetting(value, what == "dynamic-quota")


def check_quota(quota: QuotaSetting) -> None:
    """Raises ValueError for what can be no quota."""
    most = 1.0 if quota.dynamic else MAX_QUOTA
    if not (math.isfinite(quota.value) and 0.0 <= quota.value <= most):
        wanted = "a part of the parent's, from 0 to 1" if quota.dynamic else f"slot weight, from 0 to {MAX_QUOTA:g}"
        raise ValueError(f"a quota of {quota.value:g}: give {wanted}")


def with_quotas(config: Config, quotas: Mapping[str, QuotaSetting]) -> Config:
    """The configuration with these in place of what it says; those of groups that it does not name are left out. Static
    quotas win over dynamic ones, so the other kind is not defined then."""
    named = {name.lower() for name in to_list(config.get("GROUP_NAMES") or "")}
    quotas = {key: quota for key, quota in quotas.items() if key in named}
    if not quotas:
        return config
    table = config.table.copy()
    scope = next((f"{one}." for one in (config.local_name, config.subsystem) if one), "")
    for key, quota in sorted(quotas.items()):
        text = f"{quota.value:.17g}" if quota.value != int(quota.value) else f"{int(quota.value)}"
        for family, mine in (("GROUP_QUOTA", not quota.dynamic), ("GROUP_QUOTA_DYNAMIC", quota.dynamic)):
            table.set(f"{scope}{family}_{key}", text if mine else "", QUOTA_SOURCE)
    return config.on(table)


#: How far two sums of the same numbers may lie apart.
_JITTER = 1e-9
#: For an order by how long somebody waited: later than any time.
_NEVER = math.inf


@dataclass(slots=True)
class _Allocation:
    """What is handed out so far, by `Group.index`. `want`: what a group still asks for its own submitters, `below`:
    that and what the accepting groups below it still ask."""

    tree: GroupTree
    quotas: GroupQuotas
    allocated: list[float]
    want: list[float]
    below: list[float]
    since: Sequence[float] = ()  # when a group last had one of the fractions
    served: set[int] = field(default_factory=set)  # who got fractions now

    def give(self, group: Group, amount: float) -> None:
        self.allocated[group.index] += amount
        self.want[group.index] -= amount

    def takers(self, group: Group) -> list[Group]:
        """Who shares what is left over at a group: its children that accept surplus, and the group itself (last)."""
        children = (self.tree.groups[index] for index in group.children)
        return [child for child in children if child.accepts_surplus and self.below[child.index] > 0.0] + (
            [group] if self.want[group.index] > 0.0 else []
        )

    def wanted(self, taker: Group, at: Group) -> float:
        """What somebody asks among the takers at a group: the group itself speaks for its own submitters only."""
        return self.want[taker.index] if taker is at else self.below[taker.index]

    def weight(self, taker: Group, at: Group) -> float:
        return self.quotas.own[taker.index] if taker is at else self.quotas.subtree[taker.index]


def allocate(tree: GroupTree, quotas: GroupQuotas, requested: Sequence[float]) -> list[float]:
    """Slot weight that each group may use, by `Group.index`. `requested`: what its own submitters ask, likewise.

    The allocations are never more than the requests, nor, without oversubscription, in sum than the pool.
    """
    return _fair_shares(tree, quotas, requested).allocated


def allocate_whole(
    tree: GroupTree, quotas: GroupQuotas, requested: Sequence[float], since: Sequence[float]
) -> tuple[list[float], set[int]]:
    """The same in whole slots. Fractions go round: `since` is when each group last had one (0: never), and those who
    have one now are returned too."""
    shares = _fair_shares(tree, quotas, [float(math.floor(asked + _JITTER)) for asked in requested])
    shares.since = since
    _in_whole_slots(shares)
    return shares.allocated, shares.served


def _fair_shares(tree: GroupTree, quotas: GroupQuotas, requested: Sequence[float]) -> _Allocation:
    allocated = [min(asked, quota) for asked, quota in zip(requested, quotas.own, strict=True)]
    want = [asked - got for asked, got in zip(requested, allocated, strict=True)]
    work = _Allocation(tree, quotas, allocated, want, list(want))
    left = [quota - got for quota, got in zip(quotas.own, allocated, strict=True)]
    for group in reversed(tree.groups):  # children come before their parents
        for index in group.children:
            if tree.groups[index].accepts_surplus:
                work.below[group.index] += work.below[index]
        left[group.index] = _share(work, group, left[group.index])
        if group.parent >= 0:
            left[group.parent] += left[group.index]
    return work


def _share(work: _Allocation, group: Group, surplus: float) -> float:
    """Divide a surplus among a group and its accepting children; returns what nobody of them wants."""
    if surplus <= 0.0 or work.below[group.index] <= 0.0:
        return max(0.0, surplus)
    takers = work.takers(group)
    wanted = [work.wanted(taker, group) for taker in takers]
    parts = divide(surplus, wanted, [work.weight(taker, group) for taker in takers])
    for taker, part in zip(takers, parts, strict=True):
        if taker is group:
            work.give(group, part)
        else:
            _share(work, taker, part)
    handed_out = sum(parts)
    work.below[group.index] = max(0.0, work.below[group.index] - handed_out)
    return max(0.0, surplus - handed_out)


def divide(amount: float, wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Parts of an amount in the ratio of the weights, but to nobody more than it wants (GRP-15, GRP-16).

    What those leave who want little goes to the others, in the same ratio; those of weight 0 share equally what all
    others leave. Time O(n log n).
    """
    if amount >= sum(wanted):
        return list(wanted)
    parts = [0.0] * len(wanted)
    heavy = [i for i, weight in enumerate(weights) if weight > 0.0]
    light = [i for i, weight in enumerate(weights) if weight <= 0.0]
    left = _fill(parts, amount, heavy, wanted, weights)
    _fill(parts, left, light, wanted, [1.0] * len(wanted))
    return parts


def _fill(
    parts: list[float], amount: float, some: Sequence[int], wanted: Sequence[float], weights: Sequence[float]
) -> float:
    """Set the parts of some takers; returns what they leave."""
    # Who is satisfied by the least for each unit of weight comes first: after the first who is not, nobody is.
    order = sorted(some, key=lambda i: (wanted[i] / weights[i], i))
    rest = list(accumulate(weights[i] for i in reversed(order)))  # of those from here to the end
    for i in order:
        # Never more than there is: of weights near the least number a float can have, products are rounded up.
        parts[i] = min(wanted[i], amount * weights[i] / rest.pop(), amount)
        amount = max(0.0, amount - parts[i])
    return amount


# --- whole slots ------------------------------------------------------------------------------------------


def _in_whole_slots(work: _Allocation) -> None:
    """Round every allocation down, and hand out the fractions as whole slots."""
    size = len(work.tree.groups)
    left = [0.0] * size
    oldest = [_NEVER] * size  # when the one who waits longest, in the group and below it, last had a fraction
    for group in reversed(work.tree.groups):
        at = group.index
        whole = math.floor(work.allocated[at] + _JITTER)
        left[at] += max(0.0, work.allocated[at] - whole)
        work.want[at] = float(math.floor(work.want[at] + work.allocated[at] - whole + 0.5))
        work.allocated[at] = float(whole)
        work.below[at] = work.want[at]
        if work.want[at] > 0.0:
            oldest[at] = work.since[at]
        for index in group.children:
            if work.tree.groups[index].accepts_surplus:
                work.below[at] += work.below[index]
                if work.below[index] > 0.0:
                    oldest[at] = min(oldest[at], oldest[index])
        left[at] = _go_round(work, group, left[at], oldest)
        if group.parent >= 0:
            left[group.parent] += left[at]


def _go_round(work: _Allocation, group: Group, surplus: float, oldest: Sequence[float]) -> float:
    """Hand out whole slots at a group, as evenly as can be; returns what is left, a fraction or what nobody wants."""
    takers = work.takers(group)
    wanted = {taker.index: work.wanted(taker, group) for taker in takers}
    waited = {taker.index: work.since[taker.index] if taker is group else oldest[taker.index] for taker in takers}
    takers.sort(key=lambda taker: (waited[taker.index], -work.weight(taker, group), -wanted[taker.index]))
    slots = math.floor(surplus + _JITTER)
    given = dict.fromkeys(wanted, 0.0)
    while slots >= 1 and any(wanted.values()):
        asking = [taker for taker in takers if wanted[taker.index] > 0.0]
        most = max(1, slots // len(asking))
        for taker in asking[: slots // most]:
            part = min(wanted[taker.index], most)
            given[taker.index] += part
            wanted[taker.index] -= part
            slots -= int(part)
            work.served.add(taker.index)
    for taker in takers:
        part = given[taker.index]
        if taker is group:
            work.give(group, part)
        elif part > 0.0:
            _go_round(work, taker, part, oldest)
    handed_out = sum(given.values())
    work.below[group.index] -= handed_out
    return max(0.0, surplus - handed_out)
