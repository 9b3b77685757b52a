"""Checks that what a daemon holds in memory agrees with itself: strictly under tests, sparingly in production.

A core class (slot manager, accountant, queue) has `check_invariants() -> list[str]`: every violation in one sentence of
plain words, none if all is well. The daemon makes one `Invariants` per such class, and passes that method to `check`
after every public operation:

    invariants = Invariants("startd", context)
    ...
    invariants.check(slot_manager.check_invariants)

A pure class that shall check itself takes `check` as an argument of its constructor.

Strict (the environment has ROOST_STRICT_INVARIANTS=1, which tests/conftest.py sets for everything that tests start, and
the simulation for itself): every call checks, and a violation raises InvariantViolation.

Otherwise a violation is never fatal: it is logged as `invariant_violated` and counted in
`roost_<subsystem>_invariant_violations_total`. A check costs time in proportion to what is held, so that a check after
each operation would make a large pool slow: only the first call in each EVERY_S is one, and a check that took long
makes the next one wait longer, so that checking takes at most a thousandth of the daemon's time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client.core import Metric

from shared.daemon.context import Context
from shared.daemon.metrics import MetricSource, counter

#: In production one check is made in so many seconds at most.
EVERY_S: Final = 10.0
#: So much of the time may go into checks: after a check of 0.1 s comes none for 100 s.
SHARE: Final = 0.001
#: So many violations of one check are logged; all are counted.
LOGGED: Final = 10
STRICT_VARIABLE: Final = "ROOST_STRICT_INVARIANTS"


class InvariantViolation(AssertionError):
    """What is held in memory contradicts itself: a programmer's error. Raised where checks are strict only."""


def strict_by_environment() -> bool:
    return os.environ.get(STRICT_VARIABLE, "") == "1"


class Invariants(MetricSource):
    """The checks of one daemon, and the metric that counts what they found. strict: None means as the environment
    says."""

    def __init__(self, subsystem: str, context: Context, *, strict: bool | None = None) -> None:
        self.violations = 0  # found so far
        self._subsystem = subsystem
        self._strict = strict_by_environment() if strict is None else strict
        self._log = context.log
        self._clock = context.clock
        self._due = float("-inf")
        context.metrics.register(self)

    def check(self, find: Callable[[], Sequence[str]]) -> None:
        """Look for violations, if it is time to. Raises InvariantViolation where checks are strict."""
        if self._strict:
            if found := find():
                raise InvariantViolation("; ".join(found))
            return
        now = self._clock.monotonic()
        if now < self._due:
            return
        began = time.perf_counter()
        try:
            found = find()
        except Exception as error:  # noqa: BLE001 - a check that can not be made is a violation as well, and no reason to end
            found = [f"the check failed: {type(error).__name__}: {error}"]
        self._due = now + max(EVERY_S, (time.perf_counter() - began) / SHARE)
        self.violations += len(found)
        for violation in found[:LOGGED]:
            self._log.error("invariant_violated", subsystem=self._subsystem, violation=violation)

    def collect(self) -> Iterable[Metric]:
        text = "Contradictions found in what the daemon holds in memory: mistakes of Roost's, please report them"
        yield counter(f"roost_{self._subsystem}_invariant_violations", text, self.violations)
