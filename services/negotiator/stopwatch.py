"""Time limits of a cycle (spec row NEG-26), and what its parts take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from services.negotiator.pool import CycleConfig


class Stopwatch:
    """Without `CycleConfig.monotonic` nothing is measured and nothing ever runs out.

    exhausted: submitters, schedds and "cycle" whose time was over, in the order in which that was noticed. seconds: by
    part of the work, the time outside of parts left out.
    """

    def __init__(self, config: CycleConfig) -> None:
        self._config = config
        self._read = config.monotonic
        self._began = self._mark = 0.0 if self._read is None else self._read()
        self._turn_began = 0.0
        self._submitters: dict[str, float] = {}
        self._schedds: dict[str, float] = {}
        self._schedd = ""
        self.exhausted: dict[str, None] = {}
        self.seconds: dict[str, float] = {}

    @contextmanager
    def turn(self, submitter: str) -> Iterator[None]:
        """A submitter's turn in one spin."""
        if self._read is None:
            yield
            return
        self._turn_began = self._mark = self._read()
        self._schedd = ""
        yield
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

    def is_over(self, now: float | None = None) -> bool:
        """Whether the time of the whole cycle is over."""
        if self._read is None:
            return False
        if (self._read() if now is None else now) - self._began <= self._config.max_time_per_cycle_s:
            return False
        return not self._over("cycle")

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A part of the work."""
        if self._read is None:
            yield
            return
        began = self._read()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + self._read() - began

    def _over(self, who: str) -> bool:
        self.exhausted[who] = None
        return False

    def _charge_schedd(self, now: float) -> None:
        if self._schedd:
            self._schedds[self._schedd] = self._schedds.get(self._schedd, 0.0) + now - self._mark
        self._mark = now
