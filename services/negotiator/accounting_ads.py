"""Accounting ads: what the negotiator tells of its books (spec row ACC-21). Pure.

Attribute names are those of HTCondor's accounting ads. Ours besides: `<Name>Until` and `<Name>After` of a change that
an administrator made for a while: when it ends, and what comes back then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from services.negotiator.group_tree import Group
from services.negotiator.groups import Plan
from services.negotiator.priorities import Record, effective
from shared.classad import ClassAd

_SHOWN: Final = {"factor": "PriorityFactor", "floor": "Floor", "ceiling": "Ceiling"}


def submitter_ad(
    name: str, record: Record, *, group: str, negotiator: str, share: float = 0.0, limit: float = 0.0
) -> ClassAd:
    """One submitter. record: settled, its times are told as they stand. group: name of its accounting group. share: its
    part of the pie (0 to 1) in the first spin of the last cycle; limit: the weight that is of the whole pool."""
    ad = _ad(name, record, negotiator)
    ad.update(
        {
            "IsAccountingGroup": False,
            "AccountingGroup": group,
            "Floor": _whole(record.floor),
            "Ceiling": _whole(record.ceiling),
            "SubmitterShare": share,
            "SubmitterLimit": limit,
            **_temporary(record),
        }
    )
    return ad


def group_ad(group: Group, parent: str, record: Record, *, negotiator: str, plan: Plan | None = None) -> ClassAd:
    """One accounting group. parent: name of the group above, its own for the root. plan: what the last cycle came to
    for it; without one no cycle has negotiated for groups, and its quotas are 0."""
    ad = _ad(group.name, record, negotiator)
    ad.update(
        {
            "IsAccountingGroup": True,
            "AccountingGroup": parent,
            "ConfigQuota": plan.config_quota if plan is not None else group.config_quota,
            "EffectiveQuota": plan.quota if plan is not None else 0.0,
            "SubtreeQuota": plan.subtree_quota if plan is not None else 0.0,
            "GroupSortKey": plan.sort_key if plan is not None else 0.0,
            "SurplusPolicy": group.surplus_policy.lower(),
            "Requested": plan.requested if plan is not None else 0.0,
            "HierWeightedResourcesUsed": max(0.0, record.subtree_in_use),
        }
    )
    return ad


def _ad(name: str, record: Record, negotiator: str) -> ClassAd:
    return ClassAd(
        {
            "MyType": "Accounting",
            "Name": name,
            "NegotiatorName": negotiator,
            "Priority": effective(record),
            "PriorityFactor": record.factor,
            "ResourcesUsed": record.slots_in_use,
            "WeightedResourcesUsed": record.in_use,
            "AccumulatedUsage": record.usage,
            "WeightedAccumulatedUsage": record.weighted_usage,
            "BeginUsageTime": int(record.begin),
            "LastUsageTime": int(record.last),
            "LastUpdate": int(record.updated),
        }
    )


def _temporary(record: Record) -> Mapping[str, Any]:
    attributes: dict[str, Any] = {}
    for change in record.temporary:
        shown = _SHOWN[change.what]
        attributes |= {f"{shown}Until": int(change.until), f"{shown}After": _whole(change.before)}
    return attributes


def _whole(value: float) -> int | float:
    """Floors and ceilings are whole numbers mostly, and shown so."""
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
