"""Accounting ads: what the negotiator tells of its books (spec row ACC-21), and the way back. Pure.

Attribute names are those of HTCondor's accounting ads. Ours besides: `<Name>Until` and `<Name>After` of a change that
an administrator made for a while: when it ends, and what comes back then; `QuotaIsSet` of a group whose quota an
administrator set in place of the configuration's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from services.negotiator.group_tree import Group
from services.negotiator.groups import Plan
from services.negotiator.priorities import MINIMUM_PRIORITY, Record, Temporary, effective
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
    if record.quota >= 0.0 or record.dynamic_quota >= 0.0:
        ad["QuotaIsSet"] = True
    return ad


def record_of(ad: ClassAd) -> Record:
    """The record that a submitter's accounting ad tells of, HTCondor's ads too.

    An ad with neither Priority nor PriorityFactor is one of a newcomer, whose factor is still to be chosen (0); with
    Priority alone that is what counts (factor 1). Raises ValueError naming the attribute and what it may be.
    """
    factor = _told(ad, "PriorityFactor", 0.0, above=0.0)
    priority = _told(ad, "Priority", 0.0, above=0.0)
    if priority and not factor:
        factor = 1.0
    return Record(
        priority=priority / factor if priority else MINIMUM_PRIORITY,
        factor=factor,
        in_use=_told(ad, "WeightedResourcesUsed", 0.0, least=0.0),
        slots_in_use=int(_told(ad, "ResourcesUsed", 0.0, least=0.0)),
        usage=_told(ad, "AccumulatedUsage", 0.0),
        weighted_usage=_told(ad, "WeightedAccumulatedUsage", 0.0),
        begin=_told(ad, "BeginUsageTime", 0.0),
        last=_told(ad, "LastUsageTime", 0.0),
        updated=_told(ad, "LastUpdate", 0.0),
        floor=_told(ad, "Floor", 0.0, least=0.0),
        ceiling=_told(ad, "Ceiling", -1.0, least=-1.0),
        temporary=tuple(_temporary_of(ad)),
    )


def _told(ad: ClassAd, name: str, missing: float, *, least: float = -math.inf, above: float = -math.inf) -> float:
    if ad.lookup(name) is None:
        return missing
    value = ad.eval(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} = {(ad.text(name, 'old') or '')[:80]} is no number")
    if value < least or value <= above:
        wanted = f"more than {above:g}" if math.isinf(least) else f"{least:g} or more"
        raise ValueError(f"{name} = {value:g} can not be: want {wanted}")
    return float(value)


def _temporary_of(ad: ClassAd) -> Iterator[Temporary]:
    for what, shown in _SHOWN.items():
        until = _told(ad, f"{shown}Until", 0.0)
        if until:
            yield Temporary(what, _told(ad, f"{shown}After", 0.0), until)


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
