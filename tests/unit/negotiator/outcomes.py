"""What a cycle came to, in a form in which the cycle and its plain twin can be compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.match.model import Result, Snapshot


@dataclass(frozen=True, order=True)
class Gift:
    """Jobs of one autocluster at one schedd on one slot, as both cycles are compared by. `weight` to nine digits."""

    submitter: str
    schedd: str
    autocluster: int
    slot: str
    count: int
    weight: float
    reason: str
    preempts: tuple[str, ...]
    limits: str


@dataclass(frozen=True)
class Outcome:
    """What a cycle came to. gifts: in any order. left: (submitter, number of the request among the submitter's, jobs
    that got nothing), of those with some. codes: why, in the same order; they are there to be read."""

    gifts: tuple[Gift, ...]
    left: tuple[tuple[str, int, int], ...]
    codes: tuple[str, ...] = field(compare=False)


#: What jobs have in common that count as one gift: all of a Gift but count and weight.
Key = tuple[str, str, int, str, str, tuple[str, ...], str]


def gifts_of(jobs: Mapping[Key, int], weights: Mapping[Key, float]) -> tuple[Gift, ...]:
    return tuple(
        sorted(
            Gift(submitter, schedd, autocluster, slot, count, round(weights[key], 9), reason, preempts, limits)
            for key, count in jobs.items()
            for submitter, schedd, autocluster, slot, reason, preempts, limits in (key,)
        )
    )


def outcome_of(result: Result, snapshot: Snapshot) -> Outcome:
    """What `negotiate` gave, made comparable."""
    jobs: dict[Key, int] = {}
    weights: dict[Key, float] = {}
    for one in result.matches:
        asked = one.request
        key = (one.submitter, asked.schedd, asked.autocluster, one.slot, one.reason, one.preempts, one.limits)
        jobs[key] = jobs.get(key, 0) + one.count
        weights[key] = weights.get(key, 0.0) + one.weight
    left = []
    for no in result.rejections:
        place = next(i for i, request in enumerate(snapshot.requests[no.submitter]) if request is no.request)
        left.append((no.submitter, place, no.left, no.code))
    left.sort()
    return Outcome(
        gifts_of(jobs, weights), tuple((name, i, n) for name, i, n, _ in left), tuple(code for *_, code in left)
    )
