"""The routes to the journal: what they pass on, and what they say where there is none. A route that names none is all
READ (tests/unit/gateway/test_openapi.py)."""

import pytest
from fastapi import FastAPI

from services.gateway.core.authorization import Identity
from services.gateway.routes.journal import add_routes
from shared.bus.api import RemoteFailure
from shared.bus.memory import MemoryBus, MemoryHub
from shared.messages.journal import INBOX, AskEvents, AskJob, AskSeries, JournalAnswer
from shared.operations import Level
from tests.unit.gateway.app import context


@pytest.fixture
async def bus():
    made = MemoryBus(MemoryHub(), sender="gateway.test")
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def journal(bus):
    made = MemoryBus(bus.hub, sender="journal.test")
    await made.start()
    yield made
    await made.stop()


def handlers(bus) -> dict:
    app = FastAPI()
    add_routes(app, context(bus))
    return {getattr(route, "path", ""): route.endpoint for route in app.routes if hasattr(route, "endpoint")}


async def test_without_a_journal_the_doors_say_so(bus):
    for path, words in (("/v1/journal/leaders", {}), ("/v1/journal/series", {"name": "slots"})):
        with pytest.raises(RemoteFailure) as refused:
            await handlers(bus)[path](**words)
        assert (refused.value.code, refused.value.retryable) == ("unavailable", True)
        assert "start a journal daemon" in refused.value.reason


async def test_questions_are_passed_on_and_answers_back(bus, journal):
    asked = []

    async def answer(envelope):
        asked.append(envelope.body)
        if isinstance(envelope.body, AskEvents):
            return JournalAnswer(data={"events": [{"type": "job.started"}], "next": None})
        return JournalAnswer(data={"points": 3})

    await journal.serve(INBOX, answer)
    opened = handlers(bus)
    assert await opened["/v1/journal/jobs/{job_id}"](job_id="1.0", schedd="ap", at=5.0, start=1.0, end=9.0) == {
        "points": 3
    }
    assert await opened["/v1/journal/series"](name="jobs", start=1.0, end=2.0, points=7) == {"points": 3}
    page = await opened["/v1/journal/events"](identity=Identity("ada@pool", Level.READ), type="job.*")
    assert page["events"] == [{"type": "job.started"}]
    assert asked[:2] == [
        AskJob(job_id="1.0", schedd="ap", at=5.0, start=1.0, end=9.0),
        AskSeries(name="jobs", start=1.0, end=2.0, points=7),
    ]


async def test_a_refusal_of_the_journal_is_passed_on(bus, journal):
    async def refuse(_):
        raise RemoteFailure("not-found", "the journal knows nothing of job 1.0")

    await journal.serve(INBOX, refuse)
    with pytest.raises(RemoteFailure) as refused:
        await handlers(bus)["/v1/journal/jobs/{job_id}"](job_id="1.0", schedd="", at=0.0, start=0.0, end=0.0)
    assert (refused.value.code, refused.value.reason) == ("not-found", "the journal knows nothing of job 1.0")
