"""What the jobs of a request take out of partitionable slots, and how many of them fit (spec rows CON-01 to CON-07).

Foreseen as the startd carves: by the slot's consumption policy where it has one, else rounded as the startd rounds by
default (SLT-18): whole cpus, 128 MiB, 1 MiB of disk (1024 KiB), custom resources as asked; where rounding does not fit,
the plain request is tried. All slots at once: arrays have one item a slot.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.match.slot_arrays import Bools, Floats, RowNumbers, SlotArrays
from shared.classad import ClassAd, flatten, parse_expr
from shared.classad.columnar import OTHER_SIDE
from shared.classad.columnar.column import ABSENT
from shared.classad.expr import AttrRef, Expr, Literal, fold
from shared.consumption import PREFIX, Number, as_consumed, resources

#: Every slot has a core and some memory, whatever its job asks (SLT-10).
LEAST: Final = {"cpus": 1.0, "memory": 1.0}
#: Quantum and default of what every partitionable slot has, by folded name.
_QUANTA: Final = {"cpus": (1.0, 1.0), "memory": (128.0, 0.0), "disk": (1024.0, 0.0)}
_MY: Final = AttrRef("MY")
_MANY: Final = 1e15


@dataclass(frozen=True, slots=True)
class Portions:
    """What each of the coming jobs takes of each of some slots.

    keys: folded names of what is taken, R of them. Of resource r, the first `switch[r]` jobs take `first[r]` each,
    those after them `then[r]`. copies: (m,) how many jobs fit, as far as amounts tell. possible: (m,) whether a job
    could fit at all, if there were enough.
    """

    rows: RowNumbers
    keys: tuple[str, ...]
    first: Floats  # (R, m)
    then: Floats
    switch: Floats
    copies: NDArray[np.int64]
    possible: Bools

    def used(self, at: RowNumbers, jobs: NDArray[np.int64]) -> Floats:
        """(R, L): what so many jobs take together of the slots `at` (places in `rows`)."""
        switch = self.switch[:, at]
        early = np.minimum(jobs, switch)
        return early * self.first[:, at] + (jobs - early) * self.then[:, at]


@dataclass(frozen=True, slots=True)
class _Need:
    """What a job asks of a resource, for each of some slots. amount: as it is; rounded: as the startd carves it first.
    have: what is there. counts: where a slot has a bound of it, and is not had whole."""

    key: str
    amount: Floats
    rounded: Floats
    have: Floats
    counts: Bools


def _needs(job: ClassAd, arrays: SlotArrays, rows: RowNumbers) -> Iterator[_Need]:
    parts = arrays.partitionable[rows]
    for name in arrays.resources:
        key = fold(name)
        quantum, default = _QUANTA.get(key, (0.0, 0.0))
        asked = _asked(job, arrays, rows, name, default)
        if key in _QUANTA:
            amount = np.maximum(LEAST.get(key, 0.0), np.ceil(default if asked is None else asked))
        elif asked is None or not np.any(asked > 0):
            continue
        else:
            amount = np.maximum(0.0, asked)
        column = arrays.free.get(key)
        have = np.full(len(rows), np.nan) if column is None else column.number[rows]
        if quantum:
            rounded = np.ceil(amount / quantum) * quantum
            counts = parts & ~np.isnan(have)  # a slot that tells no such amount has no bound
        else:
            rounded = amount
            counts = parts & (amount > 0) & arrays.listed[key][rows]
            have = np.where(np.isnan(have), 0.0, have)
        yield _Need(key, amount, rounded, have, counts)


def fits(job: ClassAd, arrays: SlotArrays, rows: RowNumbers) -> Bools:
    """(m,) bool: where there is room for one job at least: `portions(...).copies > 0`, at a fraction of the price."""
    good = np.ones(len(rows), np.bool_)
    for need in _needs(job, arrays, rows):
        good &= ~need.counts | ((need.have >= need.amount) & (need.amount < np.inf))
    return good


def portions(job: ClassAd, arrays: SlotArrays, rows: RowNumbers, most: int) -> Portions:
    """Of slots without a policy; a slot that is not partitionable has room for one job. `most`: jobs that are looked
    for. Time O(resources x rows)."""
    keys: list[str] = []
    first: list[Floats] = []
    then: list[Floats] = []
    switch: list[Floats] = []
    copies = np.where(arrays.partitionable[rows], float(most), 1.0)
    possible = np.ones(len(rows), np.bool_)
    for need in _needs(job, arrays, rows):
        finite = np.isfinite(need.amount)
        early = _times(need.have, need.rounded, need.counts)
        with np.errstate(invalid="ignore"):
            rest = need.have - early * need.rounded
        late = _times(rest, need.amount, need.counts)
        fit = np.where(need.counts, np.where(finite, np.minimum(early + late, _MANY), 0.0), _MANY)
        copies = np.minimum(copies, fit)
        possible &= ~need.counts | finite
        keys.append(need.key)
        first.append(np.where(need.counts, need.rounded, 0.0))
        then.append(np.where(need.counts, need.amount, 0.0))
        switch.append(np.where(need.counts, early, _MANY))
    if not keys:
        empty = np.zeros((0, len(rows)))
        return Portions(rows, (), empty, empty, empty, copies.astype(np.int64), possible)
    counts = np.maximum(0.0, copies).astype(np.int64)
    return Portions(rows, tuple(keys), np.array(first), np.array(then), np.array(switch), counts, possible)


def least_cpus(job: ClassAd) -> float:
    """Cores that a slot without a policy has to have left for this job, at least."""
    cell = job.find("requestcpus")
    asked = float(cell) if isinstance(cell, int | float) and not isinstance(cell, bool) else 0.0
    return max(LEAST["cpus"], math.ceil(asked)) if math.isfinite(asked) else LEAST["cpus"]


def _times(have: Floats, amount: Floats, some: Bools) -> Floats:
    """How often an amount fits; what takes nothing fits as often as you like."""
    with np.errstate(all="ignore"):
        times = np.where(amount > 0, np.floor(have / amount), np.where(have >= 0, _MANY, 0.0))
    return np.where(some, np.clip(times, 0.0, _MANY), _MANY)


def _asked(job: ClassAd, arrays: SlotArrays, rows: RowNumbers, name: str, default: float) -> Floats | float | None:
    """What the job asks of a resource, for each row, or one number for all. None: nothing. Who asks for less than
    nothing asks for nothing."""
    cell = job.find(fold(f"Request{name}"))
    if cell is None:
        return None
    if isinstance(cell, Expr):
        flat = flatten(cell, job)
        if not isinstance(flat, Literal):
            request = AttrRef(f"Request{name}", _MY)
            values = arrays.matching.values(request, job, OTHER_SIDE)[rows]
            number = arrays.matching.mask(_is_number(name), job, OTHER_SIDE)[rows]
            return np.where(number, np.where(np.isfinite(values), values, math.inf), default)
        value = flat.value
    else:
        value = cell
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else math.inf  # no amount: fits nowhere


@lru_cache(maxsize=64)
def _is_number(name: str) -> Expr:
    return parse_expr(f"isInteger(MY.Request{name}) || isReal(MY.Request{name})")


@dataclass(frozen=True, slots=True)
class _Seen:
    """Slots with a policy by which a job takes the same of each."""

    rows: RowNumbers
    amounts: dict[str, Number]
    job: ClassAd  # as these slots' Requirements are to see it (CON-07)


class Policies:
    """Partitionable slots with a consumption policy. False if there are none. has: (n,) bool: which these are."""

    def __init__(self, arrays: SlotArrays, rows: RowNumbers) -> None:
        self._arrays = arrays
        self._rows = rows
        self.has = np.zeros(arrays.size, np.bool_)
        self.has[rows] = True
        # By what a machine has: the rows, and the names of it.
        texts = arrays.frame.columns["machineresources"] if len(rows) else None
        self._kinds: list[tuple[RowNumbers, tuple[str, ...]]] = []
        if texts is not None:
            for code in np.unique(texts.code[rows]).tolist():
                names = resources(ClassAd({"MachineResources": arrays.frame.codes.texts[code] if code >= 0 else ""}))
                self._kinds.append((rows[texts.code[rows] == code], names))

    @classmethod
    def of(cls, arrays: SlotArrays) -> Policies:
        frame = arrays.frame
        keys = [fold(PREFIX + name) for name in arrays.resources]
        cpus = fold(PREFIX + "Cpus")  # every machine has some
        frame.want([cpus, *keys])
        none = cls(arrays, np.zeros(0, np.intp))
        if not keys or frame.columns[cpus].tags == 1 << ABSENT:
            return none
        rows = np.flatnonzero(arrays.partitionable & (frame.columns[cpus].tag != ABSENT))
        texts = frame.columns["machineresources"]
        good = np.ones(len(rows), np.bool_)
        for code in np.unique(texts.code[rows]).tolist():
            names = resources(ClassAd({"MachineResources": frame.codes.texts[code] if code >= 0 else ""}))
            some = texts.code[rows] == code
            for name in names:
                good &= ~some | (frame.columns[fold(PREFIX + name)].tag[rows] != ABSENT)
        return cls(arrays, rows[good])

    def __bool__(self) -> bool:
        return len(self._rows) > 0

    def apply(self, job: ClassAd, matches: Bools) -> Bools:
        """Where job and slot match, the slots with a policy asked about what the job consumes."""
        result = matches & ~self.has
        for seen in self._seen(job):
            result[seen.rows] = self._arrays.matching.match(seen.job)[seen.rows]
        return result

    def jobs(self, job: ClassAd, rows: RowNumbers) -> list[tuple[Bools, ClassAd]]:
        """The job as each of some rows is to see it: (m,) bool and the ad."""
        found = [(~self.has[rows], job)]
        if self:
            found += [(np.isin(rows, seen.rows), seen.job) for seen in self._seen(job)]
        return found

    def replace(self, job: ClassAd, taking: Portions, most: int) -> Portions:
        """Portions with those of the slots with a policy."""
        mine = np.flatnonzero(self.has[taking.rows])
        if not len(mine):
            return taking
        arrays, rows = self._arrays, taking.rows
        keys = list(dict.fromkeys([*taking.keys, *(fold(name) for name in arrays.resources)]))
        first, then, switch = (np.zeros((len(keys), len(rows))) for _ in range(3))
        for index, key in enumerate(taking.keys):
            at = keys.index(key)
            first[at], then[at], switch[at] = taking.first[index], taking.then[index], taking.switch[index]
        copies, possible = taking.copies.copy(), taking.possible.copy()
        possible[mine] = False
        first[:, mine] = then[:, mine] = 0.0
        switch[:, mine] = _MANY
        copies[mine] = 0
        for seen in self._seen(job):
            some = mine[np.isin(rows[mine], seen.rows)]
            fit = np.full(len(some), float(most))
            for name, amount in seen.amounts.items():
                if amount:
                    column = arrays.free.get(fold(name))
                    have = np.zeros(len(some)) if column is None else np.nan_to_num(column.number[rows[some]])
                    first[keys.index(fold(name)), some] = then[keys.index(fold(name)), some] = amount
                    fit = np.minimum(fit, np.floor(have / amount))
            copies[some] = np.maximum(0.0, fit).astype(np.int64)
            possible[some] = True
        return Portions(rows, tuple(keys), first, then, switch, copies, possible)

    def _seen(self, job: ClassAd) -> list[_Seen]:
        found = []
        matching = self._arrays.matching
        for rows, names in self._kinds:
            asking = job
            missing = [name for name in names if job.find(fold(f"Request{name}")) is None]
            if missing:
                asking = ClassAd({f"Request{name}": 0 for name in missing})
                asking.chain(job)
            amounts = np.zeros((len(names), len(rows)))
            valid = np.ones(len(rows), np.bool_)
            for index, name in enumerate(names):
                values = matching.values(AttrRef(PREFIX + name, _MY), asking)[rows]
                valid &= matching.mask(_at_least_0(name), asking)[rows] & (values < _MANY)
                there = self._arrays.free.get(fold(name))  # of what is not there nothing can be taken, not even 0
                valid &= np.zeros(len(rows), np.bool_) if there is None else ~np.isnan(there.number[rows])
                amounts[index] = values
            valid &= amounts.any(axis=0)
            if not valid.any():
                continue
            distinct, which = np.unique(amounts[:, valid], axis=1, return_inverse=True)
            which = which.reshape(-1)
            for number in range(distinct.shape[1]):
                these = {
                    name: int(value) if value.is_integer() else value
                    for name, value in zip(names, distinct[:, number].tolist(), strict=True)
                }
                found.append(_Seen(rows[valid][which == number], these, as_consumed(job, these)))
        return found


@lru_cache(maxsize=64)
def _at_least_0(name: str) -> Expr:
    return parse_expr(f"MY.{PREFIX}{name} >= 0")
