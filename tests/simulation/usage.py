"""What slots were claimed for, as the startds' own books say at every change, and what nobody could know of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from services.startd.book.claims import Book
from services.startd.book.registry import Registry
from services.startd.book.slots import Claim, Slot

#: Words of a startd that is killed may be lost if they are this young (s): they were on their way.
UNDER_WAY_S = 1.0
#: While messages get lost a later one makes it good: after UPDATE_INTERVAL and what that takes.
MADE_GOOD_S = 25.0


@dataclass(slots=True)
class Claimed:
    """A claim. Between `doubt` and `doubt_ends` nobody but a startd that died knew whether it was one."""

    host: str
    user: str
    cpus: float
    began: float
    ended: float | None = None
    doubt: float = 0.0
    doubt_ends: float = 0.0

    def least(self) -> float:
        assert self.ended is not None
        if self.doubt_ends <= self.doubt:
            return self.cpus * (self.ended - self.began)
        return self.cpus * max(0.0, min(self.ended, self.doubt) - self.began)

    def most(self) -> float:
        assert self.ended is not None
        return self.cpus * (max(self.ended, self.doubt_ends) - self.began)


class Usage:
    """Every claim there ever was. `time()`: seconds of the simulation."""

    def __init__(self, time: Callable[[], float]) -> None:
        self.time = time
        self.claims: dict[str, Claimed] = {}  # by claim id
        self._lives: dict[str, float] = {}  # by host: since when
        self.slack_s = 0.0  # core-seconds that a wrong clock makes

    def watch(self, host: str, book: Book) -> None:
        """Hear of every change of a startd's book from its first moment on."""
        registry: Registry = book._registry
        occupy, end_claim = registry.occupy, registry.end_claim

        def occupied(slot: Slot, claim: Claim) -> None:
            occupy(slot, claim)
            user = claim.accounting_group or claim.submitter
            known = self.claims.setdefault(claim.claim_id, Claimed(host, user, float(slot.total["Cpus"]), self.time()))
            known.ended, known.doubt, known.doubt_ends = None, 0.0, 0.0

        def ended(slot: Slot, now: float, *, broken: bool) -> None:
            assert slot.claim is not None
            self.claims[slot.claim.claim_id].ended = self.time()
            end_claim(slot, now, broken=broken)

        registry.occupy, registry.end_claim = occupied, ended  # type: ignore[method-assign]

    def died(self, host: str, since: float) -> None:
        """A startd is killed. What it said after `since` may not have been heard, and nobody else knows it."""
        for claim in self.claims.values():
            if claim.host == host and claim.ended is not None and claim.ended >= since:
                claim.doubt = min(claim.doubt or math.inf, claim.began if claim.began >= since else claim.ended)
                claim.doubt_ends = math.inf  # until it lives again

    def lives(self, host: str, book: Book) -> None:
        """A startd is there again, with what it had written down."""
        now = self.time()
        for claim_id, claim in self.claims.items():
            if claim.host != host:
                continue
            if claim.ended is None and claim_id not in book.claims:
                claim.ended = claim.doubt = claim.began  # it was never written down
                claim.doubt_ends = math.inf
            if claim.doubt_ends == math.inf:
                claim.doubt_ends = now + MADE_GOOD_S
        self._lives[host] = now

    def managers_died(self, since: float) -> None:
        """What they heard after `since` may not be in their books; of claims of a startd that died too nobody knows."""
        for claim in self.claims.values():
            if claim.ended is not None and since <= claim.ended < self._lives[claim.host]:
                claim.doubt = min(claim.doubt or math.inf, max(claim.began, since))
                claim.doubt_ends = max(claim.doubt_ends, claim.ended)

    def stepped(self, host: str, seconds: float) -> None:
        """A startd's clock was set: what it says next of claims that there were before is that wrong."""
        cores = sum(one.cpus for one in self.claims.values() if one.host == host and one.ended is None)
        self.slack_s += abs(seconds) * cores

    def bounds(self) -> dict[str, tuple[float, float]]:
        """By user: the least and the most core-seconds that may be charged."""
        found: dict[str, tuple[float, float]] = {}
        for claim in self.claims.values():
            least, most = found.get(claim.user, (0.0, 0.0))
            found[claim.user] = (least + claim.least(), most + claim.most())
        return found
