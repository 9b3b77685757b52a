"""A slot's State and Activity, and the one table of how they change (manual: "condor_startd Policy Configuration").

Rows are named after the numbered arrows of the manual's diagram (spec rows STM-01 to STM-37). What is not in the table
cannot happen: `step` raises InvalidTransition. The conditions under which a slot moves by itself stand in the table by
name; `lifecycle` says what they mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    OWNER = "Owner"
    UNCLAIMED = "Unclaimed"
    MATCHED = "Matched"
    CLAIMED = "Claimed"
    PREEMPTING = "Preempting"
    BACKFILL = "Backfill"
    DRAINED = "Drained"


class Activity(StrEnum):
    IDLE = "Idle"
    BUSY = "Busy"
    SUSPENDED = "Suspended"
    RETIRING = "Retiring"
    VACATING = "Vacating"
    KILLING = "Killing"
    BENCHMARKING = "Benchmarking"


class Cause(StrEnum):
    """Why a slot changes. Each is one fact or one decision of the policy."""

    AVAILABLE = "the machine is not its owner's"
    OWNER_CAME = "the owner wants the machine"
    BENCHMARK = "benchmarks are due"
    BENCHMARKED = "benchmarks are done"
    MATCHED = "the negotiator matched the slot"
    MATCH_EXPIRED = "the match came to nothing"
    CLAIMED = "an access point claimed the slot"
    ACTIVATED = "a job starts"
    JOB_GONE = "the job is gone"
    SUSPEND = "the policy or its user suspends the job"
    CONTINUE = "the policy or its user lets the job go on"
    PREEMPT = "the policy wants the job away"
    RETIRE = "the job is to leave when its retirement is over"
    UNRETIRE = "what wanted the job to leave went away"
    VACATE = "the claim ends gracefully"
    KILL = "the claim ends at once"
    FREED = "nothing is left of the claim"
    CLAIMED_ANEW = "a claim that waited takes over"
    BACKFILL = "the slot may be filled"
    BACKFILLED = "the backfill client runs"
    BACKFILL_GONE = "the backfill client is gone"
    EVICT_BACKFILL = "the backfill client must go"
    DRAIN = "the machine is emptied"
    ALL_DRAINED = "all slots are drained"
    DRAINING_OVER = "the machine takes jobs again"


@dataclass(frozen=True, slots=True)
class Condition:
    state: State
    activity: Activity

    def __str__(self) -> str:
        return f"{self.state}/{self.activity}"


class InvalidTransition(AssertionError):
    """A programmer's error: the table has no such arrow."""


#: Row, from, cause, to, and for what a slot does by itself its guard: a condition of `lifecycle` that is looked at
#: again and again. Rows without a guard are what somebody does to the slot. Of one condition's guards the first counts.
_ROWS = """
STM-36 Owner/Idle             DRAIN          Drained/Retiring       emptied
STM-01 Owner/Idle             AVAILABLE      Unclaimed/Idle         not-the-owners
STM-37 Unclaimed/Idle         DRAIN          Drained/Retiring       emptied
STM-02 Unclaimed/Idle         OWNER_CAME     Owner/Idle             the-owners
STM-03 Unclaimed/Idle         BENCHMARK      Unclaimed/Benchmarking benchmarks-due
STM-07 Unclaimed/Idle         BACKFILL       Backfill/Idle          to-be-filled
STM-05 Unclaimed/Idle         CLAIMED        Claimed/Idle
STM-06 Unclaimed/Idle         MATCHED        Matched/Idle
STM-37 Unclaimed/Benchmarking DRAIN          Drained/Retiring       emptied
STM-04 Unclaimed/Benchmarking BENCHMARKED    Unclaimed/Idle
STM-08 Matched/Idle           MATCH_EXPIRED  Owner/Idle             match-is-old
STM-09 Matched/Idle           CLAIMED        Claimed/Idle
STM-10 Claimed/Idle           VACATE         Preempting/Vacating    of-no-more-use
STM-11 Claimed/Idle           ACTIVATED      Claimed/Busy
STM-12 Claimed/Busy           JOB_GONE       Claimed/Idle
STM-51 Claimed/Busy           KILL           Preempting/Killing     at-once
STM-13 Claimed/Busy           RETIRE         Claimed/Retiring       must-leave
STM-13 Claimed/Busy           PREEMPT        Claimed/Retiring       preempted
STM-14 Claimed/Busy           SUSPEND        Claimed/Suspended      to-be-suspended
STM-12 Claimed/Suspended      JOB_GONE       Claimed/Idle
STM-17 Claimed/Suspended      KILL           Preempting/Killing     retired-to-be-killed
STM-17 Claimed/Suspended      VACATE         Preempting/Vacating    retired
STM-16 Claimed/Suspended      PREEMPT        Claimed/Retiring       preempted
STM-15 Claimed/Suspended      CONTINUE       Claimed/Busy           goes-on
STM-16 Claimed/Suspended      RETIRE         Claimed/Retiring       goes-on-to-leave
STM-18 Claimed/Retiring       KILL           Preempting/Killing     retired-to-be-killed
STM-18 Claimed/Retiring       VACATE         Preempting/Vacating    retired
STM-18 Claimed/Retiring       JOB_GONE       Claimed/Idle
STM-19 Claimed/Retiring       UNRETIRE       Claimed/Busy           may-stay
STM-20 Claimed/Retiring       SUSPEND        Claimed/Suspended      to-be-suspended
STM-21 Preempting/Vacating    KILL           Preempting/Killing     out-of-time
STM-23 Preempting/Vacating    CLAIMED_ANEW   Claimed/Idle           empty-for-a-better-claim
STM-22 Preempting/Vacating    FREED          Owner/Idle             empty
STM-24 Preempting/Killing     CLAIMED_ANEW   Claimed/Idle           empty-for-a-better-claim
STM-25 Preempting/Killing     FREED          Owner/Idle             empty
STM-31 Backfill/Idle          CLAIMED_ANEW   Claimed/Idle           free-for-its-claim
STM-31 Backfill/Idle          CLAIMED        Claimed/Idle
STM-32 Backfill/Idle          MATCHED        Matched/Idle           free-for-its-match
STM-30 Backfill/Idle          OWNER_CAME     Owner/Idle             not-to-be-filled
STM-26 Backfill/Idle          BACKFILLED     Backfill/Busy
STM-28 Backfill/Busy          EVICT_BACKFILL Backfill/Killing       not-to-be-filled
STM-27 Backfill/Busy          BACKFILL_GONE  Backfill/Idle
STM-29 Backfill/Killing       BACKFILL_GONE  Backfill/Idle
STM-34 Drained/Idle           DRAINING_OVER  Owner/Idle             not-emptied
STM-35 Drained/Retiring       DRAINING_OVER  Owner/Idle             not-emptied
STM-33 Drained/Retiring       ALL_DRAINED    Drained/Idle           all-drained
"""


@dataclass(frozen=True, slots=True)
class Transition:
    row: str
    before: Condition
    cause: Cause
    after: Condition
    guard: str = ""  # name of the condition under which the slot does this by itself; empty: it does not


def _condition(text: str) -> Condition:
    state, activity = text.split("/")
    return Condition(State(state), Activity(activity))


def _read() -> tuple[Transition, ...]:
    rows = (line.split() for line in _ROWS.strip().splitlines())
    return tuple(
        Transition(row, _condition(before), Cause[cause], _condition(after), *guard)
        for row, before, cause, after, *guard in rows
    )


TABLE = _read()
_NEXT = {(t.before, t.cause): t.after for t in TABLE}
_GUARDED: dict[Condition, tuple[Transition, ...]] = {
    before: tuple(t for t in TABLE if t.before == before and t.guard) for before in {t.before for t in TABLE}
}


def guarded(before: Condition) -> tuple[Transition, ...]:
    """What a slot in this condition does by itself, in the order in which the guards are to be looked at."""
    return _GUARDED.get(before, ())


def step(before: Condition, cause: Cause) -> Condition:
    """Where a slot goes from here. Raises InvalidTransition."""
    after = _NEXT.get((before, cause))
    if after is None:
        raise InvalidTransition(f"{before}: no arrow for {cause.name} ({cause.value})")
    return after
