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
from typing import Final

import numpy as np

from engine.match.consumption import Portions
from engine.match.matchmaker import Matchmaker
from engine.match.open_request import OpenRequest
from engine.match.slot_arrays import Bools, Floats
from engine.match.sort_orders import best
from shared.classad.budget import TooExpensive

#: A slot is told of again after so many seconds, while jobs wait for it: a collector may not have known that it sleeps.
AGAIN_S: Final = 10.0
#: Causes for which jobs wait that another slot would help.
_HELPED: Final = ("", "no-match")


def matched_offline(matchmaker: Matchmaker, full: Container[str]) -> tuple[str, ...]:
    """Names of sleeping slots that jobs without a slot match, as few as hold them: the best ones first. full: groups
    that have used up their quota, whose jobs no slot would help. Changes the arrays: call it when all else is done."""
    arrays = matchmaker.arrays
    asleep = next(rows for code, rows in arrays.barred if code == "offline").copy()
    found: dict[str, None] = {}
    for open_request in (one for asked in matchmaker.open_requests.values() for one in asked):
        if not asleep.any():
            break
        if (
            open_request.left > 0
            and open_request.cause in _HELPED
            and matchmaker.tree.group_of(open_request.submitter) not in full
        ):
            matchmaker.asks(open_request.submitter)
            try:
                with matchmaker.time_limits.afterwards(open_request.submitter, open_request.request.schedd):
                    wanted = _wanted(matchmaker, open_request, asleep)
            except TooExpensive:
                continue
            if wanted is not None:
                rows = _take(matchmaker, open_request.left, asleep, *wanted)
                found |= dict.fromkeys(arrays.frame.keys[row] for row in rows)
    return tuple(found)


def _wanted(matchmaker: Matchmaker, open_request: OpenRequest, asleep: Bools) -> tuple[Portions, list[Floats]] | None:
    """What one request could take of the sleeping slots, and the keys by which it would choose; None: nothing."""
    rows = np.flatnonzero(matchmaker.finder.suits(open_request) & asleep)
    if not len(rows):
        return None
    taking = matchmaker.finder.portions(open_request, rows, open_request.left)
    keys = [key.now for key in matchmaker.finder.keys(open_request.ad, None)]
    matchmaker.arrays.check()
    return taking, keys


def _take(matchmaker: Matchmaker, left: int, asleep: Bools, taking: Portions, keys: list[Floats]) -> Sequence[int]:
    """Rows that a request for so many jobs is matched with. What it takes of them is taken off the arrays, or from
    `asleep`."""
    arrays = matchmaker.arrays
    rows = taking.rows
    chosen: list[int] = []
    for row in best(rows[taking.copies > 0], keys, arrays.place, left).tolist():
        if left <= 0:
            break
        at = np.searchsorted(rows, [row])
        jobs = np.minimum(taking.copies[at], left)
        left -= int(jobs[0])
        chosen.append(row)
        if arrays.partitionable[row]:
            arrays.carve(np.array([row]), taking.keys, taking.used(at, jobs), arrays.weight[[row]])
        else:
            asleep[row] = False
    return chosen


class WakeCalls:
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
