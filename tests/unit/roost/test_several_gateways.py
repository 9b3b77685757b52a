"""A client that knows several gateways goes to another one when the one in use dies or hangs."""

from __future__ import annotations

import asyncio
import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from roost import protocol
from roost.aio import AsyncClient
from roost.client import Client
from roost.errors import ClientError
from roost.locate import locate
from tests.servers import free_port

#: What a client may need on a machine that is far too busy; on a quiet one it is 1.4 s.
WITHIN_S = 20.0


class Gateway(http.server.BaseHTTPRequestHandler):
    """Answers every question with its port; `slow` seconds after it came, but looks at once."""

    protocol_version = "HTTP/1.1"
    slow = 0.0

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        time.sleep(self.slow)
        self._answer(json.dumps({"port": self.server.server_address[1]}).encode())

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def gateway(slow: float = 0.0) -> Iterator[http.server.ThreadingHTTPServer]:
    handler = type("Handler", (Gateway,), {"slow": slow})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def hung() -> Iterator[int]:
    """The port of a process that is stopped: its kernel takes connections, and nobody reads."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server.getsockname()[1]


def ask(urls: str, how: str, times: int = 1) -> list[int]:
    """Ports that answered."""

    async def asked() -> list[int]:
        async with AsyncClient(urls, "token", timeout=60.0) as client:
            return [(await client.pool())["port"] for _ in range(times)]

    if how == "aio":
        return asyncio.run(asked())
    with Client(urls, "token", timeout=60.0) as client:
        return [client.pool()["port"] for _ in range(times)]


def url_of(*ports: int) -> str:
    return ", ".join(f"http://127.0.0.1:{port}" for port in ports)


@pytest.mark.parametrize("how", ["sync", "aio"])
def test_a_hung_gateway_is_left_for_one_that_answers(how):
    with gateway() as good, hung() as stopped:
        begun = time.monotonic()
        found = ask(url_of(stopped, good.server_port), how, times=3)
        assert found == [good.server_port] * 3
        assert time.monotonic() - begun < WITHIN_S  # alone it would have waited for 60 s


@pytest.mark.parametrize("how", ["sync", "aio"])
def test_a_dead_gateway_is_left_for_one_that_answers(how):
    with gateway() as good:
        assert ask(url_of(free_port(), good.server_port), how, times=2) == [good.server_port] * 2


@pytest.mark.parametrize("how", ["sync", "aio"])
def test_a_gateway_that_is_slow_but_lives_is_waited_for(how, monkeypatch):
    monkeypatch.setattr(protocol, "LOOK_S", 60.0)  # a busy machine is no reason to leave it
    monkeypatch.setattr(protocol, "CONNECT_S", 60.0)
    with gateway(slow=2.0) as slow, gateway() as quick:
        assert ask(url_of(slow.server_port, quick.server_port), how) == [slow.server_port]


@pytest.mark.parametrize("how", ["sync", "aio"])
def test_where_no_gateway_answers_the_error_names_one(how):
    ports = free_port(), free_port()
    with pytest.raises(ClientError, match=f"no answer from the pool at http://127.0.0.1:{ports[0]}"):
        ask(url_of(*ports), how)


def test_gateways_are_named_with_commas_between_them(monkeypatch):
    found = locate("gw1, https://gw2:9680/,gw3:1,", "token")
    assert (found.url, found.others) == ("http://gw1:9680", ("https://gw2:9680", "http://gw3:1"))
    monkeypatch.setenv("ROOST_URL", "http://a:1,http://b:2")
    assert locate(token="token").others == ("http://b:2",)
