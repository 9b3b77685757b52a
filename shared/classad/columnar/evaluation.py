"""How terms are evaluated now: at which moment, with which patience, and at whose cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import thread_time
from typing import TypeVar

from shared.classad.ad import ClassAd
from shared.classad.columnar.meter import DEAR_S, Meter
from shared.classad.columnar.terms import NOBODY, OTHER_SIDE, Term
from shared.classad.evaluate import evaluate
from shared.classad.values import Value

T = TypeVar("T")


@dataclass(slots=True)
class Evaluation:
    """Shared by all who evaluate for one Matching. now: what time() gives; patience, meter: see Matching; left_out:
    whether some result lacks what the meter left out."""

    now: float
    patience: Callable[[], None] | None = None
    meter: Meter | None = None
    left_out: bool = False

    def of_row(self, key: str, work: Callable[[], T], otherwise: T) -> T:
        """What `work` gives for the row of this key, at its owner's cost; `otherwise` where the owner is left out."""
        meter = self.meter
        if meter is None:
            return work()
        if not meter.idle and meter.is_out(key):
            self.left_out = True
            return otherwise
        began = thread_time()
        try:
            return work()
        finally:
            meter.add((key,), thread_time() - began)

    def of_rows(self, keys: Sequence[str], start: int, stop: int, work: Callable[[], T]) -> T | None:
        """What `work` gives for the rows start to stop at once, at their owners' cost; None if all of them are left
        out."""
        meter = self.meter
        if meter is None:
            return work()
        if not meter.idle and start < stop and all(meter.is_out(keys[row]) for row in range(start, stop)):
            self.left_out = True
            return None
        began = thread_time()
        try:
            return work()
        finally:
            if (took := thread_time() - began) > DEAR_S:
                meter.add([keys[row] for row in range(start, stop)], took)

    def value(self, term: Term, ad: ClassAd, row: ClassAd) -> Value:
        """Of a root, by the evaluator: `ad` is the one that meets the row."""
        if term.attribute is not None:
            return row.eval(term.attribute, ad, self.now)
        if term.side == OTHER_SIDE:
            return evaluate(term.expr, ad, row, self.now)
        return evaluate(term.expr, row, None if ad is NOBODY else ad, self.now)


def as_rank(value: Value, nothing: float = 0.0) -> float:
    """A value as a rank; `nothing` for what is no number (or NaN)."""
    number = float(value) if isinstance(value, bool | int | float) else nothing
    return nothing if math.isnan(number) else number
