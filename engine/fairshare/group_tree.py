"""Accounting groups as a tree, and who belongs to which (spec rows GRP-01 to GRP-05, GRP-12, GRP-17, GRP-25). Pure.

Group names do not tell upper from lower case: a group's key is its name in lower case, its name is shown as it is
configured. Dots make the tree: `physics.hep` lies below `physics`. The root, `<none>`, is always there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from shared.classad.expr import Expr

#: Deeper trees are mistakes.
MAX_LEVELS: Final = 50

_V = TypeVar("_V")

#: Key and name of the root, which holds every submitter without a known group (GRP-03).
ROOT: Final = "<none>"


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The knobs about groups. GroupConfig() has no groups: quotas are off (GRP-01).

    names: GROUP_NAMES. Keys of the mappings are names in any case.
    quota: GROUP_QUOTA_<g>, slot weight. dynamic_quota: GROUP_QUOTA_DYNAMIC_<g>, part of the parent's quota, 0 to 1.
    accept_surplus, accept_surplus_by: GROUP_ACCEPT_SURPLUS and GROUP_ACCEPT_SURPLUS_<g>; autoregroup likewise.
    allow_oversubscription: NEGOTIATOR_ALLOW_QUOTA_OVERSUBSCRIPTION; strict_enforce: NEGOTIATOR_STRICT_ENFORCE_QUOTA.
    sort_expr: GROUP_SORT_EXPR; None is its default, use by quota.
    weighted_demand: NEGOTIATOR_USE_WEIGHTED_DEMAND. weighted_slots: NEGOTIATOR_USE_SLOT_WEIGHTS; without weights every
    allocation is a whole number of slots. consider_preemption: NEGOTIATOR_CONSIDER_PREEMPTION.
    max_allocation_rounds: GROUP_QUOTA_MAX_ALLOCATION_ROUNDS, at least 1. round_robin_rate:
    GROUP_QUOTA_ROUND_ROBIN_RATE, slot weight, at least 1.
    """

    names: tuple[str, ...] = ()
    quota: Mapping[str, float] = field(default_factory=dict)
    dynamic_quota: Mapping[str, float] = field(default_factory=dict)
    accept_surplus: bool = False
    accept_surplus_by: Mapping[str, bool] = field(default_factory=dict)
    autoregroup: bool = False
    autoregroup_by: Mapping[str, bool] = field(default_factory=dict)
    allow_oversubscription: bool = True
    strict_enforce: bool = True
    sort_expr: Expr | None = None
    weighted_demand: bool = True
    weighted_slots: bool = True
    consider_preemption: bool = True
    max_allocation_rounds: int = 3
    round_robin_rate: float = math.inf


@dataclass(frozen=True, slots=True)
class Group:
    """A node of the tree, as configured. `index` is its place in `Tree.groups`; the root has 0 and no parent (-1).

    config_quota: slot weight if `static`, else a part of the parent's quota.
    """

    index: int
    key: str
    name: str
    parent: int
    children: tuple[int, ...]
    config_quota: float
    static: bool
    accepts_surplus: bool
    autoregroup: bool

    @property
    def surplus_policy(self) -> str:
        """What `roost userprio -quotas` calls "Use Surplus": no, byQuota or regroup."""
        if self.autoregroup:
            return "regroup"
        return "byQuota" if self.accepts_surplus else "no"


@dataclass(frozen=True, slots=True)
class GroupTree:
    """All groups that are in force, parents before their children, siblings by key: the order of GROUP_NAMES does not
    matter. `problems`: what of the configuration is left out or odd, one sentence each, for the log."""

    groups: tuple[Group, ...]
    problems: tuple[str, ...] = ()
    by_key: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, config: GroupConfig) -> GroupTree:
        """The tree of a configuration. Nothing in it is an error: what can not be used is left out, and told of in
        `problems`."""
        problems: list[str] = []
        names = _usable(config.names, problems)
        quotas = {"GROUP_QUOTA": _folded(config.quota), "GROUP_QUOTA_DYNAMIC": _folded(config.dynamic_quota)}
        surplus, regroup = _folded(config.accept_surplus_by), _folded(config.autoregroup_by)
        listed = {name.lower() for name in config.names}
        told = [(family, key) for family, members in quotas.items() for key in members]
        told += [("GROUP_ACCEPT_SURPLUS", key) for key in surplus] + [("GROUP_AUTOREGROUP", key) for key in regroup]
        problems += [
            f"{family}_{key}: no such group is in GROUP_NAMES; list it, or remove the line"
            for family, key in sorted(told)
            if key not in listed
        ]
        keys = [ROOT, *_breadth_first(names)]
        place = {key: index for index, key in enumerate(keys)}
        below: dict[str, list[int]] = {key: [] for key in keys}
        for key in keys[1:]:
            below[_parent(key)].append(place[key])
        regroups = [regroup.get(key, config.autoregroup) for key in keys[1:]]
        groups = [Group(0, ROOT, ROOT, -1, tuple(below[ROOT]), 0.0, False, True, any(regroups))]
        for key, regrouping in zip(keys[1:], regroups, strict=True):
            quota, static = _quota(key, names[key], quotas, problems)
            groups.append(
                Group(
                    index=place[key],
                    key=key,
                    name=names[key],
                    parent=place[_parent(key)],
                    children=tuple(below[key]),
                    config_quota=quota,
                    static=static,
                    accepts_surplus=surplus.get(key, config.accept_surplus),
                    autoregroup=regrouping,
                )
            )
        return cls(tuple(groups), tuple(problems), place)

    def __bool__(self) -> bool:
        """Whether there is any group but the root."""
        return len(self.groups) > 1

    @property
    def root(self) -> Group:
        return self.groups[0]

    def get(self, name: str) -> Group | None:
        """The group of that name in any case, if it is in force."""
        index = self.by_key.get(name.lower())
        return None if index is None else self.groups[index]

    def group_of(self, submitter: str) -> str:
        """Key of the group of a submitter such as `physics.hep.alice@pool` (GRP-25).

        What stands before the last dot of the name is its group. A subgroup that is not in force counts as the nearest
        group above it that is; without any it is the root. A group's own name is itself.
        """
        if submitter.lower() in self.by_key:
            return submitter.lower()
        name = submitter.rpartition("@")[0] or submitter
        path = name.lower()
        while "." in path:
            path = path.rpartition(".")[0]
            if path in self.by_key:
                return path
        return ROOT

    def upwards(self, group: Group) -> Iterator[Group]:
        """The group itself, its parent and so on, the root last."""
        while True:
            yield group
            if group.parent < 0:
                return
            group = self.groups[group.parent]

    def clashes(self, submitters: Iterable[str]) -> list[str]:
        """Sentences about submitters with the name of a group, which the manual forbids (GROUP_NAMES): their use and a
        group's look alike to people. They negotiate in `<none>`."""
        return [
            f"{submitter}: a group has the name of this user; rename the group, as group_{submitter.partition('@')[0]}"
            for submitter in sorted(set(submitters))
            if "@" in submitter and submitter.rpartition("@")[0].lower() in self.by_key
        ]


@dataclass(frozen=True, slots=True)
class SubmitterDemand:
    """How many jobs one submitter has at one schedd. Weights are cores; None where the schedd tells none."""

    submitter: str
    idle: float
    running: float
    weighted_idle: float | None = None
    weighted_running: float | None = None


def group_demand(tree: GroupTree, config: GroupConfig, waiting: Iterable[SubmitterDemand]) -> dict[str, float]:
    """What the submitters of each group ask for themselves, those of its subgroups not counted (GRP-17): cores of idle
    and running jobs, or the number of these jobs if NEGOTIATOR_USE_WEIGHTED_DEMAND is false."""
    asked: dict[str, float] = {}
    for one in waiting:
        idle, running = one.idle, one.running
        if config.weighted_demand:
            idle = idle if one.weighted_idle is None else one.weighted_idle
            running = running if one.weighted_running is None else one.weighted_running
        group = tree.group_of(one.submitter)
        asked[group] = asked.get(group, 0.0) + max(0.0, idle) + max(0.0, running)
    return asked


# --- reading GROUP_NAMES ----------------------------------------------------------------------------------


def _usable(listed: Iterable[str], problems: list[str]) -> dict[str, str]:
    """Key to name of the groups that are in force, sorted: a parent comes before its children."""
    names: dict[str, str] = {}
    for name in sorted(listed, key=lambda name: (name.lower(), name)):
        key = name.lower()
        if key == ROOT:
            problems.append(f"GROUP_NAMES: {ROOT} is the root, which is always there; remove it from the list")
        elif key in names:
            problems.append(f"GROUP_NAMES: {name} is listed twice (names do not tell upper from lower case)")
        elif not all(key.split(".")):
            problems.append(f"GROUP_NAMES: {name} has an empty part between dots; the group is ignored")
        elif key.count(".") >= MAX_LEVELS:
            problems.append(f"GROUP_NAMES: {name[:100]}... has more than {MAX_LEVELS} levels; the group is ignored")
        elif _parent(key) != ROOT and _parent(key) not in names:
            parent = name.rpartition(".")[0]
            problems.append(f"GROUP_NAMES: {name} is ignored, as its parent {parent} is not listed; list it too")
        else:
            names[key] = name
    return names


def _parent(key: str) -> str:
    return key.rpartition(".")[0] or ROOT


def _breadth_first(keys: Iterable[str]) -> list[str]:
    return sorted(keys, key=lambda key: (key.count("."), key))


def _folded(members: Mapping[str, _V]) -> dict[str, _V]:
    return {name.lower(): value for name, value in members.items()}


def _quota(key: str, name: str, quotas: Mapping[str, Mapping[str, float]], problems: list[str]) -> tuple[float, bool]:
    """The quota of a group and whether it is static, which wins over a dynamic one (GRP-04). None at all is 0, and the
    group stays (GRP-05)."""
    for family, most in (("GROUP_QUOTA", math.inf), ("GROUP_QUOTA_DYNAMIC", 1.0)):
        value = quotas[family].get(key)
        if value is None:
            continue
        static = family == "GROUP_QUOTA"
        if 0.0 <= value <= most and math.isfinite(value):
            return float(value), static
        wanted = "of at least 0" if static else "from 0 to 1"
        problems.append(f"{family}_{name} = {value:g} is no quota and counts as 0; give a number {wanted}")
        return 0.0, static
    problems.append(f"{name} has neither GROUP_QUOTA_{name} nor GROUP_QUOTA_DYNAMIC_{name}; its quota is 0")
    return 0.0, False
