"""Live events as the gateway keeps them for its listeners: what each says in JSON, within bounds of size.

A large event is told with its long parts cut. To write 4 MB of JSON takes 20 ms of processor time and 15 ms
for memory, and 5,000 events of that size would be the gateway's whole memory."""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from shared.messages.base import Envelope
from shared.messages.cut import SHORT_TEXT, cut

#: An event of more bytes, as it came or in JSON (where "\x00" takes six), is told with its long
#: parts cut.
MOST_BYTES: Final = 1 << 19
MOST_TEXT: Final = 1 << 20
#: Events that are kept, and their bytes.
KEPT: Final = 5000
KEPT_BYTES: Final = 1 << 26
#: Characters of JSON that are kept, so that many listeners cost one event's writing.
WRITTEN: Final = 1 << 24
#: What an event takes besides what its sender wrote, about.
_LEAST_BYTES: Final = 500


@dataclass(frozen=True, slots=True)
class Told:
    """One event. content: of a large one, cut; None: as it is in the envelope. size: its bytes, about."""

    id: str
    type: str
    size: int
    envelope: Envelope | None
    content: dict[str, Any] | None = None

    @classmethod
    def of(cls, envelope: Envelope) -> Told:
        body = envelope.body
        if envelope.size <= MOST_BYTES:
            return cls(envelope.id, body.type, envelope.size + _LEAST_BYTES, envelope)
        return cls(envelope.id, body.type, _LEAST_BYTES, None, _cut(envelope))


class Texts:
    """Events in JSON, each written once, however many listen."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, str] = OrderedDict()  # by id of the event
        self._characters = 0

    def of(self, told: Told) -> str:
        known = self._texts.get(told.id)
        if known is None:
            known = self._texts[told.id] = _written(told)
            self._characters += len(known)
            while self._characters > WRITTEN:
                self._characters -= len(self._texts.popitem(last=False)[1])
        return known


def _written(told: Told) -> str:
    if told.envelope is None:
        return json.dumps(told.content)
    body = told.envelope.body
    text = json.dumps({"type": body.type, "sender": told.envelope.sender, **body.model_dump(mode="json")})
    return text if len(text) <= MOST_TEXT else json.dumps(_cut(told.envelope))


def _cut(envelope: Envelope) -> dict[str, Any]:
    return {"type": envelope.body.type, "sender": envelope.sender[:SHORT_TEXT], **cut(envelope.body)}


class Kept:
    """The last events, in the order in which they came. An event that its sender repeats is not taken again."""

    def __init__(self) -> None:
        self._events: deque[Told] = deque()
        self._ids: set[str] = set()
        self._bytes = 0

    def take(self, envelope: Envelope) -> Told | None:
        """None: it is kept already, as its sender could not know whether the broker had passed it on."""
        if envelope.id in self._ids:
            return None
        told = Told.of(envelope)
        self._events.append(told)
        self._ids.add(told.id)
        self._bytes += told.size
        while len(self._events) > KEPT or self._bytes > KEPT_BYTES:
            oldest = self._events.popleft()
            self._ids.discard(oldest.id)
            self._bytes -= oldest.size
        return told

    def newest_first(self) -> Iterator[Told]:
        return reversed(self._events)

    def since(self, after: str) -> tuple[list[Told], bool]:
        """Events that came after the one with id `after`, and whether those are all; by time where that one is no
        longer kept."""
        kept = list(self._events)
        for position, told in enumerate(kept):
            if told.id == after:
                return kept[position + 1 :], True
        return [told for told in kept if told.id > after], False
