"""The doors to the journal: what they pass on, and what they say where there is none. A door that names none is all
READ (tests/unit/gateway/test_openapi.py)."""

import pytest
from fastapi import FastAPI

from services.gateway.api.journal import journal_doors
from services.gateway.authorization import Identity, Level
from shared.bus.api import RemoteFailure
from shared.bus.memory import MemoryBus, MemoryHub
from shared.messages.journal import INBOX, AskEvents, AskJob, AskSeries, JournalAnswer


def anybody(operation: str, *, endless: bool = False):
    async def check() -> Identity:
        return Identity("ada@pool", Level.READ)

    return check


@pytest.fixture
async def bus():
    made = MemoryBus(MemoryHub(), sender="gateway.test")
    await made.start()
    yield made
    await made.stop()


def doors(bus) -> dict:
    app = FastAPI()
    journal_doors(app, bus, anybody)
    return {getattr(route, "path", ""): route.endpoint for route in app.routes if hasattr(route, "endpoint")}


async def test_without_a_journal_the_doors_say_so(bus):
    for path, words in (("/v1/journal/leaders", {}), ("/v1/journal/series", {"name": "slots"})):
        with pytest.raises(RemoteFailure) as refused:
            await doors(bus)[path](**words)
        assert (refused.value.code, refused.value.retryable) == ("unavailable", True)
        assert "start a journal daemon" in refused.value.reason


async def test_questions_are_passed_on_and_answers_back(bus):
    asked = []

    async def answer(envelope):
        asked.append(envelope.body)
        if isinstance(envelope.body, AskEvents):
            return JournalAnswer(data={"events": [{"type": "job.started"}], "next": None})
        return JournalAnswer(data={"points": 3})

    await bus.serve(INBOX, answer)
    opened = doors(bus)
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


async def test_a_refusal_of_the_journal_is_passed_on(bus):
    async def refuse(_):
        raise RemoteFailure("not-found", "the journal knows nothing of job 1.0")

    await bus.serve(INBOX, refuse)
    with pytest.raises(RemoteFailure) as refused:
        await doors(bus)["/v1/journal/jobs/{job_id}"](job_id="1.0", schedd="", at=0.0, start=0.0, end=0.0)
    assert (refused.value.code, refused.value.reason) == ("not-found", "the journal knows nothing of job 1.0")
