"""Which sleeping machines have what jobs wait for (spec rows ABS-07, PWR-06).

A slot whose ad says Offline is given to nobody. But a job for which the cycle found no slot that is awake is matched
with those that sleep, and the collectors hear of it: they write MachineLastMatchTime into the slots' ads, by which
UNHIBERNATE has the rooster wake the machine. The job waits meanwhile, and is matched like all others once the machine
is there.

HTCondor sorts offline slots among the others, at the end by default. With ranks that put one first a job waits there
though another slot is awake; here it never does.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from services.negotiator.selection import best

if TYPE_CHECKING:
    from services.negotiator.deal import Asking, Deal

#: A slot is told of again after so many seconds, while jobs wait for it: a collector may not have known that it sleeps.
AGAIN_S: Final = 10.0
#: Causes for which jobs wait that another slot would help.
_HELPED: Final = ("", "no-match")


def matched_offline(deal: Deal, full: Container[str]) -> tuple[str, ...]:
    """Names of sleeping slots that jobs without a slot match, as few as hold them: the best ones first. full: groups
    that have used up their quota, whose jobs no slot would help. Changes the board: call it when all else is done."""
    board = deal.board
    asleep = next(rows for code, rows in board.barred if code == "offline").copy()
    found: dict[str, None] = {}
    for asking in (one for asked in deal.asking.values() for one in asked):
        if not asleep.any():
            break
        if asking.left > 0 and asking.cause in _HELPED and deal.tree.group_of(asking.submitter) not in full:
            found |= dict.fromkeys(board.frame.keys[row] for row in _rows(deal, asking, asleep))
    return tuple(found)


def _rows(deal: Deal, asking: Asking, asleep: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Sequence[int]:
    """Those that one request is matched with. What it takes of them is taken off the board, or from `asleep`."""
    board = deal.board
    rows = np.flatnonzero(deal.suits(asking) & asleep)
    if not len(rows):
        return ()
    taking = deal.portions(asking, rows, asking.left)
    keys = [key.now for key in deal.keys(asking.ad, None)]
    board.check()
    chosen: list[int] = []
    left = asking.left
    for row in best(rows[taking.copies > 0], keys, board.place, left).tolist():
        if left <= 0:
            break
        at = np.searchsorted(taking.rows, [row])
        jobs = np.minimum(taking.copies[at], left)
        left -= int(jobs[0])
        chosen.append(row)
        if board.partitionable[row]:
            board.carve(np.array([row]), taking.keys, taking.used(at, jobs), board.weight[[row]])
        else:
            asleep[row] = False
    return chosen


class Calls:
    """Which slots were told of, so that cycles one after the other do not tell the same again and again."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    @property
    def names(self) -> Collection[str]:
        """Sleeping slots that jobs of the last cycle wait for."""
        return self._told.keys()

    def due(self, names: Iterable[str], now: float) -> list[str]:
        """Those to tell of now (wall clock). names: of this cycle; what it does not name is forgotten, as the machine
        is awake, or nobody waits for it, and may sleep again soon."""
        names = list(names)
        told = {name: self._told[name] for name in names if name in self._told}
        self._told = {name: at for name, at in told.items() if 0 <= now - at < AGAIN_S}
        due = [name for name in names if name not in self._told]
        self._told |= dict.fromkeys(due, now)
        return due
