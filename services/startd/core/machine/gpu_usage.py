"""How busy the GPUs of slots and jobs are (spec row GPU-05), added up from the reports of `shared.gpus.monitor`.

What a GPU does is known of the GPU, not of who makes it: jobs that share one, or programs of somebody else, count for
each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.startd.core.machine.resources import Resource
from shared.classad import ClassAd

#: What feature GPUsMonitor calls its cron job, and the program it names: here a part of the startd does it.
CRON_JOB = "gpus_monitor"
PROGRAM = "condor_gpu_utilization"
_MOST_GPUS = 1024


@dataclass(slots=True)
class _Total:
    busy_s: float = 0.0
    peak_mib: int = 0


@dataclass(slots=True)
class _Watched:
    uuids: tuple[str, ...]
    since: float
    before_s: float  # what its GPUs had done when it began
    peak_mib: int = 0


@dataclass(slots=True)
class Meter:
    """`began`: when the startd did; wall clock, as all times here."""

    began: float
    _gpus: dict[str, _Total] = field(default_factory=dict)
    _runs: dict[str, _Watched] = field(default_factory=dict)

    def take(self, line: str) -> bool:
        """One line of a report, `uuid busy-seconds peak-MiB`; whether it was one."""
        match line.split():
            case [uuid, busy, peak]:
                try:
                    busy_s, peak_mib = float(busy), int(peak)
                except ValueError:
                    return False
            case _:
                return False
        if not (math.isfinite(busy_s) and busy_s >= 0) or (uuid not in self._gpus and len(self._gpus) >= _MOST_GPUS):
            return False
        total = self._gpus.setdefault(uuid, _Total())
        total.busy_s += busy_s
        total.peak_mib = max(total.peak_mib, peak_mib)
        for run in self._runs.values():
            if uuid in run.uuids:
                run.peak_mib = max(run.peak_mib, peak_mib)
        return True

    def of_slot(self, uuids: Iterable[str], now: float) -> dict[str, float]:
        """The attributes of a slot with these GPUs; none where nothing was reported of them yet."""
        known = [self._gpus[uuid] for uuid in uuids if uuid in self._gpus]
        if not known:
            return {}
        return {
            "DeviceGPUsAverageUsage": _rate(sum(one.busy_s for one in known), now - self.began),
            "DeviceGPUsMemoryPeakUsage": max(one.peak_mib for one in known),
        }

    def begin(self, run: str, uuids: Iterable[str], now: float) -> None:
        listed = tuple(uuids)
        if listed:
            self._runs.setdefault(run, _Watched(listed, now, self._busy_s(listed)))

    def of_run(self, run: str, now: float) -> dict[str, float]:
        """The attributes of a job, as of the reports so far."""
        watched = self._runs.get(run)
        if watched is None:
            return {}
        busy_s = self._busy_s(watched.uuids) - watched.before_s
        return {"GPUsAverageUsage": _rate(busy_s, now - watched.since), "GPUsMemoryUsage": watched.peak_mib}

    def end(self, run: str) -> None:
        self._runs.pop(run, None)

    def _busy_s(self, uuids: Iterable[str]) -> float:
        return sum(self._gpus[uuid].busy_s for uuid in uuids if uuid in self._gpus)


def _rate(busy_s: float, seconds: float) -> float:
    return round(busy_s / seconds, 6) if seconds > 0 else 0.0


def uuids_of(ids: Iterable[str], gpus: Resource) -> list[str]:
    """The drivers' names of GPUs, by their ids in slots' ads."""
    found = []
    for one in ids:
        uuid = gpus.properties.get(one, ClassAd()).eval("DeviceUuid")
        if isinstance(uuid, str):
            found.append(uuid.removeprefix("GPU-"))
    return found


def monitors(joblist: Iterable[str], resources: Mapping[str, Resource]) -> Resource | None:
    """The GPUs to be watched, if that is configured (`use feature : GPUs` does)."""
    gpus = next((one for name, one in resources.items() if name.lower() == "gpus"), None)
    wanted = any(name.lower() == CRON_JOB for name in joblist)
    return gpus if wanted and gpus is not None and gpus.ids else None
