"""Held jobs by why they are held: reasons that differ in numbers and paths only are one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from shared.classad import ClassAd

#: What tells why a job is held, and what is read of one.
WHY: Final = ("HoldReason", "HoldReasonCode", "HoldReasonSubCode")
ATTRIBUTES: Final = ("ClusterId", "ProcId", *WHY)
#: Of a longer reason the rest is not looked at: users write them, and very many are gone through in one go.
MOST: Final = 1000
#: What of a reason is about the one job.
_DIFFERS: Final = re.compile(r"/[^\s,;:'\"]+|[0-9]+(\.[0-9]+)*")


@dataclass(slots=True)
class HoldReason:
    """Jobs that are held for one reason, as the first of them tells it, and that one with where it is."""

    reason: str
    code: int | None
    subcode: int | None
    first: str
    schedd: str
    count: int = 0


def kind(reason: str) -> str:
    """The same of all reasons that differ in numbers and paths only, or behind their first MOST characters."""
    return _DIFFERS.sub("*", reason[:MOST])


def grouped(jobs: Iterable[tuple[ClassAd, str, int]]) -> list[HoldReason]:
    """Held jobs, each with its schedd and how many are held as it is, as one line a reason, most jobs first."""
    found: dict[tuple[int | None, int | None, str], HoldReason] = {}
    for ad, schedd, count in jobs:
        told = ad.eval("HoldReason")
        reason = told if isinstance(told, str) else "no reason given"
        code, subcode = _whole(ad, "HoldReasonCode"), _whole(ad, "HoldReasonSubCode")
        first = f"{_id(ad, 'ClusterId')}.{_id(ad, 'ProcId')}"
        key = (code, subcode, kind(reason))
        found.setdefault(key, HoldReason(reason, code, subcode, first, schedd)).count += count
    return sorted(found.values(), key=lambda one: -one.count)


def _whole(ad: ClassAd, name: str) -> int | None:
    value = ad.eval(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _id(ad: ClassAd, name: str) -> str:
    number = _whole(ad, name)
    return "?" if number is None else str(number)
