"""What an explanation holds: counts and texts, no arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.reasons import Amount


@dataclass(frozen=True, slots=True)
class Term:
    """A condition of the job's Requirements. `alone`: slots that satisfy it; `together`: those that satisfy it and all
    before it."""

    text: str
    alone: int
    together: int


@dataclass(frozen=True, slots=True)
class SlotTerm:
    """A condition in the Requirements of `slots` slots, of which `accept` take the job as far as it goes. `rejects`: of
    the slots that satisfy the job (of all, if none does), those for which it is the first condition that fails."""

    text: str
    slots: int
    accept: int
    rejects: int


@dataclass(frozen=True, slots=True)
class Change:
    """`action`: "set" an attribute of the job, "change" or "drop" a condition of its Requirements. `what`: the
    attribute or the condition; `to`: the new value or condition, "" when dropped; `was`: an attribute's value now."""

    action: str
    what: str
    to: str = ""
    was: str = ""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Changes to be made together, and how many more slots would then suit, free or not."""

    changes: tuple[Change, ...]
    gains: int


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why the negotiator gave the job nothing in the last cycle that looked at it. `at`: seconds since 1970, 0: not
    known. `counts`: slots by the cause that came first, where known."""

    reason: str
    code: str = ""
    at: float = 0.0
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobReport:
    """All about one job. `verdict`: one sentence for who reads only one. `blocked_by`: what has to be lifted before a
    cycle matches it, see reasons.blockers; empty: nothing, or it is not idle. `outcomes` has the codes of reasons.SLOTS
    that occur and sums up to `slots`; `users`: who has the slots that suit but are busy, with how many; `short`: what
    is short on slots in use, see reasons.Amount; `capacity`: slots that suit, partitionable ones taken as empty,
    whoever has them now; `unadvertised`: attributes that its Requirements read and that no slot here ever has, though
    HTCondor's do, with the reason."""

    job: str
    state: str  # idle, running, held, ...: JobStatus in words
    verdict: str
    blocked_by: tuple[str, ...] = ()
    slots: int = 0
    capacity: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    terms: tuple[Term, ...] = ()
    slot_terms: tuple[SlotTerm, ...] = ()
    users: Mapping[str, int] = field(default_factory=dict)
    short: tuple[Amount, ...] = ()
    owner_state: int = 0  # slots that do not accept the job and are in state Owner
    suggestions: tuple[Suggestion, ...] = ()
    last: Rejection | None = None
    also: int = 0  # further jobs like this one (same autocluster and state)
    unadvertised: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """A request seen from a slot. `job`: the first of its `count` jobs; `fails`: conditions that are not true, the
    job's or the slot's own (`side`); none: the slot would take it."""

    job: str
    submitter: str
    count: int
    fits: bool
    side: str = ""  # "job" or "slot"
    fails: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotReport:
    """All about one slot, and what it would take of what waits."""

    slot: str
    state: str
    verdict: str
    requests: tuple[Request, ...] = ()
    jobs: int = 0  # idle jobs that were looked at
    fits: int = 0  # of these, the slot would take so many, one or the other


def to_map(report: JobReport | SlotReport) -> dict[str, Any]:
    """For JSON and messages."""
    return _plain(asdict(report))  # type: ignore[no-any-return]  # a dataclass becomes a dict


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else value
