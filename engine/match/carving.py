"""Handing out parts of partitionable slots, many at once (spec rows CON-03, CON-06, NEG-34).

Job after job would go to the best slot as it then stands. The slots that are touched are the best ones of the list as
it is now, in this order; what happens among them depends on how the sort key of a slot changes as it is used:

    it never falls (the default: best fit)   the best slot is filled, then the next
    it never rises (spread)                  all states of all slots, sorted
    anything else                            step by step, by a heap over keys that are known beforehand

So states of slots after 0, 1, 2... jobs are evaluated in one go, and no rank or condition job by job.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.match.consumption import Policies, Portions
from engine.match.model import CycleConfig
from engine.match.slot_arrays import HEAVIEST, SLOT_WEIGHT, Bools, Floats, RowNumbers, SlotArrays, own_weight
from shared.classad import ClassAd
from shared.classad.columnar import ROW_SIDE, Matching, Probe
from shared.classad.columnar.column import INT, REAL, Column
from shared.classad.expr import Expr

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Key:
    """A sort key: what is evaluated, on which side, and its values now, by row. No expression: it does not change.
    nothing: its value where that is no number."""

    now: Floats
    expr: Expr | None = None
    side: int = ROW_SIDE
    nothing: float = 0.0


@dataclass(frozen=True, slots=True)
class Lines:
    """Places for jobs, in the order in which they are had.

    rows: (L,) of the slot; nth: (L,) which of the slot's places it is, from 0; charges: (L,) weight; weights: (L,) of
    the slot with this place given away. filled: slots come one after the other, so that slots further down the list can
    be added behind; else the order holds only if no other slots are had.
    """

    rows: RowNumbers
    nth: Numbers
    charges: Floats
    weights: Floats
    filled: bool

    def some(self, index: NDArray[np.intp]) -> Lines:
        """These of the lines, in order."""
        return Lines(self.rows[index], self.nth[index], self.charges[index], self.weights[index], self.filled)


def lines_of(
    arrays: SlotArrays,
    job: ClassAd,
    rows: RowNumbers,
    taking: Portions,
    keys: Sequence[Key],
    policies: Policies,
    config: CycleConfig,
) -> Lines:
    """Places for jobs of one request in partitionable slots.

    rows: (m,) slots that suit, best first; each slot that is not partitionable is one place. taking: for these rows in
    ascending order. A place is charged what the slot
    then weighs less; 1 without weights.
    """
    ascending = taking.rows
    copies = taking.copies
    counts = copies + 1  # states: after 0, 1 ... copies jobs
    at = np.repeat(np.arange(len(ascending)), counts)
    starts = np.cumsum(counts) - counts
    nth = np.arange(len(at)) - starts[at]
    lines = ascending[at]
    live = _states(arrays, taking, lines, at, nth)
    probe = arrays.matching.probe(lines, live)
    if policies:
        suits = np.zeros(len(lines), np.bool_)
        for some, seen in policies.jobs(job, ascending):
            suits |= some[at] & probe.match(seen)
    else:
        suits = probe.match(job)
    suits[starts] = True  # as they stand now they do
    suits[starts + copies] = False  # nothing fits any more
    # The first state that does not suit ends the slot.
    ends = np.minimum.reduceat(np.where(suits, len(at), nth), starts) if len(at) else starts
    good = nth < ends[at]
    if not config.use_slot_weights:
        heavy = np.ones(len(at))
        charges = heavy
    else:
        heavy = weights_of(arrays, probe, lines, config)
        heavy[starts] = arrays.weight[ascending]
        charges = np.zeros(len(at))
        charges[:-1] = np.maximum(0.0, heavy[:-1] - heavy[1:])
        whole = ~arrays.partitionable[lines]
        charges[whole] = arrays.weight[lines[whole]]
    after = np.roll(heavy, -1)
    order, filled = _order(arrays, job, probe, rows, ascending, keys, lines, at, nth, good, config.depth_first)
    return Lines(lines[order], nth[order], charges[order], after[order], filled)


def _states(arrays: SlotArrays, taking: Portions, lines: RowNumbers, at: RowNumbers, nth: Numbers) -> dict[str, Column]:
    used = taking.used(at, nth)
    live: dict[str, Column] = {}
    for key, amount in zip(taking.keys, used, strict=True):
        column = arrays.free.get(key)
        if column is None:
            continue
        own = column.taken(lines)
        own.number -= amount
        whole = own.number == np.floor(own.number)
        own.tag[(own.tag == INT) & ~whole] = REAL  # half a licence
        own.count()
        live[key] = own
    return live


def weights_of(arrays: SlotArrays, probe: Probe, lines: RowNumbers, config: CycleConfig) -> Floats:
    """Weight of the slot in each line of a probe, as `slot_arrays.weights` has it."""
    if not config.use_slot_weights:
        return np.ones(len(lines))
    weighs = np.zeros(len(lines))
    own = own_weight(config)
    has = arrays.has_weight[lines] & (not config.force_slot_weight)
    for expr, some in ((SLOT_WEIGHT, has), (own, ~has)):
        if some.any():
            values, valid = probe.numbers(expr)
            weighs = np.where(some, np.where(valid & (values >= 0) & (values <= HEAVIEST), values, 1.0), weighs)
    return weighs


def _order(
    arrays: SlotArrays,
    job: ClassAd,
    probe: Probe,
    rows: RowNumbers,
    ascending: RowNumbers,
    keys: Sequence[Key],
    lines: RowNumbers,
    at: RowNumbers,
    nth: Numbers,
    good: Bools,
    depth_first: bool,
) -> tuple[NDArray[np.intp], bool]:
    """The good lines in the order in which they are had, and whether slot after slot is filled."""
    position = np.empty(len(ascending), np.int64)  # in the list, for each slot
    position[np.searchsorted(ascending, rows)] = np.arange(len(rows))
    index = np.flatnonzero(good)
    if depth_first:
        return index[np.lexsort((nth[index], position[at[index]]))], True
    values = _Values(arrays.matching, probe, job, keys, lines)
    rises, falls = _directions(values, at, good)
    if rises:
        return index[np.lexsort((nth[index], position[at[index]]))], True
    place = arrays.place[lines]
    if falls:
        ranks = [-value[index] for value in values]
        return index[np.lexsort((nth[index], place[index], *reversed(ranks)))], False
    return _by_heap(list(values), place, at, index), False


class _Values(Iterable[Floats]):
    """The values of sort keys in each state, evaluated when they are asked for: mostly the first one decides."""

    def __init__(self, matching: Matching, probe: Probe, job: ClassAd, keys: Sequence[Key], lines: RowNumbers) -> None:
        self._matching, self._probe, self._job, self._keys, self._lines = matching, probe, job, keys, lines
        self._known: list[Floats] = []

    def __iter__(self) -> Iterator[Floats]:
        for index, key in enumerate(self._keys):
            if index == len(self._known):
                self._known.append(self._value(key))
            yield self._known[index]

    def _value(self, key: Key) -> Floats:
        if key.expr is None or not self._matching.is_live(key.expr, self._job, key.side):
            return key.now[self._lines]
        values, valid = self._probe.numbers(key.expr, self._job, key.side)
        return np.where(valid, values, key.nothing)


def _directions(values: Iterable[Floats], at: RowNumbers, good: Bools) -> tuple[bool, bool]:
    """Whether no slot's keys ever fall as it is used, and whether they never rise."""
    pairs = good[1:] & good[:-1] & (at[1:] == at[:-1])
    undecided = pairs
    rises = falls = True
    for value in values:
        if not undecided.any():
            break
        step = value[1:] - value[:-1]
        rises = rises and not np.any(undecided & (step < 0))
        falls = falls and not np.any(undecided & (step > 0))
        undecided = undecided & (step == 0)
    return rises, falls


def _by_heap(
    values: Sequence[Floats], place: NDArray[np.int64], at: RowNumbers, index: NDArray[np.intp]
) -> NDArray[np.intp]:
    keys = list(zip(*((-value[index]).tolist() for value in values), place[index].tolist(), strict=True))
    owner = at[index].tolist()
    heap = [(keys[i], i) for i in range(len(owner)) if i == 0 or owner[i] != owner[i - 1]]
    heapq.heapify(heap)
    order = []
    while heap:
        _, i = heap[0]
        order.append(i)
        if i + 1 < len(owner) and owner[i + 1] == owner[i]:
            heapq.heapreplace(heap, (keys[i + 1], i + 1))
        else:
            heapq.heappop(heap)
    return index[np.array(order, np.intp)]
