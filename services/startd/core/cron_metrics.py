"""What monitors of custom resources report, for slots and jobs (STARTD_CRON_<Job>_METRICS, spec row CRN-15). Pure.

Such a cron job prints an ad for each instance of its resource, with SlotMergeConstraint and a name of its own, and in
it what the instance did since the last report: `Uptime<Metric>Seconds` of a SUM, `Uptime<Metric>PeakUsage` of a PEAK.
Slots show what theirs did since the startd began, jobs what theirs did while they ran:

    SUM:SQUIDs          DeviceSQUIDsAverageUsage         SQUIDsAverageUsage: busy seconds for each second
    PEAK:SQUIDsMemory   DeviceSQUIDsMemoryPeakUsage      SQUIDsMemoryUsage: the most that was reported
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from shared.classad import ClassAd
from shared.cron.jobs import CronJob
from shared.cron.output import CronAd

#: A job, the name of one of its ads, and a metric.
Key = tuple[str, str, str]
SUM: Final = "SUM"


def uptime_attribute(metric: str, kind: str) -> str:
    """The attribute in which a monitor reports it."""
    return f"Uptime{metric}{'Seconds' if kind == SUM else 'PeakUsage'}"


def split(job: CronJob, ad: CronAd) -> tuple[CronAd, dict[str, float]]:
    """The ad without what it reports of the job's metrics, and that by metric. What is no number, 0 or more, is
    nothing."""
    names = {f"{job.prefix}{uptime_attribute(name, kind)}".lower(): name for name, kind in job.metrics.items()}
    reported: dict[str, float] = {}
    kept = ClassAd()
    for attribute in ad.attributes:
        metric = names.get(attribute.lower())
        if metric is None:
            expr = ad.attributes.lookup(attribute)
            assert expr is not None
            kept[attribute] = expr
            continue
        value = ad.attributes.eval(attribute)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
            reported[metric] = float(value)
    return replace(ad, attributes=kept), reported


@dataclass(slots=True)
class _Watched:
    since: float
    before: dict[Key, float]  # the sums as it began
    peaks: dict[Key, float] = field(default_factory=dict)


@dataclass(slots=True)
class CronMetrics:
    """began: when the startd did; wall clock, as all times here."""

    began: float
    _kinds: dict[str, Mapping[str, str]] = field(default_factory=dict)  # by job in lower case
    _totals: dict[Key, float] = field(default_factory=dict)
    _runs: dict[str, _Watched] = field(default_factory=dict)

    def take(self, job: CronJob, name: str, reported: Mapping[str, float]) -> None:
        """What one ad of a job reported."""
        of = job.name.lower()
        self._kinds[of] = job.metrics
        for metric, value in reported.items():
            key = (of, name.lower(), metric)
            if job.metrics[metric] == SUM:
                self._totals[key] = self._totals.get(key, 0.0) + value
                continue
            self._totals[key] = max(self._totals.get(key, 0.0), value)
            for run in self._runs.values():
                run.peaks[key] = max(run.peaks.get(key, 0.0), value)

    def keep_only(self, jobs: Iterable[CronJob]) -> None:
        """Forget what other jobs reported, and metrics that a job has no more."""
        wanted = {job.name.lower(): job.metrics for job in jobs}
        self._kinds = {name: metrics for name, metrics in wanted.items() if name in self._kinds}
        self._totals = {key: total for key, total in self._totals.items() if self._kind(key)}

    def of_slot(self, names: Iterable[tuple[str, str]], now: float) -> dict[str, object]:
        """The attributes of a slot that gets the ads of these (job, name)."""
        found: dict[str, object] = {}
        for metric, kind, keys in self._chosen(names):
            totals = [self._totals[key] for key in keys]
            if kind == SUM:
                found[f"Device{metric}AverageUsage"] = _rate(math.fsum(totals), now - self.began)
            else:
                found[f"Device{metric}PeakUsage"] = max(totals)
        return found

    def begin(self, run: str, now: float) -> None:
        self._runs.setdefault(run, _Watched(now, dict(self._totals)))

    def of_run(self, run: str, names: Iterable[tuple[str, str]], now: float) -> dict[str, object]:
        """The attributes of a job on such a slot, as of the reports so far."""
        watched = self._runs.get(run)
        if watched is None:
            return {}
        found: dict[str, object] = {}
        for metric, kind, keys in self._chosen(names):
            if kind == SUM:
                used = math.fsum(self._totals[key] - watched.before.get(key, 0.0) for key in keys)
                found[f"{metric}AverageUsage"] = _rate(max(0.0, used), now - watched.since)
            elif peaks := [watched.peaks[key] for key in keys if key in watched.peaks]:
                found[f"{metric}Usage"] = max(peaks)
        return found

    def end(self, run: str) -> None:
        self._runs.pop(run, None)

    def _kind(self, key: Key) -> str | None:
        return self._kinds.get(key[0], {}).get(key[2])

    def _chosen(self, names: Iterable[tuple[str, str]]) -> list[tuple[str, str, list[Key]]]:
        """By metric: its kind, and where it was reported for these ads."""
        wanted = set(names)
        found: dict[str, tuple[str, list[Key]]] = {}
        for key in self._totals if wanted else ():
            kind = self._kind(key)
            if kind is not None and key[:2] in wanted:
                found.setdefault(key[2], (kind, []))[1].append(key)
        return [(metric, kind, keys) for metric, (kind, keys) in sorted(found.items())]


def _rate(seconds: float, during: float) -> float:
    return round(seconds / during, 6) if during > 0 else 0.0
