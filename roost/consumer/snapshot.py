"""Decides which events a snapshot contains already. Pure.

An event of a job that the snapshot has is in it when it happened before the schedd read that job's ad: both times are
by the schedd's clock (`RoostReadAt` of the ad, `at` of the event), which it reads in the same step in which it changes
the job. A job that is not in the snapshot either left its queue before (its events are no news), or came after it: it
has a cluster number that is larger than any in the snapshot, or its submission was told meanwhile.

A slot's ad tells in which second its activity began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roost.consumer.source import Received, schedd_of
from roost.events import JobEvent, JobsSubmitted, SlotChanged
from shared.classad import ClassAd

#: What the decision needs of a job's and a slot's ad.
JOB_NEEDS = ("ClusterId", "ProcId", "GlobalJobId", "RoostReadAt", "ServerTime")
SLOT_NEEDS = ("Name", "State", "Activity", "EnteredCurrentActivity", "EnteredCurrentState")


@dataclass(frozen=True, slots=True)
class _SlotSeen:
    state: str
    activity: str
    since: int


class SnapshotCut:
    """What a snapshot holds. Ads first (`job`, `slot`), then events, in order."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str], float] = {}  # (schedd, job id) -> when its ad was read
        self._counts: dict[tuple[str, int], int] = {}  # (schedd, cluster) -> jobs in the snapshot
        self._last: dict[str, int] = {}  # schedd -> largest cluster
        self._read: dict[str, float] = {}  # schedd -> when the last of its ads was read
        self._slots: dict[str, _SlotSeen] = {}
        self._highest: dict[tuple[str, int], int] = {}  # (schedd, cluster) -> largest proc in the snapshot
        self._told: dict[tuple[str, int], int] = {}  # clusters whose submission is told, from this proc on

    def job(self, ad: ClassAd) -> bool:
        """A job of the snapshot. False when it was there before."""
        schedd, cluster = schedd_of(ad), _whole(ad, "ClusterId")
        key = (schedd, f"{cluster}.{_whole(ad, 'ProcId')}")
        if key in self._jobs:
            return False
        read = ad.eval("RoostReadAt")
        # A schedd that tells whole seconds only: what happened in that second comes once more, rather than not at all.
        at = float(read) if isinstance(read, int | float) else _whole(ad, "ServerTime") - 1e-6
        self._jobs[key] = at
        self._counts[schedd, cluster] = self._counts.get((schedd, cluster), 0) + 1
        self._highest[schedd, cluster] = max(self._highest.get((schedd, cluster), 0), _whole(ad, "ProcId"))
        self._last[schedd] = max(self._last.get(schedd, 0), cluster)
        self._read[schedd] = max(self._read.get(schedd, 0.0), at)
        return True

    def slot(self, ad: ClassAd) -> None:
        since = max(_whole(ad, "EnteredCurrentActivity"), _whole(ad, "EnteredCurrentState"))
        self._slots[str(ad.eval("Name"))] = _SlotSeen(str(ad.eval("State")), str(ad.eval("Activity")), since)

    def incomplete(self, events: Sequence[Received]) -> list[tuple[str, int]]:
        """(schedd, cluster) of submissions that came into the queue while it was read: some of their jobs may lack."""
        return [
            (got.event.schedd, got.event.cluster)
            for got in events
            if isinstance(got.event, JobsSubmitted) and self._has_some(got.event)
        ]

    def _has_some(self, event: JobsSubmitted) -> bool:
        key = (event.schedd, event.cluster)
        if event.first_proc:  # of a cluster that comes into the queue some jobs at a time
            return event.first_proc <= self._highest.get(key, -1) < event.first_proc + event.count - 1
        return 0 < self._counts.get(key, 0) < event.count

    def news(self, events: Sequence[Received]) -> list[Received]:
        """Those of the events that came while the snapshot was taken which it does not have in it."""
        reached: dict[str, int] = {}  # slot -> how many events up to the state that its ad shows
        for position, got in enumerate(events):
            if isinstance(got.event, SlotChanged) and self._shows(got.event):
                reached[got.event.slot] = position
        return [
            got
            for position, got in enumerate(events)
            if not (isinstance(got.event, SlotChanged) and position <= reached.get(got.event.slot, -1))
            and self.is_news(got)
        ]

    def is_news(self, got: Received) -> bool:
        """Whether the snapshot does not have this event in it."""
        event = got.event
        if isinstance(event, JobsSubmitted):
            key = (event.schedd, event.cluster)
            if event.first_proc <= self._highest.get(key, -1):
                return False
            self._told[key] = min(event.first_proc, self._told.get(key, event.first_proc))
            return True
        if isinstance(event, JobEvent):
            return self._job_news(event)
        if isinstance(event, SlotChanged):
            seen = self._slots.get(event.slot)
            return seen is None or (int(event.at) >= seen.since and not self._shows(event))
        return True

    def _job_news(self, event: JobEvent) -> bool:
        read = self._jobs.get((event.schedd, event.job_id))
        if read is not None:
            return event.at > read
        number, _, last = event.job_id.partition(".")
        cluster, proc = int(number), int(last or 0)
        return (
            event.at > self._read.get(event.schedd, 0.0)
            or cluster > self._last.get(event.schedd, 0)
            or proc >= self._told.get((event.schedd, cluster), proc + 1)
        )

    def _shows(self, event: SlotChanged) -> bool:
        """Whether the slot's ad shows what this event brought about."""
        seen = self._slots.get(event.slot)
        return seen is not None and (event.state, event.activity, int(event.at)) == (
            seen.state,
            seen.activity,
            seen.since,
        )


def _whole(ad: ClassAd, name: str) -> int:
    value = ad.eval(name)
    return int(value) if isinstance(value, int | float) else 0
