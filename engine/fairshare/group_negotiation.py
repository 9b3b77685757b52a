"""Group quotas in a cycle: which group may take how much, in which order (spec rows GRP-13, GRP-14, GRP-18 to GRP-23,
GRP-28, GRP-29). Pure.

    quotas: the pool goes down the tree                              quotas.py
    for up to three rounds:
        allocations: quotas by demand, and what others leave          surplus.py
        order of the groups: GROUP_SORT_EXPR
        once, or in steps of GROUP_QUOTA_ROUND_ROBIN_RATE:
            for each group with an allocation: its turn               `serve`, the cycle
        who did not use its allocation frees the rest for the others, who have it in the next round

Limits are whole numbers, as only whole slots can be allocated (the manual on GROUP_QUOTA_<groupname>): of a quota of
9.9, 9 can be used. A quota within a thousandth of a whole number counts as that number, since .75 of .66667 of 30 is
meant to be 15.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from engine.fairshare.group_tree import ROOT, Group, GroupConfig, GroupTree
from engine.fairshare.quotas import GroupQuotas, allocate, allocate_whole, assign_quotas
from shared.classad import ClassAd, evaluate

#: Sort keys of GROUP_SORT_EXPR's default for the root and for groups without a quota, and of what is no number
#: (GRP-18, GRP-20): the largest 32-bit float.
KEY_ROOT: Final = 3.4e38
KEY_NO_QUOTA: Final = 3.3e38
KEY_NO_NUMBER: Final = 3.4028234663852886e38

#: A limit this much below a whole number is meant to be that number.
_NEARLY: Final = 1e-3
_NOTHING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class GroupTurn:
    """A group's turn to negotiate.

    group: key. members: keys of the groups whose submitters negotiate now: the group itself and, in `<none>`, those
    that autoregroup (GRP-23). Use is charged to each submitter's own group as ever.
    limit: slot weight that may be handed out now. 0 is possible: then only slots that prefer the job to their own may
    be taken (startd RANK), which no share bounds.
    quota: the same as a total: what the group may use, with what it uses already. Its submitters' slices are parts of
    this, or of the pool if that is less (GRP-24). Infinite without groups.
    capped: it, or a group above it, refuses surplus: its quota is a hard cap, also for what it takes from others
    (GRP-14).
    """

    group: str
    members: tuple[str, ...]
    limit: float
    quota: float
    capped: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class GroupResult:
    """What one cycle came to for a group; what `roost userprio -quotas` shows (W-10). All in slot weight.

    config_quota: as written (a part of the parent's quota if it is not `static`). quota: for its own submitters;
    subtree_quota: with all groups below. requested: their demand as the cycle began. allocated: in the last round.
    in_use: weighted use of its own submitters as the cycle ended; given: how much of that was handed out in its turns.
    remainder: it had a fraction of a slot, or wants none, so its waiting begins anew (see `negotiate_groups`).
    """

    group: str
    name: str
    parent: str
    config_quota: float
    static: bool
    quota: float
    subtree_quota: float
    requested: float
    allocated: float
    in_use: float
    given: float
    sort_key: float
    surplus_policy: str
    remainder: bool = False


def negotiate_groups(
    tree: GroupTree,
    config: GroupConfig,
    pool_weight: float,
    demand: Mapping[str, float],
    in_use: Callable[[str], float],
    serve: Callable[[GroupTurn], float],
    *,
    heaviest: float = math.inf,
    last_remainder: Mapping[str, float] | None = None,
) -> list[GroupResult]:
    """Give every group its turns; returns what came of it, in the order of negotiation.

    pool_weight: of all slots that count for shares (without slot weights: their number, a partitionable slot counting
    its Cpus). demand: by group (see `demand`). in_use: weighted use of a group's own submitters, now. serve: negotiates
    a turn, and returns the weight handed out.
    heaviest: of all slots on offer; it spares steps of the round robin that could give nothing.
    last_remainder: without slot weights only: when each group last had a fraction of a slot (`Plan.remainder`); who
    waited longest comes first.

    Without groups there is one turn without a limit. Time: O(groups) for each round, besides `serve`.
    """
    cycle = _Cycle(tree, config, max(0.0, pool_weight), demand, in_use, serve)
    if not tree:
        return [cycle.whole_pool()]
    return cycle.run(min(heaviest, pool_weight), last_remainder or {})


@dataclass(slots=True)
class _Going:
    """A group in a round: what it had as the round began, what it may get more, and what it was offered last, with
    what it had."""

    group: Group
    had: float
    missing: float
    offered: float = -1.0


class _Cycle:
    """The working state of `negotiate_groups`. Lists go by `Group.index`."""

    def __init__(
        self,
        tree: GroupTree,
        config: GroupConfig,
        pool_weight: float,
        demand: Mapping[str, float],
        in_use: Callable[[str], float],
        serve: Callable[[GroupTurn], float],
    ) -> None:
        groups = tree.groups
        self.tree, self.config, self.pool_weight = tree, config, pool_weight
        self.in_use, self.serve = in_use, serve
        self.demand = [max(0.0, demand.get(group.key, 0.0)) for group in groups]
        self.requested = list(self.demand)
        self.quotas: GroupQuotas = assign_quotas(tree, config, pool_weight)
        self.allocated = [0.0] * len(groups)
        self.given = [0.0] * len(groups)
        self.keys = [0.0] * len(groups)
        self.remainder: set[int] = set()
        #: Members of these negotiate in the root too.
        self.regrouping = tuple(group.key for group in groups[1:] if group.autoregroup)
        self.used: list[float] = []  # by each group's own submitters
        self.below: list[float] = []  # by them and the groups below
        #: How often something was handed out; `below` may be too high in branches (by their tops, the children of the
        #: root) that were not counted since then, where preemption took something away.
        self.moved = 0
        self.counted: dict[int, int] = {}
        self._refresh()

    def whole_pool(self) -> GroupResult:
        """Without groups there is nothing to divide."""
        self.given[0] = self.serve(GroupTurn(ROOT, (ROOT,), math.inf, math.inf))
        self.allocated[0], self.keys[0] = self.pool_weight, KEY_ROOT
        self._refresh()
        return self._plan(self.tree.root)

    def run(self, heaviest: float, last_remainder: Mapping[str, float]) -> list[GroupResult]:
        since = [last_remainder.get(group.key, 0.0) for group in self.tree.groups]
        order = list(self.tree.groups)
        before: list[float] = []
        for _ in range(max(1, self.config.max_allocation_rounds)):
            self._allocate(since)
            order = self._ordered(first=not before)
            given = self._hand_out(order, heaviest)
            self._refresh()
            if sum(map(min, self.used, self.allocated)) >= sum(self.allocated) - _NOTHING:
                break
            if self.allocated == before and given <= _NOTHING:
                break  # one more round would be the same
            before = list(self.allocated)
            self._free_the_rest()
        return [self._plan(group) for group in order]

    def _plan(self, group: Group) -> GroupResult:
        at = group.index
        return GroupResult(
            group=group.key,
            name=group.name,
            parent=self.tree.groups[max(0, group.parent)].name,
            config_quota=group.config_quota,
            static=group.static,
            quota=self._quota(group),
            subtree_quota=self.quotas.subtree[at],
            requested=self.demand[at],
            allocated=self.allocated[at],
            in_use=self.used[at],
            given=self.given[at],
            sort_key=self.keys[at],
            surplus_policy=group.surplus_policy,
            remainder=at in self.remainder or self.requested[at] <= 0.0,
        )

    # --- a round

    def _allocate(self, since: list[float]) -> None:
        if self.config.weighted_slots:
            self.allocated = allocate(self.tree, self.quotas, self.requested)
        else:
            self.allocated, served = allocate_whole(self.tree, self.quotas, self.requested, since)
            self.remainder |= served
        if self.regrouping:
            self.allocated[0] = self.pool_weight

    def _free_the_rest(self) -> None:
        """Who could not use its allocation asks for no more than it has, so that others get the rest (GRP-21)."""
        for index, (used, allocated) in enumerate(zip(self.used, self.allocated, strict=True)):
            if used < allocated - _NOTHING:
                self.requested[index] = used

    def _ordered(self, first: bool) -> list[Group]:
        """The groups by sort key, equal ones level by level of the tree and by name; `<none>` last if members of others
        come with it."""
        for group in self.tree.groups:
            if first or self._has_turn(group):
                self.keys[group.index] = self._sort_key(group)
        return sorted(
            self.tree.groups,
            key=lambda group: (bool(self.regrouping) and group.index == 0, self.keys[group.index], group.index),
        )

    def _sort_key(self, group: Group) -> float:
        quota, used = self._quota(group), self.used[group.index]
        if self.config.sort_expr is None:
            if group.index == 0:
                return KEY_ROOT
            return used / quota if quota > 0.0 else KEY_NO_QUOTA
        ad = ClassAd(
            {
                "AccountingGroup": group.name,
                "GroupQuota": quota,
                "GroupResourcesInUse": used,
                "GroupResourcesAllocated": self.allocated[group.index],
            }
        )
        value = evaluate(self.config.sort_expr, ad)
        if not isinstance(value, int | float) or math.isnan(value):
            return KEY_NO_NUMBER
        return float(value)

    def _has_turn(self, group: Group) -> bool:
        """Whether there is anything to negotiate for a group in this round: it has an allocation and somebody who asks,
        and room, or slots in use by others that may prefer its jobs."""
        if self.allocated[group.index] <= 0.0:
            return False
        if group.index == 0 and not any(self.demand[self.tree.by_key[key]] > 0.0 for key in self._members(group)):
            return False
        return self.config.consider_preemption or self.used[group.index] < self.allocated[group.index]

    def _members(self, group: Group) -> tuple[str, ...]:
        return (ROOT, *self.regrouping) if group.index == 0 else (group.key,)

    def _quota(self, group: Group) -> float:
        """For its own submitters; the whole pool for the root where members of other groups come with it."""
        return self.pool_weight if group.index == 0 and self.regrouping else self.quotas.own[group.index]

    def _missing(self, group: Group) -> float:
        """What a group may get in this round: up to its allocation, or its quota if that is more."""
        return max(0.0, max(self.allocated[group.index], self._quota(group)) - self.used[group.index])

    def _pace(self) -> float:
        """What the group that gets most may get in this round, which sets the pace for the others: of what it was
        allocated, or where no group accepts surplus, of its quota, whether it asks for it or not. Where this is
        nothing, nobody gets anything, quota or not."""
        groups = self.tree.groups
        if any(group.accepts_surplus for group in groups[1:]):
            return max(allocated - used for allocated, used in zip(self.allocated, self.used, strict=True))
        return max(self._missing(group) for group in groups)

    # --- the turns of a round

    def _hand_out(self, order: list[Group], heaviest: float) -> float:
        """One turn for each group, or many small ones (GRP-22): in each step the group with most to get may have RATE
        more, the others in proportion. Returns the weight handed out."""
        rate = max(1.0, self.config.round_robin_rate)
        going = [
            _Going(group, self.used[group.index], self._missing(group)) for group in order if self._has_turn(group)
        ]
        most = self._pace()
        if most <= 0.0:
            for one in going:
                one.missing = 0.0
        step = min(rate, most)
        handed_out, first = 0.0, True
        while True:
            for one in list(going):
                total = one.had + one.missing * (step / most if step < most else 1.0)
                turn = self._turn(one.group, total)
                given = 0.0
                if first or (turn.limit > 0.0 and turn.quota > one.offered):
                    given = self._negotiate(one.group, turn)
                    handed_out += given
                    one.offered = turn.quota
                kept_out = turn.limit <= 0.0 and self._whole(total) > self.used[one.group.index]
                if kept_out or (given <= _NOTHING and turn.limit >= heaviest):
                    going.remove(one)  # by a group above it, or there is no slot for it
            if step >= most or not going:
                return handed_out
            # Steps that bring nobody a whole slot more can be left out.
            useful = min(most, *(self._useful(one, most) for one in going))
            step = min(max(step + rate, rate * math.ceil(useful / rate)), most)
            first = False

    def _useful(self, one: _Going, most: float) -> float:
        """At which step a group may have one whole slot more than it has or was offered."""
        if one.missing <= 0.0:
            return most
        more = self._whole(max(self.used[one.group.index], one.offered)) + 1.0 - _NEARLY
        return (more - one.had) / one.missing * most

    def _turn(self, group: Group, total: float) -> GroupTurn:
        """The turn of a group that may come to `total`, as far as the groups above it leave room (GRP-14, GRP-29)."""
        used = self.used[group.index] = self.in_use(group.key)
        more = max(0.0, total - used)
        if self.config.strict_enforce:
            more = self._within(group, more)
            if more < total - used and self._recounted(group):
                more = self._within(group, max(0.0, total - used))
        limit = max(0.0, self._whole(used + more) - used)
        # Who has more already shares out what it should have, not what it has.
        most = max(self.allocated[group.index], self._quota(group))
        capped = self.config.strict_enforce and not all(node.accepts_surplus for node in self.tree.upwards(group))
        return GroupTurn(group.key, self._members(group), limit, min(self._whole(most), used + limit), capped)

    def _within(self, group: Group, more: float) -> float:
        for node in self.tree.upwards(group):
            if not node.accepts_surplus:
                quota = node.config_quota if node.static else self.quotas.subtree[node.index]
                more = min(more, max(0.0, quota - self.below[node.index]))
        return more

    @staticmethod
    def _whole(weight: float) -> float:
        return float(math.floor(weight + _NEARLY))

    def _negotiate(self, group: Group, turn: GroupTurn) -> float:
        given = self.serve(turn)
        self.given[group.index] += given
        self.moved += given > 0.0
        for key in turn.members:
            member = self.tree.groups[self.tree.by_key[key]]
            now = self.in_use(key)
            change = now - self.used[member.index]
            self.used[member.index] = now
            if change:
                for node in self.tree.upwards(member):
                    self.below[node.index] += change
        return given

    def _recounted(self, group: Group) -> bool:
        """Read the use in the whole branch of a group anew, if anything was handed out since that was done."""
        *_, top, _ = self.tree.upwards(group)
        if self.counted.get(top.index, 0) == self.moved:
            return False
        self.counted[top.index] = self.moved
        before = self.below[top.index]
        self._count(top)
        self.below[0] += self.below[top.index] - before
        return True

    def _count(self, group: Group) -> float:
        self.used[group.index] = self.in_use(group.key)
        self.below[group.index] = self.used[group.index] + sum(
            self._count(self.tree.groups[child]) for child in group.children
        )
        return self.below[group.index]

    def _refresh(self) -> None:
        """Read all use anew."""
        groups = self.tree.groups
        self.used = [self.in_use(group.key) for group in groups]
        self.below = list(self.used)
        for group in reversed(groups):
            if group.parent >= 0:
                self.below[group.parent] += self.below[group.index]
        self.counted = dict.fromkeys(self.tree.root.children, self.moved)
