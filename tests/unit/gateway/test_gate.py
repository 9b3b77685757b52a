"""The gate, door by door: without a web server, and with a store that is away."""

import json

import pytest
from fastapi import HTTPException

from services.gateway.api.gate import Gate
from services.gateway.api.guard import Guards
from services.gateway.authorization import Identity, Level
from services.gateway.caller import Caller
from services.gateway.metrics import RequestCounts
from services.gateway.rates import Limiter, Room
from shared.bus.api import BusUnavailable
from shared.daemon.clock import SystemClock

ALICE = Identity("alice@x", Level.WRITE, "0123456789ab")


class Tokens:
    away = False

    async def look(self, token):
        if self.away:
            raise BusUnavailable("the store rests")
        return (ALICE, "") if token == "good" else (None, "no valid token: this is none" if token else "")


class Audit:
    def __init__(self):
        self.told = []

    def request(self, caller, method, path, now, took_s):
        self.told.append((caller.status, caller.code, method, path))


async def asked(gate, token="", headers=()):
    """(status, headers, body, the scope that the application saw)."""
    sent = []
    seen = {}

    async def app(scope, _receive, send):
        seen.update(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    own = [(b"authorization", f"Bearer {token}".encode())] if token else []
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/pool",
        "query_string": b"token=good",
        "headers": [*own, *headers],
        "client": ("192.0.2.7", 5),
    }
    gate._app = app
    await gate(scope, receive, send)
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answered, json.loads(sent[1]["body"]), seen


@pytest.fixture
def gate():
    audit, tokens = Audit(), Tokens()
    made = Gate(None, tokens, audit, SystemClock(), Limiter(0.001, 2000), Limiter(0.001, 1000), RequestCounts())
    made.audit, made.tokens = audit, tokens
    return made


async def test_the_caller_is_known_behind_the_gate(gate):
    status, headers, _, scope = await asked(gate, "good", [(b"x-request-id", b"mine")])
    caller = scope["roost.caller"]
    assert (status, caller.identity, caller.address, headers["x-request-id"]) == (200, ALICE, "192.0.2.7", "mine")
    assert gate.audit.told == [(200, "", "GET", "/v1/pool")]


async def test_a_token_in_an_address_is_none(gate):
    _, _, _, scope = await asked(gate)
    assert scope["roost.caller"].identity is None


async def test_a_store_that_is_away_is_told_and_may_be_asked_again(gate):
    gate.tokens.away = True
    status, headers, body, scope = await asked(gate, "good")
    assert (status, body["error"]["retryable"], scope) == (503, True, {})
    assert headers["retry-after"]
    assert "rests" in body["error"]["message"]


async def test_too_often_by_token_and_by_address(gate):
    for _ in range(2):
        assert (await asked(gate, "good"))[0] == 200
    assert (await asked(gate))[0] == 200
    for token in ("good", ""):
        status, headers, body, scope = await asked(gate, token)
        assert (status, body["error"]["code"], scope) == (429, "too-many", {})
        assert int(headers["retry-after"]) > 100


def guards(at_once=2, streams=1):
    return Guards(Room(at_once), Room(streams), Limiter(0, 1), SystemClock())


def caller(identity=ALICE):
    return Caller("r", "192.0.2.7", identity)


def test_so_many_answers_at_once_and_streams_by_themselves():
    made = guards()
    inside = [caller() for _ in range(2)]
    for one in inside:
        made.let_in(one, "ads")
    with pytest.raises(HTTPException) as refused:
        made.let_in(caller(), "ads")
    assert (refused.value.status_code, "answers" in refused.value.detail) == (429, True)
    stream = caller()
    made.let_in(stream, "events", endless=True)  # counted by itself
    with pytest.raises(HTTPException, match="streams"):
        # of a user, whatever the token
        made.let_in(caller(Identity("alice@x", Level.READ, "other")), "events", endless=True)
    made.let_in(caller(Identity("bob@x", Level.READ, "bobs")), "events", endless=True)
    for one in (*inside, stream):
        for leave in one.leaving:
            leave()
    made.let_in(caller(), "ads")
    made.let_in(caller(), "events", endless=True)


def test_who_is_refused_takes_no_place():
    made = guards(at_once=1)
    for identity, status in ((None, 401), (Identity("a@x", Level.READ, "t"), 403)):
        with pytest.raises(HTTPException) as refused:
            made.let_in(caller(identity), "jobs.act")
        assert refused.value.status_code == status
    made.let_in(caller(), "jobs.act")


def test_a_door_of_an_unlisted_operation_is_not_built():
    with pytest.raises(KeyError):
        guards().may("no.such")
