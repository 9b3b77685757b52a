"""Live events to any number of people: one consumer on the bus, a bounded buffer for each listener, and the last few
thousand events kept so that a listener who reconnects goes on where it stopped."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict, deque
from fnmatch import fnmatchcase

from shared.messages.base import Envelope

KEPT = 5000
BUFFER = 2000
#: Seconds without an event after which a listener gets Quiet instead.
QUIET_S = 15.0


class Overflow(Exception):
    """A listener was too slow: it is told, and must begin again (from the id it saw last)."""


class Quiet:
    """Nothing has happened for a while: said so that both ends of a connection notice when the other has gone."""


class EventStream:
    """Fan-out of roost.events inside the gateway."""

    def __init__(self) -> None:
        self._kept: deque[Envelope] = deque(maxlen=KEPT)
        self._listeners: set[Following] = set()
        self._lines: OrderedDict[str, bytes] = OrderedDict()  # by id of the event

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    async def on_event(self, envelope: Envelope) -> None:
        self._kept.append(envelope)
        for listener in self._listeners:
            listener.offer(envelope)

    def line(self, envelope: Envelope) -> bytes:
        """An event as server-sent events have it. Written once, however many listen."""
        known = self._lines.get(envelope.id)
        if known is None:
            body = {"type": envelope.body.type, "sender": envelope.sender, **envelope.body.model_dump(mode="json")}
            known = f"id: {envelope.id}\nevent: {envelope.body.type}\ndata: {json.dumps(body)}\n\n".encode()
            self._lines[envelope.id] = known
            if len(self._lines) > BUFFER:
                self._lines.popitem(last=False)
        return known

    def follow(self, patterns: list[str], after: str = "") -> Following:
        """Begin to listen, from this moment on: events whose type matches one of the shell patterns (none: all), after
        the kept ones that came since the one with id `after`. To be closed."""
        following = Following(self._listeners, patterns)
        if after:
            missed, whole = self._since(after)
            if not whole:
                following.gap = f"event {after[:64]} is not kept any more: some that came after it may be missing"
            for envelope in missed:  # may overflow: then it reads these, and follows again after the last
                following.offer(envelope)
        self._listeners.add(following)
        return following

    def _since(self, after: str) -> tuple[list[Envelope], bool]:
        """Kept events that came after the one with id `after`, and whether those are all; by time where that one is no
        longer kept."""
        kept = list(self._kept)
        for position, envelope in enumerate(kept):
            if envelope.id == after:
                return kept[position + 1 :], True
        return [envelope for envelope in kept if envelope.id > after], False


class Following:
    """One listener's events, to be iterated over. Raises Overflow when it has fallen behind."""

    def __init__(self, listeners: set[Following], patterns: list[str]) -> None:
        self._listeners = listeners
        self._patterns = patterns
        self._queue: asyncio.Queue[Envelope] = asyncio.Queue()
        self._overflow = False
        self.gap = ""  # what may be missing before the first event

    def offer(self, envelope: Envelope) -> None:
        if self._patterns and not any(fnmatchcase(envelope.body.type, p) for p in self._patterns):
            return
        # Once one is left out all are: what is in the buffer is then without a gap, and its last id resumes rightly.
        self._overflow = self._overflow or self._queue.qsize() >= BUFFER
        if not self._overflow:
            self._queue.put_nowait(envelope)

    def more(self) -> list[Envelope]:
        """What is there besides the event that came last, without waiting: to be sent with it."""
        return [self._queue.get_nowait() for _ in range(self._queue.qsize())]

    def close(self) -> None:
        self._listeners.discard(self)

    def __aiter__(self) -> Following:
        return self

    async def __anext__(self) -> Envelope | Quiet:
        if self._overflow and self._queue.empty():
            raise Overflow(f"more than {BUFFER} events were waiting: follow again from the last id you saw")
        try:
            async with asyncio.timeout(QUIET_S):
                return await self._queue.get()
        except TimeoutError:
            return Quiet()
