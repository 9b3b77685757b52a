"""Nobody works for an HTTP client who has gone: its question is given up in the gateway and at the daemon that works on
it. What changes something goes on. A real gateway, real connections."""

import asyncio
import json
import socket
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from shared.caller import CallerGone, check_caller
from shared.messages.ads import AdPage
from shared.messages.base import Ack
from tests.integration.inside import InsidePool
from tests.waiting import PATIENCE_S, wait_until


class Slow:
    """In place of a collector and a negotiator: what takes long, as long as somebody waits for it."""

    def __init__(self):
        self.first_page = False  # one page comes at once
        self.told = ""
        self.began, self.gave_up, self.go_on, self.done = (threading.Event() for _ in range(4))

    async def query(self, envelope):
        if envelope.body.my_types != ["Machine"]:
            return AdPage(ads=[])
        if self.first_page and not envelope.body.after:
            return AdPage(ads=[], next="more")
        self.began.set()
        try:
            while True:
                await asyncio.sleep(0.01)
                check_caller()
        except CallerGone as gone:
            self.told = str(gone)
            self.gave_up.set()
            raise

    async def order(self, _):
        self.began.set()
        await asyncio.to_thread(self.go_on.wait, PATIENCE_S)
        check_caller()
        self.done.set()
        return Ack()


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    inside = InsidePool(tmp_path_factory.mktemp("pool"))
    for name in ("collector", "negotiator"):
        inside.stop_daemon(name)
    inside.slow = None
    bus = inside.bus("collector.slow")
    inside.run(bus.serve("collector", lambda envelope: inside.slow.query(envelope)))
    negotiator = inside.bus("negotiator.slow")
    inside.run(negotiator.serve("negotiator", lambda envelope: inside.slow.order(envelope)))
    yield inside
    inside.run(bus.stop())
    inside.run(negotiator.stop())
    inside.close()


@pytest.fixture
def slow(pool):
    pool.slow = Slow()
    return pool.slow


@contextmanager
def asked(pool, method, path, body=b""):
    """A connection that has sent a request, and closes without having read the answer."""
    place = urlsplit(pool.url)
    with socket.create_connection((place.hostname, place.port)) as connection:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {pool.token}\r\n"
        more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
        connection.sendall(f"{head}{more}\r\n".encode() + body)
        yield connection


def counted(pool):
    return pool.runner("gateway").daemon.counts.gone


@pytest.mark.parametrize("streamed", [False, True], ids=["before the answer", "within a long answer"])
def test_a_question_ends_at_the_daemon_too_when_its_client_has_gone(pool, slow, streamed):
    slow.first_page = streamed
    before = counted(pool)
    with asked(pool, "GET", "/v1/ads?type=Machine"):
        assert slow.began.wait(PATIENCE_S)
    assert slow.gave_up.wait(PATIENCE_S)
    assert slow.told == "who asked this has gone"  # and did not wait until it was too late
    wait_until(lambda: counted(pool) == before + 1, what="it is counted")


def test_what_changes_something_goes_on_when_its_client_has_gone(pool, slow):
    order = json.dumps({"what": "factor", "value": 3.0}).encode()
    with asked(pool, "POST", "/v1/priorities/alice@pool", order):
        assert slow.began.wait(PATIENCE_S)
    slow.go_on.set()
    assert slow.done.wait(PATIENCE_S)
