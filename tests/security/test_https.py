"""A pool that speaks TLS, with an authority of its own: the command, clients, consumers, WebSockets and transfers; what
does not fit is told with the mend; renewed certificates count without a restart; tokens pass in clear nowhere."""

import asyncio
import contextlib
import datetime
import os
import socket
import ssl
import threading
import time
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509

from roost import AsyncClient, Client, Consumer
from roost.errors import ClientError
from shared.classad import ClassAd
from shared.own_authority import OwnAuthority
from shared.transfer.client import fetch
from shared.transfer.errors import InTheClear
from shared.transfer.tls import TransferTls, is_this_machine
from tests.certificates import Authority
from tests.integration.inside import InsidePool
from tests.waiting import PATIENCE_S, eventually, wait_until

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("https")]


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    directory = tmp_path_factory.mktemp("secure") / "pool"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROOST_CA_FILE", str(directory / "spool" / "tls" / "ca.pem"))
        inside = InsidePool(directory, ROOST_OWN_AUTHORITY="true")
        try:
            yield inside
        finally:
            inside.close()


@pytest.fixture
def stranger(monkeypatch, tmp_path):
    """Somebody who does not know the pool's authority."""
    monkeypatch.delenv("ROOST_CA_FILE")
    monkeypatch.setenv("ROOST_POOL_DIR", str(tmp_path))


def test_the_command_finds_its_own_pools_authority(pool):
    assert pool.url.startswith("https://127.0.0.1:")
    assert "slot1@" in pool.roost("status")
    assert pool.roost("dashboard").startswith(pool.url)


def test_clients_believe_the_authority_that_they_are_given(pool):
    with pool.client() as client:
        assert client.ads("Machine", projection=["Name"])

    async def asked():
        async with AsyncClient(pool.url, pool.token) as client:
            return await client.whoami()

    assert asyncio.run(asked())["level"] == "ADMINISTRATOR"


def test_files_travel_over_tls(pool, tmp_path):
    assert pool.runner("schedd").daemon.file_server.url.startswith("https://")
    (tmp_path / "in.txt").write_text("over TLS\n")
    (tmp_path / "x.sub").write_text(
        "executable = /bin/cp\narguments = in.txt out.txt\ntransfer_input_files = in.txt\n"
        "should_transfer_files = YES\nwhen_to_transfer_output = ON_EXIT\nqueue\n"
    )
    with pool.client() as client:
        cluster = client.submit(tmp_path / "x.sub", directory=tmp_path, spool=True).cluster

    def done():
        with pool.client() as client:
            found = list(client.jobs(str(cluster), projection=["JobStatus"]))
        return bool(found) and found[0].eval("JobStatus") == 4

    wait_until(done, 60, "the job's end")
    with pool.client() as client:
        assert client.output(f"{cluster}.0", "out.txt").read() == b"over TLS\n"


async def test_events_come_over_tls_to_consumers_and_websockets(pool):
    async with Consumer(pool.url, token=pool.token, types=["job.*"]) as consumer:
        with pool.client() as client:
            ad = {"Cmd": "/bin/true", "Iwd": "/tmp", "ShouldTransferFiles": "NO", "JobStatus": 5}
            await asyncio.to_thread(client.submit, ClassAd(ad), [ClassAd()])
        async with asyncio.timeout(PATIENCE_S):
            async for event in consumer:
                assert event.type.startswith("job")
                break
    context = ssl.create_default_context(cafile=os.environ["ROOST_CA_FILE"])
    head = {"Authorization": f"Bearer {pool.token}"}
    async with aiohttp.ClientSession(headers=head) as session:
        address = pool.url.replace("https", "wss") + "/v1/events/ws"
        async with session.ws_connect(address, ssl=context) as ws:
            assert not ws.closed


def test_a_stranger_is_told_how_to_believe(pool, stranger):
    with pytest.raises(ClientError, match=r"certificate verify failed.*ROOST_CA_FILE"), Client(pool.url, "x") as client:
        client.whoami()

    async def asked():
        async with AsyncClient(pool.url, "x") as client:
            await client.whoami()

    with pytest.raises(ClientError, match=r"certificate verify failed.*ROOST_CA_FILE"):
        asyncio.run(asked())


def test_http_at_a_port_with_tls_is_told_the_mend(pool):
    plain = pool.url.replace("https", "http")
    with pytest.raises(ClientError, match="begins with https://"), Client(plain, "x") as client:
        client.whoami()

    async def asked():
        async with AsyncClient(plain, "x") as client:
            await client.whoami()

    with pytest.raises(ClientError, match="begins with https://"):
        asyncio.run(asked())


@contextlib.contextmanager
def listening(pair=None):
    """A server that shows this certificate and says nothing; without one, in HTTP that this is no request."""
    context = None
    if pair is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                line, _ = server.accept()
            except OSError:
                return
            with line:
                line.settimeout(PATIENCE_S)
                try:
                    if context is None:
                        line.recv(1000)
                        line.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                    else:
                        context.wrap_socket(line, server_side=True).close()
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(PATIENCE_S)


@pytest.mark.parametrize(
    ("hosts", "expired", "says"),
    [
        (["DNS:elsewhere.example"], False, "for another host"),
        (["IP:127.0.0.1"], True, "has expired: renew it"),
        (None, False, "begins with http://"),
    ],
)
def test_what_is_wrong_with_a_server_is_told_with_the_mend(monkeypatch, tmp_path, hosts, expired, says):
    authority = Authority(tmp_path)
    monkeypatch.setenv("ROOST_CA_FILE", str(authority.ca))
    pair = authority.issue("server", *hosts, expired=expired) if hosts is not None else None
    with listening(pair) as url, pytest.raises(ClientError, match=says), Client(url, "x") as client:
        client.whoami()


def test_files_that_can_not_be_used_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("ROOST_CA_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(ClientError, match=r"none\.pem: No such file"), Client("https://127.0.0.1:1", "x") as client:
        client.whoami()


def shown(pool):
    """The certificate of a connection that is opened now."""
    host, port = pool.url.removeprefix("https://").split(":")
    context = ssl.create_default_context(cafile=os.environ["ROOST_CA_FILE"])
    with (
        socket.create_connection((host, int(port))) as line,
        context.wrap_socket(line, server_hostname=host) as secure,
    ):
        return x509.load_der_x509_certificate(secure.getpeercert(binary_form=True))


def test_a_renewed_certificate_is_shown_without_a_restart_and_open_connections_go_on(pool):
    before = shown(pool)
    with pool.client() as client:
        assert client.whoami()
        tls = Path(os.environ["ROOST_CA_FILE"]).parent
        later = time.time() + datetime.timedelta(days=80).total_seconds()
        pool.runner("gateway").daemon.certificate._now = lambda: later  # as its clock will be near the end
        pool.run(pool.runner("gateway").daemon.certificate._renew())
        after = shown_later(tls)
        assert after.not_valid_after_utc > before.not_valid_after_utc
        assert client.whoami()
    with pool.client() as client, pytest.raises(ClientError, match="not valid yet"):
        client.whoami()  # what is shown is the new one, which begins in 80 days
    pool.runner("gateway").daemon.certificate._now = time.time
    OwnAuthority(tls / "ca.pem", tls / "ca.key").server_file("gateway").unlink()
    pool.run(pool.runner("gateway").daemon.certificate._renew())
    assert shown(pool).serial_number not in (before.serial_number, after.serial_number)


def shown_later(tls):
    return x509.load_pem_x509_certificate((tls / "gateway.pem").read_bytes())


# --- transfers


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("192.0.2.1", False),
        ("", False),
        ("2001:db8::1", False),
    ],
)
async def test_what_this_machine_is(host, here):
    assert await is_this_machine(host) is here


async def test_a_token_is_not_sent_to_another_machine_without_tls(tmp_path):
    """Nothing is connected to: 192.0.2.1 (TEST-NET-1) would take 10 s to be given up."""
    async with aiohttp.ClientSession() as http:
        with pytest.raises(InTheClear, match=r"AUTH_SSL_SERVER_CERTFILE.*ROOST_TRANSFER_WITHOUT_TLS"):
            await fetch(http, "http://192.0.2.1:9/runs/1.0/1", "secret", tmp_path)
    assert await TransferTls(in_the_clear=True).way("http://192.0.2.1:9/") is True
    assert await TransferTls().way("http://127.0.0.1:9/") is True


async def test_a_file_server_of_another_authority_gets_no_token(pool, tmp_path):
    heard = []

    async def serve(reader, writer):
        heard.append(await reader.read(1000))
        writer.close()

    authority = Authority(tmp_path)
    pair = authority.issue("server", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/runs/1.0/1"
    startd = pool.runner("startd").daemon
    tls = TransferTls.of(startd.context.config and pool.runner("gateway").daemon.settings)
    async with aiohttp.ClientSession() as http:
        with pytest.raises(Exception, match="no authority that is known"):
            await fetch(http, url, "secret", tmp_path / "scratch", patience_s=0, tls=tls)
    server.close()
    await server.wait_closed()
    await eventually(lambda: all(b"secret" not in one for one in heard))
