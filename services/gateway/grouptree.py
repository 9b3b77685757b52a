"""Accounting ads as a tree of groups. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
