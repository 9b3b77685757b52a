"""A request that is being served, and the slots found for it."""

from __future__ import annotations

from dataclasses import dataclass

from engine.match.model import Request
from engine.match.preemption import PslotOffer
from engine.match.slot_arrays import Floats, RowNumbers
from shared.classad import ClassAd
from shared.job_limits import Wanted


@dataclass(slots=True)
class MatchList:
    """The best slots for a request, best first. level: their reason by row, None: nobody uses any of them. complete:
    there are no others. epoch: of the arrays, for lists with partitionable slots, which grow old. pslot_offers: by row,
    those that take preemption of dynamic slots; None: the job may preempt none of them, now or later."""

    rows: RowNumbers
    level: Floats | None
    complete: bool
    epoch: int | None
    pslot_offers: dict[int, PslotOffer] | None = None


@dataclass(slots=True)
class OpenRequest:
    """A request and how many of its jobs still ask.

    ad: the job's ad with what only the cycle knows. wants: of concurrency limits; None: that depends on the slot.
    cause: why the rest got nothing in its last turn.
    """

    submitter: str
    request: Request
    left: int
    ad: ClassAd
    wants: Wanted | None
    match_list: MatchList | None = None
    cause: str = ""
    last: int = -1  # with NEGOTIATOR_DEPTH_FIRST the machine that is being filled
    ranks: Floats | None = None  # its Rank of each row, as its list was made; None: the same for all

    def rank_of(self, row: int) -> float:
        return float(self.ranks[row]) if self.ranks is not None and row < len(self.ranks) else 0.0
