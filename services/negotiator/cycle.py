"""One negotiation cycle, as a pure function: who gets which slot (spec rows NEG-07 to NEG-25).

    for each submitter below its floor, best priority first: up to the floor
    repeat (a spin):
        divide the pool (later: what is free) among those still asking
        for each submitter, best priority first: hand out slots, request by request, within its slice
    until a spin hands out nothing

A partitionable slot is carved as the startd will carve it, so several jobs, of several submitters, get their part of it
in one cycle.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from services.negotiator import shares
from services.negotiator.candidates import Candidate, candidates, carve, explain, obstacle
from services.negotiator.pool import CycleConfig, Matched, Pool, Rejected, Request, Result, Slot
from services.negotiator.priorities import effective
from shared.classad import ClassAd

_NOTHING_LEFT = 1e-9
#: A heavier slot, or NaN, is a mistake: infinity on the books would stay there for ever.
_HEAVIEST = 1e9


@dataclass(slots=True)
class _Asking:
    """A request and how many of its jobs still ask."""

    request: Request
    left: int


@dataclass(slots=True)
class _Cycle:
    """The working state of one cycle; lives inside `negotiate` only."""

    pool: Pool
    config: CycleConfig
    ads: list[ClassAd | None]  # how each slot stands now
    weights: list[float]  # what is left of each slot's weight
    in_use: dict[str, float]
    asking: dict[str, list[_Asking]]
    matches: dict[tuple[str, str, int, int], Matched] = field(default_factory=dict)
    rejections: dict[tuple[str, str, int], Rejected] = field(default_factory=dict)
    lists: dict[tuple[str, int], tuple[list[Candidate], Counter[str]]] = field(default_factory=dict)
    considered: int = 0

    def free_weight(self) -> float:
        return sum(
            weight
            for weight, ad, slot in zip(self.weights, self.ads, self.pool.slots, strict=True)
            if ad is not None and (slot.partitionable or slot.state not in ("Claimed", "Preempting"))
        )

    def shortlist(self, request: Request) -> tuple[list[Candidate], Counter[str]]:
        """Candidates of the request's autocluster, computed once a cycle."""
        key = (request.schedd, request.autocluster)
        found = self.lists.get(key)
        if found is None:
            found = candidates(request, self.pool.slots, self.ads, self.config, self.pool.now)
            self.considered += len(self.pool.slots)
            self.lists[key] = found
        return found

    def serve(self, submitter: str, left: float) -> float:
        """Hand out slots to one submitter until its slice, its requests or the slots are used up. Returns the weight
        handed out."""
        given = 0.0
        for asking in self.asking[submitter]:
            while asking.left > 0:
                took = self.give_one(submitter, asking, left - given)
                if took is None:
                    break
                given += took
        return given

    def held_back(self, submitter: str) -> bool:
        """Whether the submitter could use more than its slice: only such ones share in what is left (NEG-10)."""
        return any(
            asking.left
            and self.rejections[submitter, asking.request.schedd, asking.request.autocluster].code == "share"
            for asking in self.asking[submitter]
        )

    def give_one(self, submitter: str, asking: _Asking, left: float) -> float | None:
        """Give the best affordable slot to one job of the request. None when there is none."""
        request = asking.request
        found, failed = self.shortlist(request)
        too_heavy = 0
        for position, candidate in enumerate(found):
            index = candidate.index
            slot, ad = self.pool.slots[index], self.ads[index]
            if ad is None or (slot.partitionable and obstacle(request, slot, ad, self.pool.now)):
                continue  # given away or shrunk since the list was made
            after = carve(ad, request.ad) if slot.partitionable else None
            if slot.partitionable and after is None:
                continue
            weight = self.weights[index] - self.weight_of(after) if after is not None else self.weights[index]
            if not shares.affordable(weight, left, self.in_use.get(submitter, 0.0)):
                too_heavy += 1
                continue
            self.take(submitter, asking, index, slot, after, weight)
            if after is None:
                found.pop(position)
            return weight
        self.reject(submitter, request, failed, len(found), too_heavy)
        return None

    def weight_of(self, ad: ClassAd | None) -> float:
        return slot_weight(ad, self.config) if ad is not None else 0.0

    def take(
        self, submitter: str, asking: _Asking, index: int, slot: Slot, after: ClassAd | None, weight: float
    ) -> None:
        self.ads[index] = after
        self.weights[index] -= weight
        self.in_use[submitter] = self.in_use.get(submitter, 0.0) + weight
        asking.left -= 1
        request = asking.request
        key = (submitter, request.schedd, request.autocluster, index)
        so_far = self.matches.get(key)
        count, weight_so_far = (so_far.count, so_far.weight) if so_far else (0, 0.0)
        self.matches[key] = Matched(submitter, request, slot.name, count + 1, weight_so_far + weight)

    def reject(self, submitter: str, request: Request, failed: Counter[str], suited: int, too_heavy: int) -> None:
        total = len(self.pool.slots)
        counts = Counter(failed)
        if too_heavy:
            code = "share"
            reason = (
                f"{too_heavy} of {total} slots suit, but {submitter} has used up its share of the pool for this cycle"
            )
        elif suited:
            code, reason = "taken", f"the {suited} of {total} slots that suit were given to other jobs in this cycle"
        else:
            code, reason = "no-match", explain(failed, total)
        key = (submitter, request.schedd, request.autocluster)
        self.rejections[key] = Rejected(submitter, request, 0, code, reason, counts)


def slot_weight(ad: ClassAd, config: CycleConfig) -> float:
    """SlotWeight of a slot: 1 when weights are off, missing counts its Cpus, negative or no number 1 (NEG-37)."""
    if not config.use_slot_weights:
        return 1.0
    value = ad.eval("SlotWeight") if ad.lookup("SlotWeight") is not None else ad.eval("Cpus")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _HEAVIEST:
        return 1.0
    return float(value)


def negotiate(pool: Pool, config: CycleConfig) -> Result:
    """Decide one cycle. Nothing but its arguments is looked at, and equal arguments give equal results: submitters
    go by (EUP, name), slots by (ranks, place in the table)."""
    work = _Cycle(
        pool=pool,
        config=config,
        ads=[slot.ad for slot in pool.slots],
        weights=[slot.weight for slot in pool.slots],
        in_use=dict(pool.in_use),
        asking={
            name: [_Asking(request, request.count) for request in requests]
            for name, requests in pool.requests.items()
            if requests
        },
    )
    eup = {name: effective(pool.records[name]) for name in work.asking}
    names = shares.order(list(work.asking), eup)

    for name in names:
        record = pool.records[name]
        left = shares.floor_left(record.floor, work.in_use.get(name, 0.0), record.ceiling)
        if left > 0.0:
            work.serve(name, left)

    def at_ceiling(name: str) -> bool:
        ceiling = pool.records[name].ceiling
        return 0.0 <= ceiling <= work.in_use.get(name, 0.0)

    spin = 0
    while names:
        spin += 1
        parts = shares.fractions(names, eup)
        free = work.free_weight()
        if free <= _NOTHING_LEFT:
            for name in names:  # say so to everybody who still asks
                work.serve(name, 0.0)
            break
        given = 0.0
        for name in names:
            left = shares.slice_left(
                parts[name],
                pool.total_weight,
                work.in_use.get(name, 0.0),
                free_weight=free,
                spin=spin,
                ceiling=pool.records[name].ceiling,
            )
            given += work.serve(name, left)
        names = [name for name in names if work.held_back(name) and not at_ceiling(name)]
        if given <= _NOTHING_LEFT:
            break

    unmet = {
        (name, asking.request.schedd, asking.request.autocluster)
        for name, wanted in work.asking.items()
        for asking in wanted
        if asking.left
    }
    return Result(
        matches=tuple(work.matches.values()),
        rejections=tuple(r for key, r in work.rejections.items() if key in unmet),
        spins=spin,
        considered=work.considered,
    )
