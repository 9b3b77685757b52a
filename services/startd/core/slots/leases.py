"""Leases of claims (spec rows LEA-01 to LEA-07): a claim whose schedd has been silent for its lease is broken.

`now` is any clock that never steps back.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

from shared.classad import ClassAd

#: A longer JobLeaseDuration counts as this: ten years.
MAX_LEASE_S: Final = 10.0 * 366 * 86400


def lease_s(job_lease_s: int, alive_interval_s: int, alives_missed: int) -> float:
    """How long a claim lives without a word: JobLeaseDuration, or so many missed keep-alives where the job has none
    (LEA-05)."""
    return float(job_lease_s) if job_lease_s > 0 else float(alives_missed * max(1, alive_interval_s))


def lease_of(job: ClassAd, alive_interval_s: int, alives_missed: int) -> float:
    """The lease of a claim while this job runs on it (LEA-01). The interval is the one that the claim was made with:
    a later reduction is not told (LEA-06)."""
    duration = job.eval("JobLeaseDuration")
    own = 0
    if isinstance(duration, int | float) and not isinstance(duration, bool) and duration >= 1:
        own = int(min(float(duration), MAX_LEASE_S))
    return lease_s(own, alive_interval_s, alives_missed)


class Leases:
    """When each claim's lease ends. A renewal costs O(1); expired leases are found in O(log n) each."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[float, float]] = {}  # claim -> (end, lease)
        self._heap: list[tuple[float, str]] = []  # at least one entry per claim, none later than its end

    def grant(self, claim: str, lease: float, now: float) -> None:
        self._ends[claim] = (now + lease, lease)
        heapq.heappush(self._heap, (now + lease, claim))

    def renew(self, claims: Iterable[str], now: float) -> list[str]:
        """Start these leases anew; gives back the claims that are not known (AliveReply.unknown)."""
        unknown = []
        for claim in claims:
            known = self._ends.get(claim)
            if known is None:
                unknown.append(claim)
            else:
                self._ends[claim] = (now + known[1], known[1])
        return unknown

    def drop(self, claim: str) -> None:
        self._ends.pop(claim, None)

    def expired(self, now: float) -> list[str]:
        """Take out and return the claims whose lease has ended."""
        over = []
        while self._heap and self._heap[0][0] <= now:
            _, claim = heapq.heappop(self._heap)
            known = self._ends.get(claim)
            if known is None:
                continue
            if known[0] <= now:
                del self._ends[claim]
                over.append(claim)
            else:
                heapq.heappush(self._heap, (known[0], claim))
        return over

    def next_end(self) -> float | None:
        """No lease ends before this; None when there is none."""
        return self._heap[0][0] if self._heap else None

    def __contains__(self, claim: str) -> bool:
        return claim in self._ends
