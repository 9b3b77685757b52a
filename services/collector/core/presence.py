"""Decides which execution points are gone, by what the broker says of their inboxes (spec row COL-11). No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

#: Inboxes looked at in a round: larger pools take several. Those that were missed are looked at in each.
MOST_LOOKS: Final = 300
#: How the names of daemons begin that are looked at.
STARTD: Final = "startd@"


class Presence:
    """Since when daemons have not been at the broker. A daemon whose inbox the broker does not know at all (another
    pool's, whose ads were forwarded) is left to the lifetime of its ads."""

    def __init__(self, grace_s: float) -> None:
        self.grace_s = grace_s
        self._missing: dict[str, float] = {}  # daemon -> since when
        self._last = ""  # looked at in the last round: the next one goes on after it

    @property
    def missing(self) -> int:
        return len(self._missing)

    def to_look_at(self, daemons: Iterable[str]) -> list[str]:
        """Which of all these daemons to look at in this round."""
        known = sorted(name for name in daemons if name.startswith(STARTD))
        there = set(known)
        self._missing = {name: since for name, since in self._missing.items() if name in there}
        first = list(self._missing)[:MOST_LOOKS]
        room = MOST_LOOKS - len(first)
        others = [name for name in known if name not in self._missing]
        after = [name for name in others if name > self._last] + [name for name in others if name <= self._last]
        turn = after[:room]
        if turn:
            self._last = turn[-1]
        return first + turn

    def saw(self, there: Mapping[str, bool], now: float) -> dict[str, float]:
        """Take in what the broker said of daemons at `now` (monotonic). Those that are gone, with the seconds since
        which: missed for longer than the grace, in more than one look."""
        gone = {}
        for name, is_there in there.items():
            if is_there:
                self._missing.pop(name, None)
            elif name not in self._missing:
                self._missing[name] = now
            elif now - self._missing[name] >= self.grace_s:
                gone[name] = now - self._missing[name]
        return gone

    def begin_anew(self) -> None:
        """The broker was away, or we were: everybody has to come back first."""
        self._missing.clear()
