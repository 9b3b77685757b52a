"""Live events for any number of listeners: one consumer on the bus, a bounded buffer for each listener, and the last
few thousand events, so that a listener who reconnects goes on where it stopped. Events that are not kept any more come
from the journal (JournalBackfill)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any, Final

from services.gateway.core.authorization import may_hear
from services.gateway.told_events import Kept, Texts, Told
from shared.bus.api import Bus
from shared.cooperative import Yielder
from shared.errors import RoostError
from shared.messages.base import Envelope
from shared.messages.journal import INBOX, MOST_ROWS, AskEvents, JournalAnswer
from shared.operations import Level

#: Events that wait for one listener, and their bytes.
BUFFER = 2000
BUFFER_BYTES = 1 << 24
#: Events that are written and sent in one go: each takes some 10 us.
MOST_TOGETHER = 100
#: Seconds without an event after which a listener gets Quiet instead.
QUIET_S = 15.0

#: Events older than what is kept: asked for with the id of the last one seen and the one that is kept first, it answers
#: those between the two, oldest first, as (id, what a listener reads), or None where nobody has them.
Backfill = Callable[[str, str], Awaitable[Sequence[tuple[str, dict[str, Any]]] | None]]


class Overflow(Exception):
    """A listener was too slow: it is told, and must begin again (from the id it saw last)."""


class Ended(Exception):
    """A listener may not go on: its token is over, or was revoked."""


class Quiet:
    """Nothing has happened for a while: said so that both ends of a connection notice when the other has gone."""


class EventStream:
    """Fan-out of roost.events inside the gateway. backfill: who knows events that are not kept any more; watchers: told
    of every event, quick and without failing."""

    def __init__(self, backfill: Backfill | None = None, watchers: Sequence[Callable[[Envelope], None]] = ()) -> None:
        self._kept = Kept()
        self._listeners: set[Listener] = set()
        self._texts = Texts()
        self._backfill = backfill
        self._watchers = watchers

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    async def on_event(self, envelope: Envelope) -> None:
        told = self._kept.take(envelope)
        if told is None:
            return
        for watcher in self._watchers:
            watcher(envelope)
        for listener in self._listeners:
            listener.offer(told)

    def text(self, told: Told) -> str:
        """An event as JSON."""
        return self._texts.of(told)

    def line(self, told: Told) -> bytes:
        """An event as server-sent events have it."""
        return sse(told.id, told.type, self.text(told))

    def follow(
        self,
        patterns: list[str],
        after: str = "",
        *,
        level: Level = Level.ADMINISTRATOR,
        token: str = "",
        until: float = 0.0,
    ) -> Listener:
        """Begin to listen, from this moment on: events whose type matches one of the shell patterns (none: all) and
        that this level may hear, after the kept ones that came since the one with id `after`. To be closed.

        token: the id of the token that listens; until: when it expires (s since 1970), 0: never."""
        following = Listener(self._listeners, patterns, level, token, until)
        if after:
            missed, whole = self._kept.since(after)
            if not whole:
                following.gap = f"event {after[:64]} is not kept any more: some that came after it may be missing"
                following.kept_from = missed[0].id if missed else ""
            for told in missed:  # may overflow: then it reads these, and follows again after the last
                following.offer(told)
        self._listeners.add(following)
        return following

    def latest(self, patterns: list[str], limit: int, level: Level = Level.ADMINISTRATOR) -> list[tuple[str, str]]:
        """The newest kept events that `follow` with the same would have told, newest first: (id, JSON)."""
        wanted = Listener(set(), patterns, level)
        newest = (told for told in self._kept.newest_first() if wanted.wants(told.type))
        return [(told.id, self.text(told)) for told in islice(newest, limit)]

    async def before(self, following: Listener, after: str) -> Sequence[tuple[str, str, str]]:
        """What lies between the event with id `after` and the kept ones, from whoever keeps them longer: (id, type,
        JSON). Fills the gap of a listener, or leaves it."""
        if not following.gap or self._backfill is None:
            return ()
        found = await self._backfill(after, following.kept_from)
        if found is None:
            return ()
        following.gap = ""
        told, yielder = [], Yielder()
        waiting = following.waiting()  # what came while the question was under way is told from there
        for ident, body in found:
            if ident not in waiting and following.wants(str(body.get("type", ""))):
                told.append((ident, str(body["type"]), json.dumps({**body, "recorded": True})))
            await yielder.yield_if_due()
        return told

    def forget(self, tokens: Sequence[str]) -> None:
        """Tokens of these ids are over: who listens with one of them is told, and listens no more."""
        for listener in self._listeners:
            if listener.token in tokens:
                listener.end("the token of this stream was changed or revoked: connect again")


def sse(ident: str, event: str, text: str) -> bytes:
    """One server-sent event; without an id it does not move the reader's place."""
    begin = f"id: {ident}\n" if ident else ""
    return f"{begin}event: {event}\ndata: {text}\n\n".encode()


class Listener:
    """One listener's events, to be iterated over. Raises Overflow when it has fallen behind, Ended when its token is
    over."""

    def __init__(
        self,
        listeners: set[Listener],
        patterns: list[str],
        level: Level = Level.ADMINISTRATOR,
        token: str = "",
        until: float = 0.0,
    ) -> None:
        self._listeners = listeners
        self._patterns = patterns
        self._known: dict[str, bool] = {}  # by type of event: there are some dozens, and patterns may be slow to match
        self._level = level
        self._queue: asyncio.Queue[Told | None] = asyncio.Queue()
        self._bytes = 0  # of those in the queue
        self._overflow = False
        self._ended = ""
        self._yielder = Yielder()
        self.token = token
        self.until = until
        self.gap = ""  # what may be missing before the first event
        self.kept_from = ""  # id of the first event after the gap

    def wants(self, event: str) -> bool:
        """Whether events of this type are for this listener."""
        known = self._known.get(event)
        if known is None:
            chosen = not self._patterns or any(fnmatchcase(event, p) for p in self._patterns)
            known = self._known[event] = chosen and may_hear(self._level, event)
        return known

    def offer(self, told: Told) -> None:
        if not self.wants(told.type):
            return
        # Once one is left out all are: what is in the buffer is then without a gap, and its last id resumes rightly.
        self._overflow = self._overflow or self._queue.qsize() >= BUFFER or self._bytes + told.size > BUFFER_BYTES
        if not self._overflow:
            self._queue.put_nowait(told)
            self._bytes += told.size

    def waiting(self) -> set[str]:
        """Ids of the events in its buffer."""
        held = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        for one in held:
            self._queue.put_nowait(one)
        return {one.id for one in held if one is not None}

    def end(self, why: str) -> None:
        """No further events."""
        if not self._ended:
            self._ended = why
            self._queue.put_nowait(None)

    def more(self) -> Iterator[Told]:
        """What is there besides the event that came last, without waiting: to be sent with it. MOST_TOGETHER events at
        most, and no more once others are due (some are large to write), who have their turn between two calls of
        anext."""
        for _ in range(min(self._queue.qsize(), MOST_TOGETHER)):
            if self._ended or self._yielder.due():
                return
            if (one := self._queue.get_nowait()) is not None:
                self._bytes -= one.size
                yield one

    def close(self) -> None:
        self._listeners.discard(self)

    def __aiter__(self) -> Listener:
        return self

    async def __anext__(self) -> Told | Quiet:
        await self._yielder.yield_if_due()  # a full buffer can be read, and sent, without ever waiting
        if self._ended:
            raise Ended(self._ended)
        if self._overflow and self._queue.empty():
            many = f"{BUFFER} events or {BUFFER_BYTES >> 20} MiB"
            raise Overflow(f"more than {many} were waiting: follow again from the last id you saw")
        try:
            async with asyncio.timeout(QUIET_S):
                found = await self._queue.get()
        except TimeoutError:
            return Quiet()
        if found is None:
            raise Ended(self._ended)
        self._bytes -= found.size
        return found


#: An event's id tells when it was published, and the journal sorts by when it happened: so far apart at most, seconds.
SLACK_S: Final = 120.0
#: More than these are not sent: who was away for so long reads the journal itself.
MOST_BACKFILLED: Final = 20_000
_BACKFILL_TIMEOUT_S: Final = 10.0


class JournalBackfill:
    """See stream.Older."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def __call__(self, after: str, until: str) -> Sequence[tuple[str, dict[str, Any]]] | None:
        since = published(after)
        if since is None:
            return None
        last = published(until) if until else None
        end = last + SLACK_S if last is not None else 0.0
        found: dict[str, dict[str, Any]] = {}
        known, page = False, ""
        while True:
            question = AskEvents(start=max(0.0, since - SLACK_S), end=end, after=page, limit=MOST_ROWS)
            try:
                answer = await self._bus.call(INBOX, question, timeout=_BACKFILL_TIMEOUT_S)
            except RoostError:
                return None  # there is no journal, or it does not answer now
            assert isinstance(answer, JournalAnswer)
            for event in answer.data["events"]:
                ident = str(event["id"])
                if ident == after:
                    known = True
                elif _between(published(ident) or 0.0, since, last, known=known):
                    found[ident] = {name: value for name, value in event.items() if name != "id"}
            if len(found) > MOST_BACKFILLED:
                return None
            page = answer.data["next"] or ""
            if not page:
                # What it does not know itself may be from before all that it keeps.
                return list(found.items()) if known else None


def _between(at: float, since: float, last: float | None, *, known: bool) -> bool:
    """Whether an event published then lies between the two. Ids order by the millisecond only: within that of the
    first one what the journal has after it counts (known); what is kept still the stream drops."""
    return (at > since or (at == since and known)) and (last is None or at <= last)


def published(ident: str) -> float | None:
    """When an event of this id was published, seconds since 1970; None for what is no id of ours."""
    try:
        return int(ident[:12], 16) / 1000 if len(ident) == 32 and int(ident, 16) else None
    except ValueError:
        return None
