"""What is kept of slots' ads, and counts of slots and jobs as rows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from services.journal.rows import Row
from shared.classad import ClassAd

#: States whose slots are given to somebody.
_CLAIMED: Final = ("Claimed", "Preempting")
_NAMES: Final = """
AccountingGroup Activity CheckpointPlatform ChildAccountingGroup ChildActivity ChildCpus ChildCurrentRank
ChildDisk ChildEnteredCurrentState ChildMemory ChildName ChildRemoteOwner ChildRemoteUser
ChildRetirementTimeRemaining ChildState ClientMachine ClockDay ClockMin CondorLoadAvg ConsoleIdle CpuBusyTime
CurrentRank CurrentTime EnteredCurrentActivity EnteredCurrentState ExpectedMachineGracefulDrainingBadput
ExpectedMachineGracefulDrainingCompletion ExpectedMachineQuickDrainingBadput
ExpectedMachineQuickDrainingCompletion GlobalJobId ImageSize JobId JobStart KeyboardIdle LastBenchmark
LastHeardFrom LastPeriodicCheckpoint LastUpdate LoadAvg MonitorSelfAge MonitorSelfCPUUsage
MonitorSelfImageSize MonitorSelfRegisteredSocketCount MonitorSelfResidentSetSize MonitorSelfSecuritySessions
MonitorSelfTime MyCurrentTime NumDynamicSlots NumPids PublicClaimId PublicClaimIds RecentDaemonCoreDutyCycle
RecentJobStarts RemoteAutoregroup RemoteGroup RemoteNegotiatingGroup RemoteOwner RemoteScheddName RemoteUser
RemoteUserPrio RetirementTimeRemaining SlotBrokenReason StateTimer TotalClaimRunTime TotalClaimSuspendTime
TotalCondorLoadAvg TotalJobRunTime TotalJobSuspendTime TotalLoadAvg TotalTimeBackfillBusy
TotalTimeBackfillIdle TotalTimeBackfillKilling TotalTimeClaimedBusy TotalTimeClaimedIdle
TotalTimeClaimedRetiring TotalTimeClaimedSuspended TotalTimeDrainedIdle TotalTimeDrainedRetiring
TotalTimeMatchedIdle TotalTimeOwnerIdle TotalTimePreemptingKilling TotalTimePreemptingVacating
TotalTimeUnclaimedBenchmarking TotalTimeUnclaimedIdle TotalVirtualMemory UpdateSequenceNumber UpdatesHistory
UpdatesLost UpdatesLostMax UpdatesLostRatio UpdatesSequenced UpdatesTotal VirtualMemory
"""
#: Attributes that change all the time, or tell of who uses the slot: what a slot offers does not depend on them.
_PASSING: Final = frozenset(_NAMES.lower().split())


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What tells whether a slot offers something else than before, without reading all of its ad. Of a partitionable
    slot what is left of it is passed over: the whole is what it offers."""

    name: str
    values: tuple[str, ...]

    #: As long as a slot's daemon lives, its policy changes with a reconfiguration only.
    ATTRIBUTES: ClassVar[tuple[str, ...]] = (
        "Name",
        "DaemonStartTime",
        "LastReconfig",
        "Start",
        "Rank",
        "SlotWeight",
        "TotalSlotCpus",
        "TotalSlotMemory",
        "TotalSlotGPUs",
        "PartitionableSlot",
        "Offline",
        "Absent",
        "Draining",
    )


def fingerprint(ad: ClassAd) -> Fingerprint | None:
    """None for an ad without a name."""
    name = ad.eval_string("Name")
    if not name:
        return None
    return Fingerprint(name, tuple(ad.text(attribute, "old") or "" for attribute in Fingerprint.ATTRIBUTES[1:]))


def offer(ad: ClassAd) -> bytes:
    """A slot's ad, packed, without what passes."""
    return ClassAd.from_table({key: entry for key, entry in ad.table().items() if key not in _PASSING}).pack()


def slot_rows(at: float, counted: Iterable[tuple[Sequence[Any], int]]) -> list[Row]:
    """Slots by state, and cores by what they do; counted: ((State, PartitionableSlot, Cpus), slots). What is left of a
    partitionable slot is Unclaimed; one of which nothing is left counts as no slot."""
    slots: dict[str, float] = {}
    cores: dict[str, float] = {"used": 0.0, "free": 0.0, "owner": 0.0}
    for (state, partitionable, cpus), number in counted:
        weight = float(cpus) if isinstance(cpus, int | float) and not isinstance(cpus, bool) else 1.0
        if partitionable is True and weight <= 0:
            continue
        name = state if isinstance(state, str) else "Unknown"
        slots[name] = slots.get(name, 0.0) + number
        kind = "used" if name in _CLAIMED else "free" if name in ("Unclaimed", "Matched") else "owner"
        cores[kind] += weight * number
    total = sum(cores.values())
    rows = [{"name": "slots", "label": label, "at": at, "value": value} for label, value in sorted(slots.items())]
    used = cores["used"] / total if total else 0.0
    free = cores["free"] / total if total else 0.0
    rows += [
        {"name": "utilisation", "label": label, "at": at, "value": value}
        for label, value in (("used", used), ("free", free), ("other", max(0.0, 1.0 - used - free) if total else 0.0))
    ]
    return rows


def job_rows(at: float, submitters: Iterable[ClassAd]) -> list[Row]:
    """Jobs by state, of all submitters' ads."""
    counts = {"idle": 0.0, "running": 0.0, "held": 0.0}
    for ad in submitters:
        for label, attribute in (("idle", "IdleJobs"), ("running", "RunningJobs"), ("held", "HeldJobs")):
            value = ad.eval(attribute)
            if isinstance(value, int | float) and not isinstance(value, bool):
                counts[label] += value
    return [{"name": "jobs", "label": label, "at": at, "value": value} for label, value in counts.items()]
