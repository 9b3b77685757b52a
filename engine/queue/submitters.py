"""Under which name a job's use is charged, how many jobs each submitter has, and the ads that tell it: one Submitter ad
for each submitter, and the Scheduler ad (spec rows NEG-29, GRP-25). No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from engine.queue.jobs import ACTIVE, BadSubmit, JobStatus
from shared.classad import ClassAd

#: What the name of a user, a domain or an accounting group may be.
USER_NAME: Final = re.compile(r"[A-Za-z0-9_.@+-]{1,256}")


@dataclass(slots=True)
class Count:
    """Jobs of one submitter, by what they do. Kept up to date by `move`."""

    by_status: dict[JobStatus, int] = field(default_factory=dict)
    scheduler: dict[JobStatus, int] = field(default_factory=dict)  # of them those of the scheduler universe
    local: dict[JobStatus, int] = field(default_factory=dict)  # and those of the local universe
    weighted_running: float = 0.0
    offered: int = 0  # how often a job of this submitter became ready to start, since the schedd began

    def move(
        self,
        old: JobStatus | None,
        new: JobStatus | None,
        *,
        here: Literal["", "scheduler", "local"] = "",
        jobs: int = 1,
    ) -> None:
        """Jobs changed from one state to another; None: they were not, or are no more, in the queue. here: the universe
        where the schedd itself runs them."""
        also = () if not here else (self.local,) if here == "local" else (self.scheduler,)
        for counts in (self.by_status, *also):
            if old is not None:
                counts[old] -= jobs
            if new is not None:
                counts[new] = counts.get(new, 0) + jobs

    def of(self, *statuses: JobStatus) -> int:
        return sum(self.by_status.get(status, 0) for status in statuses)

    def on_slots(self, *statuses: JobStatus) -> int:
        """Without those that the schedd itself runs."""
        elsewhere = sum(counts.get(status, 0) for counts in (self.scheduler, self.local) for status in statuses)
        return self.of(*statuses) - elsewhere

    @property
    def running(self) -> int:
        return self.on_slots(*ACTIVE)

    @property
    def total(self) -> int:
        return sum(self.by_status.values())


#: A job that asks for more cores than this never runs; sums of its kind would be no ClassAd numbers any more.
MAX_WEIGHT: Final = 1e6


def cores_asked(job: ClassAd) -> float:
    """The weight of a job's demand."""
    value = job.eval("RequestCpus")
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
    return number if 0 < number <= MAX_WEIGHT else 1.0


@dataclass(frozen=True, slots=True)
class Identity:
    """What every ad of this schedd says."""

    schedd: str
    inbox: str
    machine: str
    start_time: int
    release: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Runs of a submitter on slots of other pools than the one that reads the ad, and the weight of these slots."""

    runs: int = 0
    weight: float = 0.0

    def plus(self, weight: float) -> Elsewhere:
        """With one run more."""
        return Elsewhere(self.runs + 1, self.weight + weight)


def submitter_ad(
    who: Identity,
    name: str,
    count: Count,
    *,
    idle: int,
    weighted_idle: float,
    elsewhere: Elsewhere = Elsewhere(),
) -> ClassAd:
    """One submitter. idle: jobs that may start now (those whose last run is being torn down may not yet)."""
    return ClassAd(
        {
            "MyType": "Submitter",
            "Name": name,
            "ScheddName": who.schedd,
            "ScheddIpAddr": who.inbox,
            "MyAddress": who.inbox,
            "Machine": who.machine,
            "IdleJobs": idle,
            "RunningJobs": max(0, count.running - elsewhere.runs),
            "HeldJobs": count.of(JobStatus.HELD),
            "WeightedIdleJobs": _tidy(weighted_idle),
            "WeightedRunningJobs": _tidy(max(0.0, count.weighted_running - elsewhere.weight)),
            "FlockedJobs": elsewhere.runs,
            # Tells the negotiator of a new job also where the last one ran and ended so fast that no count differs.
            "JobsOffered": count.offered,
            "DaemonStartTime": who.start_time,
            "RoostVersion": who.release,
        }
    )


def schedd_ad(
    who: Identity, counts: Iterable[Count], *, transfer_url: str, max_jobs: int, extra: dict[str, Any] | None = None
) -> ClassAd:
    """The Scheduler ad."""
    every = list(counts)
    ad = ClassAd(
        {
            "MyType": "Scheduler",
            "Name": who.schedd,
            "ScheddIpAddr": who.inbox,
            "MyAddress": who.inbox,
            "Machine": who.machine,
            "NumUsers": sum(1 for count in every if count.total),
            "TotalIdleJobs": sum(count.on_slots(JobStatus.IDLE) for count in every),
            "TotalRunningJobs": sum(count.running for count in every),
            "TotalHeldJobs": sum(count.of(JobStatus.HELD) for count in every),
            "TotalRemovedJobs": sum(count.of(JobStatus.REMOVED) for count in every),
            "TotalSchedulerJobsIdle": sum(count.scheduler.get(JobStatus.IDLE, 0) for count in every),
            "TotalSchedulerJobsRunning": sum(count.scheduler.get(JobStatus.RUNNING, 0) for count in every),
            "TotalLocalJobsIdle": sum(count.local.get(JobStatus.IDLE, 0) for count in every),
            "TotalLocalJobsRunning": sum(count.local.get(JobStatus.RUNNING, 0) for count in every),
            "TotalJobAds": sum(count.total for count in every),
            "MaxJobsRunning": max_jobs,
            "DaemonStartTime": who.start_time,
            "RoostVersion": who.release,
            "TransferUrl": transfer_url,
        }
    )
    ad.update(extra or {})
    return ad


def _tidy(value: float) -> int | float:
    """Sums of whole weights as whole numbers."""
    rounded = round(value, 6)
    return int(rounded) if float(rounded).is_integer() else rounded


def submitter_of(ad: ClassAd, user: str, nice_group: str = "nice-user") -> str:
    """The name under which a job's use is charged: the user, or group.user@domain (GRP-25). Raises BadSubmit."""
    owner, _, domain = user.partition("@")
    group = ad.eval("AccountingGroup")
    if not isinstance(group, str) or not group:
        name = f"{nice_group}.{owner}" if ad.eval("NiceUser") is True else owner
    else:
        if not USER_NAME.fullmatch(group):
            raise BadSubmit(f"AccountingGroup: {group[:100]!r} may only have letters, digits and _.@+-")
        name = group
    return name if "@" in name or not domain else f"{name}@{domain}"
