"""Attributes that an administrator has set on a machine (update-machine-ad): shown by all of its slots until they are
removed or the startd ends, as in HTCondor. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from shared.classad import ClassAd, Expr

#: At most so much is kept.
MAX_ATTRIBUTES: Final = 1000
MAX_BYTES: Final = 256 * 1024
#: What a slot is and who has it: the negotiator and access points go by these, so nobody sets them by hand.
KEPT: Final = frozenset(
    name.lower()
    for name in (
        *("MyType", "TargetType", "Name", "Machine", "MyAddress", "StartdIpAddr", "DaemonStartTime"),
        *("SlotID", "DSlotID", "ParentSlotName", "SlotType", "SlotTypeID", "PartitionableSlot", "DynamicSlot"),
        *("State", "Activity", "EnteredCurrentState", "EnteredCurrentActivity", "MyCurrentTime"),
        *("RoostClaims", "RoostLook", "RoostClaimedAt", "RoostClockSet", "RoostPastClaims"),
        *("Cpus", "Memory", "Disk", "GPUs", "MachineResources", "NumDynamicSlots", "PslotRollupInformation"),
        *("Requirements", "Start", "Rank", "IsOwner", "SlotWeight", "MachineMaxVacateTime", "WithinResourceLimits"),
        *("RemoteUser", "RemoteOwner", "AccountingGroup", "CurrentRank", "JobId", "ClientMachine", "PublicClaimId"),
        *("PreemptingUser", "PreemptingOwner", "PreemptingRank", "Draining", "DrainingRequestId"),
    )
)
_KEPT_BEGINNINGS: Final = ("total", "child", "claim", "capability", "consumption", "_condor_priv")


class BadUpdate(ValueError):
    """Attributes that can not be set: names one, and why."""


class AdminAttributes:
    """The attributes that are set now."""

    def __init__(self) -> None:
        self.attributes: Mapping[str, Expr] = {}

    def apply(self, ad: ClassAd, removed: Iterable[str] = ()) -> None:
        """Take on a new set of changes: those of `ad` replace others of their name. Raises BadUpdate, and changes
        nothing."""
        gone = {name.lower() for name in removed}
        for name in (*ad, *gone):
            if name.lower() in KEPT or name.lower().startswith(_KEPT_BEGINNINGS):
                raise BadUpdate(f"{name[:80]} is the startd's own: what it has to say there is not changed by hand")
        new = {name.lower() for name in ad}
        kept = {name: expr for name, expr in self.attributes.items() if name.lower() not in new | gone}
        for name in ad:
            expr = ad.lookup(name)
            if expr is not None and name.lower() not in gone:
                kept[name] = expr
        if len(kept) > MAX_ATTRIBUTES or len(ClassAd(kept).pack()) > MAX_BYTES:
            raise BadUpdate(f"a machine has at most {MAX_ATTRIBUTES} such attributes of {MAX_BYTES} bytes together")
        self.attributes = kept
