"""Draining a machine and switching it off: who must leave when, and when all of it is done. Pure.

A drain ends when it is cancelled, or by itself once all slots are drained, if it was asked for so. Switching off lasts
until the machine is switched on. Both empty all slots, and lend none meanwhile. A drain may name a START for the time
in which jobs that were there before it still run (spec rows DFR-07 to DFR-10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from engine.slots.amounts import CPUS
from engine.slots.carving import SlotKind
from services.startd.core.slots.model import Slot, Urgency
from services.startd.core.slots.transitions import State
from shared.classad import Expr, parse_expr


class DrainMode(StrEnum):
    """How a drain makes jobs leave."""

    GRACEFUL = "graceful"  # each keeps its retirement time, then has its time to vacate
    QUICK = "quick"  # no retirement; the time to vacate is kept
    FAST = "fast"  # killed


class Completion(StrEnum):
    """What follows when all slots are drained."""

    NOTHING = "nothing"  # they stay drained until the drain is cancelled
    RESUME = "resume"  # the drain is over
    EXIT = "exit"  # the startd ends
    RESTART = "restart"  # the startd starts anew


class OffMode(StrEnum):
    """How the machine is switched off (STM-51)."""

    PEACEFUL = "peaceful"  # jobs run to their end
    GRACEFUL = "graceful"  # as a graceful drain
    FAST = "fast"  # killed


#: Urgency of a claim by how its machine is drained or switched off.
_URGENCY = {
    DrainMode.GRACEFUL: Urgency.RETIRE,
    DrainMode.QUICK: Urgency.VACATE,
    DrainMode.FAST: Urgency.KILL,
    OffMode.PEACEFUL: Urgency.RETIRE,
    OffMode.GRACEFUL: Urgency.RETIRE,
    OffMode.FAST: Urgency.KILL,
}
#: A later order to switch off may only hurry.
_HURRY = (OffMode.PEACEFUL, OffMode.GRACEFUL, OffMode.FAST)


def urgency_of(how: DrainMode | OffMode) -> Urgency:
    return _URGENCY[how]


def more_urgent(before: OffMode | None, order: OffMode) -> OffMode:
    """What counts after a further order to switch off."""
    return order if before is None else max(before, order, key=_HURRY.index)


@dataclass(frozen=True, slots=True)
class Drain:
    """A drain under way. start: START for further jobs while older ones still run; empty: none is taken. since: wall
    clock. aligned: where it is graceful, jobs stay until the one that may stay longest must leave."""

    request_id: str
    how: DrainMode
    reason: str
    completion: Completion
    start: str
    since: float
    aligned: bool = False  # not in records of releases that had no such drains

    @property
    def start_expr(self) -> Expr | None:
        return parse_expr(self.start) if self.start else None


@dataclass(slots=True)
class MachineOrders:
    """What administrators have ordered for the whole machine, and what draining has cost since the startd was first
    started. Seconds, cpu-seconds; times on the wall clock, 0: never."""

    drain: Drain | None = None
    off: OffMode | None = None
    last_start: float = 0.0
    last_stop: float = 0.0
    badput: float = 0.0  # run time of jobs that were evicted by draining
    unclaimed: float = 0.0  # nobody's because of draining
    drained: bool = False  # all slots are: what is to follow has been told
    since: float = 0.0  # from then on the costs are counted; 0: not yet

    @property
    def emptying(self) -> bool:
        """All slots are to be emptied, or are."""
        return self.drain is not None or self.off is not None

    def clock_set(self, seconds: float) -> None:
        """The clock was set by so many seconds."""
        if self.drain is not None:
            self.drain = replace(self.drain, since=self.drain.since + seconds)
        self.last_start += seconds if self.last_start else 0.0
        self.last_stop += seconds if self.last_stop else 0.0
        self.since += seconds if self.since else 0.0

    def pack(self) -> dict[str, Any]:
        """For the journal."""
        return {
            "drain": None if self.drain is None else asdict(self.drain),
            "off": None if self.off is None else str(self.off),
            "last_start": self.last_start,
            "last_stop": self.last_stop,
            "badput": self.badput,
            "unclaimed": self.unclaimed,
            "drained": self.drained,
            "since": self.since,
        }

    @classmethod
    def unpack(cls, record: Mapping[str, Any]) -> MachineOrders:
        drain, off = record["drain"], record["off"]
        return cls(
            **dict(record)
            | {
                "drain": None
                if drain is None
                else Drain(**drain | {"how": DrainMode(drain["how"]), "completion": Completion(drain["completion"])}),
                "off": None if off is None else OffMode(off),
            }
        )


@dataclass(frozen=True, slots=True)
class ExpectedDrain:
    """What a drain would come to if it began now: when it would be complete (wall clock), and the run time that jobs
    would lose, cpu-seconds. Jobs are thought to use all the time they get."""

    graceful_completion: float
    graceful_badput: float
    quick_completion: float
    quick_badput: float


def expected_drain(slots: Iterable[Slot], now: float, *, aligned: bool = False) -> ExpectedDrain:
    """See `ExpectedDrain`. aligned: jobs would stay until the one that may stay longest must leave."""
    graceful_end = quick_end = now
    graceful_lost = quick_lost = 0.0
    running = [(slot, slot.claim) for slot in slots if slot.claim is not None and slot.claim.run]
    longest = max((claim.retirement_s - claim.run_time(now) for _, claim in running), default=0.0) if aligned else 0.0
    for slot, claim in running:
        cpus, ran = float(slot.total[CPUS]), claim.run_time(now)
        leaving = claim.leave_s
        left = max(longest, claim.retirement_s - ran, leaving)
        graceful_end, quick_end = max(graceful_end, now + left), max(quick_end, now + leaving)
        graceful_lost += cpus * (ran + left)
        quick_lost += cpus * (ran + leaving)
    return ExpectedDrain(graceful_end, graceful_lost, quick_end, quick_lost)


def idle_cpus(slots: Iterable[Slot]) -> float:
    """Cores that no claim has."""
    found = 0.0
    for slot in slots:
        if slot.kind is SlotKind.PARTITIONABLE:
            found += max(0.0, float(slot.free[CPUS]))
        elif slot.claim is None:
            found += float(slot.total[CPUS])
    return found


def all_drained(slots: Iterable[Slot]) -> bool:
    """All slots of the machine are drained (STM-33). Dynamic ones are gone by then."""
    return all(slot.state is State.DRAINED for slot in slots)
