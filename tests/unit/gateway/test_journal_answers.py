"""What the dashboard asks of the journal: one of an earlier release, and events page by page."""

import pytest

from services.gateway.journal_answers import OLDER_JOURNAL, JournalAnswers
from services.gateway.pool_client import PoolClient
from shared.bus.api import RemoteFailure
from shared.bus.memory import MemoryBus, MemoryHub
from shared.daemon.clock import SystemClock
from shared.messages.base import Failure
from shared.messages.journal import AskSeries, JournalAnswer
from tests.speakers import Speakers


@pytest.fixture
async def journal():
    """journal(answer): JournalAnswers of a pool whose journal answers so."""
    hub = MemoryHub()
    bus = MemoryBus(hub, sender="gateway.test")
    await bus.start()
    speakers = Speakers.on_hub(hub)

    async def serve(answer):
        await (await speakers.bus("journal.test")).serve("journal", answer)
        return JournalAnswers(PoolClient(bus, SystemClock()), SystemClock())

    yield serve
    await speakers.stop()
    await bus.stop()


async def test_an_older_journal_tells_of_slots_and_is_not_asked_for_cpus_again(journal):
    asked = []

    async def answer(envelope):
        asked.append(envelope.body.name)
        if envelope.body.name == "cpus":
            return Failure(code="bad-message", reason="journal.series: name: want one of slots, jobs")
        return JournalAnswer(data={"times": [1.0], "series": {"Claimed": [2]}})

    answers = await journal(answer)
    for end in (10.0, 20.0):
        found = await answers.series(AskSeries(name="cpus", start=1.0, end=end))
        assert found["found"]["series"] == {"Claimed": [2]}
        assert found["instead"] == OLDER_JOURNAL
    assert "instead" not in await answers.series(AskSeries(name="jobs", start=1.0, end=10.0))
    # What it can not read is a dead letter each time.
    assert asked == ["cpus", "slots", "slots", "jobs"]


async def test_what_is_refused_for_other_reasons_is_told(journal):
    async def answer(envelope):
        return Failure(code="bad-request", reason="too much")

    answers = await journal(answer)
    with pytest.raises(RemoteFailure, match="too much"):
        await answers.series(AskSeries(name="cpus"))


async def test_incidents_are_of_all_pages(journal):
    async def answer(envelope):
        body = envelope.body
        if body.types != "daemon.*":
            return JournalAnswer(data={"events": [], "next": None})
        number = int(body.after or 0)
        shown = [{"id": str(number), "at": 100.0 + number, "type": "daemon.gone", "daemon": f"startd@n{number}"}]
        return JournalAnswer(data={"events": shown, "next": str(number + 1) if number < 2 else None})

    found = (await (await journal(answer)).incidents(100.0, 101.0))["found"]
    assert [one["at"] for one in found["incidents"]] == [100.0, 101.0, 102.0]
    assert found["cut"] is False


async def test_more_than_is_looked_at_is_said(journal):
    async def answer(envelope):
        after = int(envelope.body.after or 0)
        shown = [{"id": str(after), "at": float(after), "type": "daemon.gone", "daemon": "startd@n"}]
        return JournalAnswer(data={"events": shown, "next": str(after + 1)})

    assert (await (await journal(answer)).incidents(1.0, 1000.0))["found"]["cut"] is True
