"""Who is charged for a slot (spec rows ACC-04, ACC-14, ACC-15). Pure."""

from __future__ import annotations

from shared.classad import ClassAd
from shared.classad.quick import QuickAd

#: States in which a slot is charged to its user: a preempting one still is (ACC-15).
_CHARGED = ("Claimed", "Preempting")


def charged_to(ad: ClassAd | QuickAd, *, discount_suspended: bool = False) -> str:
    """The submitter who uses the slot, or "" if nobody is charged for it.

    A partitionable slot is not: its dynamic slots are. discount_suspended:
    NEGOTIATOR_DISCOUNT_SUSPENDED_RESOURCES, a slot whose job is suspended is free of charge.
    """
    if ad.eval("State") not in _CHARGED or ad.eval("PartitionableSlot") is True:
        return ""
    if discount_suspended and ad.eval("Activity") == "Suspended":
        return ""
    for name in ("AccountingGroup", "RemoteUser"):
        submitter = ad.eval(name)
        if isinstance(submitter, str) and submitter:
            return submitter
    return ""
