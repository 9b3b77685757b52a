"""How much of a list of slots a submitter may take (spec rows NEG-09 to NEG-14)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.negotiator.board import Bools, Floats

Lines = NDArray[np.intp]

#: Sums of tenths, and slices such as 4/7 of 70, miss whole numbers by less than this.
TOLERANCE: Final = 1e-9


@dataclass(slots=True)
class Purse:
    """What a submitter may take in its turn of a spin. Weights.

    left: of its slice. in_use: in all, now. cap: how much it may come to in this turn, by its ceiling or its floor; the
    last slot may exceed it. got: in this turn.
    """

    left: float
    in_use: float
    cap: float = math.inf
    got: float = 0.0

    def pay(self, weight: float) -> None:
        self.left -= weight
        self.in_use += weight
        self.got += weight

    def strictly(self, charges: Floats) -> int:
        """How many lines of these charges, in order, may be taken without rounding anything up."""
        total = np.cumsum(charges)
        fit = int(np.searchsorted(total, self.left + TOLERANCE, side="right"))
        return min(fit, int(np.searchsorted(total - charges, self.cap - self.got - TOLERANCE, side="left")))

    def permits(self, weights: Floats, exempt: Bools | None = None) -> Bools:
        """(n,) bool: may a slot of this weight be taken next?

        The first slot of a turn may exceed the slice, so that slices below one slot do not stall (NEG-13). `exempt`:
        slots for which the slice does not count, as their RANK prefers the job (NEG-14).
        """
        if self.at_ceiling():
            return np.zeros(len(weights), np.bool_)
        if self.got <= 0.0 < self.left:
            return np.ones(len(weights), np.bool_)
        fits: Bools = weights <= self.left + TOLERANCE
        return fits if exempt is None else fits | exempt

    def at_ceiling(self) -> bool:
        return self.got >= self.cap - TOLERANCE


def spend(
    purse: Purse, charges: Floats, n: int, slots: NDArray[np.intp] | None = None, exempt: Bools | None = None
) -> Lines:
    """Take up to n of these lines, in order; which ones. The purse pays.

    charges: (m,) weight of each line. slots: (m,) lines of the same slot have the same number: the next of them can be
    had only after the one before; None: each line has a slot of its own. What is too heavy is passed over, for lighter
    ones further down.
    """
    taken: list[Lines] = []
    lines = np.arange(len(charges))
    while n > 0 and len(lines):
        several = purse.strictly(charges[lines[:n]])
        if several:
            purse.pay(float(charges[lines[:several]].sum()))
            taken.append(lines[:several])
            lines = lines[several:]
            n -= several
            if not n or not len(lines):
                break
        fits = purse.permits(charges[lines], None if exempt is None else exempt[lines])
        if slots is not None and not fits.all():
            # A slot whose next line is too heavy gives none of the others.
            owners, index = np.unique(slots[lines], return_index=True)
            fits &= ~np.isin(slots[lines], owners[~fits[index]])
        first = int(np.argmax(fits))
        if not fits[first]:
            break
        purse.pay(float(charges[lines[first]]))
        taken.append(lines[first : first + 1])
        n -= 1
        rest = np.ones(len(lines), np.bool_)
        rest[: first + 1] = False
        if slots is not None:
            rest &= ~np.isin(slots[lines], slots[lines[:first]])
        lines = lines[rest]
    return np.concatenate(taken) if taken else np.zeros(0, np.intp)
