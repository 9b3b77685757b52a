"""The gate, door by door: without a web server, and with a store that is away."""

import asyncio
import json

import pytest
from fastapi import HTTPException
from starlette.requests import HTTPConnection

from services.gateway.admission import AdmissionQueue
from services.gateway.auth.caller import Caller
from services.gateway.auth.guards import Guards
from services.gateway.core.authorization import Identity
from services.gateway.core.failed_logins import FailedLogins
from services.gateway.core.limits import ConcurrencyLimit, FairQueue, RateLimiter
from services.gateway.metrics import RequestCounts
from services.gateway.middleware import RequestMiddleware
from shared.bus.api import BusUnavailable
from shared.daemon.clock import SystemClock
from shared.operations import Level
from tests.waiting import PATIENCE_S, eventually

ALICE = Identity("alice@x", Level.WRITE, "0123456789ab")


class Tokens:
    away = False

    async def look(self, token, scope, address):
        if self.away:
            raise BusUnavailable("the store rests")
        return (ALICE, "") if token == "good" else (None, "no valid token: this is none" if token else "")


class Audit:
    def __init__(self):
        self.told = []

    def request(self, caller, method, path, now, took_s):
        self.told.append((caller.status, caller.code, method, path))


async def asked(gate, token="", headers=(), address="192.0.2.7", scheme="http"):
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
        "client": (address, 5),
        "scheme": scheme,
    }
    gate._app = app
    await gate(scope, receive, send)
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answered, json.loads(sent[1]["body"]), seen


@pytest.fixture
def gate():
    audit, tokens = Audit(), Tokens()
    made = RequestMiddleware(
        None,
        tokens,
        audit,
        SystemClock(),
        RateLimiter(0.001, 2000),
        RateLimiter(0.001, 1000),
        RequestCounts(),
        guards(),
        FailedLogins(0.001, 3),
        1000,
    )
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


async def test_who_fails_too_often_is_not_looked_at_and_locks_nobody_else_out(gate):
    gate._rates = gate._anonymous = RateLimiter(0, 1)
    assert (await asked(gate, "good"))[0] == 200
    for _ in range(3):
        assert (await asked(gate, "bad"))[3]["roost.caller"].identity is None
    gate.tokens.away = True  # else this is an answer of the store
    for token in ("bad", "another"):
        status, headers, body, _ = await asked(gate, token)
        assert (status, body["error"]["code"], body["error"]["retryable"]) == (429, "too-many", True)
        assert int(headers["retry-after"]) > 100
    gate.tokens.away = False
    assert gate.audit.told[-1] == (429, "too-many", "GET", "/v1/pool")
    assert (await asked(gate, "good"))[0] == 200  # it was known before
    assert (await asked(gate, "good", address="192.0.2.8"))[0] == 200
    assert (await asked(gate, "fresh", address="192.0.2.8"))[0] == 200  # its own first failure
    assert (await asked(gate))[0] == 200  # without any token there is nothing to guess


async def test_answers_are_no_pages_whatever_is_in_them(gate):
    _, headers, _, _ = await asked(gate)
    assert headers["x-content-type-options"] == "nosniff"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert (headers["referrer-policy"], headers["cache-control"]) == ("no-referrer", "no-store")


@pytest.mark.parametrize(
    ("scheme", "host", "told"),
    [("https", b"pool.example:9680", True), ("http", b"pool.example", False), ("https", b"localhost:9680", False)],
)
async def test_https_is_for_good_where_it_is_spoken(gate, scheme, host, told):
    _, headers, _, _ = await asked(gate, headers=[(b"host", host)], scheme=scheme)
    assert ("strict-transport-security" in headers) == told


def guards(at_once=2, streams=1):
    return Guards(
        ConcurrencyLimit(at_once),
        ConcurrencyLimit(streams),
        AdmissionQueue(FairQueue(1, 2)),
        RateLimiter(0, 1),
        SystemClock(),
    )


def caller(identity=ALICE):
    return Caller("r", "192.0.2.7", identity)


def test_so_many_requests_at_once_and_streams_by_themselves():
    made = guards()
    inside = [caller() for _ in range(2)]
    for one in inside:
        assert made.begin(one) == ""
        made.let_in(one, "ads")
    assert "2 of yours" in made.begin(caller())
    assert made.begin(caller(None)) == made.begin(caller(None)) == ""  # turned away before anything is read
    inside[0].left()
    stream = caller()
    assert made.begin(stream) == ""
    made.let_in(stream, "events", endless=True)  # counted by itself from now on
    inside.append(caller())
    assert made.begin(inside[-1]) == ""
    with pytest.raises(HTTPException, match="streams"):
        # of a user, whatever the token
        made.let_in(caller(Identity("alice@x", Level.READ, "other")), "events", endless=True)
    made.let_in(caller(Identity("bob@x", Level.READ, "bobs")), "events", endless=True)
    for one in (*inside, stream):
        one.left()
        one.left()  # once is enough
    again = [caller() for _ in range(2)]
    assert [made.begin(one) for one in again] == ["", ""]
    made.let_in(again[0], "events", endless=True)


async def test_requests_have_their_place_before_their_body_is_read(gate):
    """Otherwise any number of large bodies could be under way."""
    gate._rates = RateLimiter(0, 1)
    inside = [caller() for _ in range(2)]
    assert [gate._guards.begin(one) for one in inside] == ["", ""]
    status, _, body, scope = await asked(gate, "good")
    assert (status, body["error"]["code"], scope) == (429, "too-many", {})
    inside[0].left()
    for _ in range(3):  # each leaves
        assert (await asked(gate, "good"))[0] == 200


async def test_two_tokens_in_one_request_are_none(gate):
    _, _, _, scope = await asked(gate, "good", [(b"authorization", b"Bearer wrong")])
    assert scope["roost.caller"].identity is None


def test_who_is_refused_gets_nothing():
    made = guards(streams=1)
    for identity, status in ((None, 401), (Identity("a@x", Level.READ, "t"), 403)):
        with pytest.raises(HTTPException) as refused:
            made.let_in(caller(identity), "jobs.visit", endless=True)
        assert refused.value.status_code == status
    made.let_in(caller(Identity("a@x", Level.WRITE, "t")), "jobs.visit", endless=True)


async def test_few_long_answers_at_once_and_the_others_in_turn():
    check = guards().may("ads", heavy=True)

    def connection(user):
        one = caller(Identity(user, Level.READ, user))
        return one, HTTPConnection({"type": "http", "headers": [], "roost.caller": one})

    first, asking = connection("alice@x")
    assert (await check(asking)).user == "alice@x"
    second, asking = connection("alice@x")
    waiting = asyncio.ensure_future(check(asking))
    third, asking = connection("bob@x")
    await check(asking)  # another's does not wait
    assert not waiting.done()
    first.left()
    await asyncio.wait_for(waiting, PATIENCE_S)
    for one in (second, third):
        one.left()


async def test_a_turn_that_does_not_come_is_told_and_leaves_the_line():
    line = FairQueue(1, 0)
    turnstile = AdmissionQueue(line, wait_s=0.01)
    assert await turnstile.enter("a") == ""
    assert "1 are under way" in await turnstile.enter("a")
    hung_up = asyncio.ensure_future(turnstile.enter("a"))
    await eventually(lambda: line.waiting == 1)
    hung_up.cancel()
    await asyncio.gather(hung_up, return_exceptions=True)
    assert (line.count, line.waiting) == (1, 0)
    turnstile.leave("a")
    assert line.count == 0
    # Called in the very moment in which it gives up: the place is given on, not lost.
    await turnstile.enter("a")
    patient = AdmissionQueue(line)
    late = asyncio.ensure_future(patient.enter("a"))
    await eventually(lambda: line.waiting == 1)
    patient.leave("a")
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    assert (line.count, line.waiting) == (0, 0)


def test_a_door_of_an_unlisted_operation_is_not_built():
    with pytest.raises(KeyError):
        guards().may("no.such")
