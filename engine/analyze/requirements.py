"""A job's conditions and the slots' over a pool, as they are now and as if partitionable slots were empty."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.analyze.expressions import bound, renamed
from engine.analyze.report import SlotTerm
from engine.analyze.slots import Mask, Slots, View
from engine.reasons import Amount, amounts
from shared.classad import ClassAd
from shared.classad.columnar import OTHER_SIDE, Conjunct
from shared.classad.expr import Expr, fold


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A conjunct with its mask over the rows it stands in, now and with partitionable slots empty."""

    conjunct: Conjunct
    emptied: Mask

    @property
    def rows(self) -> slice:
        return slice(self.conjunct.start, self.conjunct.stop)


class Requirements:
    """Both sides' conditions for one job. All masks are over the rows in their present order."""

    def __init__(self, slots: Slots, view: View, job: ClassAd) -> None:
        self.slots: Final = slots
        self.view: Final = view
        self.job: Final = job
        self.conditions: Final = [
            Condition(each, self._emptied(each)) for each in slots.matching.conjuncts(job, apart=True)
        ]

    def job_has(self, name: str) -> bool:
        return self.job.find(name) is not None

    @property
    def mine(self) -> list[Condition]:
        """The job's, each over all rows, as written."""
        return [each for each in self.conditions if each.conjunct.side == OTHER_SIDE]

    @property
    def theirs(self) -> list[Condition]:
        return [each for each in self.conditions if each.conjunct.side != OTHER_SIDE]

    @cached_property
    def satisfied(self) -> Mask:
        """Where the job's Requirements are true now."""
        return self._all(self.mine)

    @cached_property
    def accepted(self) -> Mask:
        """Where the slot's Requirements are true now."""
        return self._all(self.theirs)

    @cached_property
    def capacity(self) -> Mask:
        """Where both would be, were partitionable slots empty."""
        result = np.ones(len(self.slots), np.bool_)
        for each in self.conditions:
            result[each.rows] &= each.emptied
        return result

    def _all(self, conditions: list[Condition]) -> Mask:
        result = np.ones(len(self.slots), np.bool_)
        for each in conditions:
            result[each.rows] &= each.conjunct.mask
        return result

    def _emptied(self, conjunct: Conjunct) -> Mask:
        expr = conjunct.expr
        if expr is None or not self.view.partitionable.any():
            return conjunct.mask
        other = self.renamed(expr, conjunct.side)
        if other is expr:
            return conjunct.mask
        whole = self.slots.matching.mask(other, self.job, conjunct.side)
        rows = slice(conjunct.start, conjunct.stop)
        # What is true now need not be true of the whole: an ad may not tell its whole amounts.
        return conjunct.mask | (self.view.partitionable[rows] & whole[rows])

    def renamed(self, expr: Expr, side: int) -> Expr:
        """The expression about the whole of a partitionable slot rather than what is left of it."""
        return renamed(expr, self.slots.totals, side, self.job_has)

    def mask(self, expr: Expr) -> Mask:
        """Where a condition on the job's side is true, partitionable slots taken as empty."""
        now = self.slots.matching.mask(expr, self.job, OTHER_SIDE)
        other = self.renamed(expr, OTHER_SIDE)
        if other is expr:
            return now
        return now | (self.view.partitionable & self.slots.matching.mask(other, self.job, OTHER_SIDE))

    def values(self, expr: Expr, side: int) -> NDArray[np.float64]:
        """What an expression over the slot comes to, partitionable slots taken as empty."""
        matching = self.slots.matching
        now = matching.values(expr, self.job, side)
        other = self.renamed(expr, side)
        if other is expr:
            return now
        return np.where(self.view.partitionable, matching.values(other, self.job, side), now)

    def short(self, rows: Mask, used: Mask) -> tuple[Amount, ...]:
        """What of these slots, as empty ones would suit, the job finds too little of now. used: static ones that
        somebody has, of which nothing is left."""
        asked = {name: self.job.eval(f"Request{name}") for name in self.slots.consumables.values()}
        told = {name: float(one) for name, one in asked.items() if isinstance(one, int | float)}
        number = self.slots.numbers

        def left(name: str) -> NDArray[np.float64]:
            return np.where(used, 0.0, number(name))

        def whole(name: str) -> NDArray[np.float64]:
            has = number(self.slots.totals[fold(name)])
            return np.where(has > 0, has, number(name))

        return amounts(told, whole, left, rows)

    @cached_property
    def wanted_when_empty(self) -> Mask:
        """Where the job's Requirements would be true, were partitionable slots empty."""
        result = np.ones(len(self.slots), np.bool_)
        for each in self.mine:
            result[each.rows] &= each.emptied
        return result

    def rejects(self) -> list[SlotTerm]:
        """The slots' conditions, each text once."""
        left = self.satisfied.copy() if self.satisfied.any() else np.ones(len(self.slots), np.bool_)
        table: dict[str, list[int]] = {}
        for each in self.theirs:
            mask = each.conjunct.mask
            part = left[each.rows]
            counts = table.setdefault(each.conjunct.text, [0, 0, 0])
            counts[0] += len(mask)
            counts[1] += int(mask.sum())
            counts[2] += int((part & ~mask).sum())
            part &= mask
        return [SlotTerm(text, slots, accept, rejects) for text, (slots, accept, rejects) in table.items()]

    def asks_for(self, condition: Condition) -> str:
        """The folded name of the Request... attribute that a condition bounds, or ""."""
        expr = condition.conjunct.expr
        found = None if expr is None else bound(expr, condition.conjunct.side, self.job_has)
        return found.attribute if found is not None and found.attribute.startswith("request") else ""
