"""Connections of file transfer are kept between transfers, few of them: counted at the server."""

import asyncio
import contextlib
import socket

import aiohttp
import pytest
from aiohttp import web

from shared.transfer import connections
from shared.transfer.connections import KEPT_MOST, KEPT_S, KeptConnections, most_kept, runner_of
from tests.waiting import eventually


class Server:
    """Answers when it is told to."""

    def __init__(self):
        self.peers = set()
        self.go = asyncio.Event()
        self.go.set()
        app = web.Application()
        app.router.add_get("/", self._answer)
        self.runner = runner_of(app)

    async def _answer(self, request):
        self.peers.add(request.transport.get_extra_info("peername"))
        await self.go.wait()
        return web.Response(text="x")

    @contextlib.asynccontextmanager
    async def running(self):
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}/"
        try:
            yield self
        finally:
            await self.runner.cleanup()

    @property
    def open(self):
        return len(self.runner.server.connections)


async def get(session, url):
    async with session.get(url) as answer:
        await answer.read()
        return answer.headers.get("Connection", "")


async def test_transfers_that_follow_each_other_have_one_connection():
    async with Server().running() as server, aiohttp.ClientSession(connector=KeptConnections()) as session:
        for _ in range(5):
            await get(session, server.url)
        assert len(server.peers) == 1
        assert session.connector._keepalive_timeout == KEPT_S


async def test_of_many_at_a_time_few_connections_are_kept():
    async with Server().running() as server, aiohttp.ClientSession(connector=KeptConnections()) as session:
        server.go.clear()
        asked = [asyncio.create_task(get(session, server.url)) for _ in range(6)]
        await eventually(lambda: len(server.peers) == 6, what="six connections")
        server.go.set()
        await asyncio.gather(*asked)
        await eventually(lambda: server.open == KEPT_MOST, what="the others to be closed")
        await get(session, server.url)
        assert len(server.peers) == 6


async def test_a_server_with_many_connections_keeps_none_more(monkeypatch):
    monkeypatch.setattr(connections, "most_kept", lambda files: 3)
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(Server().running())
        clients = [
            await stack.enter_async_context(aiohttp.ClientSession(connector=KeptConnections())) for _ in range(5)
        ]
        said = [await get(client, server.url) for client in clients]
        assert said == ["", "", "", "close", "close"]
        await eventually(lambda: server.open == 3, what="the others to be closed")
        assert await get(clients[0], server.url) == ""
        assert len(server.peers) == 5


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="the system has no such option")
async def test_the_other_end_is_asked_whether_it_is_there():
    async with Server().running() as server, aiohttp.ClientSession(connector=KeptConnections()) as session:
        server.go.clear()
        asked = asyncio.create_task(get(session, server.url))
        await eventually(lambda: server.peers, what="the request")
        (protocol,) = session.connector._acquired
        made = protocol.transport.get_extra_info("socket")
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
        server.go.set()
        await asked


def test_a_server_leaves_files_for_other_ends():
    assert [most_kept(files) for files in (-1, 1024, 2)] == [None, 256, 1]
