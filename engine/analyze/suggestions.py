"""What would let more slots take a job: the fewest changes that help, each tried before it is suggested.

Two kinds of things can be changed: an amount that the job asks for (a Request... attribute, which may fail several
conditions on both sides) and a condition of its Requirements. For each slot it is known which of them stand in the way;
slots that lack one thing give single suggestions, else those that lack two give pairs, and so on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.analyze.expressions import Bound, Comparison, all_of, bound, comparison
from engine.analyze.report import Change, Suggestion
from engine.analyze.requirements import Condition, Requirements
from engine.analyze.slots import Mask
from shared.classad import unparse
from shared.classad.columnar import OTHER_SIDE
from shared.classad.columnar.column import STRING
from shared.classad.expr import AttrRef, Binary, Call, Expr, Literal

MOST: Final = 5  # suggestions
MOST_TOGETHER: Final = 6  # changes in one suggestion
_MOST_UNITS: Final = 62  # things that can be changed: a bit each
_LEAST_REQUEST: Final = 0.0


@dataclass(frozen=True, slots=True)
class _Unit:
    """One thing that can be changed: the amount `name`, with the conditions that bound it, or the job's condition
    number `term`. `missing`: rows in which it stands in the way."""

    missing: Mask
    name: str = ""
    bounds: tuple[tuple[Condition, Bound], ...] = ()
    term: int = -1


def suggestions(requirements: Requirements, eligible: Mask, most: int = MOST) -> tuple[Suggestion, ...]:
    """At most so many, the best first; only rows that are `eligible` count. A suggestion of several changes comes only
    where no smaller one helps."""
    return _Search(requirements, eligible).best(most)


class _Search:
    def __init__(self, requirements: Requirements, eligible: Mask) -> None:
        self.requirements = requirements
        self.job = requirements.job
        self.eligible = eligible
        self.now = int((requirements.capacity & eligible).sum())
        self.terms = requirements.mine
        self.possible = eligible.copy()
        self.units = self._units()

    def _units(self) -> list[_Unit]:
        size = len(self.requirements.slots)
        missing: dict[str | int, Mask] = {}
        bounds: dict[str, list[tuple[Condition, Bound]]] = {}
        number = 0
        for each in self.requirements.conditions:
            key: str | int = self.requirements.asks_for(each)
            if each.conjunct.side == OTHER_SIDE:
                key = key or number
                number += 1
            fails = ~each.emptied
            if isinstance(key, str) and key:
                assert each.conjunct.expr is not None
                found = bound(each.conjunct.expr, each.conjunct.side, self.requirements.job_has)
                assert found is not None
                bounds.setdefault(key, []).append((each, found))
            if key == "" or (key not in missing and len(missing) == _MOST_UNITS):
                self.possible[each.rows] &= ~fails  # nothing that the job's owner could change
            elif fails.any():
                missing.setdefault(key, np.zeros(size, np.bool_))[each.rows] |= fails
        return [
            _Unit(mask, name=key, bounds=tuple(bounds[key])) if isinstance(key, str) else _Unit(mask, term=key)
            for key, mask in missing.items()
        ]

    def best(self, most: int) -> tuple[Suggestion, ...]:
        codes = np.zeros(len(self.possible), np.int64)
        lacks = np.zeros(len(self.possible), np.int64)
        for place, unit in enumerate(self.units):
            codes |= unit.missing.astype(np.int64) << place
            lacks += unit.missing
        for together in range(1, MOST_TOGETHER + 1):
            rows = self.possible & (lacks == together)
            found = []
            groups = Counter(codes[rows].tolist())
            for code, _ in sorted(groups.items(), key=lambda item: (-item[1], item[0]))[: 4 * most]:
                chosen = [unit for place, unit in enumerate(self.units) if code >> place & 1]
                suggestion = self._suggest(chosen, rows & (codes == code))
                if suggestion is not None:
                    found.append(suggestion)
            if found:
                found.sort(key=lambda s: (-s.gains, [c.what for c in s.changes]))
                return tuple(found[:most])
        return ()

    def _suggest(self, units: list[_Unit], rows: Mask) -> Suggestion | None:
        """The least changes that win over some of these rows; where none does, dropping the conditions."""
        for dropping in (False, True):
            attributes: dict[str, int | float] = {}
            changes: list[Change] = []
            terms: dict[int, Expr | None] = {}
            left = rows  # one slot must be content with all of the changes
            for unit in units:
                if unit.name:
                    value, left = self._amount(unit, left)
                    if value is None:
                        return None
                    name, was = self._spelt(unit.name)
                    attributes[name] = value
                    changes.append(Change("set", name, to=unparse(value, "old"), was=was))
                else:
                    text = self.terms[unit.term].conjunct.text
                    other = None if dropping else self._other(unit.term, left)
                    terms[unit.term] = other
                    if other is None:
                        changes.append(Change("drop", text))
                    else:
                        left = left & self.requirements.mask(other)
                        changes.append(Change("change", text, to=unparse(other, "old")))
            gains = self._tried(attributes, terms)
            if gains > 0:
                return Suggestion(tuple(changes), gains)
            if all(each is None for each in terms.values()):
                return None
        return None

    def _tried(self, attributes: dict[str, int | float], terms: dict[int, Expr | None]) -> int:
        """How many more slots there are for the job with these changes."""
        other = self.job.copy()
        for name, value in attributes.items():
            other[name] = value
        if terms:
            kept = [terms.get(number, each.conjunct.expr) for number, each in enumerate(self.terms)]
            other["Requirements"] = all_of(expr for expr in kept if expr is not None)
        capacity = Requirements(self.requirements.slots, self.requirements.view, other).capacity
        return int((capacity & self.eligible).sum()) - self.now

    def _spelt(self, name: str) -> tuple[str, str]:
        """How the job spells an attribute, and what it is now."""
        for key, expr in self.job.exprs():
            if key.lower() == name:
                return key, unparse(expr, "old")
        return name, "undefined"

    def _amount(self, unit: _Unit, rows: Mask) -> tuple[int | float | None, Mask]:
        """The amount nearest to what is asked for that some of these rows have, and those rows; None if it can not be
        told."""
        above = np.full(len(rows), np.inf)
        below = np.full(len(rows), -np.inf)
        for condition, found in unit.bounds:
            values = self.requirements.values(found.value, condition.conjunct.side)[condition.rows]
            if found.op in ("<", "<="):
                limit = np.ceil(values) - 1 if found.op == "<" else values
                above[condition.rows] = np.minimum(above[condition.rows], limit)
            else:
                limit = np.floor(values) + 1 if found.op == ">" else values
                below[condition.rows] = np.maximum(below[condition.rows], limit)
        fits = rows & (below <= above) & (above > _LEAST_REQUEST)
        asked = self.job.eval(unit.name)
        now = float(asked) if isinstance(asked, int | float) else np.inf
        if not fits.any():
            return None, fits
        highest, lowest = float(above[fits].max()), float(below[fits].min())
        value = highest if now > highest else lowest if now < lowest else None
        if value is None or not np.isfinite(value):
            return None, fits
        whole = isinstance(asked, int) or value.is_integer()
        return int(value) if whole else value, fits & (below <= value) & (value <= above)

    def _other(self, number: int, rows: Mask) -> Expr | None:
        """A condition of the job with another constant, the nearest that these rows satisfy; None if there is none."""
        conjunct = self.terms[number].conjunct
        found = None if conjunct.expr is None else comparison(conjunct.expr, OTHER_SIDE, self.requirements.job_has)
        if found is None:
            return None
        if isinstance(found.constant.value, str):
            constant = self._commonest(found, rows)
            return None if constant is None else Binary(found.op, found.slot, Literal(constant))
        if isinstance(found.constant.value, bool) or not isinstance(found.constant.value, int | float):
            return None
        numbers = Binary("||", Call("isInteger", (found.slot,)), Call("isReal", (found.slot,)))
        fits = rows & self.requirements.slots.matching.mask(numbers, self.job, OTHER_SIDE)
        if not fits.any():
            return None
        values = self.requirements.values(found.slot, OTHER_SIDE)[fits]
        if found.op in (">", ">="):
            value, op = float(values.max()), ">="
        elif found.op in ("<", "<="):
            value, op = float(values.min()), "<="
        else:
            counts = Counter(values.tolist())
            value, op = min(counts, key=lambda each: (-counts[each], each)), found.op
        return Binary(op, found.slot, Literal(int(value) if value.is_integer() else value))

    def _commonest(self, found: Comparison, rows: Mask) -> str | None:
        """The string that most of these rows have; None if it is no plain attribute."""
        if found.op not in ("==", "=?=") or not isinstance(found.slot, AttrRef):
            return None
        table = self.requirements.slots.table
        column = table.columns.get(found.slot.key)
        if column is None:
            return None
        counts = Counter(column.code[rows & (column.tag == STRING)].tolist())
        if not counts:
            return None
        texts = table.codes.texts
        commonest: str = texts[min(counts, key=lambda code: (-counts[code], texts[code]))]
        return commonest
