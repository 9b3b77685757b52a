"""Accounting ads: what the negotiator tells of its accounting records, the way back, and which ads the collector gets
when (spec row ACC-21). Pure but for what `AdPublication` remembers.

Attribute names are those of HTCondor's accounting ads. Ours besides: `<Name>Until` and `<Name>After` of a change that
an administrator made for a while: when it ends, and what comes back then; `QuotaIsSet` of a group whose quota an
administrator set in place of the configuration's.

Priorities decay all the time, so every ad is a little out of date as soon as it is published. To tell the collector
all of it would be a flood in a pool with tens of thousands of submitters of all times. So an ad is published when its
submitter's use or settings change, and again now and then, a few hundred at a time; and the collector holds those of
the submitters who were active last, MAX_PUBLISHED of them beside those who use something now. Whoever wants to know all
asks the negotiator (GetPriorities).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, takewhile
from typing import Any, Final

from engine.fairshare.group_negotiation import GroupResult
from engine.fairshare.group_tree import Group
from engine.fairshare.priorities import MINIMUM_PRIORITY, Record, Temporary, effective
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


def group_ad(group: Group, parent: str, record: Record, *, negotiator: str, plan: GroupResult | None = None) -> ClassAd:
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


#: Ads in the collector, unless more use something right now.
MAX_PUBLISHED: Final = 10_000
#: Ads in one step.
AT_ONCE: Final = 500
#: An ad is published again after this long (s): of who uses something, and of who only waits for better days.
AGAIN_S: Final = 60.0
AGAIN_IDLE_S: Final = 300.0


class AdPublication:
    """Decides which accounting ads are published, and remembers what was published when."""

    def __init__(self) -> None:
        # Name -> when, the longest ago first: of who used something then, and of who did not.
        self._busy: dict[str, float] = {}
        self._idle: dict[str, float] = {}
        self._changed: dict[str, None] = {}  # names, in the order in which they changed
        self._gone: set[str] = set()

    def restart(self, names: Iterable[str]) -> None:
        """Begin anew with records that were just read. names: all there are, those who were active last first."""
        before = self._busy.keys() | self._idle.keys() | self._gone
        self._busy, self._idle = {}, {}
        self._changed = dict.fromkeys(islice(names, MAX_PUBLISHED))
        self._gone = before - self._changed.keys()

    def change(self, name: str) -> None:
        """Note a change of it that people want to see soon."""
        self._changed[name] = None
        self._gone.discard(name)

    def remove(self, name: str) -> None:
        self._changed.pop(name, None)
        if name in self._busy or name in self._idle:
            self._untell(name)
            self._gone.add(name)

    def next(self, now: float, idle: Callable[[str], bool], last: Callable[[str], float]) -> tuple[list[str], set[str]]:
        """Names whose ads are to be published now, and those whose ads are to be taken back.

        idle: whether it uses nothing. last: when it used something last; who did so longest ago makes room for others.
        """
        due = list(islice(self._changed, AT_ONCE))
        for told, again in ((self._busy, AGAIN_S), (self._idle, AGAIN_IDLE_S)):
            old = takewhile(lambda entry, again=again: not 0.0 <= now - entry[1] < again, told.items())  # type: ignore[misc]
            due += islice((name for name, _ in old if name not in self._changed), AT_ONCE - len(due))
        for name in due:
            self._changed.pop(name, None)
            self._untell(name)
            (self._idle if idle(name) else self._busy)[name] = now
        gone, self._gone = self._gone, set()
        total = len(self._busy) + len(self._idle)
        if total > MAX_PUBLISHED:
            makes_room = heapq.nsmallest(total - MAX_PUBLISHED + MAX_PUBLISHED // 10, self._idle, key=last)
            for name in makes_room:
                del self._idle[name]
            gone |= set(makes_room)
        return [name for name in due if name in self._busy or name in self._idle], gone

    def _untell(self, name: str) -> None:
        self._busy.pop(name, None)
        self._idle.pop(name, None)
