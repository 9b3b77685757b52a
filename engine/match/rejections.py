"""Why a request got nothing, or less than it asked: counts of slots by the first cause that kept them from it.

Every cycle counts, so it must be cheap: the masks of conditions are those that the cycle has evaluated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import Final

import numpy as np

from engine.fairshare.group_negotiation import GroupResult
from engine.match.concurrency_limits import explain as explain_limit
from engine.match.matchmaker import Matchmaker, OpenRequest
from engine.match.model import Rejected
from engine.match.slot_arrays import Bools
from shared.classad.budget import TooExpensive
from shared.classad.columnar import OTHER_SIDE, Conjunct
from shared.classad.columnar.column import BOOL, OTHER
from shared.classad.unparse import unparse

#: What keeps a slot from a request, with what is said of so many slots. The first of them that holds counts.
SLOTS: Final = {
    "in-use": "have too much in use for the job",
    "job-requirements": "do not satisfy the job's Requirements",
    "draining": "are being drained",
    "slot-requirements": "do not accept the job (their START or Requirements)",
    "offline": "sleep",
    "no-claim-id": "have not sent their claim id yet",
    "match-under-way": "are kept for a match that is on its way",
    "shutting-down": "are about to shut down",
    "taken": "were given to other jobs in this cycle",
    "claimed": "are busy",
    "consumed": "have not enough left",
    "free": "suit",
}
#: The same of one slot, by the first word.
_OF_ONE: Final = {"are": "is", "do": "does", "have": "has", "sleep": "sleeps", "suit": "suits", "were": "was"}
#: What decided about a request.
CODES: Final = {
    "no-match": "no slot suits that is free",
    "taken": "the slots that suit were given to others",
    "share": "the submitter has used up its share of the pool",
    "ceiling": "the submitter is at its ceiling",
    "quota": "the submitter's group has used up its quota",
    "limit": "a concurrency limit is reached",
    "out-of-time": "the time for this submitter, schedd or cycle was over",
}
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
    """Groups whose quota leaves no room for any slot."""
    return frozenset(
        plan.group for plan in plans if matchmaker.tree and plan.allocated - plan.in_use < matchmaker.lightest
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
    counts, details = found
    if code == "no-match" and not counts.get("free") and counts.get("taken"):
        code = "taken"
    suited = counts.get("free", 0) + counts.get("taken", 0)
    suit = f"{suited} of {_slots(total)} {'suits' if suited == 1 else 'suit'}"
    if (
        counts.get("free")
        and code in ("share", "no-match")
        and matchmaker.tree.group_of(open_request.submitter) in full
    ):
        code = "quota"
    elif code == "share" and not suited:
        code = "no-match"
    if code == "limit":
        limit = matchmaker.counters
        reason = explain_limit(limit.config, name, limit.in_use.get(name, 0.0))
    elif code == "share":
        reason = f"{suit}, but {open_request.submitter} has used up its share of the pool for this cycle"
    elif code == "quota":
        reason = f"{suit}, but the group of {open_request.submitter} has used up its quota"
    elif code == "ceiling":
        reason = f"{suit}, but {open_request.submitter} is at its ceiling"
    elif code == "out-of-time":
        reason = f"the time for {open_request.submitter} in this cycle was over"
    elif code == "taken":
        reason = f"{suit}, but {'was' if suited == 1 else 'were'} given to other jobs in this cycle"
    else:
        reason = explain(counts, total)
    return Rejected(open_request.submitter, open_request.request, open_request.left, code, reason, counts, details)


def _counted(matchmaker: Matchmaker, open_request: OpenRequest) -> tuple[Counter[str], Counter[str]] | None:
    """As `count`; None where the time of the request's submitter or schedd does not suffice."""
    limits = matchmaker.time_limits
    matchmaker.asks(open_request.submitter)
    try:
        with limits.afterwards(open_request.submitter, open_request.request.schedd):
            return count(matchmaker, open_request)
    except TooExpensive:
        return None


def count(matchmaker: Matchmaker, open_request: OpenRequest) -> tuple[Counter[str], Counter[str]]:
    """Slots by the first cause; and by cause with a detail."""
    arrays = matchmaker.arrays
    counts: Counter[str] = Counter()
    details: Counter[str] = Counter()
    rest = np.ones(arrays.size, np.bool_)

    def out(code: str, rows: Bools, detail: str = "") -> None:
        """Count these rows, as far as they are left, under a cause."""
        nonlocal rest
        lost = rest & rows
        number = int(np.count_nonzero(lost))
        if number:
            counts[code] += number
            if detail:
                details[f"{code}:{detail}"] += number
            rest = rest & ~rows

    job, matching = open_request.ad, arrays.matching
    conjuncts = [each for each in matching.conjuncts(job) if each.side == OTHER_SIDE]
    of_use = [each.expr is not None and matching.is_live(each.expr, job, OTHER_SIDE) for each in conjuncts]
    for each, is_of_use in zip(conjuncts, of_use, strict=True):
        if not is_of_use:
            out("job-requirements", _failed(each, arrays.size), each.text)
    refused = ~matchmaker.suits(open_request)
    draining = arrays.frame.columns["draining"]
    out("draining", refused & (draining.tag == BOOL) & (draining.number == 1))
    parts = rest & refused & arrays.partitionable
    if parts.any():
        out("in-use", parts & arrays.suits_when_empty(job))
    for each, is_of_use in zip(conjuncts, of_use, strict=True):
        if is_of_use:
            out("job-requirements", _failed(each, arrays.size), each.text)
    _policies(matchmaker, open_request, rest, details)
    out("slot-requirements", refused)
    for code, rows in arrays.barred:
        out(code, rows)
    out("taken", arrays.taken)
    if matchmaker.preemption is not None:
        for word, rows in matchmaker.preemption.spared:
            out("claimed", rows, word)
        by_rank, by_priority = matchmaker.preemption.offers(
            open_request.ad, open_request.submitter, matchmaker.eup[open_request.submitter], rest
        )
        out("claimed", arrays.held & ~(by_rank | by_priority), "not preferred")
    else:
        out("claimed", arrays.claimed)
    if arrays.resources:
        machines = np.flatnonzero(rest & arrays.partitionable)
        if len(machines):
            short = np.zeros(arrays.size, np.bool_)
            short[machines[~matchmaker.has_room(open_request, machines)]] = True
            out("consumed", short)
    free = int(np.count_nonzero(rest))
    if free:
        counts["free"] = free
    return counts, details


def _failed(conjunct: Conjunct, size: int) -> Bools:
    failed = np.zeros(size, np.bool_)
    failed[conjunct.start : conjunct.stop] = ~conjunct.mask
    return failed


def _policies(matchmaker: Matchmaker, open_request: OpenRequest, rest: Bools, details: Counter[str]) -> None:
    """Which START texts refuse the job, for slots whose Requirements do."""
    arrays = matchmaker.arrays
    refused = rest & ~matchmaker.suits(open_request)
    if not refused.any() or "start" not in arrays.frame.columns:
        return
    column = arrays.frame.columns["start"]
    odd = refused & (column.tag == OTHER)
    if not odd.any():
        return
    codes, number = np.unique(column.code[odd], return_counts=True)
    for index in np.argsort(-number, kind="stable")[:_MOST].tolist():
        text = unparse(arrays.frame.codes.exprs[int(codes[index])])
        details[f"slot-requirements:START = {text}"] += int(number[index])


def explain(counts: Counter[str], total: int) -> str:
    """One sentence: how many slots there are and where they failed."""
    if total == 0:
        return "there are no slots in the pool"
    parts = [_said(code, number) for code, number in counts.most_common()]
    return f"of {_slots(total)}, " + ", ".join(parts)


def _slots(number: int) -> str:
    return "1 slot" if number == 1 else f"{number} slots"


def _said(code: str, number: int) -> str:
    """What is said of so many slots."""
    if number != 1:
        return f"{number} {SLOTS[code]}"
    verb, _, rest = SLOTS[code].partition(" ")
    return f"1 {_OF_ONE[verb]} {rest.replace('their', 'its')}".rstrip()
