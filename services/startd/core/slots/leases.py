"""Leases of claims (spec rows LEA-01 to LEA-07): a claim whose schedd has been silent for its lease is broken.

`now` is any clock that never steps back; where leases outlive a life of the startd, the machine's own (`left_of`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
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


def left_of(kept: Mapping[str, object] | None, boot: str, now: float) -> float | None:
    """What is left of a lease that an earlier life wrote down, seconds; less than 0: it has passed. None: nothing is
    known of it, or it is of before the machine was started anew. kept: `until`, by the machine's clock, and `boot`,
    which start of the machine that clock counts from."""
    if kept is None or kept.get("boot") != boot:
        return None
    until = kept.get("until")
    return until - now if isinstance(until, int | float) else None


def first_of(kept: Mapping[str, object] | None) -> float:
    """How long the first lease is that an earlier life wrote down, seconds; 0: the schedd had renewed it, or a release
    wrote that which did not tell them apart."""
    first = kept.get("first") if kept is not None else None
    return first if isinstance(first, int | float) else 0.0


def silence(lasted: float, lease: float) -> str:
    """Why a claim is over whose schedd was silent for its lease, or for its first one."""
    if lasted < lease:
        return (
            f"the schedd was silent for {lasted:g} s, the lease until it has shown that it knows of the claim, of"
            f" {lease:g} s from then on"
        )
    return f"the schedd was silent for the lease of {lease:g} s"


class Leases:
    """When each claim's lease ends. A renewal costs O(1); expired leases are found in O(log n) each.

    A claim may be given a shorter lease at first, until its schedd shows that it knows of the claim: it renews the
    lease, or answers a report. One that never heard that it has the claim knows by that time that no run of it is left
    (LEA-09)."""

    def __init__(self) -> None:
        self._ends: dict[str, tuple[float, float]] = {}  # claim -> (end, lease)
        self._heap: list[tuple[float, str]] = []  # at least one entry per claim, none later than its end
        self._first: dict[str, float] = {}  # claims in their first, shorter lease, and how long that is

    def grant(self, claim: str, lease: float, now: float, first: float = 0.0) -> None:
        """first: how long it lasts until it is renewed; 0: the whole lease."""
        self._first.pop(claim, None)
        if first:
            self._first[claim] = min(first, lease)
        self._set(claim, now + self._first.get(claim, lease), lease)

    def restore(self, claim: str, lease: float, end: float, first: float = 0.0) -> None:
        """Go on with a lease of an earlier life, which may have passed. Whether it was renewed is not known. first: how
        long its first lease is, where it was not renewed as far as that life knew; 0: it was, or had none."""
        self._first[claim] = min(first or lease, lease)
        self._set(claim, end, lease)

    def asked_again(self, claim: str, now: float, first: float) -> None:
        """Who was given the claim asks for it once more: in its first lease it gets so much longer (0: the whole one),
        later nothing."""
        known = self._ends.get(claim)
        if known is not None and (claim in self._first or not first):
            end, lease = known
            lasts = min(first or lease, lease)
            if claim in self._first:
                self._first[claim] = lasts
            self._set(claim, max(end, now + lasts), lease)

    def renew(self, claims: Iterable[str], now: float) -> list[str]:
        """Start these leases anew; gives back the claims that are not known (AliveReply.unknown), and those whose lease
        has passed, though nobody has taken them out yet."""
        unknown = []
        for claim in claims:
            known = self._ends.get(claim)
            if known is None or known[0] <= now:
                unknown.append(claim)
            else:
                self._first.pop(claim, None)
                self._ends[claim] = (now + known[1], known[1])
        return unknown

    def confirm(self, claim: str, since: float, now: float) -> None:
        """The claim's schedd has answered something that was said at `since`, and so knows of the claim: its lease is
        the whole one from there on. It counts from no earlier moment. A lease that has passed is over all the same."""
        known = self._ends.get(claim)
        if known is not None and known[0] > now:
            self._first.pop(claim, None)
            self._ends[claim] = (max(known[0], since + known[1]), known[1])

    def is_first(self, claim: str) -> bool:
        """Whether its schedd has not shown yet that it knows of the claim."""
        return claim in self._first

    def first_s(self, claim: str) -> float:
        """How long the claim's first lease is, while it is in that; 0: it has the whole one."""
        return self._first.get(claim, 0.0)

    def _set(self, claim: str, end: float, lease: float) -> None:
        self._ends[claim] = (end, lease)
        heapq.heappush(self._heap, (end, claim))

    def drop(self, claim: str) -> None:
        self._ends.pop(claim, None)
        self._first.pop(claim, None)

    def end_of(self, claim: str) -> float | None:
        """When the claim's lease ends; None: it has none."""
        known = self._ends.get(claim)
        return None if known is None else known[0]

    def left_s(self, claim: str, now: float) -> float | None:
        end = self.end_of(claim)
        return None if end is None else end - now

    def expired(self, now: float) -> dict[str, float]:
        """Take out and return the claims whose lease has ended, each with the seconds that it was silent for: its whole
        lease, or its first."""
        over = {}
        while self._heap and self._heap[0][0] <= now:
            _, claim = heapq.heappop(self._heap)
            known = self._ends.get(claim)
            if known is None:
                continue
            if known[0] <= now:
                over[claim] = self._first.get(claim, known[1])
                self.drop(claim)
            else:
                heapq.heappush(self._heap, (known[0], claim))
        return over

    def next_end(self) -> float | None:
        """No lease ends before this; None when there is none."""
        return self._heap[0][0] if self._heap else None

    def __contains__(self, claim: str) -> bool:
        return claim in self._ends
