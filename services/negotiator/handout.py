"""How much of a list of slots a submitter may take (spec rows NEG-09 to NEG-14)."""

from __future__ import annotations

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
    """What a submitter may still take in its turn. Weights.

    left: of its slice. in_use: in all, now. ceiling: -1: none. bounded: False where its slice does not count at all.
    """

    left: float
    in_use: float
    ceiling: float = -1.0

    def pay(self, weight: float) -> None:
        self.left -= weight
        self.in_use += weight

    def strictly(self) -> float:
        """What may be taken without rounding anything up."""
        return self.left if self.ceiling < 0.0 else min(self.left, self.ceiling - self.in_use)

    def permits(self, weights: Floats, exempt: Bools | None = None) -> Bools:
        """(n,) bool: may a slot of this weight be taken next?

        Who has nothing in use may exceed its slice by one slot, so that slices below one slot do not stall (NEG-13).
        A ceiling may be exceeded by the last slot, but not by the first (as the reference does; NEG-12). `exempt`:
        slots for which the slice does not count, as their RANK prefers the job (NEG-14).
        """
        fits: Bools = weights <= self.left + TOLERANCE
        if self.in_use <= 0.0 < self.left:
            fits = np.ones(len(weights), np.bool_)
        if exempt is not None:
            fits = fits | exempt
        if self.ceiling >= 0.0:
            room = self.ceiling - self.in_use
            if not self.in_use > 0.0 or room <= TOLERANCE:
                fits = fits & (weights <= room + TOLERANCE)
        return fits

    def exhausted(self) -> bool:
        """Whether nothing that weighs something can be taken any more, but for what is exempt."""
        return self.left <= TOLERANCE or self.at_ceiling()

    def at_ceiling(self) -> bool:
        return 0.0 <= self.ceiling <= self.in_use + TOLERANCE


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
        total = np.cumsum(charges[lines[:n]])
        several = int(np.searchsorted(total, purse.strictly() + TOLERANCE, side="right"))
        if several:
            purse.pay(float(total[several - 1]))
            taken.append(lines[:several])
            lines = lines[several:]
            n -= several
            if not n or not len(lines):
                break
        fits = purse.permits(charges[lines], None if exempt is None else exempt[lines])
        first = int(np.argmax(fits))
        if not fits[first]:
            break
        nobody = purse.in_use <= 0.0
        heavy, one = lines[:first], lines[first : first + 1]
        purse.pay(float(charges[one[0]]))
        taken.append(one)
        n -= 1
        rest = lines[first + 1 :]
        if nobody:  # a ceiling may now let pass what it did not before
            lines = np.concatenate([heavy, rest])
        else:
            lines = rest if slots is None or not len(heavy) else rest[~np.isin(slots[rest], slots[heavy])]
    return np.concatenate(taken) if taken else np.zeros(0, np.intp)
