"""Whose the machine's load is: what jobs make of it, and what is left for its owner, slot by slot. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.startd.book.slots import Slot
from services.startd.book.transitions import State

#: The load of a job fades as that of the kernel's first load average, seconds.
FADE_S = 60.0
#: Owners' load goes to slots in such States first: there it is in nobody's way.
_FIRST = (State.OWNER, State.UNCLAIMED, State.DRAINED, State.BACKFILL, State.MATCHED)


@dataclass(slots=True)
class JobLoad:
    """The load average that one run makes, from the processor time it has used by and by."""

    cpu_s: float = 0.0  # used when it was last measured
    at: float | None = None  # when that was; None: never yet
    load: float = 0.0

    def measured(self, cpu_s: float, at: float) -> None:
        """`at`: on a clock that never steps back, seconds."""
        if self.at is not None and at > self.at:
            passed = at - self.at
            rate = max(0.0, cpu_s - self.cpu_s) / passed
            kept = math.exp(-passed / FADE_S)
            self.load = self.load * kept + rate * (1.0 - kept)
        self.cpu_s, self.at = cpu_s, at


@dataclass(slots=True)
class JobLoads:
    """By the key of the run."""

    of: dict[str, JobLoad] = field(default_factory=dict)

    def measured(self, run: str, cpu_s: float, at: float) -> None:
        self.of.setdefault(run, JobLoad()).measured(cpu_s, at)

    def over(self, run: str) -> None:
        self.of.pop(run, None)


@dataclass(frozen=True, slots=True)
class SlotLoad:
    load: float  # LoadAvg: of its job and of its share of what owners do
    job: float  # CondorLoadAvg


def share(slots: Iterable[Slot], total: float, job_loads: Mapping[str, JobLoad]) -> tuple[dict[str, SlotLoad], float]:
    """LoadAvg and CondorLoadAvg of each slot, and TotalCondorLoadAvg. What jobs do not make of the machine's load is
    its owners', and goes to the slots one after the other, no more than 1 to each; those that run jobs come last. What
    is left then is nobody's."""
    found = list(slots)
    jobs = {slot.name: _of(slot, job_loads) for slot in found}
    all_jobs = sum(jobs.values())
    owners = max(0.0, total - all_jobs)
    shares: dict[str, SlotLoad] = {}
    for slot in sorted(found, key=lambda one: (_rank(one), one.slot_id, one.dynamic_id)):
        part = min(1.0, owners)
        owners -= part
        shares[slot.name] = SlotLoad(round(part + jobs[slot.name], 2), round(jobs[slot.name], 2))
    return shares, round(all_jobs, 2)


def _of(slot: Slot, job_loads: Mapping[str, JobLoad]) -> float:
    if slot.claim is None or not slot.claim.run or slot.claim.run not in job_loads:
        return 0.0
    return job_loads[slot.claim.run].load


def _rank(slot: Slot) -> int:
    return _FIRST.index(slot.state) if slot.state in _FIRST else len(_FIRST)
