"""What slots were claimed for, as the startds' own books say at every change, and what nobody could know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.startd.book.claims import Book
from services.startd.book.registry import Registry
from services.startd.book.slots import Claim, Slot


@dataclass(slots=True)
class Claimed:
    host: str
    user: str
    cpus: float
    began: float
    ended: float | None = None
    perhaps_until: float = 0.0  # until when others may have taken it for one, though its startd has forgotten it

    def least(self) -> float:
        assert self.ended is not None
        return self.cpus * (self.ended - self.began)

    def most(self) -> float:
        assert self.ended is not None
        return self.cpus * (max(self.ended, self.perhaps_until) - self.began)


class Usage:
    """Every claim there ever was. `time()`: seconds of the simulation."""

    def __init__(self, time: Callable[[], float]) -> None:
        self.time = time
        self.claims: dict[str, Claimed] = {}  # by claim id
        self.slack_s = 0.0  # core-seconds that a wrong clock makes

    def watch(self, host: str, book: Book) -> None:
        """Hear of every change of a startd's book from its first moment on."""
        registry: Registry = book._registry
        occupy, end_claim = registry.occupy, registry.end_claim

        def occupied(slot: Slot, claim: Claim) -> None:
            occupy(slot, claim)
            user = claim.accounting_group or claim.submitter
            known = self.claims.setdefault(claim.claim_id, Claimed(host, user, float(slot.total["Cpus"]), self.time()))
            known.ended, known.perhaps_until = None, 0.0

        def ended(slot: Slot, now: float, *, broken: bool) -> None:
            assert slot.claim is not None
            self.claims[slot.claim.claim_id].ended = self.time()
            end_claim(slot, now, broken=broken)

        registry.occupy, registry.end_claim = occupied, ended  # type: ignore[method-assign]

    def lives(self, host: str, book: Book) -> None:
        """A startd is there again, with what it had written down."""
        now = self.time()
        for claim_id, claim in self.claims.items():
            if claim.host == host and claim.ended is None and claim_id not in book.claims:
                claim.ended, claim.perhaps_until = claim.began, now  # it was never written down

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
