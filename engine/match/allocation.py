"""What a request gets of the slots found for it, within its submitter's budget and the concurrency limits."""

from __future__ import annotations

from dataclasses import replace
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.fairshare.group_negotiation import GroupTurn
from engine.match import cycle_attributes
from engine.match.budget import Budget, affordable, spend
from engine.match.carving import Lines, lines_of
from engine.match.concurrency_limits import LimitCounters, WantedBySlot
from engine.match.consumption import Portions
from engine.match.cycle_use import CycleUse
from engine.match.model import NO_PREEMPTION, PRIORITY_PREEMPTION, RANK_PREEMPTION, CycleConfig, Matched
from engine.match.open_request import MatchList, OpenRequest
from engine.match.preemption import BY_PRIORITY, BY_RANK, FREE, PslotOffer
from engine.match.slot_arrays import Bools, Floats, RowNumbers
from engine.match.slot_finder import SlotFinder
from shared.classad.columnar import OTHER_SIDE
from shared.job_limits import text_of

_REASONS: Final = {FREE: NO_PREEMPTION, BY_RANK: RANK_PREEMPTION, BY_PRIORITY: PRIORITY_PREEMPTION}
#: Partitionable slots looked at together first: most requests need no more.
_FEW_MACHINES: Final = 16
#: Of slots that may be preempted one by one, so many are asked about together first.
_FEW_DOUBTS: Final = 64


class Allocation:
    """Gives slots: whole ones, parts of partitionable ones, and machines of which dynamic slots are preempted. matches:
    what was given so far, in its order."""

    def __init__(self, finder: SlotFinder, use: CycleUse, counters: LimitCounters, config: CycleConfig) -> None:
        self.finder, self.use, self.counters, self.config = finder, use, counters, config
        self.arrays, self.charged = finder.arrays, finder.charged
        self.matches: dict[object, Matched] = {}
        self._foreign: Bools | None = None  # by row: used by who is in no group of the turn; None: that does not matter

    def begin_turn(self, turn: GroupTurn) -> None:
        """Begin a group's turn."""
        self._foreign = None
        if turn.capped and self.finder.preemption is not None:
            own = [self.use.tree.group_of(name) in turn.members for name in self.charged.names]
            self._foreign = ~np.array([*own, False])[self.charged.user]

    def within_group(self, rows: RowNumbers) -> Bools:
        """(k,) bool: which of these rows, if preempted, are no more use of the group whose turn it is. What a group
        with a hard cap takes from others is, as free slots are."""
        return np.ones(len(rows), np.bool_) if self._foreign is None else ~self._foreign[rows]

    def allocate(self, open_request: OpenRequest, match_list: MatchList, budget: Budget, n: int, exempt: bool) -> int:
        """Give some slots of the match list to jobs; how many jobs got one."""
        rows = match_list.rows
        from_pslots = match_list.epoch is not None and bool(self.arrays.partitionable[rows].any())
        if match_list.pslot_offers is not None or (from_pslots and self._limits_follow_use(open_request)):
            return self._allocate_singly(open_request, match_list, budget, n, exempt)
        if open_request.wants is None:
            return self._allocate_by_limits(open_request, match_list, budget, n, exempt, from_pslots)
        takes = WantedBySlot((open_request.wants,))
        if from_pslots:
            return self._allocate_from_pslots(open_request, match_list, takes, budget, n, exempt)
        chosen = self._spend_on(match_list, rows, budget, n, exempt)
        if len(chosen):
            self._match_slots(open_request, chosen, match_list, takes)
        elif match_list.complete:
            open_request.cause = "ceiling" if budget.at_ceiling() else "share"
        return len(chosen)

    def _spend_on(self, match_list: MatchList, rows: RowNumbers, budget: Budget, n: int, exempt: bool) -> RowNumbers:
        """Pay for up to n of these whole slots of the match list; which ones."""
        spared, used = self._spared_rows(match_list, rows, exempt), self._preempted_rows(rows, match_list.level)
        return rows[spend(budget, self.arrays.weight[rows], n, exempt=spared, used=used)]

    @staticmethod
    def _spared_rows(match_list: MatchList, rows: RowNumbers, exempt: bool) -> Bools | None:
        """For which of these rows the slice does not count (NEG-14); None: for none of them."""
        return (match_list.level[rows] == BY_RANK) if exempt and match_list.level is not None else None

    def _preempted_rows(self, rows: RowNumbers, level: Floats | None) -> Bools | None:
        """Which of these rows count as preempted (`Budget`); None: none of them."""
        return None if level is None else (level[rows] < FREE) & self.within_group(rows)

    def _limits_follow_use(self, open_request: OpenRequest) -> bool:
        """Whether what a job takes of concurrency limits changes as a machine is used."""
        if open_request.wants is not None:
            return False
        expr = open_request.ad.lookup("ConcurrencyLimits")
        assert expr is not None
        return self.arrays.matching.is_live(expr, open_request.ad, OTHER_SIDE)

    def _allocate_by_limits(
        self,
        open_request: OpenRequest,
        match_list: MatchList,
        budget: Budget,
        n: int,
        exempt: bool,
        from_pslots: bool,
    ) -> int:
        """Where concurrency limits depend on the slot: a full one leaves out the slots only that it is for (LIM-08)."""
        weight, rows = self.arrays.weight, match_list.rows
        takes = WantedBySlot.of(rows, self._limits_by_row(open_request, rows), self.arrays.size)
        if from_pslots:
            room, full = takes.with_room(self.counters, rows)
            if room.any():
                part = replace(match_list, rows=rows[room])
                return self._allocate_from_pslots(open_request, part, takes, budget, n, exempt)
            open_request.cause = f"limit:{full}"
            return 0
        took, full, heavy = 0, "", False
        while took < n and len(rows):
            room, first = takes.with_room(self.counters, rows)
            full, rows = full or first, rows[room]
            spared, used = self._spared_rows(match_list, rows, exempt), self._preempted_rows(rows, match_list.level)
            fits = budget.permits(weight[rows], spared, used)
            heavy, rows = heavy or not fits.all(), rows[fits]
            # There is room for the first, so one at least, however sums are rounded: this must come to an end.
            several = max(1, takes.together(self.counters, rows[: n - took]))
            chosen = self._spend_on(match_list, rows[:several], budget, n - took, exempt)
            if len(chosen):
                self._match_slots(open_request, chosen, match_list, takes)
            took += len(chosen)
            rows = rows[several:]
        if not took:
            open_request.cause = "share" if heavy or not full else f"limit:{full}"
        return took

    def _allocate_from_pslots(
        self,
        open_request: OpenRequest,
        match_list: MatchList,
        takes: WantedBySlot,
        budget: Budget,
        n: int,
        exempt: bool,
    ) -> int:
        """Where partitionable slots are among the slots found: the best few first, and others only where all of these
        are too heavy."""
        if (
            self.finder.parts_cost and match_list.level is None
        ):  # what is beyond the slice, but for the last, is not had
            n = min(n, int(min(n, budget.left)) + 2)
        few = self._enough(open_request, match_list.rows, n)
        for rows, most in ((few, n), (match_list.rows[len(few) :], 1)):
            if not len(rows):
                break
            lines, taking = self._lines_of_pslots(open_request, rows, most, match_list.level)
            if not lines.filled and len(rows) < min(most, len(match_list.rows)):
                rows = match_list.rows[:n]
                lines, taking = self._lines_of_pslots(open_request, rows, most, match_list.level)
            if not lines.filled and not match_list.complete:
                most = min(most, len(rows))  # the next may be on a slot that is not listed
            spared = self._spared_rows(match_list, lines.rows, exempt)
            used = self._preempted_rows(lines.rows, match_list.level)
            if takes.kind is not None:
                some = np.flatnonzero(affordable(budget, lines.charges, lines.rows, spared, used))
                lines = lines.some(some[: takes.together(self.counters, lines.rows[some[:most]])])
                spared = self._spared_rows(match_list, lines.rows, exempt)
                used = self._preempted_rows(lines.rows, match_list.level)
            picked = spend(budget, lines.charges, most, lines.rows, spared, used)
            if len(picked):
                self._commit_lines(open_request, match_list, lines, taking, picked, takes)
                return len(picked)
            open_request.cause = "ceiling" if budget.at_ceiling() else "share"
        return 0

    def _enough(self, open_request: OpenRequest, rows: RowNumbers, n: int) -> RowNumbers:
        """The first of these slots, in which n jobs fit as far as amounts tell."""
        rows = rows[: max(_FEW_MACHINES, n)]
        order = np.argsort(rows)
        copies = np.empty(len(rows), np.int64)
        copies[order] = self.finder.portions(open_request, rows[order], n).copies
        return rows[: int(copies.cumsum().searchsorted(n)) + 1]

    def _lines_of_pslots(
        self, open_request: OpenRequest, rows: RowNumbers, n: int, level: Floats | None
    ) -> tuple[Lines, Portions]:
        taking = self.finder.portions(open_request, np.sort(rows), n)
        keys = self.finder.keys(open_request.ad, level)
        return lines_of(self.arrays, open_request.ad, rows, taking, keys, self.finder.policies, self.config), taking

    def _commit_lines(
        self,
        open_request: OpenRequest,
        match_list: MatchList,
        lines: Lines,
        taking: Portions,
        picked: NDArray[np.intp],
        takes: WantedBySlot,
    ) -> None:
        arrays = self.arrays
        rows = lines.rows[picked]
        parts = arrays.partitionable[rows]
        if not parts.all():
            self._match_slots(open_request, rows[~parts], match_list, takes)
        if not parts.any():
            return
        picked, rows = picked[parts], rows[parts]
        slots, first, jobs = np.unique(rows, return_index=True, return_counts=True)
        charges = np.bincount(np.searchsorted(slots, rows), weights=lines.charges[picked], minlength=len(slots))
        last = np.zeros(len(slots), np.intp)
        last[np.searchsorted(slots, rows)] = picked  # the last line of each slot wins
        used = taking.used(np.searchsorted(taking.rows, slots), jobs)
        arrays.carve(slots, taking.keys, used, lines.weights[last])
        if self.config.depth_first:
            open_request.last = int(rows[-1])
        takes.take(self.counters, rows)
        order = np.argsort(first, kind="stable")
        given = zip(slots[order].tolist(), jobs[order].tolist(), charges[order].tolist(), strict=True)
        for (row, number, charge), limits in zip(given, takes.texts(slots[order]), strict=False):
            self._match_pslot(open_request, row, number, charge, limits)

    def _allocate_singly(
        self, open_request: OpenRequest, match_list: MatchList, budget: Budget, n: int, exempt: bool
    ) -> int:
        """Allocate slot by slot: where dynamic slots may be preempted, or limits follow the use of machines, each job
        changes what the next can have. A full limit skips the slots that it is for."""
        rows = match_list.rows
        takes = WantedBySlot((open_request.wants or (),))
        if open_request.wants is None:
            takes = WantedBySlot.of(rows, self._limits_by_row(open_request, rows), self.arrays.size)
        took, full, heavy = 0, "", False
        for row in rows.tolist():
            if took >= n:
                break
            if blocking := self.counters.blocking(takes.on(row)):
                full = full or blocking
                continue
            if not self._allocate_one(open_request, match_list, budget, row, exempt, takes):
                heavy = True
                continue
            took += 1
            if self.arrays.partitionable[row]:
                return took  # the list has grown old
        if not took:
            open_request.cause = "share" if heavy or not full else f"limit:{full}"
        return took

    def _limits_by_row(self, open_request: OpenRequest, rows: RowNumbers) -> list[str | None]:
        """ConcurrencyLimits of the job on each of some slots."""
        expr = open_request.ad.lookup("ConcurrencyLimits")
        assert expr is not None
        order = np.argsort(rows)
        texts: list[str | None] = [None] * len(rows)
        probe = self.arrays.matching.probe(rows[order], {})
        for index, text in zip(order.tolist(), probe.texts(expr, open_request.ad, OTHER_SIDE), strict=True):
            texts[index] = text
        return texts

    def _allocate_one(
        self,
        open_request: OpenRequest,
        match_list: MatchList,
        budget: Budget,
        row: int,
        exempt: bool,
        takes: WantedBySlot,
    ) -> bool:
        """Give a slot, or a part of it, to one job; False if the budget does not permit it."""
        arrays = self.arrays
        one = np.array([row], np.intp)
        offer = match_list.pslot_offers.get(row) if match_list.pslot_offers else None
        if offer is not None:
            within = np.array([bool(self.within_group(offer.parts).all())])
            spared = self._spared_rows(match_list, one, exempt)
            if not len(spend(budget, np.array([offer.charge]), 1, exempt=spared, used=within)):
                return False
            takes.take(self.counters, one)
            self._preempt_dynamic_slots(open_request, offer, text_of(takes.on(row)))
            return True
        if arrays.partitionable[row]:
            lines, taking = self._lines_of_pslots(open_request, one, 1, match_list.level)
            picked = spend(budget, lines.charges, 1)
            if len(picked):
                self._commit_lines(open_request, match_list, lines, taking, picked, takes)
            return len(picked) > 0
        chosen = self._spend_on(match_list, one, budget, 1, exempt)
        if len(chosen):
            self._match_slots(open_request, chosen, match_list, takes)
        return len(chosen) > 0

    def allocate_with_doubts(
        self, open_request: OpenRequest, match_list: MatchList, budget: Budget, n: int, exempt: bool
    ) -> tuple[int, bool]:
        """How many jobs got a slot, and whether slots were too heavy."""
        assert open_request.wants is not None
        takes = WantedBySlot((open_request.wants,))
        rows, level = match_list.rows, match_list.level
        doubtful = np.zeros(len(rows), np.bool_) if level is None else level[rows] == BY_PRIORITY
        took, heavy = 0, False
        while took < n and len(rows):
            sure = int(doubtful.argmax()) if doubtful.any() else len(rows)
            if sure:
                chosen = self._spend_on(match_list, rows[:sure], budget, n - took, exempt)
                heavy |= len(chosen) < min(sure, n - took)
                rows, doubtful = rows[sure:], doubtful[sure:]
            else:
                chosen, too_heavy = self._first_permitted(open_request, match_list, rows, doubtful, budget, exempt)
                heavy |= too_heavy
                if not len(chosen):
                    break
                left = rows != chosen[0]
                rows, doubtful = rows[left], doubtful[left]
            if len(chosen):
                self._match_slots(open_request, chosen, match_list, takes)
                took += len(chosen)
        return took, heavy

    def _first_permitted(
        self,
        open_request: OpenRequest,
        match_list: MatchList,
        rows: RowNumbers,
        doubtful: Bools,
        budget: Budget,
        exempt: bool,
    ) -> tuple[RowNumbers, bool]:
        """The first of these rows that a job may have at this moment, paid for, or none; and whether some were too
        heavy."""
        assert self.finder.preemption is not None
        self.finder.refresh(open_request)
        live = {name: column for name, column in self.finder.remote.items() if name in cycle_attributes.CHANGING}
        start, size, heavy = 0, _FEW_DOUBTS, False
        while start < len(rows):
            some, unsure = rows[start : start + size], doubtful[start : start + size]
            may = ~unsure
            may[unsure] = self.finder.preemption.permits(open_request.ad, some[unsure], live)
            chosen = self._spend_on(match_list, some[may], budget, 1, exempt)
            if len(chosen):
                return chosen, heavy
            heavy |= bool(may.any())
            start += size
            size *= 4
        return rows[:0], heavy

    def _preempt_dynamic_slots(self, open_request: OpenRequest, offer: PslotOffer, limits: str) -> None:
        """Preempt dynamic slots of a machine for a job (PRE-17)."""
        arrays = self.arrays
        names = tuple(arrays.frame.keys[row] for row in offer.parts.tolist())
        self._give_back(offer.parts)
        arrays.take(offer.parts)
        used = np.array([[amount] for amount in offer.change.values()])
        arrays.carve(np.array([offer.row]), list(offer.change), used, np.array([offer.weight]))
        name = arrays.frame.keys[offer.row]
        reason = _REASONS[offer.level]
        match = Matched(
            open_request.submitter,
            open_request.request,
            name,
            1,
            offer.charge,
            reason,
            names,
            limits,
            open_request.rank_of(offer.row),
        )
        self.matches[offer.row, names] = match
        self.use.charge(open_request.submitter, offer.charge, 1)
        open_request.left -= 1

    def _match_slots(
        self, open_request: OpenRequest, rows: RowNumbers, match_list: MatchList, takes: WantedBySlot
    ) -> None:
        """Match whole slots, one job each."""
        arrays = self.arrays
        keys = arrays.frame.keys
        submitter, request, level = open_request.submitter, open_request.request, match_list.level
        numbers, weights = rows.tolist(), arrays.weight[rows].tolist()
        ranks = repeat(0.0) if open_request.ranks is None else open_request.ranks[rows].tolist()
        made = [
            Matched(submitter, request, keys[row], 1, weight, NO_PREEMPTION, (), limits, rank)
            for row, weight, limits, rank in zip(numbers, weights, takes.texts(rows), ranks, strict=False)
        ]
        self.matches.update(zip(numbers, made, strict=True))
        if level is not None:
            reasons = level[rows]
            preempted = np.flatnonzero(reasons < FREE)
            for index, reason in zip(preempted.tolist(), reasons[preempted].tolist(), strict=True):
                match = made[index]
                match.reason, match.preempts = _REASONS[reason], (match.slot,)
            self._give_back(rows[preempted])
        arrays.take(rows)
        takes.take(self.counters, rows)
        self.use.charge(submitter, sum(weights), len(rows))
        open_request.left -= len(rows)

    def _match_pslot(self, open_request: OpenRequest, row: int, jobs: int, weight: float, limits: str) -> None:
        """Match some jobs with a partitionable slot."""
        key = (open_request.submitter, open_request.request.schedd, open_request.request.autocluster, row, limits)
        known = self.matches.get(key)
        if known is None:
            name = self.arrays.frame.keys[row]
            rank = open_request.rank_of(row)
            self.matches[key] = Matched(
                open_request.submitter, open_request.request, name, jobs, weight, NO_PREEMPTION, (), limits, rank
            )
        else:
            known.count += jobs
            known.weight += weight
        self.use.charge(open_request.submitter, weight, jobs)
        open_request.left -= jobs

    def _give_back(self, rows: RowNumbers) -> None:
        """Take the weight of preempted slots off the use of whoever had them."""
        holder = self.charged.user[rows]
        rows, holder = rows[holder >= 0], holder[holder >= 0]
        keys, names = self.arrays.frame.keys, self.charged.names
        had = zip(rows.tolist(), holder.tolist(), strict=True)
        self.use.preempted_users.update((keys[row], names[who]) for row, who in had)
        weights = np.bincount(holder, weights=self.arrays.weight[rows])
        numbers = np.bincount(holder)
        for who in np.flatnonzero(numbers).tolist():
            self.use.give_back(names[who], float(weights[who]), int(numbers[who]))
