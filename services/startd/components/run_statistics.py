"""What slots tell of all runs of the machine since the startd began, and of the startd itself, in HTCondor's names.

Every slot's ad has it as it was when the ad was made: nothing goes out because of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.startd.ads.ad_cache import SAMPLE_S
from services.startd.context import Component, StartdContext
from services.startd.core.slots.model import Slot
from shared.counters import Probe
from shared.daemon.statistics import Statistics, recent

#: What is told of durations: how often, and of what was, the mean, the least and the longest.
_PROBES = ("JobBusyTime", "JobDuration")


class RunStatistics(Component):
    def __init__(self, startd: StartdContext) -> None:
        super().__init__(startd)
        self._statistics = Statistics(startd.context, startd.settings.statistics_window, self._counted)
        self._made, self._made_of = float("-inf"), dict[str, float]()
        self._attributes: Mapping[str, object] = {}
        startd.ads.add_source("statistics", self._of_slot)

    def _of_slot(self, _: Slot) -> Mapping[str, object]:
        now, counted = self.startd.context.clock.monotonic(), self._counted()
        if now - self._made >= SAMPLE_S or counted != self._made_of:
            self._made, self._made_of, self._attributes = now, counted, self._told()
        return self._attributes

    def _probes(self) -> tuple[Probe, ...]:
        counts = self.startd.runs.counts
        return counts.had, counts.ran

    def _counted(self) -> dict[str, float]:
        counts = self.startd.runs.counts
        why = {name: count for (name,), count in counts.preempted.by_name.items()}
        found: dict[str, float] = {
            "JobStarts": counts.started,
            "JobPreemptions": sum(why.values()),
            "JobRankPreemptions": why.get("rank", 0),
            "JobUserPrioPreemptions": why.get("priority", 0),
            "ClaimRequests": counts.claims_asked,
            "ActivationRequests": counts.asked,
        }
        for name, probe in zip(_PROBES, self._probes(), strict=True):
            found |= {f"{name}Count": probe.count, _sum(name): probe.total}
        return found

    def _told(self) -> Mapping[str, object]:
        told = self._statistics.attributes()
        for name, probe in zip(_PROBES, self._probes(), strict=True):
            del told[_sum(name)]
            total, count = told.pop(recent(_sum(name))), told[recent(f"{name}Count")]
            if probe.count:
                told[f"{name}Avg"] = probe.total / probe.count
                told[f"{name}Min"], told[f"{name}Max"] = probe.least, probe.most
            if isinstance(total, int | float) and isinstance(count, int | float) and count:
                told[recent(f"{name}Avg")] = total / count
        return told


def _sum(name: str) -> str:
    return f"{name}Sum"
