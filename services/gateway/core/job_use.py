"""What a job uses of what it asked for, or was given. Pure."""

from __future__ import annotations

from typing import Any, Final

from services.gateway.core.dashboard_rows import plain
from shared.classad import ClassAd
from shared.classad.expr import fold

#: What is read of a job.
_FIELDS: Final = (
    *("JobStatus", "RemoteUserCpu", "RemoteSysCpu", "CpusUsage", "MemoryUsage", "DiskUsage", "GPUsAverageUsage"),
    *("RemoteWallClockTime", "JobCurrentStartDate", "JobCurrentStartExecutingDate"),
)
_RESOURCES: Final = {"cpus": "Cpus", "memory": "Memory", "disk": "Disk", "gpus": "GPUs"}
_KIB: Final = ("disk",)


def use(ad: ClassAd, now: float) -> dict[str, Any]:
    """As far as its ad tells: {at, parts: {cpus, memory, disk, gpus: {used, asked, given}}}. Cpus on average over its
    last or present run, memory and disk (MiB) as reported last. asked: where its submit file says so, and not its use
    itself as by default; given: by the slot that it runs on, or ran on last. now: s since 1970."""
    row = plain(ad, _FIELDS)
    parts: dict[str, dict[str, float]] = {}
    ran = _number(row.get("RemoteWallClockTime"))
    started = _number(row.get("JobCurrentStartExecutingDate")) or _number(row.get("JobCurrentStartDate"))
    cpu = _number(row.get("RemoteUserCpu")) + _number(row.get("RemoteSysCpu"))
    if "CpusUsage" in row:
        parts["cpus"] = {"used": _number(row["CpusUsage"])}
    elif cpu > 0.0:
        seconds = now - started if row.get("JobStatus") == 2 and started else ran
        parts["cpus"] = {"used": cpu / max(1.0, seconds)}
    if _number(row.get("MemoryUsage")) > 0.0:
        parts["memory"] = {"used": _number(row["MemoryUsage"])}
    if _number(row.get("DiskUsage")) >= 1024.0:
        parts["disk"] = {"used": _number(row["DiskUsage"]) / 1024.0}
    if "GPUsAverageUsage" in row:
        parts["gpus"] = {"used": _number(row["GPUsAverageUsage"])}
    for name, part in parts.items():
        unit = 1024.0 if name in _KIB else 1.0
        for key, attribute in (("asked", f"Request{_RESOURCES[name]}"), ("given", f"{_RESOURCES[name]}Provisioned")):
            if (amount := _number(ad.find(fold(attribute)))) > 0.0:
                part[key] = amount / unit
    return {"at": now, "parts": parts}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
