"""The events of one daemon on their way to the broker, in order: those that wait for a connection, and those that were
sent so recently that a broker that fails now may not have passed them on. Pure: times are arguments.

A sent event counts as passed on once the broker has confirmed something that was requested behind it (`checkpoint`,
`confirm`) and AGAIN_S have gone by; what is left when the connection breaks goes out again first. So an event may come
twice, under the same id, and is lost only where there was no room for it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

#: Events, and bytes of them, that are held. When there are more the oldest go.
MOST: Final = 20_000
MOST_BYTES: Final = 32 << 20
#: An event over which the connection breaks so often is given up: the broker may refuse it.
TRIES: Final = 3
#: Seconds for which a broker that said nothing wrong may still lose what it has taken.
AGAIN_S: Final = 5.0


@dataclass(slots=True)
class PendingEvent:
    """A packed message. said: when, by the daemon's wall clock; sent: when, by a clock that never steps back."""

    key: str
    data: bytes
    id: str
    type: str
    said: float
    sent: float = 0.0
    tries: int = 0
    item: object = None  # what a transport needs besides


@dataclass(frozen=True, slots=True)
class Lost:
    """So many events that were said between two moments (seconds since 1970)."""

    events: int = 0
    first: float = 0.0
    last: float = 0.0


class Outbox:
    """The events of one daemon that wait, or that may have to be sent again."""

    def __init__(self, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._waiting: deque[PendingEvent] = deque()
        self._sent: deque[PendingEvent] = deque()
        self._bytes = 0
        self._number = 0  # sent so far
        self._confirmed = 0  # of these the broker has taken so many, at least
        self.lost = Lost()

    def __len__(self) -> int:
        """Events that wait."""
        return len(self._waiting)

    @property
    def crowded(self) -> bool:
        """Whether who says something should wait for room."""
        return 2 * len(self._waiting) > self._most or 2 * self._bytes > self._most_bytes

    @property
    def unconfirmed(self) -> int:
        """Events that were sent, and of which the broker has not said that it took them."""
        return self._number - self._confirmed

    def add(self, event: PendingEvent) -> None:
        """The newest. Where there is no room the oldest goes: one that was sent, else one that waits, and is lost."""
        self._waiting.append(event)
        self._bytes += len(event.data)
        while self._is_too_much():
            if self._sent:
                self._bytes -= len(self._sent.popleft().data)
                continue
            gone = self._waiting.popleft()
            self._bytes -= len(gone.data)
            self._lose(gone)

    def _is_too_much(self) -> bool:
        held = len(self._waiting) + len(self._sent)
        return held > 1 and (held > self._most or self._bytes > self._most_bytes)

    def next(self) -> PendingEvent | None:
        """The one that goes out now; it stays until `mark_sent`."""
        return self._waiting[0] if self._waiting else None

    def mark_sent(self, event: PendingEvent, now: float) -> None:
        """It was handed to the connection."""
        if self._waiting and self._waiting[0] is event:
            self._waiting.popleft()
            event.sent = now
            event.tries += 1
            self._number += 1
            self._sent.append(event)

    def checkpoint(self) -> int:
        """The number of events sent so far: pass it to `confirm` when the broker answers a request made now."""
        return self._number

    def confirm(self, checkpoint: int, now: float) -> None:
        """The broker answered what was requested then: it has what was sent before. Old enough events are dropped."""
        self._confirmed = max(self._confirmed, checkpoint)
        first = self._number - len(self._sent)  # of all that were sent ever, how many came before those in hand
        while self._sent and first < self._confirmed and self._sent[0].sent <= now - AGAIN_S:
            self._bytes -= len(self._sent.popleft().data)
            first += 1

    def connection_lost(self, now: float) -> list[PendingEvent]:
        """The connection is gone: what the broker may not have passed on waits again, before all else. Returns it."""
        first = self._number - len(self._sent)
        again = []
        for place, event in enumerate(self._sent):
            known = first + place < self._confirmed
            if event.tries < TRIES and not (known and event.sent <= now - AGAIN_S):
                again.append(event)
                continue
            self._bytes -= len(event.data)
            if not known:
                self._lose(event)
        self._sent.clear()
        self._waiting.extendleft(reversed(again))
        self._confirmed = self._number
        return again

    def _lose(self, event: PendingEvent) -> None:
        self.lost = Lost(
            self.lost.events + 1, min(self.lost.first or event.said, event.said), max(self.lost.last, event.said)
        )

    def take_lost(self) -> Lost:
        """What was lost since this was last asked."""
        lost, self.lost = self.lost, Lost()
        return lost
