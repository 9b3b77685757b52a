"""Which transfers may go now (MAX_CONCURRENT_UPLOADS, MAX_CONCURRENT_DOWNLOADS): never more than the limit. Users take
turns, transfers of one user go in the order in which they came, also when one went away meanwhile and asks again."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

#: Who asked once and never again is forgotten when there are more than these; and so is when a user had a turn.
MOST_KNOWN: Final = 10_000


class TransferQueue:
    """A ticket stands for one request, a name for the transfer that it asks for. most: at once; 0: no bound."""

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self._going: set[Hashable] = set()
        self._waiting: dict[Hashable, tuple[int, str, Hashable]] = {}  # place, user, name
        self._places: dict[Hashable, int] = {}  # by name, of all that did not go yet, present or not
        self._next = 0
        self._turns: dict[str, int] = {}  # by user, oldest first: which turn was the last
        self._turn = 0

    @property
    def going(self) -> int:
        return len(self._going)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def come(self, ticket: Hashable, user: str, name: Hashable) -> bool:
        """Whether it may go at once; else it waits until `called` names its ticket."""
        if not self._waiting and self._has_room():
            self._go(ticket, user, name)
            return True
        place = self._places.setdefault(name, self._next)
        self._next += 1
        self._waiting[ticket] = (place, user, name)
        while len(self._places) > MOST_KNOWN:
            del self._places[next(iter(self._places))]
        return False

    def leave(self, ticket: Hashable) -> None:
        """It is over, or waits no longer: then the next request for the same has its place."""
        self._going.discard(ticket)
        self._waiting.pop(ticket, None)

    def called(self) -> list[Hashable]:
        """Those who may go now: first the user whose last turn is longest ago. They count as going."""
        found = []
        while self._waiting and self._has_room():
            ticket = min(self._waiting, key=self._rank)
            _, user, name = self._waiting.pop(ticket)
            self._go(ticket, user, name)
            found.append(ticket)
        return found

    def _rank(self, ticket: Hashable) -> tuple[int, int]:
        place, user, _ = self._waiting[ticket]
        return self._turns.get(user, -1), place

    def _go(self, ticket: Hashable, user: str, name: Hashable) -> None:
        self._going.add(ticket)
        self._places.pop(name, None)
        self._turn += 1
        self._turns.pop(user, None)
        self._turns[user] = self._turn
        if len(self._turns) > MOST_KNOWN:
            del self._turns[next(iter(self._turns))]

    def _has_room(self) -> bool:
        return not self.most or len(self._going) < self.most
