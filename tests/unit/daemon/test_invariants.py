"""Checks of what a daemon holds: strict under tests, sparing and never fatal in production."""

from pathlib import Path

import pytest
import structlog

from shared.daemon.context import Context
from shared.daemon.invariants import EVERY_S, Invariants, InvariantViolation


class Clock:
    at = 0.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


def context() -> Context:
    log = structlog.stdlib.get_logger()
    return Context("n", None, None, None, Path(), Path(), log, clock=Clock())


def counted(around: Context) -> float | None:
    return around.metrics.get_sample_value("roost_startd_invariant_violations_total")


def test_a_violation_raises_under_tests():
    checks = Invariants("startd", context())
    checks.check(list)
    with pytest.raises(InvariantViolation, match="one; two"):
        checks.check(lambda: ["one", "two"])


def test_a_violation_is_counted_in_production():
    around = context()
    checks = Invariants("startd", around, strict=False)
    assert counted(around) == 0
    checks.check(lambda: ["one", "two"])
    assert counted(around) == 2


def test_production_checks_seldom():
    around = context()
    checks = Invariants("startd", around, strict=False)
    for _ in range(3):
        checks.check(lambda: ["one"])
    assert counted(around) == 1
    around.clock.at += EVERY_S
    checks.check(lambda: ["one"])
    assert counted(around) == 2


def test_a_check_that_fails_is_counted_and_not_fatal():
    around = context()

    def broken() -> list[str]:
        raise KeyError("slot1")

    Invariants("startd", around, strict=False).check(broken)
    assert counted(around) == 1
