"""Why a request got nothing, or less than it asked: counts of slots by the first cause that kept them from it.

Every cycle counts, so it must be cheap: the masks of conditions are those that the cycle has evaluated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import Final

import numpy as np

from engine.fairshare.group_negotiation import GroupResult
from engine.match.budget import TOLERANCE
from engine.match.concurrency_limits import explain as explain_limit
from engine.match.matchmaker import Matchmaker
from engine.match.model import Rejected
from engine.match.open_request import OpenRequest
from engine.match.slot_arrays import Bools, Floats
from engine.reasons import CODES, NEVER, Amount, amounts, explained, nearest, slots, wait
from shared.classad import ClassAd
from shared.classad.budget import TooExpensive
from shared.classad.columnar import OTHER_SIDE, Conjunct
from shared.classad.columnar.column import BOOL, OTHER
from shared.classad.expr import fold

#: Policies named for each request; a pool may have thousands.
_MOST: Final = 20


def rejections(matchmaker: Matchmaker, plans: Sequence[GroupResult]) -> tuple[Rejected, ...]:
    """A rejection for each request with jobs left. plans: what came of the groups."""
    full = full_groups(matchmaker, plans)
    return tuple(
        _rejected(matchmaker, open_request, full)
        for asked in matchmaker.open_requests.values()
        for open_request in asked
        if open_request.left > 0
    )


def full_groups(matchmaker: Matchmaker, plans: Sequence[GroupResult]) -> frozenset[str]:
    """Groups whose quota leaves no room for any slot. (The lightest may weigh nothing, of which all is in use.)"""
    return frozenset(
        plan.group
        for plan in plans
        if matchmaker.tree and plan.allocated - plan.in_use < max(matchmaker.finder.lightest, TOLERANCE)
    )


def _rejected(matchmaker: Matchmaker, open_request: OpenRequest, full: Container[str]) -> Rejected:
    total = matchmaker.arrays.size
    cause = open_request.cause or "no-match"
    code, _, name = cause.partition(":")
    found = _counted(matchmaker, open_request)
    if found is None:
        reason = f"the time for {open_request.submitter} in this cycle was over"
        if code != "out-of-time":
            reason = f"{CODES[code]}; {reason} before its slots were counted"
        return Rejected(
            open_request.submitter, open_request.request, open_request.left, code, reason, Counter(), Counter()
        )
    counts, details, short = found
    if code == "no-match" and not counts.get("free") and counts.get("taken"):
        code = "taken"
    suited = counts.get("free", 0) + counts.get("taken", 0)
    suit = f"{suited} of {slots(total)} {'suits' if suited == 1 else 'suit'}"
    if (
        counts.get("free")
        and code in ("share", "no-match")
        and matchmaker.tree.group_of(open_request.submitter) in full
    ):
        code = "quota"
    elif not suited and (code == "share" or (code in ("limit", "ceiling") and nearest(counts) in ("", *NEVER))):
        code = "no-match"  # that is what has to change first
    if code == "limit":
        limit = matchmaker.counters
        reason = explain_limit(limit.config, name, limit.in_use.get(name, 0.0))
        if not suited:
            reason += f"; besides, it {wait(counts, short)}"
    elif code == "share":
        reason = f"{suit}, but {open_request.submitter} has used up its share of the pool for this cycle"
    elif code == "quota":
        reason = f"{suit}, but the group of {open_request.submitter} has used up its quota"
    elif code == "ceiling":
        reason = f"{suit}, but {open_request.submitter} is at its ceiling"
        if not suited:
            reason = f"{open_request.submitter} is at its ceiling; besides, it {wait(counts, short)}"
    elif code == "out-of-time":
        reason = f"the time for {open_request.submitter} in this cycle was over"
    elif code == "taken":
        reason = f"{suit}, but {'was' if suited == 1 else 'were'} given to other jobs in this cycle"
    else:
        spared = (
            matchmaker.finder.preemption is not None
            and details["claimed:not preferred"] == counts.get("claimed", 0) > 0
        )
        reason = explained(counts, total, short, spared=spared)
    return Rejected(open_request.submitter, open_request.request, open_request.left, code, reason, counts, details)


def _counted(
    matchmaker: Matchmaker, open_request: OpenRequest
) -> tuple[Counter[str], Counter[str], tuple[Amount, ...]] | None:
    """As `count`; None where the time of the request's submitter or schedd does not suffice."""
    limits = matchmaker.time_limits
    matchmaker.asks(open_request.submitter)
    try:
        with limits.afterwards(open_request.submitter, open_request.request.schedd):
            return count(matchmaker, open_request)
    except TooExpensive:
        return None


def count(matchmaker: Matchmaker, open_request: OpenRequest) -> tuple[Counter[str], Counter[str], tuple[Amount, ...]]:
    """Slots by the first cause; by cause with a detail; and what slots in use have too little of."""
    arrays = matchmaker.arrays
    counts: Counter[str] = Counter()
    details: Counter[str] = Counter()
    rest = np.ones(arrays.size, np.bool_)
    left = arrays.size

    def lost(code: str, detail: str) -> None:
        """Count what is no more left since the last time under a cause."""
        nonlocal left
        before, left = left, int(np.count_nonzero(rest))
        if left < before:
            counts[code] += before - left
            if detail:
                details[f"{code}:{detail}"] += before - left

    def out(code: str, rows: Bools, detail: str = "") -> None:
        np.greater(rest, rows, out=rest)
        lost(code, detail)

    def out_but(code: str, where: Conjunct) -> None:
        some = rest[where.start : where.stop]
        np.logical_and(some, where.mask, out=some)
        lost(code, where.text)

    job, matching = open_request.ad, arrays.matching
    conjuncts = matching.conjuncts(job, side=OTHER_SIDE)
    of_use = [each.expr is not None and matching.is_live(each.expr, job, OTHER_SIDE) for each in conjuncts]
    for each, is_of_use in zip(conjuncts, of_use, strict=True):
        if not is_of_use:
            out_but("job-requirements", each)
    refused = ~matchmaker.finder.suits(open_request)
    draining = arrays.frame.columns["draining"]
    if draining.tags & (1 << BOOL):
        drained = rest & refused & (draining.tag == BOOL) & (draining.number == 1)
        if drained.any():
            out("draining", drained & arrays.wanted_when_empty(job))
    short: tuple[Amount, ...] = ()
    parts = rest & arrays.partitionable
    if parts.any() and np.any(refused & (parts | arrays.parts)):
        whole = parts & arrays.suits_when_empty(job)
        in_use = whole & refused
        if in_use.any():
            short = _short(matchmaker, job, whole | (rest & ~refused & ~arrays.partitionable))
            out("in-use", in_use)
        out("claimed", refused & arrays.parts_of(whole), "part-of-machine")
    for each, is_of_use in zip(conjuncts, of_use, strict=True):
        if is_of_use:
            out_but("job-requirements", each)
    _policies(matchmaker, rest & refused, details)
    out("slot-requirements", refused)
    for code, rows in arrays.barred:
        out(code, rows)
    out("taken", arrays.taken)
    if matchmaker.finder.preemption is not None:
        for word, rows in matchmaker.finder.preemption.spared:
            out("claimed", rows, word)
        by_rank, by_priority = matchmaker.finder.preemption.offers(
            open_request.ad, open_request.submitter, matchmaker.use.eup[open_request.submitter], rest
        )
        out("claimed", arrays.held & ~(by_rank | by_priority), "not preferred")
    else:
        out("claimed", arrays.claimed)
    if arrays.resources:
        machines = np.flatnonzero(rest & arrays.partitionable)
        if len(machines):
            too_small = np.zeros(arrays.size, np.bool_)
            too_small[machines[~matchmaker.finder.has_room(open_request, machines)]] = True
            out("consumed", too_small)
    if left:
        counts["free"] = left
    return counts, details, short


def _short(matchmaker: Matchmaker, job: ClassAd, rows: Bools) -> tuple[Amount, ...]:
    """What of these slots is short for the job. What a static slot has is free while nobody has the slot."""
    arrays = matchmaker.arrays
    asked = {name: job.eval(f"Request{name}") for name in arrays.resources if fold(name) in arrays.free}
    had = (arrays.claimed | arrays.taken) & ~arrays.partitionable

    def left(name: str) -> Floats:
        return np.nan_to_num(np.where(had, 0.0, arrays.free[fold(name)].number))

    def whole(name: str) -> Floats:
        return np.nan_to_num(arrays.whole(fold(name)).number)

    return amounts(
        {name: float(one) for name, one in asked.items() if isinstance(one, int | float)},
        whole,
        left,
        rows & ~arrays.parts & ~arrays.asleep(),
    )


def _policies(matchmaker: Matchmaker, refused: Bools, details: Counter[str]) -> None:
    """Which START texts refuse the job, for slots whose Requirements do."""
    arrays = matchmaker.arrays
    if not refused.any() or "start" not in arrays.frame.columns:
        return
    column = arrays.frame.columns["start"]
    odd = refused & (column.tag == OTHER)
    if not odd.any():
        return
    number = np.bincount(column.code[odd])
    for code in np.argsort(-number, kind="stable")[:_MOST].tolist():
        if number[code]:
            details[f"slot-requirements:START = {arrays.frame.codes.expr_text(code)}"] += int(number[code])
