"""What the pool's ads, jobs and events say, as facts for engine.attention. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from engine.attention import Daemon, Disk, Ended, Finding, Gone, Jobs, Oldest
from engine.reasons import CAN_NOT_RUN
from services.gateway.core.dashboard_rows import plain
from shared.classad import ClassAd
from shared.classad.unparse import quote_string as quote
from shared.messages.events import JobEnded

#: Ads of daemons that are looked at one by one; machines are counted by the collector.
DAEMONS: Final = (
    *("Collector", "Scheduler", "Negotiator", "HAD", "Journal", "Defrag", "Rooster", "Gangliad", "Adstash"),
    "Registrar",
)
#: Attributes in which a daemon says what is wrong with it.
PROBLEMS: Final = ("JournalProblem", "RoosterProblem", "HadProblem", "RoostSpoolProblem")
DAEMON_FIELDS: Final = ("MyType", "Name", "RoostVersion", "LastHeardFrom", *PROBLEMS)
MACHINE_FIELDS: Final = ("Machine", "RoostVersion", "LastHeardFrom", "TotalDisk")
IDLE_FIELDS: Final = ("ClusterId", "ProcId", "QDate", "EnteredCurrentStatus", "LastRejMatchReason", "AutoClusterId")
#: TRUE of idle jobs that the last cycle which looked at them said can run on no slot. Of jobs that are alike the first
#: one remembers that.
NEVER: Final = f'JobStatus == 1 && substr(LastRejMatchReason ?: "", 0, {len(CAN_NOT_RUN)}) == {quote(CAN_NOT_RUN)}'
#: Ends that are remembered, and for how long, seconds.
MOST_ENDS: Final = 10_000
WINDOW_S: Final = 3600.0


def daemons(ads: Iterable[ClassAd]) -> list[Daemon]:
    found = []
    for ad in ads:
        row = plain(ad, DAEMON_FIELDS)
        problem = next((str(row[name]) for name in PROBLEMS if row.get(name)), "")
        found.append(
            Daemon(
                str(row.get("MyType", "")),
                str(row.get("Name", "")),
                str(row.get("RoostVersion", "")),
                _number(row.get("LastHeardFrom")),
                problem,
            )
        )
    return found


def machines(ads: Iterable[ClassAd]) -> list[Daemon]:
    """A daemon each, of one slot's ad each."""
    rows = [plain(ad, MACHINE_FIELDS) for ad in ads]
    return [
        Daemon(
            "Machine",
            str(row.get("Machine", "")),
            str(row.get("RoostVersion", "")),
            _number(row.get("LastHeardFrom")),
        )
        for row in rows
    ]


def disks(ads: Iterable[ClassAd]) -> list[Disk]:
    """The room for jobs on machines, of one slot's ad each."""
    rows = [plain(ad, MACHINE_FIELDS) for ad in ads]
    return [
        Disk(f"machine {row['Machine']}", "jobs", _number(row["TotalDisk"]) / 1024)
        for row in rows
        if "Machine" in row and "TotalDisk" in row
    ]


def versions(values: Iterable[Sequence[Any]], counts: Iterable[int]) -> dict[str, int]:
    """Machines by version, of the collector's counts."""
    found: dict[str, int] = {}
    for (version,), count in zip(values, counts, strict=True):
        found[str(version or "")] = found.get(str(version or ""), 0) + count
    return found


def never(ads: Iterable[tuple[ClassAd, str]], alike: Mapping[tuple[str, int], int]) -> list[Jobs]:
    """Jobs that NEVER is true of, with their schedds. alike: idle jobs by (schedd, autocluster)."""
    found = []
    for ad, schedd in ads:
        row = plain(ad, IDLE_FIELDS)
        count = alike.get((schedd, int(_number(row.get("AutoClusterId")))), 1)
        found.append(Jobs(max(1, count), str(row.get("LastRejMatchReason", "")), _id(row), schedd))
    return found


def oldest(ads: Iterable[tuple[ClassAd, str]]) -> Oldest | None:
    """The one of these idle jobs that has been idle for longest."""
    found: Oldest | None = None
    for ad, schedd in ads:
        row = plain(ad, IDLE_FIELDS)
        since = max(_number(row.get("QDate")), _number(row.get("EnteredCurrentStatus")))
        if since and (found is None or since < found.since):
            found = Oldest(_id(row), schedd, since, str(row.get("LastRejMatchReason", "")))
    return found


def held(lines: Iterable[Mapping[str, Any]]) -> list[Jobs]:
    """Of what HeldJobs.by_reason gives."""
    return [Jobs(one["count"], one["reason"], one["first"], one["schedd"], one["code"]) for one in lines]


def finding(one: Finding) -> dict[str, Any]:
    """As JSON."""
    return {
        "code": one.code,
        "level": one.level,
        "text": one.text,
        "count": one.count,
        "about": dict(one.about),
        "help": one.help,
        "command": one.command,
    }


class Lately:
    """What was heard of the pool within the last hour: jobs that ended, by cluster and machine, and machines that went
    away."""

    def __init__(self) -> None:
        self._ends: deque[tuple[float, tuple[str, int, str], bool]] = deque()
        self._counts: dict[tuple[str, int, str], list[int]] = {}  # [ended, failed]
        self._gone: dict[str, float] = {}

    def job_ended(self, event: JobEnded) -> None:
        cluster = event.job_id.partition(".")[0]
        key = (event.schedd, int(cluster) if cluster.isdigit() else 0, event.slot.rpartition("@")[2])
        self._ends.append((event.at, key, event.failed))
        counts = self._counts.setdefault(key, [0, 0])
        counts[0] += 1
        counts[1] += event.failed
        if len(self._ends) > MOST_ENDS:
            self._forget()

    def went(self, daemon: str, since: float) -> None:
        """A daemon, such as startd@node1, is not at the broker since then."""
        subsystem, _, name = daemon.partition("@")
        if subsystem == "startd":
            self._gone.setdefault(name, since)

    def came(self, daemon: str) -> None:
        self._gone.pop(daemon.partition("@")[2] or daemon, None)

    def ended(self, now: float) -> list[Ended]:
        while self._ends and self._ends[0][0] < now - WINDOW_S:
            self._forget()
        return [Ended(*key, *counts) for key, counts in self._counts.items()]

    def gone(self, now: float) -> list[Gone]:
        self._gone = {name: since for name, since in self._gone.items() if since >= now - 24 * WINDOW_S}
        return [Gone(name, since) for name, since in self._gone.items()]

    def _forget(self) -> None:
        _, key, failed = self._ends.popleft()
        counts = self._counts[key]
        counts[0] -= 1
        counts[1] -= failed
        if not counts[0]:
            del self._counts[key]


def _id(row: Mapping[str, Any]) -> str:
    return f"{row.get('ClusterId', '?')}.{row.get('ProcId', '?')}"


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
