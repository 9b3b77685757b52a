"""The rows that are recorded for an event, for counts of slots and jobs, and for what slots offer. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from shared.classad import ClassAd
from shared.messages.base import Envelope
from shared.messages.cut import CUT, cut
from shared.messages.events import (
    Event,
    GroupStanding,
    JobEvent,
    JobsOrdered,
    JobsSorted,
    JobsSubmitted,
    MatchesMade,
    ReasonsChanged,
    StandingsTold,
    SubmitterStanding,
)

Row = dict[str, Any]
#: By name of the table.
Rows = dict[str, list[Row]]

#: Fields of events whose content has tables of its own: an event keeps how many there were.
_ELSEWHERE: Final = {
    "job.sorted": ("kinds",),
    "negotiation.reasons": ("reasons",),
    "negotiation.matched": ("groups",),
    "accountant.standing": ("submitters", "groups"),
}
#: Of an event of more bytes, as it came, the long parts are cut, but for those that have tables of their own: to write
#: 4 MB of JSON takes 20 ms.
MOST_BYTES: Final = 1 << 20
#: A job's id has numbers that a table can hold.
_MOST: Final = 2**63 - 1


def rows_of(envelope: Envelope) -> Rows:
    """All rows of an event. Of a message that is no event: none."""
    event = envelope.body
    if not isinstance(event, Event):
        return {}
    cluster, proc = job_of(event)
    elsewhere = _ELSEWHERE.get(event.type, ())
    if envelope.size > MOST_BYTES:
        body = cut(event)
        body[CUT] = [name for name in body[CUT] if name not in elsewhere]
    else:
        body = event.model_dump(mode="json", exclude=set(elsewhere))
    for name in elsewhere:
        body[name] = len(getattr(event, name))
    rows: Rows = {
        "events": [
            {
                "id": envelope.id,
                "at": event.at,
                "type": event.type,
                "sender": envelope.sender,
                "cluster": cluster,
                "proc": proc,
                "body": _json(body),
            }
        ]
    }
    if isinstance(event, JobsSorted):
        _kinds(event, rows)
    elif isinstance(event, ReasonsChanged):
        rows["reasons"] = list(_reasons(event))
    elif isinstance(event, MatchesMade):
        rows["matches"] = list(_matches(event))
    elif isinstance(event, StandingsTold):
        rows["standings"] = list(_standings(event))
    return rows


def job_of(event: Event) -> tuple[int | None, int | None]:
    """(cluster, proc) that an event is about; proc -1: the whole cluster; None, None: no job."""
    if isinstance(event, JobsSubmitted):
        return (event.cluster, -1) if 0 <= event.cluster <= _MOST else (None, None)
    if isinstance(event, JobEvent):
        cluster, proc = job_id(event.job_id)
        if cluster is not None and isinstance(event, JobsOrdered) and event.jobs:
            return cluster, -1
        return (cluster, proc) if cluster is not None else (None, None)
    return None, None


def job_id(text: str) -> tuple[int, int] | tuple[None, None]:
    """(cluster, proc) of "12.3"; of "12" proc -1; None, None for what is no job's id."""
    cluster, dot, proc = text.partition(".")
    if not _is_number(cluster) or (dot and not _is_number(proc)):
        return None, None
    return int(cluster), int(proc) if dot else -1


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _MOST


def _kinds(event: JobsSorted, rows: Rows) -> None:
    common = {"at": event.at, "schedd": event.schedd}
    rows["kinds"] = [
        {
            **common,
            "autocluster": kind.autocluster,
            "submitter": kind.submitter,
            "cluster": cluster,
            "first": first,
            "last": last,
        }
        for kind in event.kinds
        for cluster, first, last in kind.jobs
    ]
    rows["kind_ads"] = [{**common, "autocluster": kind.autocluster, "ad": kind.ad} for kind in event.kinds if kind.ad]


def _reasons(event: ReasonsChanged) -> Iterable[Row]:
    common = {"at": event.at, "shard": event.shard, "epoch": event.epoch, "cycle": event.cycle}
    if event.whole:  # what was told before is over
        nothing = {"schedd": "", "submitter": "", "autocluster": -1, "code": "", "text": "", "left": 0, "counts": "{}"}
        yield {**common, **nothing}
    for reason in event.reasons:
        yield {
            **common,
            "schedd": reason.schedd,
            "submitter": reason.submitter,
            "autocluster": reason.autocluster,
            "code": reason.code,
            "text": reason.text,
            "left": reason.left,
            "counts": _json({"slots": reason.counts, "details": reason.details} if reason.code else {}),
        }


def _matches(event: MatchesMade) -> Iterable[Row]:
    for group in event.groups:
        ranks = group.ranks or [0.0] * len(group.slots)
        for slot, jobs, weight, rank in zip(group.slots, group.counts, group.weights, ranks, strict=False):
            yield {
                "at": event.at,
                "shard": event.shard,
                "epoch": event.epoch,
                "cycle": event.cycle,
                "schedd": group.schedd,
                "submitter": group.submitter,
                "autocluster": group.autocluster,
                "slot": slot,
                "jobs": jobs,
                "weight": weight,
                "rank": rank,
            }


def _standings(event: StandingsTold) -> Iterable[Row]:
    told: list[tuple[str, str, SubmitterStanding | GroupStanding]] = [
        *(("submitter", one.submitter, one) for one in event.submitters),
        *(("group", one.group, one) for one in event.groups),
    ]
    common = {"at": event.at, "shard": event.shard}
    for kind, name, standing in told:
        body = {**standing.model_dump(), "pool": event.pool, "half_life": event.half_life}
        yield {**common, "kind": kind, "name": name, "body": _json(body)}
    for name in event.gone:
        yield {**common, "kind": "submitter", "name": name, "body": _json({"gone": True})}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


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


def offered_ad(ad: ClassAd) -> bytes:
    """A slot's ad, packed, without what passes."""
    return ClassAd.from_table({key: entry for key, entry in ad.table().items() if key not in _PASSING}).pack()


def slot_rows(at: float, counted: Iterable[tuple[Sequence[Any], int]]) -> list[Row]:
    """Slots and cpus by state, and the parts of all cpus that are used and free; counted: ((State, PartitionableSlot,
    Cpus), slots). What is left of a partitionable slot is Unclaimed; one of which nothing is left counts as no slot."""
    slots: dict[str, float] = {}
    cpus_of: dict[str, float] = {}
    cores: dict[str, float] = {"used": 0.0, "free": 0.0, "owner": 0.0}
    for (state, partitionable, cpus), number in counted:
        weight = float(cpus) if isinstance(cpus, int | float) and not isinstance(cpus, bool) else 1.0
        if partitionable is True and weight <= 0:
            continue
        name = state if isinstance(state, str) else "Unknown"
        slots[name] = slots.get(name, 0.0) + number
        cpus_of[name] = cpus_of.get(name, 0.0) + weight * number
        kind = "used" if name in _CLAIMED else "free" if name in ("Unclaimed", "Matched") else "owner"
        cores[kind] += weight * number
    total = sum(cores.values())
    rows = [
        {"name": series, "label": label, "at": at, "value": value}
        for series, values in (("slots", slots), ("cpus", cpus_of))
        for label, value in sorted(values.items())
    ]
    used = cores["used"] / total if total else 0.0
    free = cores["free"] / total if total else 0.0
    rows += [
        {"name": "utilisation", "label": label, "at": at, "value": value}
        for label, value in (("used", used), ("free", free), ("other", max(0.0, 1.0 - used - free) if total else 0.0))
    ]
    return rows


#: Attributes of a submitter's ad with its jobs, by state.
JOBS: Final = {"idle": "IdleJobs", "running": "RunningJobs", "held": "HeldJobs"}


def jobs_of(ad: ClassAd) -> dict[str, float]:
    """A submitter's jobs by state."""
    values = {label: ad.eval(attribute) for label, attribute in JOBS.items()}
    return {
        label: value
        for label, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def job_rows(at: float, submitters: Iterable[Mapping[str, float]]) -> list[Row]:
    """Jobs by state, of all submitters."""
    counts = dict.fromkeys(JOBS, 0.0)
    for jobs in submitters:
        for label, number in jobs.items():
            counts[label] += number
    return [{"name": "jobs", "label": label, "at": at, "value": value} for label, value in counts.items()]
