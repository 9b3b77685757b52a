"""Whether the machine may be offered: runs that fail for its own reasons, and checks that do not pass. Pure.

A machine that fails job after job within a second draws the whole queue to itself. After `limit` such failures in a
row, with no job between them that was started, it offers itself no longer, for a while that doubles each time it is
found unfit again (shared.backoff). Then it is checked, and if that is well it is offered on trial: one more failure,
and it is out again; a job that is started ends the trial.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shared.backoff import wait_s

#: How long a machine is not offered, seconds: the first time, and at most.
FIRST_S: Final = 10.0
LONGEST_S: Final = 1800.0


@dataclass(slots=True)
class MachineHealth:
    """Times are of a monotonic clock, seconds. limit: failures in a row after which it is not offered; 0: it always
    is."""

    limit: int
    failures: int = 0  # in a row
    spells: int = 0  # in a row, in which it was not offered
    reason: str = ""  # why it is not offered; empty: it is
    until: float = float("-inf")  # it is not looked at before

    def run_failed(self, why: str, now: float) -> None:
        """A run failed, and the machine is to blame."""
        self.failures += 1
        on_trial = self.spells > 0
        if not self.reason and self.limit and (on_trial or self.failures >= self.limit):
            times = f"{self.failures} runs in a row failed here" if self.failures > 1 else "a run failed here"
            self._out(f"{times}: {why}", now)

    def run_started(self) -> None:
        """A job was started: the machine works."""
        if not self.reason:
            self.failures = self.spells = 0

    def checked(self, trouble: str, now: float) -> None:
        """What a check of the machine found; empty: nothing."""
        if trouble:
            if not self.reason or now >= self.until:
                self._out(trouble, now)
            self.reason = trouble
        elif now >= self.until:
            self.reason = ""

    def _out(self, reason: str, now: float) -> None:
        self.reason = reason
        self.spells += 1
        self.until = now + wait_s(self.spells, FIRST_S, LONGEST_S)

    def wait_s(self, now: float, regular_s: float) -> float:
        """Seconds until the machine is checked again."""
        return max(0.0, self.until - now) if self.reason else regular_s
