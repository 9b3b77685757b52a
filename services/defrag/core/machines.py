"""The machines of the pool as defrag sees them, read from the ads of their partitionable slots. Pure.

A machine is a startd. An expression is true of a machine if it is true of one of its partitionable slots.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from shared.classad import ClassAd, Expr, evaluate, is_true, references

#: Which ads are looked at; static slots and machines that sleep are no matter of defragmentation.
CONSTRAINT: Final = "PartitionableSlot =?= true && Offline =!= true"
_INBOX: Final = "startd."
#: What is read of every ad, besides what the expressions name.
ATTRIBUTES: Final = (
    *("Name", "Machine", "MyAddress", "State", "Draining", "DrainingRequestId", "RoostOff", "LastDrainStartTime"),
    *("TotalMachineDrainingBadput", "TotalMachineDrainingUnclaimedTime", "RoostDrainingCountedSince"),
    *("DaemonStartTime", "MyCurrentTime", "TotalCpus", "Cpus", "NumDynamicSlots"),
)


@dataclass(frozen=True, slots=True)
class Expressions:
    """The policy's. requirements: None: every machine may be drained. cancel: None: no drain ends early."""

    requirements: Expr | None
    whole: Expr
    cancel: Expr | None
    rank: Expr

    def attributes(self) -> list[str]:
        """Names of attributes that machines are to be asked for."""
        asked = references(*(one for one in (self.requirements, self.whole, self.cancel, self.rank) if one is not None))
        return sorted({*ATTRIBUTES, *asked.missing, *asked.target, *asked.unscoped})


@dataclass(frozen=True, slots=True)
class Machine:
    """One startd. draining: it is being emptied, or is empty and stays so. drained: all of its partitionable slots are.
    off: `roost off`. one_job: a single job has all of it, so that draining it makes nothing whole. last_start:
    LastDrainStartTime, None before the first drain. badput, unclaimed: cpu-seconds that draining has cost; counted_s:
    over so many cpu-seconds of the machine."""

    inbox: str
    name: str
    draining: bool = False
    drained: bool = False
    off: bool = False
    one_job: bool = False
    request_id: str = ""
    last_start: int | None = None
    fits: bool = False
    whole: bool = False
    cancels: bool = False
    rank: float = 0.0
    badput: float = 0.0
    unclaimed: float = 0.0
    counted_s: float = 0.0

    def followed(self, request_id: str, before: int | None) -> bool:
        """Whether its ads show that it has begun this drain, or any since its last one began at `before`."""
        return self.request_id == request_id or (self.last_start is not None and self.last_start != before)


def machines_of(
    ads: Iterable[ClassAd], expressions: Expressions, now: float, before: Mapping[str, Machine] | None = None
) -> dict[str, Machine]:
    """By inbox, with those of the pages before. An ad that names no startd is passed over."""
    found = dict(before or {})
    for ad in ads:
        inbox = ad.eval("MyAddress")
        if not isinstance(inbox, str) or not inbox.startswith(_INBOX) or inbox == _INBOX:
            continue
        one = _read(ad, inbox, expressions, now)
        known = found.get(inbox)
        found[inbox] = one if known is None else _both(known, one)
    return found


def averages(machines: Iterable[Machine]) -> tuple[float, float]:
    """AvgDrainingBadput and AvgDrainingUnclaimed: the part of the pool's cpu time that went to jobs which draining
    ended, and to nobody because of draining (DFR-11)."""
    known = [machine for machine in machines if machine.counted_s > 0]
    whole = math.fsum(machine.counted_s for machine in known)
    if not whole:
        return 0.0, 0.0
    badput, unclaimed = (math.fsum(values) for values in zip(*((m.badput, m.unclaimed) for m in known), strict=True))
    return badput / whole, unclaimed / whole


def _read(ad: ClassAd, inbox: str, expressions: Expressions, now: float) -> Machine:
    draining = ad.eval("Draining") is True
    request = ad.eval("DrainingRequestId")
    off = ad.eval("RoostOff")
    machine = ad.eval("Machine")
    start = _number(ad, "LastDrainStartTime")
    since = _number(ad, "RoostDrainingCountedSince") or _number(ad, "DaemonStartTime")
    # The machine's own clock, so that another one's does not matter.
    there = _number(ad, "MyCurrentTime") or now
    return Machine(
        inbox=inbox,
        name=machine if isinstance(machine, str) and machine else inbox.removeprefix(_INBOX),
        draining=draining,
        drained=draining and ad.eval("State") == "Drained",
        off=isinstance(off, str) and bool(off),
        one_job=_number(ad, "Cpus") == 0 and _number(ad, "NumDynamicSlots") == 1,
        request_id=request if isinstance(request, str) else "",
        last_start=int(start) if start is not None else None,
        fits=expressions.requirements is None or is_true(evaluate(expressions.requirements, ad, now=now)),
        whole=is_true(evaluate(expressions.whole, ad, now=now)),
        cancels=expressions.cancel is not None and is_true(evaluate(expressions.cancel, ad, now=now)),
        rank=_rank(expressions.rank, ad, now),
        badput=max(0.0, _number(ad, "TotalMachineDrainingBadput") or 0.0),
        unclaimed=max(0.0, _number(ad, "TotalMachineDrainingUnclaimedTime") or 0.0),
        counted_s=max(0.0, there - since) * max(0.0, _number(ad, "TotalCpus") or 0.0) if since is not None else 0.0,
    )


def _both(one: Machine, other: Machine) -> Machine:
    """A startd with several partitionable slots. What is the machine's own both say alike."""
    return replace(
        one,
        draining=one.draining or other.draining,
        drained=one.drained and other.drained,
        one_job=one.one_job and other.one_job,
        fits=one.fits or other.fits,
        whole=one.whole or other.whole,
        cancels=one.cancels or other.cancels,
        rank=max(one.rank, other.rank),
    )


def _rank(expr: Expr, ad: ClassAd, now: float) -> float:
    """What is no number is 0, as for jobs."""
    value = evaluate(expr, ad, now=now)
    if isinstance(value, bool | int | float) and not math.isnan(value):
        return float(value)
    return 0.0


def _number(ad: ClassAd, name: str) -> float | None:
    value = ad.eval(name)
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None
