"""Asks the journal for the dashboard. Where there is none, or it knows nothing of what was asked, the answer says so: a
page then shows that, which is no error."""

from __future__ import annotations

from typing import Any, Final

from services.gateway.core import incidents as incident_events
from services.gateway.pool_client import PoolClient
from services.gateway.single_flight import SharesAnswers
from shared.bus.api import NobodyThere, RemoteFailure
from shared.daemon.clock import Clock
from shared.errors import RetryableError
from shared.messages.base import Message
from shared.messages.journal import MOST_ROWS, AskEvents, AskSeries

#: A journal of an earlier release is taken for one so long, seconds, and what is said of it.
OLDER_S: Final = 600.0
OLDER_JOURNAL: Final = (
    "slots, not cpus: the journal is of an earlier release; restart it with the release of this gateway to have cpus"
)
#: Pages of the journal that are read for incidents.
MOST_PAGES: Final = 5


class JournalAnswers(SharesAnswers):
    """Answers are {"found": data} or {"missing": why}, and shared by all who ask. Raises RoostError for what the
    journal refuses."""

    def __init__(self, pool: PoolClient, clock: Clock) -> None:
        super().__init__(clock.monotonic)
        self._pool, self._clock = pool, clock
        self._slots_until = float("-inf")  # monotonic: till then the journal is taken for one that does not know cpus

    async def recorded(self, question: Message) -> dict[str, Any]:
        """What the journal answers to one question."""

        async def make() -> dict[str, Any]:
            try:
                found = await self._pool.ask_journal(question, 30.0)
            except NobodyThere:
                return {"missing": "no journal daemon"}
            except RemoteFailure as error:
                if error.code != "not-found":
                    raise
                return {"missing": error.reason}
            except RetryableError as error:
                return {"missing": f"the journal does not answer: {error}"}
            return {"found": found}

        return await self.single_flight.get((question.type, question.model_dump_json()), make)

    async def series(self, question: AskSeries) -> dict[str, Any]:
        """As `recorded`. A journal of an earlier release does not know cpus: it is asked for slots, and `instead` says
        so."""
        if question.name != "cpus" or self._clock.monotonic() >= self._slots_until:
            try:
                return await self.recorded(question)
            except RemoteFailure as error:
                if error.code != "bad-message" or question.name != "cpus":
                    raise
                # What it can not read becomes a dead letter there: it is not asked so again for a while.
                self._slots_until = self._clock.monotonic() + OLDER_S
        found = await self.recorded(question.model_copy(update={"name": "slots"}))
        return {**found, "instead": OLDER_JOURNAL} if "found" in found else found

    async def incidents(self, start: float, end: float) -> dict[str, Any]:
        """What happened to daemons within a time (s since 1970), as `recorded`: {incidents: see core.incidents, cut:
        whether there were too many to look at all}."""
        events: list[dict[str, Any]] = []
        cut = False
        for types in incident_events.TYPES:
            after: str | None = ""
            for _ in range(MOST_PAGES):
                question = AskEvents(types=types, start=start, end=end, after=after or "", limit=MOST_ROWS)
                answer = await self.recorded(question)
                if "found" not in answer:
                    return answer
                events += answer["found"]["events"]
                after = answer["found"]["next"]
                if not after:
                    break
            cut = cut or bool(after)
        apart_s = (end - start) / incident_events.MOST
        return {"found": {"incidents": incident_events.incidents(events, apart_s), "cut": cut}}
