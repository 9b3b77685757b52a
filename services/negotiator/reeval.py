"""STARTD_AD_REEVAL_EXPR: whether a slot's new ad takes the place of the one that was used before (spec row NEG-38).

Without the knob the newer ad counts, by the sequence numbers of its daemon: the ad table sees to that before anything
comes here. With it, an administrator can have a slot matched by an older ad, say to damp what flutters. The ad that was
kept back is asked about again before each cycle, as the expression may look at the clock.

The reference asks only about ads with a flag that its manual does not know of, so there the knob seems to do nothing.
Here it does what the manual says: every slot is asked about. What a kept-back ad says of claims is kept back with it;
an expression should let changes of State pass:

    STARTD_AD_REEVAL_EXPR = TARGET.State =!= MY.State || TARGET.EnteredCurrentState > MY.EnteredCurrentState

Pure but for the names it remembers.
"""

from __future__ import annotations

from collections.abc import Callable

from shared.classad import ClassAd, Expr, evaluate, is_true


class Reevaluation:
    """expr: the knob; None: it is not set. MY is the ad in use, TARGET the new one, as in HTCondor."""

    def __init__(self, expr: Expr | None = None) -> None:
        self._expr = expr
        self._kept_back: set[str] = set()

    def replaces(self, name: str, used: Callable[[], ClassAd | None], new: ClassAd, now: float) -> bool:
        """Whether the new ad of slot `name` is to be used from now on. `used` gives the ad in use, None if there is
        none; it is asked only where the knob is set. What is neither true nor false counts as true."""
        old = used() if self._expr is not None else None
        if self._expr is None or old is None:
            return True
        value = evaluate(self._expr, old, new, now)
        replaces = is_true(value) or not isinstance(value, bool | int | float)
        if replaces:
            self._kept_back.discard(name)
        else:
            self._kept_back.add(name)
        return replaces

    def kept_back(self) -> list[str]:
        """Slots whose newest ad is not in use, in order: ask about them again before a cycle."""
        return sorted(self._kept_back)

    def forget(self, name: str) -> None:
        """The slot is gone."""
        self._kept_back.discard(name)
