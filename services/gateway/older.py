"""Events that the gateway keeps no longer, from the journal: so that a listener who was away for long goes on without a
gap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from shared.bus.api import Bus
from shared.errors import RoostError
from shared.messages.journal import INBOX, MOST_ROWS, AskEvents, JournalAnswer

#: An event's id tells when it was published, and the journal sorts by when it happened: so far apart at most, seconds.
SLACK_S: Final = 120.0
#: More than these are not sent: who was away for so long reads the journal itself.
MOST: Final = 20_000
_PATIENCE_S: Final = 10.0


class FromJournal:
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
                answer = await self._bus.call(INBOX, question, timeout=_PATIENCE_S)
            except RoostError:
                return None  # there is no journal, or it does not answer now
            assert isinstance(answer, JournalAnswer)
            for event in answer.data["events"]:
                ident = str(event["id"])
                if ident == after:
                    known = True
                elif _between(published(ident) or 0.0, since, last, known=known):
                    found[ident] = {name: value for name, value in event.items() if name != "id"}
            if len(found) > MOST:
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
