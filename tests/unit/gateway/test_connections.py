"""Connections on which nothing moves are ended, and there are only so many: over real sockets, with a clock that the
tests turn."""

import asyncio
import contextlib
import json
import socket

import aiohttp
import pytest
import structlog
import uvicorn

from services.gateway.connections import (
    BODY_S,
    CLOSING_S,
    HEAD_S,
    READER_S,
    REST_S,
    Connections,
    Progress,
    most_connections,
    overdue,
)
from services.gateway.daemon import _Server
from tests.waiting import PATIENCE_S, eventually

HEAD = b"POST /%s HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"


async def application(scope, receive, send):
    """What is asked for is in the path."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    what = scope["path"].strip("/")
    if what == "read":
        while (await receive()).get("more_body"):
            pass
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while what in ("flood", "silence"):
        if what == "silence":
            await send({"type": "http.response.body", "body": b": here\n", "more_body": True})
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"done"})


@contextlib.asynccontextmanager
async def serving(each=0, total=0, unlimited=()):
    """(connections, a function that turns the clock and looks, connect)."""
    now = [1000.0]
    connections = Connections(each, total, unlimited, lambda: now[0], structlog.get_logger())
    listening = socket.create_server(("127.0.0.1", 0))
    server = _Server(
        uvicorn.Config(
            application,
            log_config=None,
            lifespan="off",
            http=connections.protocol(),
            ws="websockets-sansio",
            timeout_graceful_shutdown=1,
            timeout_keep_alive=1000,
        ),
        connections,
    )
    running = asyncio.ensure_future(server.serve(sockets=[listening]))
    port = listening.getsockname()[1]
    writers = []

    async def connect(said=b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
        writers.append(writer)
        writer.write(said)
        await writer.drain()
        return reader, writer

    def later(seconds):
        now[0] += seconds
        connections.look()

    try:
        await eventually(lambda: server.started)
        yield connections, later, connect, port
    finally:
        for writer in writers:
            writer.transport.abort()
        server.should_exit = True
        await running


async def ended(reader):
    """What came until the end of the connection."""
    got = b""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE_S):
            while more := await reader.read(1 << 16):
                got = (got + more)[-1000:]
    return got


@pytest.mark.parametrize("said", [b"", b"GET /x HTTP/1.1\r\nHo"])
async def test_who_does_not_say_what_it_wants_is_cut(said):
    async with serving() as (connections, later, connect, _):
        reader, _ = await connect(said)
        await eventually(lambda: len(connections) == 1)
        later(HEAD_S - 1)
        assert len(connections) == 1
        later(2)
        assert await ended(reader) == b""
        await eventually(lambda: len(connections) == 0)


async def test_a_second_request_is_not_said_letter_by_letter_either():
    async with serving() as (connections, later, connect, _):
        reader, writer = await connect(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"0\r\n\r\n")
        later(HEAD_S - 1)
        for letter in b"GET /":
            writer.write(bytes([letter]))
        later(2)
        assert await ended(reader) == b""
        await eventually(lambda: len(connections) == 0)


async def test_a_body_that_does_not_come_is_not_waited_for():
    async with serving() as (connections, later, connect, _):
        reader, writer = await connect(HEAD % b"read")
        await eventually(lambda: [one.moves().body for one in connections._open] == [1000.0])
        later(BODY_S - 1)
        writer.write(b"a part")
        await eventually(lambda: [one.moves().body for one in connections._open] == [1000.0 + BODY_S - 1])
        later(BODY_S - 1)
        assert len(connections) == 1
        later(2)
        assert await ended(reader) == b""


async def test_a_body_that_nobody_wants_is_not_listened_to_for_ever():
    async with serving() as (connections, later, connect, _):
        reader, writer = await connect(HEAD % b"answered")
        await reader.readuntil(b"0\r\n\r\n")
        writer.write(b"and on")
        later(REST_S + 1)
        assert await ended(reader) == b""
        await eventually(lambda: len(connections) == 0)


@pytest.mark.parametrize(
    ("said", "status", "says"),
    [
        (b"nonsense\r\n\r\n", 400, b"no request"),
        (b"GET /x HTTP/1.1\r\n\r\n", 400, b"no request"),
        (b"GET /" + b"x" * 300_000, 431, b"fewer things"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 300_000, 431, b"fewer things"),
        (b"POST /read HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n" + b"x" * 300_000, 400, b""),
        (b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400, b"no request"),
    ],
)
async def test_what_can_not_be_read_is_answered_and_the_answer_arrives(said, status, says, caplog):
    """Also to who is still sending: it would see a reset connection otherwise."""
    async with serving() as (connections, later, connect, _):
        reader, writer = await connect(said)
        answer = await ended(reader)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        assert says in answer
        assert set(json.loads(answer.partition(b"\r\n\r\n")[2])["error"]) == {"code", "message", "retryable"}
        writer.write(b"and on")
        assert len(connections) == 1
        later(REST_S + 1)
        await eventually(lambda: len(connections) == 0)
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


@pytest.mark.parametrize(("more", "status"), [(40_000, 200), (60_000, 431)])
async def test_a_head_that_comes_in_pieces_may_be_as_long_as_one_that_comes_at_once(more, status):
    async with serving() as (connections, _, connect, _):
        first = b"GET /" + b"x" * 20_000
        reader, writer = await connect(first)
        await eventually(lambda: [len(one._framing._line) for one in connections._open] == [len(first)])
        writer.write(b"x" * more + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await ended(reader)).startswith(f"HTTP/1.1 {status} ".encode())


async def test_nonsense_in_the_middle_of_an_answer_ends_it(caplog):
    async with serving() as (connections, _, connect, _):
        head = b"POST /silence HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        reader, writer = await connect(head)
        await reader.readuntil(b": here")
        writer.write(b"no chunk\r\n")
        await ended(reader)
        await eventually(lambda: len(connections) == 0)
    assert not [one for one in caplog.records if one.levelname == "ERROR"]


async def test_a_reader_that_takes_nothing_is_cut():
    async with serving() as (connections, later, connect, _):
        reader, _ = await connect(b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n")
        await eventually(lambda: [one.moves().reader for one in connections._open] == [1000.0])
        later(READER_S - 1)
        assert len(connections) == 1
        later(2)
        await eventually(lambda: len(connections) == 0)
        # It can see that this was not the end: no last chunk came.
        assert not (await ended(reader)).endswith(b"0\r\n\r\n")


async def test_what_is_quiet_by_its_nature_is_left_alone():
    async with serving() as (connections, later, connect, port):
        reader, _ = await connect(b"GET /silence HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b": here")
        async with aiohttp.ClientSession() as session, session.ws_connect(f"http://127.0.0.1:{port}/ws") as ws:
            later(10_000)
            await asyncio.sleep(0)
            assert len(connections) == 2
            assert not ws.closed
        await eventually(lambda: len(connections) == 1)  # a WebSocket gives its place back


async def test_there_are_so_many_of_one_address_and_of_all():
    async with serving(each=2, total=3) as (connections, _, connect, _):
        first, writer = await connect()
        await connect()
        await eventually(lambda: len(connections) == 2)
        refused, _ = await connect(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await ended(refused)
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b'"code": "too-many"' in answer
        writer.close()
        await ended(first)
        await eventually(lambda: len(connections) == 1)
        reader, _ = await connect(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in await reader.readuntil(b"done")
    async with serving(each=1, total=3, unlimited=["127.0.0.1"]) as (connections, _, connect, _):
        for _ in range(3):
            await connect()
        await eventually(lambda: len(connections) == 3)  # a proxy stands for many
        refused, _ = await connect()
        assert b"429" in await ended(refused)


def test_what_is_overdue():
    assert overdue(Progress(), 1e9) == ""
    for what, longest in (
        ("head", HEAD_S),
        ("body", BODY_S),
        ("rest", REST_S),
        ("reader", READER_S),
        ("closing", CLOSING_S),
    ):
        assert overdue(Progress(**{what: 5.0}), 5.0 + longest) == ""
        assert overdue(Progress(**{what: 5.0}), 5.1 + longest) == what


def test_connections_leave_files_for_other_ends():
    assert most_connections(4000, 20_000) == 4000
    assert most_connections(4000, 1024) == 768
    assert most_connections(0, 1024) == 768
    assert most_connections(4000, -1) == 4000
