"""Requests that can be read in two ways are refused, however they come in pieces; those that can not pass."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.core.host_check import HostNames
from services.gateway.core.http_framing import MAX_CHUNK_LINE, MAX_HEADERS, Framing

HOST = b"Host: localhost\r\n"
POST = b"POST /x HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
GOOD = [
    b"GET / HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /?a=%20;b HTTP/1.1\r\nhost:localhost:9680\r\nEmpty:\r\nX: caf\xc3\xa9\t  \r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    POST + b"Content-Length: 0\r\n\r\n",
    POST + b"Content-Length: 5\r\n\r\na\nb\rc",
    CHUNKED + b"0\r\n\r\n",
    CHUNKED + b"3\r\na\nb\r\nA;name=value\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n",
]
BAD = [
    (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "both"),
    (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", "both"),
    (POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "more than one Content-Length"),
    (POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n", "more than one Content-Length"),
    (POST + b"Content-Length: 5, 5\r\n\r\n", "no number"),
    (POST + b"Content-Length: +5\r\n\r\n", "no number"),
    (POST + b"Content-Length: 0x5\r\n\r\n", "no number"),
    (POST + b"Content-Length: \r\n\r\n", "no number"),
    (POST + b"Content-Length: 99999999999999999999\r\n\r\n", "no number"),
    (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "not chunked"),
    (POST + b"Transfer-Encoding: identity\r\n\r\n", "not chunked"),
    (POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n", "NAME: VALUE"),
    (POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "more than one Transfer"),
    (b"POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0"),
    (b"GET / HTTP/1.1\n" + HOST + b"\r\n", "carriage return"),
    (b"GET / HTTP/1.1\r\nHost: localhost\n\r\n", "carriage return"),
    (b"GET / HTTP/1.1\r\n" + HOST + b"\n", "carriage return"),
    (b"GET / HTTP/1.1\r\nX: a\rY: b\r\n\r\n", "NAME: VALUE"),
    (b"GET / HTTP/1.1\r\nX: a\r\n b\r\n\r\n", "folded"),
    (b"GET / HTTP/1.1\r\n X: a\r\n\r\n", "folded"),
    (b"GET / HTTP/1.1\r\nX : a\r\n\r\n", "blank before the colon"),
    (b"GET / HTTP/1.1\r\nX\r\n\r\n", "NAME: VALUE"),
    (b"GET / HTTP/1.1\r\nX: a\x00b\r\n\r\n", "NAME: VALUE"),
    (b"GET / HTTP/1.1\r\n\r\n", "no Host"),
    (b"GET / HTTP/1.1\r\n" + HOST * 2 + b"\r\n", "more than one Host"),
    (b"\r\nGET / HTTP/1.1\r\n", "first line"),
    (b"GET  / HTTP/1.1\r\n", "first line"),
    (b"GET / HTTP/1.1 \r\n", "first line"),
    (b"GET / HTTP/2.0\r\n", "first line"),
    (b"GET / http/1.1\r\n", "first line"),
    (b"GET /\xc3\xa9 HTTP/1.1\r\n", "first line"),
    (CHUNKED + b"-1\r\n", "hexadecimal"),
    (CHUNKED + b"+1\r\n", "hexadecimal"),
    (CHUNKED + b"0x1\r\n", "hexadecimal"),
    (CHUNKED + b" 1\r\n", "hexadecimal"),
    (CHUNKED + b"1 \r\n", "hexadecimal"),
    (CHUNKED + b"\r\n", "hexadecimal"),
    (CHUNKED + b"FFFFFFFFFFFFFFFF1\r\n", "hexadecimal"),
    (CHUNKED + b"1;a\nb\r\n", "carriage return"),
    (CHUNKED + b"1\nx\r\n", "carriage return"),
    (CHUNKED + b"1\r\nxx\r\n", "longer than it says"),
    (CHUNKED + b"1\r\nx\n0\r\n", "carriage return"),
    (CHUNKED + b"1;" + b"e" * MAX_CHUNK_LINE + b"\r\n", "too long"),
    (CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n", "trailer"),
    (CHUNKED + b"0\r\nX: a\n\r\n", "carriage return"),
    (CHUNKED + b"0\r\n" + b"X: a\r\n" * 2000, "trailers of a body are too long"),
]


def fed(pieces, names=("*",)):
    framing = Framing(HostNames.of(names).check)
    for piece in pieces:
        if refused := framing.feed(piece):
            return refused
    return None


@pytest.mark.parametrize("data", GOOD)
def test_what_can_be_read_in_one_way_passes(data):
    assert fed([data]) is None
    assert fed([data[at : at + 1] for at in range(len(data))]) is None
    assert fed([data * 3]) is None  # one after the other
    assert "first line" in fed([data, b"nonsense\r\n"]).message  # and its end is known


@pytest.mark.parametrize(("data", "says"), BAD)
def test_what_can_be_read_in_two_ways_does_not(data, says):
    for pieces in ([data], [data[at : at + 1] for at in range(len(data))], [GOOD[0] + data]):
        refused = fed(pieces)
        assert refused.status == 400
        assert says in refused.message


@given(st.lists(st.sampled_from([*GOOD, *(data for data, _ in BAD)]), max_size=4), st.data())
def test_pieces_make_no_difference(requests, data):
    whole = b"".join(requests)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert fed([whole]) == fed(pieces)


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * 70_000,
        b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + (b"X: " + b"x" * 7000 + b"\r\n") * 10 + b"\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: a\r\n" * MAX_HEADERS + b"\r\n",
    ],
)
def test_a_head_that_is_too_large_is_refused_also_when_it_comes_at_once(head):
    assert fed([head]).status == 431


def test_limits_are_for_one_request_not_for_a_connection():
    head = b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 40_000 + b"\r\n\r\n"
    assert fed([head] * 5) is None


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost", 0),
        (b"LocalHost.:1", 0),
        (b"app.localhost", 0),
        (b"127.0.0.1:9680", 0),
        (b"[::1]:9680", 0),
        (b"192.168.7.7", 0),
        (b"pool.example", 0),
        (b"a.nodes.example", 0),
        (b"nodes.example", 421),
        (b"a.b.nodes.example", 421),
        (b"evil.example", 421),
        (b"evil.example:9680", 421),
        (b"127.0.0.1.evil.example", 421),
        (b"localhost.evil.example", 421),
        (b"", 400),
        (b"local host", 400),
        (b"user@localhost", 400),
        (b"localhost:80:80", 400),
        (b"localhost/x", 400),
    ],
)
def test_only_names_of_the_gateway_are_answered(host, status):
    names = ("Pool.Example", "*.nodes.example")
    refused = fed([b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"], names)
    assert (refused.status if refused else 0) == status
    if status == 421:
        assert "ROOST_GATEWAY_HOSTS" in refused.message
        assert fed([b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"], ["*"]) is None


@pytest.mark.parametrize("target", [b"http://localhost/", b"localhost:1", b"*"])
def test_this_is_no_proxy(target):
    assert fed([b"GET " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n"]).status == 400


@pytest.mark.parametrize(
    ("method", "upgrade", "origin", "status"),
    [
        (b"POST", b"", b"http://localhost:9680", 0),
        (b"POST", b"", b"https://pool.example", 0),  # through a proxy, by a name that is known
        (b"POST", b"", b"https://evil.example", 403),
        (b"POST", b"", b"http://localhost:1", 403),  # another server of this machine
        (b"POST", b"", b"http://127.0.0.1:9680", 403),
        (b"POST", b"", b"null", 403),
        (b"DELETE", b"", b"file://", 403),
        (b"GET", b"", b"https://evil.example", 0),  # it changes nothing, and its answer can not be read
        (b"GET", b"Upgrade: websocket\r\n", b"https://evil.example", 403),
        (b"GET", b"Upgrade: websocket\r\n", b"http://localhost:9680", 0),
    ],
)
def test_pages_of_others_change_nothing(method, upgrade, origin, status):
    head = method + b" / HTTP/1.1\r\nHost: localhost:9680\r\n" + upgrade + b"Origin: " + origin + b"\r\n\r\n"
    refused = fed([head], ["pool.example"])
    assert (refused.status if refused else 0) == status
