"""Which accounting ads go to the collector, and when (spec row ACC-21). Pure but for what it remembers.

Priorities decay all the time, so every ad is a little out of date as soon as it is published. To tell the collector
all of it would be a flood in a pool with tens of thousands of submitters of all times. So an ad is published when its
submitter's use or settings change, and again now and then, a few hundred at a time; and the collector holds those of
the submitters who were active last, MOST of them beside those who use something now. Who wants to know all asks the
negotiator (GetPriorities).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import islice, takewhile
from typing import Final

#: Ads in the collector, unless more use something right now.
MOST: Final = 10_000
#: Ads in one step.
AT_ONCE: Final = 500
#: An ad is published again after this long (s): of who uses something, and of who only waits for better days.
AGAIN_S: Final = 60.0
AGAIN_IDLE_S: Final = 300.0


class Publication:
    """Remembers what was published when."""

    def __init__(self) -> None:
        # Name -> when, the longest ago first: of who used something then, and of who did not.
        self._busy: dict[str, float] = {}
        self._idle: dict[str, float] = {}
        self._changed: dict[str, None] = {}  # names, in the order in which they changed
        self._gone: set[str] = set()

    def restart(self, names: Iterable[str]) -> None:
        """Books were read: these are all there are, those who were active last first."""
        before = self._busy.keys() | self._idle.keys() | self._gone
        self._busy, self._idle = {}, {}
        self._changed = dict.fromkeys(islice(names, MOST))
        self._gone = before - self._changed.keys()

    def change(self, name: str) -> None:
        """Something about it that people want to see soon."""
        self._changed[name] = None
        self._gone.discard(name)

    def remove(self, name: str) -> None:
        self._changed.pop(name, None)
        if name in self._busy or name in self._idle:
            self._untell(name)
            self._gone.add(name)

    def next(self, now: float, idle: Callable[[str], bool], last: Callable[[str], float]) -> tuple[list[str], set[str]]:
        """Names whose ads are to be published now, and those whose ads are to be taken back.

        idle: whether it uses nothing. last: when it used something last; who did so longest ago makes room for others.
        """
        due = list(islice(self._changed, AT_ONCE))
        for told, again in ((self._busy, AGAIN_S), (self._idle, AGAIN_IDLE_S)):
            old = takewhile(lambda entry, again=again: not 0.0 <= now - entry[1] < again, told.items())  # type: ignore[misc]
            due += islice((name for name, _ in old if name not in self._changed), AT_ONCE - len(due))
        for name in due:
            self._changed.pop(name, None)
            self._untell(name)
            (self._idle if idle(name) else self._busy)[name] = now
        gone, self._gone = self._gone, set()
        total = len(self._busy) + len(self._idle)
        if total > MOST:
            makes_room = heapq.nsmallest(total - MOST + MOST // 10, self._idle, key=last)
            for name in makes_room:
                del self._idle[name]
            gone |= set(makes_room)
        return [name for name in due if name in self._busy or name in self._idle], gone

    def _untell(self, name: str) -> None:
        self._busy.pop(name, None)
        self._idle.pop(name, None)
