"""Taking some of the slots found for a request, within a submitter's purse and concurrency limits.

Whole slots, parts of partitionable ones, and machines for which dynamic slots are preempted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from services.negotiator.board import Bools, Floats, RowNumbers
from services.negotiator.carving import Lines, lines_of
from services.negotiator.consumption import Portions
from services.negotiator.emptying import Emptied
from services.negotiator.handout import Purse, spend
from services.negotiator.limits import parse, text_of
from services.negotiator.pool import NO_PREEMPTION, PRIORITY_PREEMPTION, RANK_PREEMPTION, Matched
from services.negotiator.preemption import BY_PRIORITY, BY_RANK, FREE
from shared.classad.columnar import OTHER_SIDE, Probe

if TYPE_CHECKING:
    from services.negotiator.deal import Asking, Deal, Found

_REASONS: Final = {FREE: NO_PREEMPTION, BY_RANK: RANK_PREEMPTION, BY_PRIORITY: PRIORITY_PREEMPTION}
#: Partitionable slots looked at together first: most requests need no more.
_FEW_MACHINES: Final = 16


def take(deal: Deal, asking: Asking, found: Found, purse: Purse, n: int, exempt: bool) -> int:
    """Take some of the slots found; how many jobs got one."""
    board, rows, level = deal.board, found.rows, found.level
    spared = (level[rows] == BY_RANK) if exempt and level is not None else None
    used = _used(deal, rows, level)
    if asking.wants is None or found.emptied is not None:
        return _take_singly(deal, asking, found, purse, n, spared)
    if found.epoch is not None and board.partitionable[rows].any():
        return _take_parts(deal, asking, found, purse, n, exempt)
    chosen = rows[spend(purse, board.weight[rows], n, exempt=spared, used=used)]
    if len(chosen):
        _give(deal, asking, chosen, found, text_of(asking.wants) if asking.wants else "")
        if asking.wants:
            deal.counters.take(asking.wants, len(chosen))
    elif found.complete:
        asking.cause = "ceiling" if purse.at_ceiling() else "share"
    return len(chosen)


def _used(deal: Deal, rows: RowNumbers, level: Floats | None) -> Bools | None:
    """Which of these rows count as preempted (`Purse`); None: none of them."""
    return None if level is None else (level[rows] < FREE) & deal.within_group(rows)


def _take_parts(deal: Deal, asking: Asking, found: Found, purse: Purse, n: int, exempt: bool) -> int:
    """Where partitionable slots are among the slots found: the best few first, and others only where all of these
    are too heavy."""
    few = found.rows[: max(_FEW_MACHINES, n // _FEW_MACHINES)]
    for rows, most in ((few, n), (found.rows[len(few) :], 1)):
        if not len(rows):
            break
        lines, taking = _places(deal, asking, rows, most, found.level)
        if not lines.filled and len(rows) < min(most, len(found.rows)):
            rows = found.rows[:n]
            lines, taking = _places(deal, asking, rows, most, found.level)
        spared = (found.level[lines.rows] == BY_RANK) if exempt and found.level is not None else None
        used = _used(deal, lines.rows, found.level)
        picked = spend(purse, lines.charges, most, lines.rows, spared, used)
        if len(picked):
            limits = ""
            if asking.wants:
                limits = text_of(asking.wants)
                deal.counters.take(asking.wants, len(picked))
            _commit(deal, asking, found, lines, taking, picked, limits)
            return len(picked)
        asking.cause = "ceiling" if purse.at_ceiling() else "share"
    return 0


def _places(deal: Deal, asking: Asking, rows: RowNumbers, n: int, level: Floats | None) -> tuple[Lines, Portions]:
    taking = deal.portions(asking, np.sort(rows), n)
    keys = deal.keys(asking.ad, level)
    return lines_of(deal.board, asking.ad, rows, taking, keys, deal.policies, deal.config), taking


def _commit(
    deal: Deal, asking: Asking, found: Found, lines: Lines, taking: Portions, picked: NDArray[np.intp], limits: str
) -> None:
    board = deal.board
    rows = lines.rows[picked]
    parts = board.partitionable[rows]
    if not parts.all():
        _give(deal, asking, rows[~parts], found, limits)
    if not parts.any():
        return
    picked, rows = picked[parts], rows[parts]
    slots, first, jobs = np.unique(rows, return_index=True, return_counts=True)
    charges = np.bincount(np.searchsorted(slots, rows), weights=lines.charges[picked], minlength=len(slots))
    last = np.zeros(len(slots), np.intp)
    last[np.searchsorted(slots, rows)] = picked  # the last line of each slot wins
    used = taking.used(np.searchsorted(taking.rows, slots), jobs)
    board.carve(slots, taking.keys, used, lines.weights[last])
    if deal.config.depth_first:
        asking.last = int(rows[-1])
    for index in np.argsort(first, kind="stable").tolist():
        _add(deal, asking, int(slots[index]), int(jobs[index]), float(charges[index]), limits)


def _take_singly(deal: Deal, asking: Asking, found: Found, purse: Purse, n: int, spared: Bools | None) -> int:
    """Slot by slot: where concurrency limits depend on the slot, a full one skips that slot only (LIM-08); and where
    dynamic slots may be preempted, each job changes what the next can have."""
    asking.blocked.clear()
    texts = _limits_by_row(deal, asking, found.rows)
    took = heavy = 0
    for index, row in enumerate(found.rows.tolist()):
        if took >= n:
            break
        wants = asking.wants if texts is None else parse(texts[index] or "")
        assert wants is not None
        full = deal.counters.blocking(wants)
        if full:
            asking.blocked[full] = asking.blocked.get(full, 0) + 1
            continue
        exempt = None if spared is None else spared[index : index + 1]
        if not _take_one(deal, asking, found, purse, row, exempt, text_of(wants)):
            heavy += 1
            continue
        deal.counters.take(wants)
        took += 1
        if deal.board.partitionable[row]:
            return took  # the list has grown old
    if not took:
        asking.cause = "share" if heavy or not asking.blocked else f"limit:{next(iter(asking.blocked))}"
    return took


def _limits_by_row(deal: Deal, asking: Asking, rows: RowNumbers) -> list[str | None] | None:
    """ConcurrencyLimits of the job on each of some slots; None: it is the same on all."""
    if asking.wants is not None:
        return None
    expr = asking.ad.lookup("ConcurrencyLimits")
    assert expr is not None
    order = np.argsort(rows)
    texts: list[str | None] = [None] * len(rows)
    probe = Probe(deal.board.matching, rows[order], {})
    for index, text in zip(order.tolist(), probe.texts(expr, asking.ad, OTHER_SIDE), strict=True):
        texts[index] = text
    return texts


def _take_one(
    deal: Deal, asking: Asking, found: Found, purse: Purse, row: int, exempt: Bools | None, limits: str
) -> bool:
    """Give a slot, or a part of it, to one job; False if the purse does not permit it."""
    board = deal.board
    emptied = found.emptied.get(row) if found.emptied else None
    if emptied is not None:
        within = np.array([bool(deal.within_group(emptied.parts).all())])
        if not len(spend(purse, np.array([emptied.charge]), 1, exempt=exempt, used=within)):
            return False
        _empty(deal, asking, emptied, limits)
        return True
    one = np.array([row], np.intp)
    if board.partitionable[row]:
        lines, taking = _places(deal, asking, one, 1, found.level)
        picked = spend(purse, lines.charges, 1)
        if len(picked):
            _commit(deal, asking, found, lines, taking, picked, limits)
        return len(picked) > 0
    used = _used(deal, one, found.level)
    if not len(spend(purse, board.weight[one], 1, exempt=exempt, used=used)):
        return False
    _give(deal, asking, one, found, limits)
    return True


def _empty(deal: Deal, asking: Asking, emptied: Emptied, limits: str) -> None:
    """Preempt dynamic slots of a machine for a job (PRE-17)."""
    board = deal.board
    names = tuple(board.frame.keys[row] for row in emptied.parts.tolist())
    for row in emptied.parts.tolist():
        deal.lose(row, float(board.weight[row]))
    board.take(emptied.parts)
    used = np.array([[amount] for amount in emptied.change.values()])
    board.carve(np.array([emptied.row]), list(emptied.change), used, np.array([emptied.weight]))
    name = board.frame.keys[emptied.row]
    reason = _REASONS[emptied.level]
    match = Matched(
        asking.submitter, asking.request, name, 1, emptied.charge, reason, names, limits, asking.rank_of(emptied.row)
    )
    deal.matches[emptied.row, names] = match
    deal.charge(asking.submitter, emptied.charge, 1)
    asking.left -= 1


def _give(deal: Deal, asking: Asking, rows: RowNumbers, found: Found, limits: str) -> None:
    """Whole slots, one job each."""
    board = deal.board
    keys = board.frame.keys
    submitter, request, level = asking.submitter, asking.request, found.level
    numbers, weights = rows.tolist(), board.weight[rows].tolist()
    made = [
        Matched(submitter, request, keys[row], 1, weight, NO_PREEMPTION, (), limits)
        for row, weight in zip(numbers, weights, strict=True)
    ]
    if asking.ranks is not None:
        for row, match in zip(numbers, made, strict=True):
            match.rank = asking.rank_of(row)
    deal.matches.update(zip(numbers, made, strict=True))
    if level is not None:
        for row, match in zip(numbers, made, strict=True):
            if level[row] < FREE:
                match.reason, match.preempts = _REASONS[float(level[row])], (match.slot,)
                deal.lose(row, match.weight)
    board.take(rows)
    deal.charge(submitter, sum(weights), len(rows))
    asking.left -= len(rows)


def _add(deal: Deal, asking: Asking, row: int, jobs: int, weight: float, limits: str) -> None:
    """Some jobs on a partitionable slot."""
    key = (asking.submitter, asking.request.schedd, asking.request.autocluster, row, limits)
    known = deal.matches.get(key)
    if known is None:
        name = deal.board.frame.keys[row]
        rank = asking.rank_of(row)
        deal.matches[key] = Matched(
            asking.submitter, asking.request, name, jobs, weight, NO_PREEMPTION, (), limits, rank
        )
    else:
        known.count += jobs
        known.weight += weight
    deal.charge(asking.submitter, weight, jobs)
    asking.left -= jobs
