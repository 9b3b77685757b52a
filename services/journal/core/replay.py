"""The work that jobs offered to the pool in an interval, from recorded events, for a replay. Pure.

A job is an offer of work: from `at` on it waits for a slot, until `until` at most (it was held or removed before it
ever ran), and once it runs it takes `runs_s`. Evicted runs are not offers of their own: whether a job is evicted is up
to the replay, so only the run that came to an end counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from services.journal.core.explain import RecordedEvent, with_hold

#: The job waits for a slot from these events on.
_OFFERED = ("job.submitted", "job.released")
#: It waits no more, and does not run.
_WITHDRAWN = ("job.held", "job.removed")


@dataclass(frozen=True, slots=True)
class Offer:
    """A job's offer of work to the pool. runs_s None: it never came to an end, as far as is recorded. slot: it ran
    there as the interval began; then runs_s is the rest of that run. waited_s, ran_s: what it did in the interval in
    truth; started: when it first ran in it, 0: not at all. ended: it came to its end in the interval."""

    at: float
    until: float | None
    runs_s: float | None
    slot: str
    waited_s: float
    ran_s: float
    started: float
    ended: bool

    def row(self) -> list[Any]:
        return [self.at, self.until, self.runs_s, self.slot, self.waited_s, self.ran_s, self.started, self.ended]


@dataclass(slots=True)
class _Open:
    """An offer as its events come. runs: (began, over, slot); over 0: it goes on."""

    at: float
    runs: list[tuple[float, float, str]]
    running: bool = False

    def start(self, at: float, slot: str) -> None:
        self.stop(at)
        self.runs.append((at, 0.0, slot))
        self.running = True

    def stop(self, at: float) -> None:
        if self.running:
            began, _, slot = self.runs[-1]
            self.runs[-1] = (began, max(began, at), slot)
            self.running = False

    def close(self, over: float, start: float, end: float) -> Offer | None:
        """The offer as far as the interval goes. over: when it was done, 0: it is not."""
        if self.at >= end or 0.0 < over <= start:
            return None
        if over and over <= self.at and not self.runs:
            return None  # submitted on hold, as jobs are whose files are yet to come: no offer before its release
        begin, stop = max(self.at, start), min(over or end, end)
        ran = sum(max(0.0, min(till or end, stop) - max(began, begin)) for began, till, _ in self.runs)
        there = next((run for run in self.runs if run[0] <= start and (not run[1] or run[1] > start)), None)
        last = self.runs[-1] if self.runs else None
        runs_s = last[1] - last[0] if last is not None and last[1] and last[1] == over else None
        if there is not None and runs_s is not None and there == last:
            runs_s = last[1] - start
        first = next((max(began, start) for began, till, _ in self.runs if not till or till > start), 0.0)
        return Offer(
            at=begin,
            until=over if over and last is None else None,
            runs_s=runs_s,
            slot=there[2] if there is not None else "",
            waited_s=max(0.0, stop - begin - ran),
            ran_s=ran,
            started=first if first < end else 0.0,
            ended=0.0 < over < end and runs_s is not None,
        )


def offers_of(events: Sequence[RecordedEvent], start: float, end: float) -> list[Offer]:
    """The offers of one job that touch the interval, in order. events: all that is recorded of it, also later ones."""
    found: list[Offer | None] = []
    offer: _Open | None = None
    for fact in events:
        kind, body = fact.type, fact.body
        if offer is None and kind in (*_OFFERED, "job.matched", "job.started", "job.evicted"):
            offer = _Open(fact.at, [])  # what was before is not recorded, where it begins in the middle
        if offer is None:
            continue
        if kind == "job.started":
            offer.start(float(body.get("began") or fact.at), str(body.get("slot", "")))
        elif kind == "job.evicted":
            offer.stop(fact.at)
        elif kind == "job.ended" or kind in _WITHDRAWN:
            offer.stop(fact.at)
            found.append(offer.close(fact.at, start, end))
            offer = None
    if offer is not None:
        found.append(offer.close(0.0, start, end))
    return [one for one in found if one is not None]


def by_job(facts: Iterable[tuple[int, int, RecordedEvent]]) -> dict[tuple[str, int, int], list[RecordedEvent]]:
    """Events (cluster, proc, fact) in the order of time, by schedd and job. A cluster's own event (proc -1) is one of
    each of its jobs."""
    found: dict[tuple[str, int, int], list[RecordedEvent]] = {}
    for cluster, proc, fact in facts:
        schedd = str(fact.body.get("schedd", ""))
        if proc >= 0:
            found.setdefault((schedd, cluster, proc), []).append(fact)
        else:
            first = int(fact.body.get("first_proc", 0))
            rows = fact.body.get("jobs") or [(first, first + int(fact.body.get("count", 0)) - 1)]
            for one in chain.from_iterable(range(first, last + 1) for first, last in rows):
                found.setdefault((schedd, cluster, one), []).extend(with_hold(fact, one))
    return found
