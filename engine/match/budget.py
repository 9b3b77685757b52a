"""What a submitter may take in its turn: the weight of its slice, floor and ceiling (spec rows NEG-09 to NEG-14), and
the time limits of a cycle (NEG-26).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.match.model import CycleConfig
from engine.match.slot_arrays import Bools, Floats
from shared.classad.budget import Budget as Evaluations
from shared.classad.budget import TooExpensive

Lines = NDArray[np.intp]

#: Sums of tenths, and slices such as 4/7 of 70, miss whole numbers by less than this.
TOLERANCE: Final = 1e-9
#: Steps and texts of the evaluations of one request: what bounds them is their time.
_ANY_NUMBER: Final = 1 << 62
#: Lines that are looked at together first, for one that may be taken.
_FEW_LINES: Final = 64


@dataclass(slots=True)
class Budget:
    """What a submitter may take in its turn of a spin. Weights.

    left: of its slice. free: of that, for slots that nobody has; preempted ones do not count against it, so where some
    were taken the last free slot may exceed the slice. in_use: in all, now. cap: how much it may come to in this turn,
    by its ceiling or its floor; the last slot may exceed it. got: in this turn. preempting: of that, what others had.
    """

    left: float
    in_use: float
    cap: float = math.inf
    free: float = math.inf
    got: float = 0.0
    preempting: float = 0.0

    def __post_init__(self) -> None:
        if self.free == math.inf:
            self.free = self.left

    def pay(self, weight: float, preempting: float = 0.0) -> None:
        self.left -= weight
        self.free -= weight - preempting
        self.in_use += weight
        self.got += weight
        self.preempting += preempting

    def strictly(self, charges: Floats, used: Bools | None = None) -> int:
        """How many lines of these charges, in order, may be taken without rounding anything up. used: (n,) lines that
        preempt somebody."""
        total = charges.cumsum()
        before = total - charges
        if used is None and self.free == self.left:
            fit = int(total.searchsorted(self.left + TOLERANCE, side="right"))
        else:
            fits = total <= self.left + TOLERANCE
            free = total - np.cumsum(np.where(used, charges, 0.0)) if used is not None else total
            free_fits = (free <= self.free + TOLERANCE) & (fits | (before < self.left - TOLERANCE))
            fits = free_fits if used is None else np.where(used, fits, free_fits)
            fit = len(fits) if fits.all() else int(np.argmin(fits))
        if self.cap == math.inf:
            return fit
        return min(fit, int(before.searchsorted(self.cap - self.got - TOLERANCE, side="left")))

    def permits(self, weights: Floats, exempt: Bools | None = None, used: Bools | None = None) -> Bools:
        """(n,) bool: may a slot of this weight be taken next?

        The first slot of a turn may exceed the slice, so that slices below one slot do not stall (NEG-13); likewise
        the first that nobody has. `exempt`: slots for which the slice does not count, as their RANK prefers the job
        (NEG-14). `used`: slots that somebody has.
        """
        if self.at_ceiling():
            return np.zeros(len(weights), np.bool_)
        fits: Bools = weights <= self.left + TOLERANCE
        free = (weights <= self.free + TOLERANCE) & (fits | (self.left > TOLERANCE))
        if self.left > 0.0 and self.got <= self.preempting:
            fits |= self.got <= 0.0
            free |= self.free > 0.0
        fits = free if used is None else np.where(used, fits, free)
        return fits if exempt is None else fits | exempt

    def heaviest(self) -> float:
        """As `permits`, of slots that nobody has: the weight up to which any of them may be taken next."""
        if self.at_ceiling():
            return -math.inf
        if self.left > 0.0 and self.got <= self.preempting and self.free > 0.0:
            return math.inf
        return (self.free if self.left > TOLERANCE else min(self.left, self.free)) + TOLERANCE

    def at_ceiling(self) -> bool:
        return self.got >= self.cap - TOLERANCE

    def is_spent(self, preempting: bool) -> bool:
        """Whether nothing but slots without weight may be taken. preempting: whether slots in use may be."""
        return self.left <= TOLERANCE or (self.free <= TOLERANCE and not preempting)


def spend(
    budget: Budget,
    charges: Floats,
    n: int,
    slots: NDArray[np.intp] | None = None,
    exempt: Bools | None = None,
    used: Bools | None = None,
) -> Lines:
    """Take up to n of these lines, in order; which ones. The budget pays.

    charges: (m,) weight of each line. slots: (m,) lines of the same slot have the same number: the next of them can be
    had only after the one before; None: each line has a slot of its own. exempt, used: as in `Budget.permits`. What is
    too heavy is passed over, for lighter ones further down.
    """
    if slots is None:
        return _spend_on_slots(budget, charges, n, exempt, used)
    taken: list[Lines] = []
    lines = np.arange(len(charges))
    while n > 0 and len(lines):
        several = budget.strictly(charges[lines[:n]], None if used is None else used[lines[:n]])
        if several:
            _pay(budget, charges, lines[:several], used)
            taken.append(lines[:several])
            lines = lines[several:]
            n -= several
            if not n or not len(lines):
                break
        fits = affordable(
            budget,
            charges[lines],
            slots[lines],
            None if exempt is None else exempt[lines],
            None if used is None else used[lines],
        )
        first = int(np.argmax(fits))
        if not fits[first]:
            break
        _pay(budget, charges, lines[first : first + 1], used)
        taken.append(lines[first : first + 1])
        n -= 1
        rest = np.ones(len(lines), np.bool_)
        rest[: first + 1] = False
        rest &= ~np.isin(slots[lines], slots[lines[:first]])
        lines = lines[rest]
    return np.concatenate(taken) if taken else np.zeros(0, np.intp)


def affordable(
    budget: Budget, charges: Floats, slots: NDArray[np.intp], exempt: Bools | None, used: Bools | None
) -> Bools:
    """(m,) bool: lines of slots of which the first line may be taken next. As in `spend`."""
    fits = budget.permits(charges, exempt, used)
    if not fits.all():
        # A slot whose next line is too heavy gives none of the others.
        owners, index = np.unique(slots, return_index=True)
        fits = ~np.isin(slots, owners[~fits[index]])
    return fits


def _spend_on_slots(budget: Budget, charges: Floats, n: int, exempt: Bools | None, used: Bools | None) -> Lines:
    """The same where each line is another slot."""
    taken: list[Lines] = []
    start = 0
    while n > 0 and start < len(charges):
        preempting = None
        if used is not None and used[start : start + n].any():
            preempting = used[start : start + n]
        several = budget.strictly(charges[start : start + n], preempting)
        if several:
            taken.append(np.arange(start, start + several))
            _pay(budget, charges, taken[-1], used)
            start += several
            n -= several
            if not n or start == len(charges):
                break
        first = _next(budget, charges, start, exempt, used)
        if first < 0:
            break
        taken.append(np.arange(first, first + 1))
        _pay(budget, charges, taken[-1], used)
        n -= 1
        start = first + 1
    if len(taken) == 1:
        return taken[0]
    return np.concatenate(taken) if taken else np.zeros(0, np.intp)


def _next(budget: Budget, charges: Floats, start: int, exempt: Bools | None, used: Bools | None) -> int:
    """The first line from `start` on that may be taken; -1: none."""
    if exempt is None and used is None:
        fits = charges[start:] <= budget.heaviest()
        first = int(fits.argmax())
        return start + first if fits[first] else -1
    size = _FEW_LINES
    while start < len(charges):
        some = slice(start, start + size)
        fits = budget.permits(
            charges[some], None if exempt is None else exempt[some], None if used is None else used[some]
        )
        first = int(fits.argmax())
        if fits[first]:
            return start + first
        start += size
        size *= 4
    return -1


def _pay(budget: Budget, charges: Floats, lines: Lines, used: Bools | None) -> None:
    paid = charges[lines]
    budget.pay(float(paid.sum()), 0.0 if used is None else float(paid[used[lines]].sum()))


class TimeLimits:
    """The time limits of one cycle. Without `CycleConfig.monotonic` nothing is measured and nothing ever runs out.

    exhausted: submitters, schedds and "cycle" whose time was over, in the order in which that was noticed. seconds: by
    part of the work, the time outside of parts left out.
    """

    def __init__(self, config: CycleConfig) -> None:
        self._config = config
        self._read = config.monotonic
        self._began = self._mark = 0.0 if self._read is None else self._read()
        self._turn_began = 0.0
        self._submitter = ""
        self._submitters: dict[str, float] = {}
        self._schedds: dict[str, float] = {}
        self._schedd = ""
        self.exhausted: dict[str, None] = {}
        self.seconds: dict[str, float] = {}

    @contextmanager
    def turn(self, submitter: str) -> Iterator[None]:
        """Measure a submitter's turn in one spin."""
        if self._read is None:
            yield
            return
        self._turn_began = self._mark = self._read()
        self._submitter, self._schedd = submitter, ""
        try:
            yield
        finally:
            now = self._read()
            self._charge_schedd(now)
            self._submitters[submitter] = self._submitters.get(submitter, 0.0) + now - self._turn_began

    def may_go_on(self, submitter: str, schedd: str) -> bool:
        """Whether the next request of this submitter, at that schedd, may be looked at."""
        if self._read is None:
            return True
        now = self._read()
        self._charge_schedd(now)
        self._schedd = schedd
        config = self._config
        turn = now - self._turn_began
        if self._submitters.get(submitter, 0.0) + turn > config.max_time_per_submitter_s:
            return self._over(submitter)
        if turn > config.max_time_per_piespin_s:
            return self._over(submitter)
        if self._schedds.get(schedd, 0.0) > config.max_time_per_schedd_s:
            return self._over(schedd)
        return not self.is_over(now)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluations inside are ended by TooExpensive once they have taken, in processor time, what the request's
        submitter, its schedd or the cycle had left."""
        if self._read is None:
            yield
            return
        seconds = max(0.0, min(self._left().values()))
        with Evaluations("a request", steps=_ANY_NUMBER, made=_ANY_NUMBER, seconds=seconds).open():
            yield

    @contextmanager
    def afterwards(self, submitter: str, schedd: str) -> Iterator[None]:
        """Look at a request once more when all slots are given, to tell what became of it, in the time that its
        submitter and schedd have left. Raises TooExpensive where there is none, or no more."""
        with self.turn(submitter):
            if not self.may_go_on(submitter, schedd):
                raise TooExpensive(f"the time of {submitter} is over")
            with self.evaluating():
                yield

    def gave_up(self) -> None:
        """Note that evaluations were ended: whose time was over."""
        left = self._left()
        self._over(min(left, key=left.__getitem__))

    def _left(self) -> dict[str, float]:
        """What is left of each limit on the request under way, by whose it is; less than nothing if it is over."""
        assert self._read is not None
        now, config = self._read(), self._config
        turn = now - self._turn_began
        of_submitter = config.max_time_per_submitter_s - self._submitters.get(self._submitter, 0.0)
        of_schedd = config.max_time_per_schedd_s - self._schedds.get(self._schedd, 0.0)
        return {
            self._submitter: min(of_submitter, config.max_time_per_piespin_s) - turn,
            self._schedd: of_schedd - (now - self._mark),
            "cycle": config.max_time_per_cycle_s - (now - self._began),
        }

    def is_over(self, now: float | None = None) -> bool:
        """Whether the time of the whole cycle is over."""
        if self._read is None:
            return False
        if (self._read() if now is None else now) - self._began <= self._config.max_time_per_cycle_s:
            return False
        return not self._over("cycle")

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Measure a part of the work."""
        if self._read is None:
            yield
            return
        began = self._read()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._read() - began

    def _over(self, who: str) -> bool:
        self.exhausted[who] = None
        return False

    def _charge_schedd(self, now: float) -> None:
        if self._schedd:
            self._schedds[self._schedd] = self._schedds.get(self._schedd, 0.0) + now - self._mark
        self._mark = now
