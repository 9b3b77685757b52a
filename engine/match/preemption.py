"""Slots in use that a job may have all the same (spec rows PRE-01 to PRE-18, NEG-19).

`Preemption` tells which claimed slots prefer the job by their RANK, or may be taken for its submitter's priority.

`PslotPreemption` is for ALLOW_PSLOT_PREEMPTION: partitionable slots that a job may have if some of their dynamic slots
are preempted. A machine in which the job does not fit is looked at with its dynamic slots, those of the lowest
CurrentRank first, as far as the job may preempt them: what they have is added, one by one, until the job fits. Only
cpus, memory and disk are added (PRE-13), as the manual says.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.match.carving import weights_of
from engine.match.consumption import Policies, Portions
from engine.match.model import CycleConfig
from engine.match.slot_arrays import MY, STANDARD, USER_NAMES, Bools, Floats, RowNumbers, SlotArrays
from shared.classad import ClassAd, parse_expr
from shared.classad.columnar import Frame
from shared.classad.columnar.column import ABSENT, INT, OTHER, REAL, STRING, Column
from shared.classad.expr import AttrRef, Binary, Expr, Literal, Parens, fold

#: Who is charged for it.
CHARGED_NAMES: Final = USER_NAMES[2:]

#: Levels of the reason in the order of the match list, higher is better (NEG-21).
FREE, BY_RANK, BY_PRIORITY = 2.0, 1.0, 0.0

_IDLE: Final = parse_expr('MY.Activity == "Idle"')
_RETIRING: Final = parse_expr("MY.RetirementTimeRemaining > 0")
_DYNAMIC: Final = parse_expr("MY.DynamicSlot =?= true")
_CURRENT_RANK: Final = AttrRef("CurrentRank", MY)
_BOOLEAN_OPS: Final = frozenset(("&&", "||", "==", "!=", "<", "<=", ">", ">=", "=?=", "=!="))


@dataclass(frozen=True, slots=True)
class Users:
    """Who has which slot: `user` is (n,) int32, an index into `names`; -1: nobody."""

    names: list[str]
    user: NDArray[np.int32]


def users_of(frame: Frame, attributes: Sequence[str] = USER_NAMES) -> Users:
    """Of every slot, claimed or not; the first of these attributes that is a text says so."""
    table = frame.table  # as it is: the frame still has what the last cycle made of it, of as many rows as there were
    frame.want(name.lower() for name in attributes)
    codes = np.full(len(table), -1, np.int64)
    for name in reversed(attributes):
        column = table.columns[name.lower()]
        codes = np.where(column.tag == STRING, column.code, codes)
        for row in np.flatnonzero(column.tag == OTHER).tolist():
            value = table.ad(row).eval(name)
            if isinstance(value, str):
                codes[row] = frame.codes.text(value)
    texts = frame.codes.texts
    there = np.zeros(len(texts) + 1, np.bool_)
    there[codes] = True  # nobody's are the last
    names = [code for code in np.flatnonzero(there[:-1]).tolist() if texts[code]]
    number = np.full(len(there), -1, np.int32)
    number[names] = np.arange(len(names))
    return Users([texts[code] for code in names], number[codes])


def is_boolean_true(expr: Expr) -> Expr:
    """A condition that only TRUE satisfies, no number (PRE-03)."""
    inner = expr
    while isinstance(inner, Parens):
        inner = inner.inner
    if isinstance(inner, Binary) and inner.op in _BOOLEAN_OPS:
        return expr
    return Binary("=?=", Parens(expr), Literal(True))


@dataclass(slots=True)
class Preemption:
    """The claimed slots of a cycle. eup: (n,) of who has the slot. spared: by a word for the reasons, claimed slots
    that are not looked at; parts: dynamic slots that may be preempted for their machine (emptying.py). choosy: whether
    the RANK of a slot that somebody uses may prefer some job to his."""

    arrays: SlotArrays
    config: CycleConfig
    users: Users
    eup: Floats
    current_rank: Floats
    requirements: Expr | None
    spared: list[tuple[str, Bools]]
    parts: Bools
    choosy: bool

    @classmethod
    def of(cls, arrays: SlotArrays, config: CycleConfig, users: Users, eups: list[float]) -> Preemption:
        """Takes what is spared out of `arrays.held`."""
        matching = arrays.matching
        current_rank = matching.values(_CURRENT_RANK, nothing=math.nan)
        choosy = bool(np.any(arrays.held & ~_is_content(arrays, current_rank)))
        spared = [("idle", matching.mask(_IDLE) & arrays.claimed)]  # NEG-19
        if not config.consider_early_preemption:
            spared.append(("retirement", matching.mask(_RETIRING) & arrays.claimed))  # PRE-08
        spared.append(("nobody", arrays.claimed & (users.user < 0)))
        parts = np.zeros(arrays.size, np.bool_)
        if config.allow_pslot_preemption:
            dynamic = matching.mask(_DYNAMIC) & arrays.claimed
            parts = arrays.held & ~matching.mask(_RETIRING)  # PRE-14
            for _, rows in spared:
                parts &= ~rows
            spared.append(("part-of-machine", dynamic))  # PRE-15
        for _, rows in spared:
            arrays.held &= ~rows
        requirements = config.preemption_requirements
        if isinstance(requirements, Literal) and requirements.value is not True:
            requirements = None
        return cls(
            arrays=arrays,
            config=config,
            users=users,
            eup=np.array([*eups, np.inf])[users.user],
            current_rank=current_rank,
            requirements=None if requirements is None else is_boolean_true(requirements),
            spared=spared,
            parts=parts,
            choosy=choosy,
        )

    def is_idle(self) -> bool:
        """Whether no job at all can be offered a slot: preemption by priority is off, and the RANK of every held slot
        is a plain number that its job satisfies already."""
        if self.requirements is not None:
            return False
        return not self.choosy or bool(np.all(~self.arrays.held | _is_content(self.arrays, self.current_rank)))

    def offers(
        self, job: ClassAd, submitter: str, eup: float, suits: Bools, *, perhaps: bool = False
    ) -> tuple[Bools, Bools]:
        """(n,) bool each: slots that the job may have as their RANK prefers it (PRE-01), and by priority (PRE-02).
        suits: where job and slot match. perhaps: PREEMPTION_REQUIREMENTS are not asked."""
        return self.preferred(job, submitter, eup, suits & self.arrays.held, perhaps=perhaps)

    def by_rank(self, job: ClassAd, held: Bools) -> Bools:
        """(n,) bool: which of these rows prefer the job."""
        return held & (self.arrays.matching.row_rank(job) > self.current_rank)

    def permits(self, job: ClassAd, rows: RowNumbers, live: Mapping[str, Column]) -> Bools:
        """(m,) bool: for which of these rows PREEMPTION_REQUIREMENTS are true, with these columns as they are now."""
        assert self.requirements is not None
        order = np.argsort(rows)
        probe = self.arrays.matching.probe(
            rows[order], {name: column.taken(rows[order]) for name, column in live.items()}
        )
        found = np.zeros(len(rows), np.bool_)
        found[order] = probe.numbers(self.requirements, job)[0] != 0.0
        return found

    def preferred(
        self, job: ClassAd, submitter: str, eup: float, held: Bools, *, perhaps: bool = False
    ) -> tuple[Bools, Bools]:
        """The same of these rows, whether they match or not."""
        if not held.any():
            return held, held
        by_rank = self.by_rank(job, held)
        by_priority = held & (self.eup > eup)
        if self.requirements is None or not by_priority.any():
            return by_rank, np.zeros(len(held), np.bool_)
        by_priority &= self.arrays.matching.row_rank(job) == self.current_rank  # not below, and not above either
        if submitter in self.users.names:
            by_priority &= self.users.user != self.users.names.index(submitter)
        if not perhaps and by_priority.any():
            by_priority &= self.arrays.matching.mask(self.requirements, job)
        return by_rank, by_priority


def _is_content(arrays: SlotArrays, current_rank: Floats) -> Bools:
    """(n,) bool: where RANK is a plain number that the slot's job satisfies already, so that it prefers no other."""
    arrays.frame.want(("rank",))
    rank = arrays.frame.columns["rank"]
    number = np.isin(rank.tag, (INT, REAL))
    content: Bools = (number | (rank.tag == ABSENT)) & ~(np.where(number, rank.number, math.nan) > current_rank)
    return content


_PART: Final = re.compile(r"(.*)_\d+(@.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PslotOffer:
    """A machine as it would be with the job in it. parts: rows of the dynamic slots to be preempted, in order. change:
    by folded name, how much less there is then; weight: of what is left; charge: for the job; level: the reason."""

    row: int
    parts: RowNumbers
    change: dict[str, float]
    weight: float
    charge: float
    level: float


class PslotPreemption:
    """Machines with dynamic slots that may be preempted at all. False if there are none."""

    def __init__(self, arrays: SlotArrays, parts: Bools, rank: Floats) -> None:
        self._arrays = arrays
        table = arrays.frame.table
        found: list[tuple[int, int]] = []
        for row in np.flatnonzero(parts).tolist():
            name = _PART.fullmatch(table.keys[row])
            parent = name[1] + (name[2] or "") if name else ""
            if parent in table and arrays.partitionable[table.row(parent)]:
                found.append((table.row(parent), row))
        parents = np.array([parent for parent, _ in found], np.intp)
        rows = np.array([row for _, row in found], np.intp)
        order = np.lexsort((arrays.place[rows], rank[rows], parents)) if len(rows) else rows
        self._parents, self._parts = parents[order], rows[order]

    def __bool__(self) -> bool:
        return len(self._parts) > 0

    def lines(self, free: Bools, allowed: Bools) -> tuple[RowNumbers, RowNumbers]:
        """(L,) machines that are open and not `free` to the job, ascending, and one allowed part of each a line."""
        arrays = self._arrays
        some = allowed[self._parts] & arrays.open[self._parents] & ~free[self._parents]
        return self._parents[some], self._parts[some]

    def offers(
        self,
        job: ClassAd,
        lines: tuple[RowNumbers, RowNumbers],
        by_priority: Bools,
        taking: Portions,
        policies: Policies,
        config: CycleConfig,
    ) -> dict[int, PslotOffer]:
        """By row, the machines that the job may have so. taking: of the machines of the lines, each once, ascending."""
        arrays, (parents, parts) = self._arrays, lines
        at = np.searchsorted(taking.rows, parents)
        first = np.searchsorted(parents, taking.rows)  # line
        added = {
            key: _sums(np.nan_to_num(column.number[parts]), at, first)
            for key, column in ((fold(name), arrays.frame.columns.get(fold(name))) for name in STANDARD)
            if column is not None
        }
        whole = self._columns(parents, {key: -amount for key, amount in added.items()})
        use, fits = self._use(taking, at, whole)
        probe = arrays.matching.probe(parents, whole)
        suits = np.zeros(len(parents), np.bool_)
        for some, seen in policies.jobs(job, taking.rows):
            suits |= some[at] & probe.match(seen, everything=True)
        good = np.flatnonzero(suits & fits)
        machines, index = np.unique(parents[good], return_index=True)
        chosen = good[index]
        if not len(chosen):
            return {}
        left = {key: use[key] - added.get(key, 0.0) for key in use}
        after = arrays.matching.probe(parents, self._columns(parents, left))
        before, behind = (weights_of(arrays, each, parents, config) for each in (probe, after))
        found = {}
        for row, line in zip(machines.tolist(), chosen.tolist(), strict=True):
            victims = parts[first[at[line]] : line + 1]
            found[row] = PslotOffer(
                row=row,
                parts=victims,
                change={key: float(amount[line]) for key, amount in left.items()},
                weight=float(behind[line]),
                charge=float(max(0.0, before[line] - behind[line])) if config.use_slot_weights else 1.0,
                level=BY_PRIORITY if by_priority[victims].any() else BY_RANK,
            )
        return found

    def _use(self, taking: Portions, at: RowNumbers, whole: dict[str, Column]) -> tuple[dict[str, Floats], Bools]:
        """What the job takes of each resource in each line, and where it fits."""
        use: dict[str, Floats] = {key: np.zeros(len(at)) for key in whole}
        fits = taking.possible[at]
        for index, key in enumerate(taking.keys):
            have = np.nan_to_num(whole[key].number) if key in whole else np.zeros(len(at))
            rounded, plain = taking.first[index, at], taking.then[index, at]
            use[key] = np.where(rounded <= have, rounded, plain)
            fits = fits & (use[key] <= have)
        return use, fits

    def _columns(self, rows: RowNumbers, less: dict[str, Floats]) -> dict[str, Column]:
        """The live columns with so much less."""
        columns: dict[str, Column] = {}
        for key, column in self._arrays.free.items():
            own = column.taken(rows)
            if key in less:
                own.number -= less[key]
                own.tag[(own.tag == INT) & (own.number != np.floor(own.number))] = REAL
                own.count()
            columns[key] = own
        return columns


def _sums(amounts: Floats, at: RowNumbers, first: RowNumbers) -> Floats:
    """Running sums within each machine."""
    total = np.cumsum(amounts)
    return total - (total - amounts)[first][at]
