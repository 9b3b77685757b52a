"""What the gateway does to those who ask too much, and what it writes down: limits, streams, the audit log."""

import asyncio
import base64
import contextlib
import dataclasses
import json
import re
import socket

import aiohttp
import pytest

from roost import AsyncClient, Client
from roost.errors import ClientError
from services.gateway import told_events
from services.gateway.auth import tokens
from services.gateway.daemon import Gateway
from shared.bus.memory import MemoryBus
from shared.classad import ClassAd
from tests.integration.inside import InsidePool
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    inside = InsidePool(
        tmp_path_factory.mktemp("pool"),
        # Rates that a slow machine exceeds too; bursts of 100, 40 and 10.
        ROOST_GATEWAY_RATE="5",
        ROOST_GATEWAY_ANONYMOUS_RATE="2",
        ROOST_GATEWAY_SUBMIT_RATE="0.5",
        ROOST_GATEWAY_BURST="20",
        ROOST_GATEWAY_FAILED_LOGIN_RATE="0",
        ROOST_GATEWAY_STREAMS="3",
        ROOST_GATEWAY_AT_ONCE="8",
    )
    yield inside
    inside.close()


@pytest.fixture
def token(pool):
    """Makes tokens; each test has its own, as they are counted one by one."""

    def make(level="READ", user="alice@x", **more):
        with pool.client() as client:
            return client.create_token(user, level, **more)

    return make


def job():
    return ClassAd({"Cmd": "/bin/true", "Iwd": "/tmp", "ShouldTransferFiles": "NO", "JobStatus": 5})


# --- rates


def test_who_asks_too_often_is_told_when_to_come_back(pool, token):
    mine, another = token(), token()
    answers = []
    while not answers or answers[-1][0] == 200:
        answers.append(pool.ask("GET", "/v1/whoami", token=mine))
        assert len(answers) < 5000
    assert len(answers) > 99  # the burst
    status, headers, body = answers[-1]
    assert status == 429
    assert int(headers["retry-after"]) >= 1
    assert (body["error"]["code"], body["error"]["retryable"]) == ("too-many", True)
    assert pool.ask("GET", "/v1/whoami", token=another)[0] == 200  # another's
    wait_until(lambda: pool.ask("GET", "/v1/whoami", token=mine)[0] == 200, what="the bucket to fill")


def test_submits_have_a_limit_of_their_own_and_the_client_waits_as_it_is_told(pool, token):
    mine = token("WRITE")
    with pool.client(mine) as client:
        made = [client.submit(job(), [ClassAd()], spool=True) for _ in range(10)]
        # A machine that takes two seconds for ten submits has given one back.
        asked = (pool.ask("POST", "/v1/jobs", body=b"", token=mine) for _ in range(100))
        refused = next(one for one in asked if one[0] != 400)
        assert refused[0] == 429
        assert "submits" in refused[2]["error"]["message"]
        made.append(client.submit(job(), [ClassAd()], spool=True))
        assert len({one.cluster for one in made}) == 11
        client.act("remove", [str(one.cluster) for one in made])
    assert pool.ask("GET", "/v1/whoami", token=mine)[0] == 200


def test_requests_without_a_valid_token_are_limited_by_address(pool):
    answers = []
    while not answers or answers[-1][0] == 401:
        # Whatever such a request says of where it comes from.
        forged = {"X-Forwarded-For": f"10.0.0.{len(answers)}", "X-Real-IP": "10.1.1.1", "Forwarded": "for=10.2.2.2"}
        answers.append(pool.ask("GET", "/v1/whoami", token="guess", headers=forged))
        assert len(answers) < 1000
    assert answers[-1][0] == 429
    assert pool.ask("GET", "/v1/whoami")[0] == 200  # who has a token is not troubled
    with pool.client() as client:
        record = next(one for one in client.audit(50) if one["status"] == 401)
        assert record["address"] == "127.0.0.1"


# --- streams


def open_stream(pool, token, query=""):
    """A connection whose answer is read up to its first event, and the status."""
    host, port = pool.url.removeprefix("http://").split(":")
    line = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    line.sendall(
        f"GET /v1/events?{query} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    )
    got = b""
    while b"\r\n\r\n" not in got or (b" 200 " in got.splitlines()[0] and b": following" not in got):
        more = line.recv(1)  # and nothing of what comes behind it
        assert more, got
        got += more
    return line, int(got.split()[1])


def read_until(line, what):
    got = b""
    while what not in got:
        more = line.recv(65536)
        assert more, got
        got += more
    return got


def test_a_user_has_so_many_streams_whatever_the_tokens(pool, token):
    lines = [open_stream(pool, token(user="streamer@x")) for _ in range(3)]
    assert [status for _, status in lines] == [200] * 3
    fourth, status = open_stream(pool, token(user="streamer@x"))
    assert status == 429
    fourth.close()
    other, status = open_stream(pool, token(user="other@x"))
    assert status == 200
    other.close()
    lines[0][0].close()

    def room():
        line, status = open_stream(pool, token(user="streamer@x"))
        lines.append((line, status))
        return status == 200

    wait_until(room, what="the place of the one that left")
    for line, _ in lines:
        line.close()


def test_a_stream_ends_with_its_token(pool, token):
    mine = token(user="leaver@x")
    line, status = open_stream(pool, mine)
    assert status == 200
    with contextlib.closing(line), pool.client() as admin:
        (listed,) = [t for t in admin.tokens() if t["user"] == "leaver@x"]
        assert admin.revoke_token(listed["id"]) == 1
        assert b"revoked" in read_until(line, b"event: ended")
        with pool.client(mine) as client, pytest.raises(ClientError, match="was revoked"):
            next(client.events())


@pytest.fixture
def second(pool, monkeypatch):
    """The address of another gateway of the pool, whose memory of tokens does not end by itself."""
    monkeypatch.setattr(tokens, "_CACHE_S", 1e9)

    async def begin():
        bus = MemoryBus(pool.pool._hub, sender="gateway.second")
        await bus.start()
        context = pool.runner("gateway").daemon.context
        gateway = Gateway(dataclasses.replace(context, name="second", bus=bus, stopping=asyncio.Event()))
        await gateway.setup()
        return gateway, bus, [asyncio.create_task(work) for work in gateway.tasks().values()]

    async def end(gateway, bus, tasks):
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await gateway.close()
        await bus.stop()

    parts = pool.run(begin())
    yield f"http://127.0.0.1:{parts[0].port}"
    pool.run(end(*parts))


def test_a_token_is_revoked_on_all_gateways_at_once(pool, second, token):
    mine = token(user="everywhere@x")
    with pool.client() as admin, Client(second, mine) as there, pool.client(mine) as here:
        assert here.whoami()["user"] == there.whoami()["user"] == "everywhere@x"
        stream = there.events("no.such")
        (ident,) = [t["id"] for t in admin.tokens() if t["user"] == "everywhere@x"]
        admin.revoke_token(ident)
        with pytest.raises(ClientError, match="was revoked"):
            here.whoami()

        def refused():
            with contextlib.suppress(ClientError):
                there.whoami()
                return False
            return True

        wait_until(refused, what="the other gateway to hear of it")
        with pytest.raises(ClientError, match="was revoked"):
            next(stream)
        # What the other gateway turned away is on record here too.
        wait_until(lambda: [r for r in admin.audit(50) if r["gateway"] == "second"], what="the other's record")


def test_events_of_administrators_are_told_to_them_only(pool, token):
    reader, _ = open_stream(pool, token(user="curious@x"), "type=gateway.*&type=accountant.changed")
    admin, _ = open_stream(pool, pool.token, "type=gateway.audit")
    with pool.client() as client:
        client.set_priority("somebody@x", "factor", 5.0)
    assert b"event: gateway.audit" in read_until(admin, b'"operation": "priorities.set"')
    assert b"gateway." not in read_until(reader, b"accountant.changed")
    reader.close()
    admin.close()


def test_who_was_away_for_long_goes_on_from_the_journal(pool, monkeypatch):
    """The gateway keeps the last ones; what is older comes from the journal, on the same stream and in order."""
    monkeypatch.setattr(told_events, "KEPT", 3)
    with pool.client() as client:
        for number in range(12):
            client.set_priority(f"long{number}@x", "factor", 5.0)

        def recorded():
            found = client.journal("events", type="accountant.changed", limit=1000)["events"]
            return [one for one in found if one["submitter"].startswith("long")]

        wait_until(lambda: len(recorded()) == 12, what="the journal to have them")
        third = next(one["id"] for one in recorded() if one["submitter"] == "long2@x")
        line, status = open_stream(pool, pool.token, f"type=accountant.changed&after={third}")
        with contextlib.closing(line):
            assert status == 200
            client.set_priority("long12@x", "factor", 5.0)
            got = read_until(line, b"long12@x")
        assert b"event: gap" not in got
        assert re.findall(rb'"submitter": "(long[0-9]+)@x"', got) == [f"long{n}".encode() for n in range(3, 13)]


# --- WebSockets


@contextlib.asynccontextmanager
async def websocket(pool, said=None, **more):
    async with aiohttp.ClientSession() as session, await opened(session, pool, **more) as ws:
        if said is not None:
            await ws.send_str(said if isinstance(said, str) else json.dumps(said))
        yield ws


async def opened(session, pool, **more):
    """Without a token in its headers it counts among those that this address is allowed."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await session.ws_connect(f"{pool.url}/v1/events/ws", **more)
            except aiohttp.WSServerHandshakeError as error:
                if error.status != 429:
                    raise
                await asyncio.sleep(float(error.headers["Retry-After"]))


async def heard(ws, wanted):
    """The messages until one is wanted."""
    messages = []
    async with asyncio.timeout(PATIENCE_S):
        async for message in ws:
            messages.append(json.loads(message.data))
            if wanted(messages[-1]):
                return messages
    raise AssertionError(f"closed with {ws.close_code} after {messages}")


async def test_events_come_over_a_websocket_and_go_on_after_an_id(pool):
    async with AsyncClient(pool.url, pool.token) as client:
        said = {"types": ["accountant.changed"], "token": pool.token}
        async with websocket(pool, said) as ws:
            (first,) = await heard(ws, lambda m: "open" in m)
            assert first["level"] == "ADMINISTRATOR"
            for number in range(4):
                await client.set_priority(f"ws{number}@x", "factor", 10 + number)
            events = await heard(ws, lambda m: m.get("data", {}).get("submitter") == "ws3@x")
        assert [e["data"]["submitter"] for e in events] == [f"ws{n}@x" for n in range(4)]
        assert {e["event"] for e in events} == {"accountant.changed"}
        async with websocket(pool, {**said, "after": events[1]["id"]}) as ws:
            again = await heard(ws, lambda m: m.get("data", {}).get("submitter") == "ws3@x")
            assert [e["data"]["submitter"] for e in again if "data" in e] == ["ws2@x", "ws3@x"]
        async with websocket(pool, {**said, "types": ["no.such"], "after": "0" * 32}) as ws:
            assert "not kept any more" in (await heard(ws, lambda m: "gap" in m))[-1]["gap"]


async def test_a_websocket_takes_its_token_in_three_ways(pool):
    bearer = {"Authorization": f"Bearer {pool.token}"}
    coded = base64.urlsafe_b64encode(pool.token.encode()).decode().rstrip("=")
    async with websocket(pool, "{}", headers=bearer) as ws:
        assert (await heard(ws, lambda m: "open" in m))[0]["open"]
    async with websocket(pool, "{}", protocols=["roost.events", f"roost.bearer.{coded}"]) as ws:
        assert ws.protocol == "roost.events"  # never the one with the token
        assert (await heard(ws, lambda m: "open" in m))[0]["open"]
    async with websocket(pool, {"token": pool.token}) as ws:
        assert (await heard(ws, lambda m: "open" in m))[0]["open"]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("{}", 4401),
        ({"token": "wrong"}, 4401),
        ("not json", 4400),
        ('{"types": "job"}', 4400),
        ('{"after": "' + "x" * 500 + '"}', 4400),
        ("x" * 20_000, 4400),
        ({"types": ["x"] * 1000}, 4400),
        ({"types": ["*a" * 51]}, 4400),
        ("[]", 4400),
    ],
)
async def test_a_websocket_is_closed_with_the_reason(pool, said, code):
    async with websocket(pool, said) as ws:
        message = await ws.receive(PATIENCE_S)
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
        assert ws.close_code == code


async def test_a_websocket_of_a_revoked_or_scoped_token_is_closed(pool):
    async with AsyncClient(pool.url, pool.token) as client:
        scoped = await client.make_token("ws@x", "WRITE", scopes=["ads"])
        async with websocket(pool, {"token": scoped.token}) as ws:
            await ws.receive(PATIENCE_S)
            assert ws.close_code == 4403
        mine = await client.make_token("ws@x", "READ")
        async with websocket(pool, {"token": mine.token}) as ws:
            await heard(ws, lambda m: "open" in m)
            await client.revoke_token(mine.id)
            await ws.receive(PATIENCE_S)
            assert ws.close_code == 4401


async def test_websockets_count_among_the_streams_and_are_forgotten(pool):
    async with AsyncClient(pool.url, pool.token) as client, contextlib.AsyncExitStack() as stack:
        mine = await client.make_token("many@x", "READ")
        for _ in range(3):
            ws = await stack.enter_async_context(websocket(pool, {"token": mine.token}))
            await heard(ws, lambda m: "open" in m)
        async with websocket(pool, {"token": mine.token}) as ws:
            await ws.receive(PATIENCE_S)
            assert ws.close_code == 4429
        await stack.aclose()

        async def again():
            async with websocket(pool, {"token": mine.token}) as ws:
                return "open" in (await ws.receive(PATIENCE_S)).data if not ws.closed else False

        async with asyncio.timeout(PATIENCE_S):
            while True:
                with contextlib.suppress(TypeError):  # closed again, with no data
                    if await again():
                        break


# --- the audit log


def test_what_was_changed_is_in_the_audit_log(pool, token):
    mine = token("WRITE", "auditee@x")
    with pool.client(mine) as client:
        cluster = client.submit(job(), [ClassAd()], spool=True)
        client.act("remove", cluster.ids(), reason="not wanted")
        with pytest.raises(ClientError, match="needs ADMINISTRATOR"):
            client.set_priority("auditee@x", "factor", 1.0)
    headers = {"X-Request-Id": "mine-1", "X-Remote-User": "root"}
    answer = pool.ask("POST", "/v1/jobs/action", body={"action": "hold", "ids": ["x"]}, token=mine, headers=headers)
    assert (answer[0], answer[1]["x-request-id"]) == (400, "mine-1")
    odd = pool.ask("GET", "/v1/whoami", headers={"X-Request-Id": "a b\tc" + "d" * 100})
    assert len(odd[1]["x-request-id"]) == 32  # a name of ours
    log = pool.directory / "log" / "gateway-audit.log"

    def written():
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [line for line in lines if line["user"] == "auditee@x"]

    wait_until(lambda: len(written()) >= 4, what="the lines")
    submit, remove, denied, bad = written()
    assert (submit["operation"], submit["outcome"], submit["what"]["cluster"]) == (
        "jobs.submit",
        "done",
        cluster.cluster,
    )
    assert (remove["what"]["action"], remove["what"]["reason"]) == ("remove", "not wanted")
    assert (denied["status"], denied["code"], denied["operation"]) == (403, "denied", "priorities.set")
    assert (bad["request_id"], bad["outcome"], bad["code"]) == ("mine-1", "refused", "bad-request")
    assert {line["level"] for line in written()} == {"WRITE"}
    # The same can be asked for, by administrators.
    with pool.client() as admin:
        assert [r["request_id"] for r in admin.audit(user="auditee@x")] == [r["request_id"] for r in written()[::-1]]
    # No token is in it, nor in the answer to one that is wrong.
    assert mine not in log.read_text()
    assert pool.token not in log.read_text()


def test_no_answer_and_no_log_tells_a_token(pool, token):
    mine = token("READ")
    for path in ("/v1/tokens", f"/v1/jobs?constraint={mine}", "/nowhere"):
        _, headers, body = pool.ask("GET", path, token=mine)
        assert mine not in str(headers)
        assert "constraint" in path or mine not in str(body)
    wrong = "w" * 43
    assert wrong not in str(pool.ask("GET", "/v1/pool", token=wrong))


async def test_a_daemon_tells_its_configuration_without_secrets(pool):
    async with AsyncClient(pool.url, pool.token) as client:
        (found,) = await client.config("SPOOL", "ROOST_REDIS_URL", subsystems=["SCHEDD"])
        assert found["done"]
        told = {one["name"]: one["value"] for one in found["macros"]}
        assert told["SPOOL"] == str(pool.directory / "spool")
        everybody = await client.config(pattern="ROOST_GATEWAY_*", daemons=[found["name"]])
        assert len(everybody) >= 4
        with pytest.raises(ClientError, match="whose configuration"):
            await client.config("SPOOL")
