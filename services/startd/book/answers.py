"""What the startd's book is asked, what it answers, and what the shell is to do about a change."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.startd.book.draining import Completion
from services.startd.book.slots import Claim, Slot, Waiting


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    request_id: str
    claim_id: str
    slot: str
    schedd: str
    submitter: str
    job_ad: bytes
    lease_s: float
    alive_interval_s: int
    epoch: int
    shard: str = ""
    concurrency_limits: str = ""
    preempts: tuple[tuple[str, str], ...] = ()  # dynamic slots to be preempted for it: (name, claim id)

    def claim(self, slot: str, claim_id: str, now: float) -> Claim:
        """What it becomes when it is granted, or accepted."""
        return Claim(
            claim_id=claim_id,
            slot=slot,
            schedd=self.schedd,
            submitter=self.submitter,
            request_id=self.request_id,
            lease_s=self.lease_s,
            alive_interval_s=self.alive_interval_s,
            job_ad=self.job_ad,
            made_at=now,
            epoch=self.epoch,
            shard=self.shard,
            concurrency_limits=self.concurrency_limits,
        )


@dataclass(frozen=True, slots=True)
class Granted:
    slot: Slot
    claim: Claim
    leftover: Slot | None = None
    again: bool = False  # granted earlier, asked again


@dataclass(frozen=True, slots=True)
class Accepted:
    """The claim waits for its slot to empty."""

    waiting: Waiting
    again: bool = False  # accepted earlier, asked again


@dataclass(frozen=True, slots=True)
class Refused:
    code: str  # as in ClaimRefused, or "unknown-claim", "busy", "worklife" for activations
    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A claim that is over, or will never be granted."""

    claim: Claim
    reason: str
    broken: bool = False  # its schedd did not ask for that, and must be told (STM-57)


@dataclass(frozen=True, slots=True)
class StopRun:
    """A run is to be ended: asked to leave, or (fast) killed."""

    run: str
    reason: str
    code: int  # VacateReasonCode
    fast: bool
    hold: tuple[str, int] | None = None  # the job is to be held, with this reason and subcode (WANT_HOLD)


@dataclass(frozen=True, slots=True)
class Suspension:
    """A run is to stand still, or to go on. `suspensions`: how often it was told to stand still so far."""

    run: str
    suspended: bool
    suspensions: int


@dataclass(slots=True)
class Changes:
    slots: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    claims: dict[str, Claim | None] = field(default_factory=dict)  # to be kept, or (None) forgotten
    waiting: dict[str, Waiting | None] = field(default_factory=dict)  # likewise
    ended: list[Ended] = field(default_factory=list)
    ready: list[Claim] = field(default_factory=list)  # claims that waited, and have their slot now
    stops: list[StopRun] = field(default_factory=list)
    suspensions: list[Suspension] = field(default_factory=list)
    steering: bool = False  # orders for the whole machine are others: to be kept
    completed: Completion | None = None  # a drain is complete, and this is to follow

    def __bool__(self) -> bool:
        lists = (self.slots, self.gone, self.claims, self.waiting, self.ended, self.ready, self.stops, self.suspensions)
        return self.steering or self.completed is not None or any(lists)
