"""Query parameters that a route does not know are refused, with the nearest that it does."""

import json
from typing import Annotated

import pytest
from fastapi import FastAPI, Query

from services.gateway.auth.caller import Caller
from services.gateway.core.authorization import Identity
from services.gateway.strict_route import StrictRoute
from shared.operations import Level
from tests.unit.gateway.app import application


@pytest.fixture(scope="module")
def app():
    made = FastAPI()
    made.router.route_class = StrictRoute

    @made.get("/v1/analysis")
    async def analysis(ids: str = "", start: Annotated[int, Query(alias="from")] = 0) -> dict[str, object]:
        return {"ids": ids, "from": start}

    @made.get("/v1/plain")
    async def plain() -> dict[str, object]:
        return {}

    @made.get("/page")
    async def page() -> dict[str, object]:
        return {}

    return made


ADA = Identity("ada@pool", Level.READ)


async def ask(app, path, query, identity=ADA):
    """(status, what was answered)."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    caller = Caller(request_id="r", address="192.0.2.7")
    caller.identity = identity
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [],
        "roost.caller": caller,
    }
    await app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def test_what_a_route_takes_is_taken(app):
    assert await ask(app, "/v1/analysis", "ids=6.0&from=3") == (200, {"ids": "6.0", "from": 3})


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("/v1/analysis", "id=6.0", "there is no query parameter 'id' here: did you mean ids?"),
        ("/v1/analysis", "ids=1&job=6.0", "there is no query parameter 'job' here: it takes from, ids"),
        ("/v1/analysis", "start=3", "there is no query parameter 'start' here: it takes from, ids"),
        ("/v1/plain", "x=1", "there is no query parameter 'x' here: it takes none"),
    ],
)
async def test_what_it_does_not_know_is_refused(app, path, query, said):
    status, told = await ask(app, path, query)
    assert (status, told["error"]["code"], told["error"]["message"]) == (400, "bad-request", said)


async def test_nobody_without_a_token_learns_what_a_route_takes(app):
    assert await ask(app, "/v1/analysis", "job=6.0", identity=None) == (200, {"ids": "", "from": 0})


async def test_pages_are_no_part_of_it(app):
    assert (await ask(app, "/page", "v=1"))[0] == 200


def test_all_routes_of_the_gateway_are_strict():
    routes = [route for route in application().routes if getattr(route, "include_in_schema", False)]
    assert len(routes) > 50
    assert all(isinstance(route, StrictRoute) for route in routes if hasattr(route, "dependant") and route.methods)
