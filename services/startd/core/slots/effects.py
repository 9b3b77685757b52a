"""What an operation of the slot manager means for the world: returned by it, carried out by the daemon
(services.startd.effects)."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.startd.core.slots.drain import Completion
from services.startd.core.slots.model import Claim, WaitingClaim


@dataclass(frozen=True, slots=True)
class ClaimEnd:
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
    """A run is to be suspended, or continued. `suspensions`: how often it was suspended so far."""

    run: str
    suspended: bool
    suspensions: int


@dataclass(slots=True)
class SlotEffects:
    """Effects of one operation, or of several after each other. True where there are any."""

    slots: set[str] = field(default_factory=set)  # whose ads changed, by name
    gone: set[str] = field(default_factory=set)  # dynamic slots that are no more
    claims: dict[str, Claim | None] = field(default_factory=dict)  # to be written down, or (None) forgotten
    waiting: dict[str, WaitingClaim | None] = field(default_factory=dict)  # likewise
    ended: list[ClaimEnd] = field(default_factory=list)
    ready: list[Claim] = field(default_factory=list)  # claims that waited, and have their slot now
    stops: list[StopRun] = field(default_factory=list)
    suspensions: list[Suspension] = field(default_factory=list)
    machine_orders: bool = False  # they are others: to be written down
    clock_set: bool = False  # what slots tell of claims that are over is another: to be written down
    completed: Completion | None = None  # a drain is complete, and this is to follow

    def __bool__(self) -> bool:
        lists = (self.slots, self.gone, self.claims, self.waiting, self.ended, self.ready, self.stops, self.suspensions)
        return self.machine_orders or self.completed is not None or any(lists)

    def add(self, later: SlotEffects) -> None:
        """Take in the effects of a later operation, so that both are carried out at once."""
        self.slots = (self.slots | later.slots) - later.gone
        self.gone |= later.gone
        self.claims |= later.claims
        self.waiting |= later.waiting
        self.ended += later.ended
        self.ready += later.ready
        self.stops += later.stops
        self.suspensions += later.suspensions
        self.machine_orders |= later.machine_orders
        self.clock_set |= later.clock_set
        self.completed = later.completed or self.completed
