"""What the negotiator knows of the pool between cycles: slots, their claim ids, submitters. Fed by the bus, loaded from
Redis on becoming active; a cycle starts with this data in hand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from services.negotiator.cycle import slot_weight
from services.negotiator.pool import CycleConfig, Matched, Slot
from services.negotiator.usage import charged_to
from shared.classad import ClassAd, evaluate

#: States in which somebody else has the slot.
_TAKEN = ("Claimed", "Preempting")


@dataclass(frozen=True, slots=True)
class Submitter:
    """A submitter at one schedd."""

    name: str
    schedd: str  # inbox
    idle: int
    running: int


@dataclass(slots=True)
class _Pending:
    """Matches on their way: the slot is not offered again until its startd was asked for all of them, or `until`."""

    submitter: str
    weight: float  # of one job
    left: int  # jobs for which the startd was not asked yet, as far as its ads tell
    until: float


@dataclass(slots=True)
class SlotTable:
    """Slots by name in the order they were first heard of, and what is pending on them."""

    ads: dict[str, ClassAd] = field(default_factory=dict)
    claims: dict[str, str] = field(default_factory=dict)  # slot -> claim id
    pending: dict[str, list[_Pending]] = field(default_factory=dict)

    def put(self, name: str, ad: ClassAd) -> bool:
        """A new ad of a slot. True when a cycle may find room on the slot that the last one did not."""
        old = self.ads.get(name)
        self.ads[name] = ad
        room = _room(ad)
        if old is None:
            return True
        if name in self.pending:
            self._asked(name, old, ad)
            return name not in self.pending and room > 0
        return room > _room(old)

    def _asked(self, name: str, old: ClassAd, ad: ClassAd) -> None:
        """Cross off the matches for which the startd was asked between two ads. RoostClaims counts that, so a job that
        came and went between them is noticed too."""
        before, after = old.eval("RoostClaims"), ad.eval("RoostClaims")
        if not isinstance(before, int) or not isinstance(after, int) or after < before:
            del self.pending[name]  # a startd that does not count, or another life of it
            return
        asked = after - before
        waiting = self.pending[name]
        while waiting and asked >= waiting[0].left:
            asked -= waiting.pop(0).left
        if waiting:
            waiting[0].left -= asked
        else:
            del self.pending[name]

    def drop(self, name: str) -> None:
        self.ads.pop(name, None)
        self.claims.pop(name, None)
        self.pending.pop(name, None)

    def matched(self, match: Matched, until: float) -> None:
        pending = _Pending(match.submitter, match.weight / match.count, match.count, until)
        self.pending.setdefault(match.slot, []).append(pending)

    def unmatched(self, match: Matched, count: int | None = None) -> bool:
        """The schedd did not take so many jobs (None: all) of the match. True when the slot can be offered again."""
        waiting = self.pending.get(match.slot)
        left = match.count if count is None else count
        if waiting is None or left <= 0:
            return False
        for pending in [p for p in waiting if p.submitter == match.submitter]:
            less = min(left, pending.left)
            pending.left -= less
            left -= less
            if not pending.left:
                waiting.remove(pending)
        if waiting:
            return False
        del self.pending[match.slot]
        return True

    def next_end(self) -> float | None:
        """When the first match on its way is given up; None when there is none."""
        return min((p.until for waiting in self.pending.values() for p in waiting), default=None)

    def expire(self, now: float) -> bool:
        """Give up matches that no startd was asked for. True when slots can be offered again."""
        before = len(self.pending)
        for name, waiting in list(self.pending.items()):
            waiting[:] = [p for p in waiting if p.until > now]
            if not waiting:
                del self.pending[name]
        return len(self.pending) < before

    def offered(self, config: CycleConfig) -> list[Slot]:
        """Slots for a cycle: those that pass the slot constraint and have no match on its way."""
        return [
            Slot(
                name=name,
                ad=ad,
                weight=slot_weight(ad, config),
                startd=_text(ad, "MyAddress"),
                claim_id=self.claims.get(name, ""),
                partitionable=ad.eval("PartitionableSlot") is True,
                state=_text(ad, "State"),
            )
            for name, ad in self.ads.items()
            if name not in self.pending
            and (config.slot_constraint is None or evaluate(config.slot_constraint, ad) is True)
        ]

    def in_use(self, config: CycleConfig) -> dict[str, tuple[float, int]]:
        """Submitter -> (weighted slots, slots) in use now, matches on their way included."""
        use: dict[str, tuple[float, int]] = {}

        def add(submitter: str, weight: float) -> None:
            weighted, count = use.get(submitter, (0.0, 0))
            use[submitter] = (weighted + weight, count + 1)

        for ad in self.ads.values():
            if submitter := charged_to(ad, discount_suspended=config.discount_suspended):
                add(submitter, slot_weight(ad, config))
        for waiting in self.pending.values():
            for match in waiting:
                for _ in range(match.left):
                    add(match.submitter, match.weight)
        return use

    def total_weight(self, config: CycleConfig) -> float:
        """Weight of the whole pool, used or not, as far as it counts for shares (NEG-35)."""
        return sum(
            slot_weight(ad, config)
            for ad in self.ads.values()
            if config.poolsize_constraint is None or evaluate(config.poolsize_constraint, ad) is True
        )


def submitters(ads: Iterable[ClassAd]) -> list[Submitter]:
    """Submitter ads that can be talked to, in a stable order."""
    found = [
        Submitter(
            name=_text(ad, "Name"),
            schedd=_text(ad, "ScheddIpAddr"),
            idle=_count(ad, "IdleJobs"),
            running=_count(ad, "RunningJobs"),
        )
        for ad in ads
    ]
    return sorted((s for s in found if s.name and s.schedd), key=lambda s: (s.name, s.schedd))


def by_schedd(wanted: Iterable[Submitter]) -> Mapping[str, list[str]]:
    """Names of submitters with idle jobs, by the schedd to ask."""
    grouped: dict[str, list[str]] = {}
    for submitter in wanted:
        if submitter.idle > 0:
            grouped.setdefault(submitter.schedd, []).append(submitter.name)
    return grouped


def _room(ad: ClassAd) -> float:
    """A rough measure of what a slot can take: more than before means a cycle may find something."""
    if ad.eval("PartitionableSlot") is True:
        cpus = ad.eval("Cpus")
        return float(cpus) if isinstance(cpus, int | float) else 0.0
    return 0.0 if _text(ad, "State") in _TAKEN else 1.0


def _text(ad: ClassAd, name: str) -> str:
    value = ad.eval(name)
    return value if isinstance(value, str) else ""


def _count(ad: ClassAd, name: str) -> int:
    value = ad.eval(name)
    return int(value) if isinstance(value, int | float) and 0 < value < math.inf else 0
