"""Which slots suit a request, best first, and why the others do not (spec rows NEG-18 to NEG-25)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from services.negotiator.pool import CycleConfig, Request, Slot
from shared.classad import UNDEFINED, ClassAd, evaluate, half_match
from shared.classad.expr import Expr

#: What each reason code means, for people. `%d` is the number of slots.
REASONS = {
    "claimed": "are busy",
    "job-requirements": "do not satisfy the job's Requirements",
    "slot-requirements": "do not accept the job (their START or Requirements)",
    "offline": "are offline",
    "no-claim-id": "have not sent their claim id yet",
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A slot that suits. `key` sorts ascending, best first."""

    key: tuple[float, float, float]
    index: int  # into the pool's slots: the last tie-break, so equal slots go in the order of the table


def number(value: object) -> float:
    """A rank as a number: booleans count 1 and 0, everything that is no number counts 0.0 (CLA-25)."""
    if isinstance(value, bool | int | float):
        result = float(value)
        return 0.0 if math.isnan(result) else result
    return 0.0


def rank_of(expr: Expr | None, my: ClassAd, target: ClassAd, now: float) -> float:
    return 0.0 if expr is None else number(evaluate(expr, my, target, now))


def obstacle(request: Request, slot: Slot, ad: ClassAd, now: float) -> str:
    """Empty when the slot, as `ad` shows it now, suits the request; else a key of REASONS."""
    if not slot.partitionable and slot.state in ("Claimed", "Preempting"):
        return "claimed"
    if not half_match(request.ad, ad, now=now):
        return "job-requirements"
    if not half_match(ad, request.ad, now=now):
        return "slot-requirements"
    if ad.eval("Offline") is True:
        return "offline"
    return "" if slot.claim_id else "no-claim-id"


def rank(request: Request, ad: ClassAd, config: CycleConfig, now: float) -> tuple[float, float, float]:
    """Sort key of a suitable slot: PRE_JOB_RANK, the job's Rank, POST_JOB_RANK, higher is better (NEG-21)."""
    return (
        -rank_of(config.pre_job_rank, ad, request.ad, now),
        -number(request.ad.eval("Rank", ad, now)),
        -rank_of(config.post_job_rank, ad, request.ad, now),
    )


def candidates(
    request: Request, slots: Sequence[Slot], ads: Sequence[ClassAd | None], config: CycleConfig, now: float
) -> tuple[list[Candidate], Counter[str]]:
    """Suitable slots, best first, and how many of the others failed for which reason. `ads[i]` is how slots[i] stands
    now (a partitionable slot shrinks during the cycle), or None once it was given away."""
    found: list[Candidate] = []
    failed: Counter[str] = Counter()
    for index, (slot, ad) in enumerate(zip(slots, ads, strict=True)):
        if ad is None:
            failed["claimed"] += 1
            continue
        problem = obstacle(request, slot, ad, now)
        if problem:
            failed[problem] += 1
        else:
            found.append(Candidate(rank(request, ad, config, now), index))
    found.sort(key=lambda c: (c.key, c.index))
    return found, failed


def explain(failed: Counter[str], total: int) -> str:
    """One sentence: how many slots there are and where they failed."""
    if total == 0:
        return "there are no slots in the pool"
    parts = [f"{count} {REASONS[code]}" for code, count in failed.most_common()]
    return f"of {total} slots, " + ", ".join(parts) if parts else f"all {total} slots suit"


def carve(ad: ClassAd, request: ClassAd) -> ClassAd | None:
    """A partitionable slot's ad after the request was taken from it, or None if it does not fit.

    Amounts are rounded as the startd rounds by default (SLT-18): whole cpus, 128 MiB, 1 MiB of disk (1024 KiB), custom
    resources as asked; where rounding would not fit, the plain request is tried, as the startd does.
    """
    taken: dict[str, int | float] = {}
    for resource, quantum, default in (("Cpus", 1, 1), ("Memory", 128, 0), ("Disk", 1024, 0)):
        have = ad.eval(resource)
        if not isinstance(have, int | float):
            continue
        asked = request.eval(f"Request{resource}", ad)
        if isinstance(asked, float) and not math.isfinite(asked):
            return None  # infinity fits nowhere, and NaN is no amount
        # As the startd reads it: who asks for less than nothing asks for nothing.
        amount = max(0, math.ceil(asked)) if isinstance(asked, int | float) and not isinstance(asked, bool) else default
        rounded = -(-amount // quantum) * quantum
        use: int | float = rounded if rounded <= have else amount
        if use > have:
            return None
        taken[resource] = use
    names = ad.eval("MachineResources")
    for resource in str(names).split() if names is not UNDEFINED else ():
        if resource in ("Cpus", "Memory", "Disk", "Swap"):
            continue
        have, asked = ad.eval(resource), request.eval(f"Request{resource}", ad)
        if not isinstance(asked, int | float) or isinstance(asked, bool) or not asked > 0:
            continue
        if not isinstance(have, int | float) or asked > have:
            return None
        taken[resource] = asked
    left = ad.copy()
    for resource, use in taken.items():
        have = ad.eval(resource)
        assert isinstance(have, int | float)
        left[resource] = have - use
    return left
