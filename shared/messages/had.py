"""Between a HAD and the negotiator it controls (inbox `negotiator.<name>`, HAD_CONTROLLEE)."""

from __future__ import annotations

from typing import ClassVar

from shared.messages.base import Message, Part, message


@message
class Lead(Message):
    """Be the active negotiator under this epoch. Repeated well before the lease ends; a negotiator whose lease ran out
    stops deciding by itself, whoever may still hear it.

    An order may wait at the broker for seconds, so the lease counts by the negotiator's own clock: it ends `span_s`
    after the moment `stamp` of its life `life`, which the HAD has from its last answer. A HAD of an earlier version
    says none of these (`life` is empty); then it ends lease_s after the order came."""

    type: ClassVar[str] = "had.lead"
    had: str
    epoch: int
    lease_s: float
    life: str = ""
    stamp: float = 0.0
    span_s: float = 0.0


@message
class StepDown(Message):
    """Cease to be the active negotiator now: finish nothing, hand over (answer: Following with active False)."""

    type: ClassVar[str] = "had.step-down"
    had: str
    epoch: int
    reason: str


@message
class HandedOver(Message):
    """From a HAD that led to the one it gave the lease to, which needs only look to see it. Answer: Ack."""

    type: ClassVar[str] = "had.handed-over"
    had: str  # who led
    epoch: int  # under which the receiver leads


@message
class Following(Message):
    """What the negotiator says of itself; also tells the HAD that it is not hung."""

    type: ClassVar[str] = "had.following"
    negotiator: str
    active: bool
    epoch: int
    cycle: int
    # version of the accountant's books that it has in memory: epoch, count (shared.accounting_version)
    books: list[int] = []
    cut_off: bool = False  # it can not reach Redis: it could neither charge nor read
    life: str = ""  # unique for each start of the negotiator; empty: one of an earlier version
    stamp: float = 0.0  # its monotonic clock, when it said this


@message
class AskHad(Message):
    """Request to a HAD's inbox: how do you stand? The answer is HadStanding."""

    type: ClassVar[str] = "had.ask"


class Change(Part):
    """A change of the lead, as this HAD heard of it."""

    at: float
    had: str
    state: str  # leader, passive
    epoch: int
    reason: str


@message
class HadStanding(Message):
    """What a HAD knows at this moment. Versions of books are epoch.count, `-` where there are none."""

    type: ClassVar[str] = "had.standing"
    had: str
    shard: str
    state: str  # Pre, Passive, Election, Leader
    epoch: int  # highest ever heard of
    leader: str  # empty: nobody, as far as it knows
    since: float  # seconds since 1970: when it came to this state
    lease_left_s: float  # of its own lead; 0 for all others
    lease_s: float = 0.0  # how long its leases are at present
    answering: bool  # whether its negotiator answers
    held_back_s: float  # for how long it stands behind all others, as its negotiator keeps dying
    books: str  # newest version known
    in_redis: str  # as Redis had it last
    memory: str  # its negotiator's
    snapshot: str  # of its copy on disk
    snapshot_taken: float  # seconds since 1970; 0: there is none
    snapshot_file: str  # empty: HAD_USE_REPLICATION is false
    problem: str  # why there is no newer copy; empty: all is well
    had_list: list[str]
    changes: list[Change]  # newest first
