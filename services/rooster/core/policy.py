"""Decides which sleeping machines are woken, and in which order (spec row PWR-06). Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shared.classad import ClassAd, Expr, evaluate, is_true


@dataclass(frozen=True, slots=True)
class Rules:
    """ROOSTER_INTERVAL (s), ROOSTER_UNHIBERNATE, ROOSTER_UNHIBERNATE_RANK (None: as they come), ROOSTER_MAX_UNHIBERNATE
    (0: no limit), and the words of ROOSTER_WAKEUP_CMD (none: a magic packet of our own)."""

    interval_s: float
    unhibernate: Expr
    rank: Expr | None = None
    most: int = 0
    command: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class SleepingMachine:
    """A machine to be woken. ad: of the slot that wants it most."""

    machine: str
    ad: ClassAd
    rank: float = 0.0


def machines_to_wake(ads: Iterable[ClassAd], rules: Rules, now: float) -> list[SleepingMachine]:
    """The machines of which a slot's ROOSTER_UNHIBERNATE is true, the highest rank first, then by name; each once. What
    is no number ranks 0."""
    best: dict[str, SleepingMachine] = {}
    for ad in ads:
        if not is_true(evaluate(rules.unhibernate, ad, None, now)):
            continue
        machine = ad.eval("Machine", None, now)
        if not isinstance(machine, str) or not machine:
            machine = ad.eval_string("Name").rpartition("@")[2]
        if not machine:
            continue
        one = SleepingMachine(
            machine, ad, _number(evaluate(rules.rank, ad, None, now)) if rules.rank is not None else 0.0
        )
        known = best.get(machine.lower())
        if known is None or one.rank > known.rank:
            best[machine.lower()] = one
    return sorted(best.values(), key=lambda one: (-one.rank, one.machine.lower()))


def _number(value: object) -> float:
    if isinstance(value, bool):
        return float(value)
    return float(value) if isinstance(value, int | float) and not math.isnan(value) else 0.0
