"""Requests that a proxy and the gateway could take for different ones, names that are not the gateway's, and pages of
other hosts, over raw sockets: refused, the connection ended, nothing done. An access point's file server
reads as strictly."""

import json
import re
import socket
from urllib.parse import urlsplit

import pytest

from tests.integration.inside import InsidePool
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    inside = InsidePool(tmp_path_factory.mktemp("pool"), ROOST_GATEWAY_HOSTS="pool.example")
    yield inside
    inside.close()


def spoken(address, said):
    """Everything that is answered, until the other side ends the connection, which it must do."""
    with socket.create_connection(address, timeout=PATIENCE_S) as line:
        line.sendall(said)
        got = b""
        try:
            while more := line.recv(1 << 16):
                got += more
        except ConnectionResetError:  # it ended with something of ours unread
            pass
        return got


def gateway_of(pool):
    host, port = pool.url.removeprefix("http://").split(":")
    return host, int(port)


def own(pool):
    return f"Authorization: Bearer {pool.token}\r\n".encode()


STATUS = re.compile(rb"HTTP/1\.[01] [0-9]{3} ")
SMUGGLED = b"DELETE /v1/tokens/000000000000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
AMBIGUOUS = {
    "both lengths": b"POST /v1/whoami HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: 6\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    "two lengths": b"POST /v1/whoami HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "a list of lengths": b"POST /v1/whoami HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: 0, 0\r\n\r\n",
    "a bare line feed": b"GET /v1/whoami HTTP/1.1\r\nHost: localhost\n%s\r\n",
    "a folded header": b"GET /v1/whoami HTTP/1.1\r\nHost: localhost\r\n%sX: a\r\n b\r\n\r\n",
    "a blank before the colon": b"GET /v1/whoami HTTP/1.1\r\nHost: localhost\r\n%sX : a\r\n\r\n",
    "a chunk of no size": b"POST /v1/whoami HTTP/1.1\r\nHost: localhost\r\n%sTransfer-Encoding: chunked\r\n\r\n0x1\r\n",
    "a bare line feed in a chunk": b"POST /v1/whoami HTTP/1.1\r\nHost: localhost\r\n%s"
    b"Transfer-Encoding: chunked\r\n\r\n1\n\r\nx\r\n0\r\n\r\n",
    "a bare line feed in a trailer": b"POST /v1/whoami HTTP/1.1\r\nHost: localhost\r\n%s"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: a\n\r\n",
    "no host": b"GET /v1/whoami HTTP/1.1\r\n%s\r\n",
    "two hosts": b"GET /v1/whoami HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n%s\r\n",
    "a whole address": b"GET http://localhost/v1/whoami HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
}


@pytest.mark.parametrize("what", AMBIGUOUS)
def test_what_can_be_read_in_two_ways_is_refused_and_the_connection_ends(pool, what):
    answer = spoken(gateway_of(pool), AMBIGUOUS[what] % own(pool))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert len(STATUS.findall(answer)) == 1  # what came behind it is no request
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "bad-request"


def test_a_large_header_is_refused_as_documented(pool):
    said = b"GET /v1/whoami HTTP/1.1\r\nHost: localhost\r\n" + own(pool) + b"X: " + b"x" * 100_000 + b"\r\n\r\n"
    assert spoken(gateway_of(pool), said).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1", 200),
        ("[::1]:1", 200),
        ("192.0.2.7", 200),
        (socket.gethostname(), 200),
        ("pool.example", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
    ],
)
def test_a_name_that_points_here_is_not_yet_the_gateways(pool, host, status):
    head = f"GET /v1/whoami HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n".encode()
    answer = spoken(gateway_of(pool), head + own(pool) + b"\r\n")
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    if status == 421:
        assert b"ROOST_GATEWAY_HOSTS" in answer
        assert b"level" not in answer


UPGRADE = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
UPGRADE += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"Host: evil.example\r\n", 421),
        (b"Host: localhost\r\nOrigin: https://evil.example\r\n", 403),
        (b"Host: localhost\r\nOrigin: null\r\n", 403),
    ],
)
def test_a_websocket_of_another_page_is_not_opened(pool, head, status):
    said = b"GET /v1/events/ws HTTP/1.1\r\n" + head + UPGRADE + own(pool) + b"\r\n"
    assert spoken(gateway_of(pool), said).startswith(f"HTTP/1.1 {status} ".encode())


def test_another_page_changes_nothing(pool):
    body = b'{"user": "mallory@x", "level": "ADMINISTRATOR"}'
    head = b"POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n"
    head += own(pool) + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert spoken(gateway_of(pool), head + body).startswith(b"HTTP/1.1 403 ")
    with pool.client() as client:
        assert not [one for one in client.tokens() if one["user"] == "mallory@x"]


FILE_SERVER = [what for what in AMBIGUOUS if what != "a whole address"]


@pytest.mark.parametrize("what", FILE_SERVER)
def test_the_file_server_reads_as_strictly(pool, what):
    served = urlsplit(pool.runner("schedd").daemon.file_server.url)
    answer = spoken((served.hostname, served.port), AMBIGUOUS[what] % b"")
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    assert len(STATUS.findall(answer)) == 1
