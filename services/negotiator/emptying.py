"""Partitionable slots that a job may have if some of their dynamic slots are preempted (spec rows PRE-11 to PRE-18).

A machine in which the job does not fit is looked at with its dynamic slots, those of the lowest CurrentRank first, as
far as the job may preempt them: what they have is added, one by one, until the job fits. Only cpus, memory and disk are
added (PRE-13), as the manual says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from services.negotiator.board import STANDARD, Board, Bools, Floats, RowNumbers
from services.negotiator.carving import weights_of
from services.negotiator.consumption import Policies, Portions
from services.negotiator.pool import CycleConfig
from services.negotiator.preemption import BY_PRIORITY, BY_RANK
from shared.classad import ClassAd
from shared.classad.columnar import Probe
from shared.classad.columnar.column import INT, REAL, Column
from shared.classad.expr import fold

_PART: Final = re.compile(r"(.*)_\d+(@.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Emptied:
    """A machine as it would be with the job in it. parts: rows of the dynamic slots to be preempted, in order. change:
    by folded name, how much less there is then; weight: of what is left; charge: for the job; level: the reason."""

    row: int
    parts: RowNumbers
    change: dict[str, float]
    weight: float
    charge: float
    level: float


class Machines:
    """Machines with dynamic slots that may be preempted at all. False if there are none."""

    def __init__(self, board: Board, parts: Bools, rank: Floats) -> None:
        self._board = board
        table = board.frame.table
        found: list[tuple[int, int]] = []
        for row in np.flatnonzero(parts).tolist():
            name = _PART.fullmatch(table.keys[row])
            parent = name[1] + (name[2] or "") if name else ""
            if parent in table and board.partitionable[table.row(parent)]:
                found.append((table.row(parent), row))
        parents = np.array([parent for parent, _ in found], np.intp)
        rows = np.array([row for _, row in found], np.intp)
        order = np.lexsort((board.place[rows], rank[rows], parents)) if len(rows) else rows
        self._parents, self._parts = parents[order], rows[order]

    def __bool__(self) -> bool:
        return len(self._parts) > 0

    def lines(self, free: Bools, allowed: Bools) -> tuple[RowNumbers, RowNumbers]:
        """(L,) machines that are open and not `free` to the job, ascending, and one allowed part of each a line."""
        board = self._board
        some = allowed[self._parts] & board.open[self._parents] & ~free[self._parents]
        return self._parents[some], self._parts[some]

    def offers(
        self,
        job: ClassAd,
        lines: tuple[RowNumbers, RowNumbers],
        by_priority: Bools,
        taking: Portions,
        policies: Policies,
        config: CycleConfig,
    ) -> dict[int, Emptied]:
        """By row, the machines that the job may have so. taking: of the machines of the lines, each once, ascending."""
        board, (parents, parts) = self._board, lines
        at = np.searchsorted(taking.rows, parents)
        first = np.searchsorted(parents, taking.rows)  # line
        added = {
            key: _sums(np.nan_to_num(column.number[parts]), at, first)
            for key, column in ((fold(name), board.frame.columns.get(fold(name))) for name in STANDARD)
            if column is not None
        }
        whole = self._columns(parents, {key: -amount for key, amount in added.items()})
        use, fits = self._use(taking, at, whole)
        probe = Probe(board.matching, parents, whole)
        suits = np.zeros(len(parents), np.bool_)
        for some, seen in policies.jobs(job, taking.rows):
            suits |= some[at] & probe.match(seen, everything=True)
        good = np.flatnonzero(suits & fits)
        machines, index = np.unique(parents[good], return_index=True)
        chosen = good[index]
        if not len(chosen):
            return {}
        left = {key: use[key] - added.get(key, 0.0) for key in use}
        after = Probe(board.matching, parents, self._columns(parents, left))
        before, behind = (weights_of(board, each, parents, config) for each in (probe, after))
        found = {}
        for row, line in zip(machines.tolist(), chosen.tolist(), strict=True):
            victims = parts[first[at[line]] : line + 1]
            found[row] = Emptied(
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
        for key, column in self._board.free.items():
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
