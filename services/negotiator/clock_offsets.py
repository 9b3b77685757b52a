"""How far daemons' clocks are from ours: of all messages of some minutes the one that seems to have been under way
for the shortest time tells it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: How long (s) one message tells of a clock.
CLOCK_S: Final = 300.0
#: A clock that steps by more (s) was set.
BACK_S: Final = 0.5


class ClockOffsets:
    """How far daemons' clocks are from ours, as their messages tell."""

    def __init__(self) -> None:
        #: What is to be added to the clock of who was not heard yet: how far ours is ahead of everybody's.
        self.presumed_s = 0.0
        self._known: dict[str, tuple[float, float, float]] = {}  # by daemon: since when; least now, and before
        self._sent: dict[str, float] = {}  # by daemon: its last message, its clock

    def heard(self, daemon: str, sent: float, now: float) -> float:
        """Note a message that was sent at `sent`, its daemon's clock, after all that came before. What is to be added
        to that clock to get ours."""
        if sent < self._sent.get(daemon, sent) - BACK_S:  # theirs was set back, which looks like a slow bus
            self._known.pop(daemon, None)
        self._sent[daemon] = sent
        apart = now - sent
        since, least, before = self._known.get(daemon, (now, apart, apart))
        if now - since > CLOCK_S:
            since, least, before = now, apart, least
        least = min(least, apart)
        self._known[daemon] = (since, least, before)
        return min(least, before)

    def offset(self, daemon: str) -> float:
        """What `heard` said last, or what is presumed before anything was heard."""
        _, least, before = self._known.get(daemon, (0.0, self.presumed_s, self.presumed_s))
        return min(least, before)

    def clock_set(self, seconds: float) -> None:
        """Our own clock was set by so many seconds."""
        self.presumed_s += seconds
        self._known = {
            daemon: (since + seconds, least + seconds, before + seconds)
            for daemon, (since, least, before) in self._known.items()
        }

    def forget(self, daemons: Iterable[str]) -> None:
        for daemon in daemons:
            self._known.pop(daemon, None)
            self._sent.pop(daemon, None)
