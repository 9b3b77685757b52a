"""Rows of the dashboard's tables from ads, sums of counts of ads, and how long jobs waited that started lately.
Pure."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from engine.queue.outcome import ATTRIBUTES as OUTCOME_FIELDS
from engine.queue.outcome import FAILED, failure
from services.gateway.core.machine_map import USED
from shared.classad import ClassAd
from shared.classad.unparse import quote_string as quote
from shared.job_text import BadJobText, shown, words_v2

#: JobStatus by number.
STATUS: Final = {
    1: "Idle",
    2: "Running",
    3: "Removed",
    4: "Completed",
    5: "Held",
    6: "TransferringOutput",
    7: "Suspended",
}
#: TRUE of jobs in a state, by its name. A job that failed is completed, and a state of its own besides.
STATES: Final = {name: f"JobStatus == {number}" for number, name in STATUS.items()} | {"Failed": FAILED}
#: Attributes that slots may be sorted by: the collector keeps these ready.
SLOT_ORDERS: Final = (
    *("Name", "Machine", "State", "Activity", "Cpus", "Memory", "Disk", "GPUs", "LoadAvg"),
    *("RemoteOwner", "EnteredCurrentActivity"),
)
SLOT_FIELDS: Final = (
    *("Name", "Machine", "SlotID", "SlotType", "State", "Activity", "Cpus", "Memory", "Disk", "GPUs", "LoadAvg"),
    *(
        "RemoteOwner",
        "AccountingGroup",
        "JobId",
        "EnteredCurrentActivity",
        "EnteredCurrentState",
        "OpSysAndVer",
        "Arch",
    ),
    *(
        "TotalCpus",
        "TotalMemory",
        "TotalSlots",
        "MyAddress",
        "SlotWeight",
        "Offline",
        "MachineLastMatchTime",
        "Draining",
        "TotalLoadAvg",
    ),
)
#: What a whole machine may be beyond the states of its slots, as a condition.
CONDITIONS: Final = {"asleep": "Offline =?= true", "draining": "Draining =?= true"}
JOB_FIELDS: Final = (
    *("ClusterId", "ProcId", "Owner", "AccountingGroup", "AcctGroup", "JobStatus", "Cmd", "Args", "QDate", "JobPrio"),
    *("Arguments", "AutoClusterId"),
    *(
        "EnteredCurrentStatus",
        "RemoteHost",
        "LastRemoteHost",
        "RequestCpus",
        "RequestMemory",
        "RemoteWallClockTime",
        "NumJobStarts",
    ),
    *(
        "HoldReason",
        "HoldReasonCode",
        "ExitCode",
        "ExitSignal",
        "CompletionDate",
        "JobCurrentStartDate",
        "JobBatchName",
    ),
    *("User", "RemoveReason", "LastRejMatchReason", "Out", "Err", "UserLog", "StageInFinish", "RoostRerunOf"),
    *(name for name in OUTCOME_FIELDS if name not in ("JobStatus", "ExitCode", "ExitSignal")),
)
MACHINE_FIELDS: Final = (
    *("Machine", "OpSysAndVer", "OpSysLongName", "Arch", "CpuModel", "DetectedCpus", "DetectedMemory", "TotalCpus"),
    *("TotalMemory", "TotalDisk", "TotalLoadAvg", "RoostVersion", "MyAddress", "HasDocker", "HasSingularity"),
    *("DaemonStartTime", "LastHeardFrom", "KeyboardIdle", "TotalSlots", "NumDynamicSlots", "DrainReason"),
    *("DetectedGPUs", "Offline", "AcceptedWhileDraining", "HibernationState", "MachineLastMatchTime", "Unhibernate"),
    *("EnteredCurrentState", "Draining", "LastDrainStartTime", "RoostDrainingCountedSince"),
    *("ExpectedMachineGracefulDrainingCompletion", "ExpectedMachineGracefulDrainingBadput"),
    *("ExpectedMachineQuickDrainingCompletion", "ExpectedMachineQuickDrainingBadput"),
    *("TotalMachineDrainingBadput", "TotalMachineDrainingUnclaimedTime"),
)
#: What the daemons that empty and wake machines tell of themselves.
KEEPER_FIELDS: Final = {
    "Defrag": (
        *("Name", "DefragName", "DefragIsActive", "DefragSaid", "DefragLastRound", "MachinesDraining", "WholeMachines"),
        *("DrainSuccesses", "DrainFailures", "AvgDrainingBadput", "AvgDrainingUnclaimed"),
    ),
    "Rooster": (
        *("Name", "RoosterIsActive", "RoosterProblem", "RoosterLastRound", "MachinesWoken", "MachinesNotWoken"),
    ),
}
#: Of a cluster whose jobs come into the queue some at a time.
LATE_FIELDS: Final = (
    *("ClusterId", "Owner", "User", "AccountingGroup", "Cmd", "Args", "QDate", "JobsPresent", "JobsIdle", "JobsHeld"),
    *("JobMaterializeItemCount", "JobMaterializeNextProcId", "JobMaterializeLimit", "JobMaterializeMaxIdle"),
    *("JobMaterializePaused", "JobMaterializePauseReason"),
)
#: How submitters may be sorted: by attribute of their accounting ads, or by what they have in the queue.
USER_ORDERS: Final = {
    "name": "Name",
    "group": "AccountingGroup",
    "priority": "Priority",
    "real": "RealPriority",
    "factor": "PriorityFactor",
    "in_use": "WeightedResourcesUsed",
    "share": "SubmitterShare",
    "usage": "WeightedAccumulatedUsage",
    "running": "running",
    "idle": "idle",
    "last": "LastUsageTime",
}
#: TRUE of clusters that have jobs to come: 1 is on hold, more is over.
NOT_OVER: Final = "(JobMaterializePaused ?: 0) <= 1"
#: Words of the search box are looked for in these.
SLOT_SEARCHED: Final = ("Machine", "RemoteOwner")
SLOT_NAME_SEARCHED: Final = ("Name", "RemoteOwner")
JOB_SEARCHED: Final = ("Cmd", "Args", "Arguments", "Owner", "JobBatchName")
LONGEST_SEARCH: Final = 200
_SPECIAL: Final = frozenset(r"\.+*?()[]{}|^$")


#: Characters of a text in a row. Texts of megabytes, of which a page may hold a few, made answers whose writing held
#: the loop for 98 ms.
LONGEST_SHOWN: Final = 2_000


def plain(ad: ClassAd, names: Sequence[str]) -> dict[str, Any]:
    """Those of the attributes that come out as texts, numbers or truth values. Long texts are cut."""
    found: dict[str, Any] = {}
    for name in names:
        if ad.lookup(name) is not None:
            value = ad.eval(name)
            if isinstance(value, str) and len(value) > LONGEST_SHOWN:
                found[name] = value[:LONGEST_SHOWN] + "..."
            elif isinstance(value, str | bool | int | float):
                found[name] = value
    return found


def slot(ad: ClassAd) -> dict[str, Any]:
    return plain(ad, SLOT_FIELDS)


def job(ad: ClassAd, schedd: str) -> dict[str, Any]:
    """A job's line. How long it has been as it is now is the client's to count, from EnteredCurrentStatus."""
    row = plain(ad, JOB_FIELDS)
    row["Id"] = f"{row.get('ClusterId', '?')}.{row.get('ProcId', '?')}"
    row["Schedd"] = schedd
    row["Status"] = STATUS.get(row.get("JobStatus", 0), "Unknown")
    row["Command"] = command_line(row)
    if failed := failure(ad):
        row["Failure"] = failed
    return row


def command_line(row: Mapping[str, Any]) -> str:
    """A job's program, by its name alone, and its arguments."""
    arguments = str(row.get("Arguments", row.get("Args", "")))
    if "Arguments" in row:
        with contextlib.suppress(BadJobText):  # else as it is
            arguments = shown(words_v2(str(row["Arguments"])))
    return f"{str(row.get('Cmd', '')).rpartition('/')[2]} {arguments}".strip()


def fill_reasons(rows: Iterable[dict[str, Any]], reasons: Mapping[str, str]) -> None:
    """Give lines of idle jobs that say nothing of why they wait what is known of those that are alike (JobPage)."""
    for row in rows:
        reason = reasons.get(str(row.get("AutoClusterId")))
        if reason and row["Status"] == "Idle" and "LastRejMatchReason" not in row:
            row["LastRejMatchReason"] = reason


def with_status(name: str) -> str:
    """TRUE of jobs in this state, one of STATES; empty for no name. Raises KeyError for another one."""
    return STATES[name] if name else ""


def late(ad: ClassAd, schedd: str) -> dict[str, Any]:
    """A line for a cluster of which jobs are to come: its attributes, and how many (Left)."""
    row = plain(ad, LATE_FIELDS)
    given, total = (_number(row.get(f"JobMaterialize{name}")) for name in ("NextProcId", "ItemCount"))
    return {**row, "Command": command_line(row), "Schedd": schedd, "Left": max(0, int(total - given))}


def idle_and_alike(kinds: Iterable[int]) -> str:
    """TRUE of idle jobs in these autoclusters."""
    return f"JobStatus == 1 && member(AutoClusterId, {{{', '.join(map(str, sorted(kinds)))}}})"


def all_of(*conditions: str) -> str:
    """Constraints that must all be true; empty ones ask for nothing."""
    return " && ".join(f"({one})" for one in conditions if one)


def equals(name: str, value: str) -> str:
    """Empty for no value."""
    return f"{name} == {quote(value)}" if value else ""


def looked_for(text: str, names: Iterable[str]) -> str:
    """TRUE of ads in which one of these attributes has the text somewhere, whatever its case."""
    text = text.strip()[:LONGEST_SEARCH]
    if not text:
        return ""
    pattern = quote(_literal(text))
    return " || ".join(f'(regexp({pattern}, {name} ?: "", "i") =?= true)' for name in names)


def _literal(text: str) -> str:
    """A regular expression for just this text."""
    return "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in text)


def slots_with(text: str) -> str:
    """TRUE of slots whose machine or user has the text. There are far fewer machines than slots, and a text is looked
    for once in each name that is different; so names of slots are looked at only for what may be one."""
    slot_like = "@" in text or text.strip().lower().startswith("slot")
    return looked_for(text, SLOT_NAME_SEARCHED if slot_like else SLOT_SEARCHED)


def job_named(text: str) -> str:
    """ "12" or "12.3" as the search box has them: that cluster or job; empty for other texts."""
    cluster, dot, proc = text.strip().partition(".")
    parts = (cluster, proc) if dot else (cluster,)
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        return ""
    return f"ClusterId == {int(cluster)}" + (f" && ProcId == {int(proc)}" if dot else "")


def of_user(name: str) -> str:
    """TRUE of the jobs of a submitter or an owner, with domain or without; empty for no name."""
    if not name:
        return ""
    plain_name = name.partition("@")[0]
    return (
        f"AccountingGroup == {quote(name)} || AccountingGroup == {quote(plain_name)} || User == {quote(name)}"
        f" || (AccountingGroup =?= undefined && Owner == {quote(plain_name)})"
    )


def of_machine(name: str) -> str:
    """TRUE of jobs that run on a machine, or ran there last; empty for no name."""
    return (
        f'regexp({quote(f"(^|@){_literal(name)}$")}, RemoteHost ?: LastRemoteHost ?: "", "i") =?= true' if name else ""
    )


def sortable(value: Any) -> tuple[int, float, str]:
    """A key for numbers, texts and nothing alike."""
    if isinstance(value, bool | int | float):
        return (1, float(value), "")
    return (2, 0.0, value.lower()) if isinstance(value, str) else (0, 0.0, "")


def texts(ad: ClassAd) -> dict[str, str]:
    """Every attribute as it is written."""
    found = {}
    for name in sorted(ad, key=str.lower):
        found[name] = ad.text(name, "old") or ""
    return found


def by_state(values: Iterable[Sequence[Any]], counts: Iterable[int]) -> dict[str, Any]:
    """Counts by (State, Activity, Cpus, GPUs, PartitionableSlot) as totals: {slots, cpus, gpus: sums; states: {state:
    {slots, cpus, gpus}}, activities: {activity: slots}, used_cpus, utilisation}.

    A partitionable slot with nothing left is no slot that anybody waits for: it is not counted. Utilisation is the part
    of all cpus that is claimed, which carved slots do not distort.
    """
    states: dict[str, dict[str, float]] = {}
    activities: dict[str, int] = {}
    for (state, activity, cpus, gpus, partitionable), count in zip(values, counts, strict=True):
        each = _number(cpus)
        if partitionable is True and each <= 0.0:
            continue
        total = states.setdefault(str(state or "Unknown"), {"slots": 0, "cpus": 0.0, "gpus": 0.0})
        total["slots"] += count
        total["cpus"] += each * count
        total["gpus"] += _number(gpus) * count
        activities[str(activity or "Unknown")] = activities.get(str(activity or "Unknown"), 0) + count
    sums = {what: sum(state[what] for state in states.values()) for what in ("slots", "cpus", "gpus")}
    used = sum(states.get(state, {"cpus": 0.0})["cpus"] for state in USED)
    return {
        **sums,
        "states": dict(sorted(states.items())),
        "activities": dict(sorted(activities.items())),
        "used_cpus": used,
        "utilisation": used / sums["cpus"] if sums["cpus"] else 0.0,
    }


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


#: Of a submitter's ad.
SUBMITTER_FIELDS: Final = ("Name", "RunningJobs", "IdleJobs", "HeldJobs")


def submitters(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """SUBMITTER_FIELDS of submitter ads (one for each schedd) as one line a submitter, most jobs first: {name, running,
    idle, held}."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = row.get("Name")
        if not isinstance(name, str):
            continue
        line = found.setdefault(name, {"name": name, "running": 0, "idle": 0, "held": 0})
        for key, attribute in (("running", "RunningJobs"), ("idle", "IdleJobs"), ("held", "HeldJobs")):
            line[key] += int(_number(row.get(attribute)))
    return sorted(found.values(), key=lambda one: (-one["running"] - one["idle"], -one["held"], one["name"]))


def queue(ads: Iterable[ClassAd]) -> dict[str, int]:
    """Scheduler ads as totals: {running, idle, held, removed, total, schedds}."""
    totals = {"running": 0, "idle": 0, "held": 0, "removed": 0, "total": 0, "schedds": 0}
    for ad in ads:
        totals["schedds"] += 1
        for key, attribute in (
            ("running", "TotalRunningJobs"),
            ("idle", "TotalIdleJobs"),
            ("held", "TotalHeldJobs"),
            ("removed", "TotalRemovedJobs"),
            ("total", "TotalJobAds"),
        ):
            totals[key] += int(_number(plain(ad, (attribute,)).get(attribute)))
    return totals


def cycles(ad: ClassAd) -> list[dict[str, Any]]:
    """The cycles that a negotiator's ad tells of, newest first. Times: seconds since 1970; durations: seconds."""
    found = []
    for number in range(100):
        start = f"LastNegotiationCycleTime{number}"
        if ad.lookup(start) is None:
            break
        attributes = {
            "at": "Time",
            "end": "End",
            "duration_s": "Duration",
            "slots": "TotalSlots",
            "candidates": "CandidateSlots",
            "matches": "Matches",
            "rejections": "Rejections",
            "idle_jobs": "NumIdleJobs",
            "considered": "NumJobsConsidered",
            "submitters": "ActiveSubmitterCount",
            "schedds": "NumSchedulers",
            "spins": "PieSpins",
            "prefetch_s": "PrefetchDuration",
            "phase1_s": "Phase1Duration",
            "phase2_s": "Phase2Duration",
            "phase3_s": "Phase3Duration",
            "phase4_s": "Phase4Duration",
            "out_of_time": "SubmittersOutOfTime",
            "share_limit": "SubmittersShareLimit",
            "failed": "SubmittersFailed",
        }
        spelt = {key: f"LastNegotiationCycle{name}{number}" for key, name in attributes.items()}
        values = plain(ad, tuple(spelt.values()))
        found.append({key: values[name] for key, name in spelt.items() if name in values})
    return found


#: Of an accounting ad: what tells of each, what of a group, and what of a submitter.
ACCOUNT_FIELDS: Final = (
    *("Name", "AccountingGroup", "Priority", "PriorityFactor", "ResourcesUsed", "WeightedResourcesUsed"),
    *("WeightedAccumulatedUsage", "LastUsageTime", "NegotiatorName", "IsAccountingGroup"),
    *("QuotaIsSet", "ConfigQuota", "EffectiveQuota", "SubtreeQuota", "Requested", "SurplusPolicy"),
    "HierWeightedResourcesUsed",
    *("Floor", "Ceiling", "SubmitterShare", "SubmitterLimit", "PriorityFactorUntil", "PriorityFactorAfter"),
)


def accounts(rows: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """ACCOUNT_FIELDS of accounting ads as (groups, submitters), each with what its table shows."""
    groups: list[dict[str, Any]] = []
    people: list[dict[str, Any]] = []
    for row in rows:
        if not isinstance(row.get("Name"), str):
            continue
        factor = _number(row.get("PriorityFactor"))
        row["RealPriority"] = _number(row.get("Priority")) / factor if factor > 0.0 else 0.0
        (groups if row.pop("IsAccountingGroup", False) is True else people).append(row)
    return groups, people


#: Starts that are remembered, and for how long (seconds).
MOST: Final = 20_000
WINDOW_S: Final = 3600.0


class Ends:
    """The jobs that ran to their end within the last hour, at most the last 20,000 of them."""

    def __init__(self) -> None:
        self._ends: deque[tuple[float, bool]] = deque(maxlen=MOST)

    def ended(self, at: float, *, failed: bool) -> None:
        """At `at` (s since 1970)."""
        self._ends.append((at, failed))

    def told(self, now: float) -> dict[str, Any]:
        """{count, failed, window_s}."""
        while self._ends and self._ends[0][0] < now - WINDOW_S:
            self._ends.popleft()
        return {"count": len(self._ends), "failed": sum(failed for _, failed in self._ends), "window_s": WINDOW_S}


class WaitTimes:
    """The starts of the last hour, at most the last 20,000 of them."""

    def __init__(self) -> None:
        self._starts: deque[tuple[float, float]] = deque(maxlen=MOST)

    def started(self, at: float, waited_s: float) -> None:
        """A job started at `at` (s since 1970) after so long."""
        self._starts.append((at, max(0.0, waited_s)))

    def told(self, now: float) -> dict[str, Any]:
        """{count, window_s, p50, p90, p99}: seconds; null where nothing started."""
        while self._starts and self._starts[0][0] < now - WINDOW_S:
            self._starts.popleft()
        waited = sorted(wait for _, wait in self._starts)
        return {
            "count": len(waited),
            "window_s": WINDOW_S,
            **{f"p{part}": quantile(waited, part / 100.0) for part in (50, 90, 99)},
        }


def quantile(ordered: Sequence[float], part: float) -> float | None:
    """The smallest of these, in order, that so large a part is not above."""
    if not ordered:
        return None
    return ordered[min(len(ordered) - 1, max(0, math.ceil(part * len(ordered)) - 1))]
