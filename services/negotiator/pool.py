"""The data a negotiation cycle is decided on. Frozen: a cycle sees one moment of the pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from services.negotiator.priorities import Record
from shared.classad import ClassAd
from shared.classad.expr import Expr


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot on offer. `weight` is SlotWeight evaluated in its ad, at least 0."""

    name: str
    ad: ClassAd
    weight: float
    startd: str  # inbox
    claim_id: str
    partitionable: bool
    state: str


@dataclass(frozen=True, slots=True)
class Request:
    """`count` jobs of one autocluster at one schedd, in that submitter's order."""

    schedd: str  # inbox
    autocluster: int
    count: int
    ad: ClassAd


@dataclass(frozen=True, slots=True)
class CycleConfig:
    """The knobs a cycle looks at. Ranks are parsed; None contributes nothing to the order (NEG-25)."""

    pre_job_rank: Expr | None = None
    post_job_rank: Expr | None = None
    slot_constraint: Expr | None = None
    poolsize_constraint: Expr | None = None
    use_slot_weights: bool = True


@dataclass(frozen=True, slots=True)
class Pool:
    """One moment of the pool."""

    slots: Sequence[Slot]
    requests: Mapping[str, Sequence[Request]]  # by submitter
    records: Mapping[str, Record]  # by submitter; those without one are new
    in_use: Mapping[str, float]  # weighted slots by submitter, of everybody
    total_weight: float  # of all slots that count for shares, used or not
    now: float  # seconds since 1970: what time() gives in every expression


@dataclass(frozen=True, slots=True)
class Matched:
    """`count` jobs of a request on one slot."""

    submitter: str
    request: Request
    slot: Slot
    count: int
    weight: float


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why (the rest of) a request got nothing, with how many slots failed where."""

    submitter: str
    request: Request
    code: str
    reason: str
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    matches: tuple[Matched, ...]
    rejections: tuple[Rejected, ...]
    spins: int
    considered: int  # slot-request pairs looked at
