"""The owner's use of a machine: how its load is shared out to slots, and latched expressions. Pure.

Of the machine's load, jobs make a part; what is left is the owner's, and goes to slot after slot. STARTD_LATCH_EXPRS
are expressions of which the slots tell since when they have had their value.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from services.startd.core.slots.model import Slot
from services.startd.core.slots.transitions import State
from shared.classad import UNDEFINED, ClassAd, Expr, evaluate

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
    """The load of each run, by its key."""

    of: dict[str, JobLoad] = field(default_factory=dict)

    def measured(self, run: str, cpu_s: float, at: float) -> None:
        self.of.setdefault(run, JobLoad()).measured(cpu_s, at)

    def over(self, run: str) -> None:
        self.of.pop(run, None)


@dataclass(frozen=True, slots=True)
class SlotLoad:
    load: float  # LoadAvg: of its job and of its share of what owners do
    job: float  # CondorLoadAvg


def share_load(
    slots: Iterable[Slot], total: float, job_loads: Mapping[str, JobLoad]
) -> tuple[dict[str, SlotLoad], float]:
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


#: Values of other kinds than these are told as undefined.
_PLAIN = (bool, int, float, str)


class Latches:
    """What each slot's latched expressions were when they were last looked at, and since when."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], tuple[object, int]] = {}  # by slot and name: value, since when

    def look(self, slot: str, ad: ClassAd, latches: Mapping[str, Expr], now: float) -> dict[str, object]:
        """The attributes <name>, <name>Value and <name>Time of the slot's ad. A boolean's value is 1 or 0: HTCondor's
        policies compare it with that."""
        found: dict[str, object] = {}
        for name, expr in latches.items():
            value: object = evaluate(expr, ad)
            if isinstance(value, bool):
                value = int(value)
            elif not isinstance(value, _PLAIN):
                value = UNDEFINED
            before, since = self._of.get((slot, name), (None, 0))
            if before is None or before != value:
                since = int(now)
                self._of[slot, name] = value, since
            found[name], found[f"{name}Value"], found[f"{name}Time"] = expr, value, since
        return found

    def keep(self, slots: Container[str]) -> None:
        """Forget all slots but these."""
        self._of = {key: value for key, value in self._of.items() if key[0] in slots}
