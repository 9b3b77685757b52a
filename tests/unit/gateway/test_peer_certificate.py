"""The certificate that a client shows reaches the application, for requests and WebSockets, over real TLS; and nobody
keeps a place at the gateway by never agreeing on TLS."""

import asyncio
import contextlib
import json
import socket
import ssl

import aiohttp
import pytest
import structlog
import uvicorn
import uvloop
from cryptography import x509
from cryptography.x509.oid import NameOID

from services.gateway.connections import HEAD_S, Connections
from services.gateway.core.peer_certificate import PEER_CERTIFICATE, one_line, read
from services.gateway.daemon import _Server
from shared.server_tls import ServerTls
from tests.certificates import Authority
from tests.waiting import eventually

pytestmark = pytest.mark.servers  # openssl


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority):
    return authority.issue("server", "IP:127.0.0.1")


@pytest.fixture(scope="module")
def person(authority):
    return authority.issue("alice", "email:alice@example.org", "URI:spiffe://pool.example/alice", "DNS:desk.example")


async def application(scope, receive, send):
    """Says who asks, and over what."""
    found = scope["state"].get(PEER_CERTIFICATE)
    said = json.dumps([scope["scheme"], found.subject_dn if found is not None else ""])
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": said})
        await send({"type": "websocket.close"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": said.encode()})


@contextlib.asynccontextmanager
async def serving(tls, each=0, total=0):
    now = [1000.0]
    connections = Connections(each, total, (), lambda: now[0], structlog.get_logger())
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        application,
        log_config=None,
        lifespan="off",
        http=connections.protocol(),
        ws="websockets-sansio",
        timeout_graceful_shutdown=1,
    )
    server = _Server(config, connections, tls.context(), [listening])
    running = asyncio.ensure_future(server.serve(sockets=[]))

    def later(seconds):
        now[0] += seconds
        connections.look()

    try:
        await eventually(lambda: server.started and server.servers)
        yield listening.getsockname()[1], connections, later
    finally:
        server.should_exit = True
        await running
        assert len(connections) == 0


def client(authority, pair=None):
    context = ssl.create_default_context(cafile=authority.ca)
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


@pytest.mark.parametrize("shows", [True, False])
async def test_requests_and_websockets_know_their_peer(authority, pair, person, shows):
    tls = ServerTls(str(pair.cert), str(pair.key), str(authority.ca))
    context = client(authority, person if shows else None)
    dn = "/CN=alice" if shows else ""
    async with serving(tls) as (port, _, _), aiohttp.ClientSession() as session:
        for _ in range(2):  # a connection that is used again
            async with session.get(f"https://127.0.0.1:{port}/", ssl=context) as answer:
                assert await answer.json(content_type=None) == ["https", dn]
        async with session.ws_connect(f"wss://127.0.0.1:{port}/", ssl=context) as ws:
            assert await ws.receive_json() == ["wss", dn]


async def test_who_must_show_a_certificate_and_does_not_is_not_heard(authority, pair):
    tls = ServerTls(str(pair.cert), str(pair.key), str(authority.ca), require_client=True)
    async with serving(tls) as (port, connections, _), aiohttp.ClientSession() as session:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await session.get(f"https://127.0.0.1:{port}/", ssl=client(authority))
        await eventually(lambda: len(connections) == 0)


async def test_old_versions_of_tls_are_not_spoken(authority, pair):
    async with serving(ServerTls(str(pair.cert), str(pair.key))) as (port, connections, _):
        old = client(authority)
        old.set_ciphers("DEFAULT:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=old)
        await eventually(lambda: len(connections) == 0)


async def test_a_handshake_that_does_not_come_has_its_place_and_its_end(authority, pair):
    async with serving(ServerTls(str(pair.cert), str(pair.key)), each=2) as (port, connections, later):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await eventually(lambda: len(connections) == 2)
        third = await asyncio.open_connection("127.0.0.1", port)  # of an address that may have two
        idle.append(third)
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await third[0].readexactly(1)
        later(HEAD_S + 1)
        await eventually(lambda: len(connections) == 0)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://127.0.0.1:{port}/", ssl=client(authority)) as answer,
        ):
            assert answer.status == 200
        for _, writer in idle:
            writer.transport.abort()


async def hurried(port, context):
    """Agrees on TLS; its first words are there before the gateway has taken the connection up."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setblocking(False)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.sendall(outgoing.read())
                said = await asyncio.get_running_loop().sock_recv(connection, 65536)
                assert said, "the gateway ended the connection"
                incoming.write(said)
        return tls.version()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_what_comes_before_the_gateway_has_turned_to_a_connection_counts(authority, pair, run):
    """uvloop reads at once, and a client is quicker than a busy gateway."""

    async def work():
        async with serving(ServerTls(str(pair.cert), str(pair.key))) as (port, connections, _):
            for _ in range(3):
                assert await hurried(port, client(authority)) == "TLSv1.3"
            await eventually(lambda: len(connections) == 0)
            # Who has gone by then leaves no place behind.
            socket.create_connection(("127.0.0.1", port)).close()
            await hurried(port, client(authority))
            await eventually(lambda: len(connections) == 0)

    run(work())


async def test_http_without_tls_is_no_request_here(authority, pair):
    async with serving(ServerTls(str(pair.cert), str(pair.key))) as (port, connections, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200" not in await reader.read()
        writer.close()
        await eventually(lambda: len(connections) == 0)


def test_what_a_certificate_says(person):
    found = read(ssl.PEM_cert_to_DER_cert(person.cert.read_text()))
    assert (found.subject, found.subject_dn) == ("CN=alice", "/CN=alice")
    assert (found.issuer, found.issuer_dn) == ("CN=Test Authority", "/CN=Test Authority")
    assert found.emails == ("alice@example.org",)
    assert found.uris == ("spiffe://pool.example/alice",)
    assert found.dns == ("desk.example",)
    assert found.addresses == ()
    assert len(found.fingerprint) == 64


@pytest.mark.parametrize(
    ("parts", "line"),
    [
        ([(NameOID.COUNTRY_NAME, "DE"), (NameOID.COMMON_NAME, "alice")], "/C=DE/CN=alice"),
        ([(NameOID.DOMAIN_COMPONENT, "org"), (NameOID.EMAIL_ADDRESS, "a@b")], "/DC=org/emailAddress=a@b"),
        ([(NameOID.COMMON_NAME, "alice/CN=root")], "/CN=alice\\/CN=root"),  # one name, not two
        ([(NameOID.COMMON_NAME, "a+b\\c\nd")], "/CN=a\\+b\\\\c\\x0Ad"),
        ([(x509.ObjectIdentifier("1.2.3"), "x")], "/1.2.3=x"),
    ],
)
def test_a_name_in_one_line(parts, line):
    assert one_line(x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])) == line
