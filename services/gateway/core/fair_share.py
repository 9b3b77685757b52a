"""What the API and the dashboard derive from accounting ads: the tree of groups, loans of quota between groups, and
when two submitters will have the same priority. Pure.

Loans (spec rows GRP-13 to GRP-29): slots bear no owner's name, so a loan is an attribution. It follows the tree, as
surplus does: groups under one parent lend to each other before anything goes further up; where several lend and several
borrow, each lends to each in proportion. What is used above all quotas comes from the part of the pool that no quota
names.

Parity (spec rows ACC-02, ACC-08): a real priority (RUP) goes towards what is in use, half of the way in each
PRIORITY_HALFLIFE, and never below 0.5; the effective one (EUP) is that times the factor. With x = 2^(-t / half-life)
each EUP is made of two straight lines in x, so they meet where straight lines do, and nothing need be searched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from shared.classad import ClassAd

#: What is told of a group -> the attribute of its accounting ad.
_TOLD = {
    "config_quota": "ConfigQuota",
    "effective_quota": "EffectiveQuota",
    "subtree_quota": "SubtreeQuota",
    "in_use": "HierWeightedResourcesUsed",
    "own_use": "WeightedResourcesUsed",
    "requested": "Requested",
    "priority": "Priority",
}


def tree(ads: Iterable[ClassAd]) -> list[dict[str, Any]]:
    """The groups under the root, by name, each with its own groups and submitters. The root itself comes first, where
    it has submitters. A group whose parent no ad tells of stands at the top."""
    groups: dict[str, dict[str, Any]] = {}
    parents: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    for ad in ads:
        name, above = ad.eval("Name"), ad.eval("AccountingGroup")
        if not isinstance(name, str):
            continue
        parent = above if isinstance(above, str) else ""
        if ad.eval("IsAccountingGroup") is True:
            policy = ad.eval("SurplusPolicy")
            groups[name] = {
                "name": name,
                **{key: _number(ad, attribute) for key, attribute in _TOLD.items()},
                "quota_is_set": ad.eval("QuotaIsSet") is True,
                "surplus_policy": policy if isinstance(policy, str) else "",
                "submitters": [],
                "groups": [],
            }
            parents[name] = parent
        else:
            members.setdefault(parent, []).append(name)
    for group, names in members.items():
        if group in groups:
            groups[group]["submitters"] = sorted(names)
    roots = []
    for name in sorted(groups):
        outer = groups.get(parents[name])
        if outer is None or parents[name] == name or _circle(name, parents):
            roots.append(groups[name])
        else:
            outer["groups"].append(groups[name])
    return roots


def _circle(name: str, parents: dict[str, str]) -> bool:
    """Whether a group is said to be above itself; ads of others' making may."""
    seen = {name}
    above = parents.get(name, "")
    while above in parents and parents[above] != above:
        if above in seen:
            return True
        seen.add(above)
        above = parents[above]
    return False


def _number(ad: ClassAd, attribute: str) -> float:
    value = ad.eval(attribute)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


ROOT: Final = "<none>"
#: Lender of what no group's quota names.
UNASSIGNED: Final = ""
_LEAST: Final = 1e-6


@dataclass(frozen=True, slots=True)
class GroupUse:
    """A group. parent: its own name for the root. quota: of its own submitters, without the groups below; used: by
    them. Both are weighted slots."""

    name: str
    parent: str
    quota: float
    used: float


@dataclass(frozen=True, slots=True)
class QuotaLoan:
    lender: str  # UNASSIGNED: the part of the pool that is in no quota
    borrower: str
    amount: float  # weighted slots


@dataclass(slots=True)
class _Open:
    """What a part of the tree could not settle within itself: (group, weighted slots)."""

    offers: list[tuple[str, float]] = field(default_factory=list)
    wants: list[tuple[str, float]] = field(default_factory=list)


def loans(groups: Iterable[GroupUse]) -> list[QuotaLoan]:
    """Largest first. The sum of what a group borrows is exactly what it uses above its quota. The root's own quota does
    not count: what its submitters use is lent to them like to any other group."""
    stands = {group.name: group for group in groups}
    below: dict[str, list[str]] = {}
    tops = []
    for name, group in stands.items():
        if group.parent in stands and group.parent != name:
            below.setdefault(group.parent, []).append(name)
        else:
            tops.append(name)
    found: list[QuotaLoan] = []
    settled: dict[str, _Open] = {}
    # Depth first without recursion: a tree may be as deep as its names are long.
    todo = [(name, False) for name in tops]
    seen: set[str] = set()
    while todo:
        name, ready = todo.pop()
        if not ready:
            if name in seen:
                continue
            seen.add(name)
            todo.append((name, True))
            todo.extend((child, False) for child in below.get(name, ()))
            continue
        open_ = _Open()
        for child in below.get(name, ()):
            part = settled.pop(child, None)
            if part is not None:
                open_.offers += part.offers
                open_.wants += part.wants
        _note(open_, stands[name])
        settled[name] = _settle(open_, found)
    rest = _Open()
    for name in tops:
        part = settled.get(name)
        if part is not None:
            rest.offers += part.offers
            rest.wants += part.wants
    rest = _settle(rest, found)
    found += [QuotaLoan(UNASSIGNED, name, amount) for name, amount in rest.wants]
    return sorted(found, key=lambda loan: (-loan.amount, loan.lender, loan.borrower))


def _note(open_: _Open, group: GroupUse) -> None:
    more = group.used - (0.0 if group.name == ROOT else group.quota)
    if more > _LEAST:
        open_.wants.append((group.name, more))
    elif more < -_LEAST:
        open_.offers.append((group.name, -more))


def _settle(open_: _Open, found: list[QuotaLoan]) -> _Open:
    offered, wanted = sum(a for _, a in open_.offers), sum(a for _, a in open_.wants)
    moved = min(offered, wanted)
    if moved <= _LEAST:
        return open_
    found += [
        QuotaLoan(lender, borrower, amount)
        for lender, offer in open_.offers
        for borrower, want in open_.wants
        if (amount := moved * (offer / offered) * (want / wanted)) > _LEAST
    ]
    return _Open(
        [(name, left) for name, offer in open_.offers if (left := offer * (1.0 - moved / offered)) > _LEAST],
        [(name, left) for name, want in open_.wants if (left := want * (1.0 - moved / wanted)) > _LEAST],
    )


#: No real priority is below this.
MINIMUM: Final = 0.5
#: What is further away than this many half-lives, nobody waits for: the two only come closer.
LONGEST: Final = 40.0


@dataclass(frozen=True, slots=True)
class Standing:
    """A submitter. priority: real, not effective. in_use: weighted slots."""

    name: str
    priority: float
    factor: float
    in_use: float


@dataclass(frozen=True, slots=True)
class Parity:
    """in_s: seconds from now until they are equal, None: they never are. ahead: who has the better (smaller) effective
    priority now, empty when both have the same. points: (seconds from now, EUP of the first, of the second)."""

    in_s: float | None
    ahead: str
    points: list[tuple[float, float, float]]


def effective_after(who: Standing, seconds: float, half_life: float) -> float:
    """The EUP at that time."""
    return _at(who, 2.0 ** (-seconds / half_life) if half_life > 0.0 else 0.0)


def parity(first: Standing, second: Standing, half_life: float, samples: int = 60) -> Parity:
    """See Parity. half_life: seconds, PRIORITY_HALFLIFE; 0 or less: priorities are what is in use at once."""
    now_first, now_second = _at(first, 1.0), _at(second, 1.0)
    ahead = "" if _equal(now_first, now_second) else first.name if now_first < now_second else second.name
    if half_life <= 0.0:
        equal = _equal(_at(first, 0.0), _at(second, 0.0))
        return Parity(0.0 if equal else None, ahead, [(0.0, _at(first, 0.0), _at(second, 0.0))])
    meets = 0.0 if not ahead else _meeting(first, second, half_life)
    until = min(LONGEST, max(2.0, 2.0 * (meets or 0.0) / half_life)) * half_life
    moments = [until * number / (samples - 1) for number in range(samples)]
    return Parity(
        meets,
        ahead,
        [(t, effective_after(first, t, half_life), effective_after(second, t, half_life)) for t in moments],
    )


def _meeting(first: Standing, second: Standing, half_life: float) -> float | None:
    """Seconds until both lines meet the first time, which is where x is largest below 1."""
    corners = sorted({1.0, 0.0, *(x for who in (first, second) if (x := _corner(who)) is not None)}, reverse=True)
    for upper, lower in pairwise(corners):
        before = _at(first, upper) - _at(second, upper)
        after = _at(first, lower) - _at(second, lower)
        if before * after > 0.0 or before == after:
            continue
        x = lower + (upper - lower) * (after / (after - before))
        seconds = half_life * math.log2(1.0 / x) if x > 0.0 else math.inf
        return seconds if seconds <= LONGEST * half_life else None
    return None


def _corner(who: Standing) -> float | None:
    """The x from which on the priority is the least there is."""
    if who.in_use >= MINIMUM or who.priority <= MINIMUM:
        return None
    return (MINIMUM - who.in_use) / (who.priority - who.in_use)


def _at(who: Standing, x: float) -> float:
    return who.factor * max(MINIMUM, who.in_use + (who.priority - who.in_use) * x)


def _equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9)
