"""What slots were claimed for, as the startds' own books say at every change, and what nobody could know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.fairshare.accounting_clock import SLOWEST_WRITE_S
from services.negotiator.clock_offsets import CLOCK_S
from services.startd.core.slots.model import Claim, Slot
from services.startd.core.slots.slot_manager import SlotManager
from services.startd.core.slots.slot_table import PAST_S, SlotTable

#: After so long others have the first ads of a startd that began, seconds.
HEARD_S = 1.0


@dataclass(slots=True)
class Claimed:
    host: str
    user: str
    cpus: float
    began: float
    ended: float | None = None
    perhaps_until: float = 0.0  # until when others may have taken it for one, though its startd has forgotten it
    vague_s: float = 0.0  # when it began and ended nobody can know better than this

    def least(self) -> float:
        assert self.ended is not None
        return self.cpus * max(0.0, self.ended - self.began - self.vague_s)

    def most(self) -> float:
        assert self.ended is not None
        length = self.ended - self.began
        return self.cpus * (max(length, self.perhaps_until - self.began) + min(length, self.vague_s))


class Usage:
    """Every claim there ever was. `time()`: seconds of the simulation."""

    def __init__(self, time: Callable[[], float]) -> None:
        self.time = time
        self.claims: dict[str, Claimed] = {}  # by claim id
        self.moves_with_clocks = False  # a startd's clock that is set is no excuse
        self.slack_s = 0.0  # core-seconds that a wrong clock makes
        #: The same, of a leader's clock, where nobody noted by another clock when the accounting records were written.
        self.unnoted_s = 0.0
        self.notes_lost = False
        #: By host: when its clock was set back, and by how much. Messages seem late then, and are believed to be; who
        #: takes over meanwhile knows better, and its ends do not go with the other's beginnings.
        self.set_back: dict[str, tuple[float, float]] = {}
        self.fog: list[tuple[float, float, float]] = []  # since when, until when, how late messages may be

    def watch(self, host: str, table: SlotTable) -> None:
        """Hear of every claim of a startd from its first moment on."""
        occupy, end_claim = table.occupy, table.end_claim

        def occupied(slot: Slot, claim: Claim) -> None:
            occupy(slot, claim)
            user = claim.accounting_group or claim.submitter
            known = self.claims.setdefault(claim.claim_id, Claimed(host, user, float(slot.total["Cpus"]), self.time()))
            known.ended, known.perhaps_until = None, 0.0
            set_at, back_s = self.set_back.get(host, (-CLOCK_S, 0.0))
            if self.time() - set_at < CLOCK_S:
                known.vague_s = max(known.vague_s, back_s)

        def ended(slot: Slot, now: float, *, broken: bool) -> None:
            assert slot.claim is not None
            self.claims[slot.claim.claim_id].ended = self.time()
            end_claim(slot, now, broken=broken)

        table.occupy, table.end_claim = occupied, ended  # type: ignore[method-assign]

    def lives(self, host: str, manager: SlotManager) -> None:
        """A startd is there again, with what it had written down."""
        now = self.time()
        for claim_id, claim in self.claims.items():
            if claim.host == host and claim.ended is None and claim_id not in manager.claims:
                # It was never written down, or the machine has no room for it any more: others hear of that a little
                # later, with its next ads.
                claim.ended, claim.perhaps_until = claim.began, now + HEARD_S

    def stepped(self, host: str, seconds: float) -> None:
        """A startd's clock was set: what it says next of claims that there were before is that wrong."""
        if self.moves_with_clocks:
            return
        if seconds < 0:
            self.set_back[host] = self.time(), -seconds
        cores = sum(one.cpus for one in self.claims.values() if one.host == host and one.ended is None)
        self.slack_s += abs(seconds) * cores
        # It goes on telling of claims that are over, by the clock that it had then.
        for claim in self.claims.values():
            if claim.host == host and claim.ended is not None and self.time() - claim.ended < PAST_S:
                claim.vague_s += abs(seconds)

    def leader_stepped(self, seconds: float, cores: int) -> None:
        """The clock of one that may lead was set, in a pool of so many cores. Redis notes by its own when accounting
        records were written, so who takes over finds that out, unless it may as well have been a slow write."""
        wrong_s = abs(seconds) * cores
        if abs(seconds) <= SLOWEST_WRITE_S:
            self.slack_s += wrong_s
        else:
            self.unnoted_s += wrong_s

    def slack(self) -> float:
        """Core-seconds by which anybody may be charged too much or too little for the sake of wrong clocks."""
        return self.slack_s + (self.unnoted_s if self.notes_lost else 0.0)

    def begins_in_fog(self, until: float, late_s: float) -> None:
        """A negotiator begins while messages are late. As long as it heard no other one it can not tell that from a
        clock that is behind, so all that it hears of is over later, or began later, than it was."""
        self.fog.append((self.time(), until, late_s))

    def bounds(self) -> dict[str, tuple[float, float]]:
        """By user: the least and the most core-seconds that may be charged."""
        found: dict[str, tuple[float, float]] = {}
        for claim in self.claims.values():
            least, most = found.get(claim.user, (0.0, 0.0))
            assert claim.ended is not None
            vague = [s for since, until, s in self.fog if claim.began < until + s and since - PAST_S < claim.ended]
            known = replace(claim, vague_s=claim.vague_s + max(vague, default=0.0))
            found[claim.user] = (least + known.least(), most + known.most())
        return found
