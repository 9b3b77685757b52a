"""TLS to real servers: RabbitMQ, Redis and its sentinels, which want certificates of their clients too. What goes wrong
is told with the mend, and heals without a restart of who waits."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from roost.consumer.amqp import AmqpSource
from shared.bus.amqp import AmqpBus
from shared.bus.api import Exchange
from shared.messages.base import Ack
from shared.messages.events import DaemonStarted
from shared.messages.orders import AskConfig
from shared.state import open_store
from shared.tls import ClientTls
from tests.certificates import Authority
from tests.processes import DaemonProcess
from tests.servers import Leashed, Rabbit, Redis, free_port
from tests.waiting import eventually, wait_until

pytestmark = pytest.mark.servers

#: What the servers are called: to a client that says localhost they are somebody else.
HERE = "IP:127.0.0.1"


class Certificates:
    """server: what the servers show, which a test may exchange; ours and the others are clients'."""

    def __init__(self, directory):
        for name in ("ours", "others", "served"):
            (directory / name).mkdir()
        self.authority = Authority(directory / "ours", "Pool")
        self.others = Authority(directory / "others", "Strangers")
        self.good = self.authority.issue("server", HERE)
        self.expired = self.authority.issue("expired", HERE, expired=True)
        self.elsewhere = self.authority.issue("elsewhere", "DNS:broker.example")
        self.client = self.authority.issue("client")
        self.stranger = self.others.issue("stranger")
        self.cert, self.key = directory / "served" / "cert.pem", directory / "served" / "key.pem"
        self.serve(self.good)
        self.tls = ClientTls(str(self.authority.ca), "", str(self.client.cert), str(self.client.key), False)

    def serve(self, pair):
        shutil.copy(pair.key, self.key)
        shutil.copy(pair.cert, self.cert)

    def but(self, **changes):
        """What daemons have set, with something else."""
        tls = self.tls
        values = {"ca_file": tls.ca_file, "cert_file": tls.cert_file, "key_file": tls.key_file, "default_cas": False}
        return ClientTls(**{**values, **changes})


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Secure:
    """A server, the port on which it speaks TLS, and how it comes to read its certificate again."""

    def __init__(self, server, port, reread):
        self.server, self.port, self.reread = server, port, reread


@pytest.fixture(scope="module")
def rabbit(certificates):
    port = free_port()
    server = Rabbit(
        f"listeners.ssl.default = 127.0.0.1:{port}\n"
        f"ssl_options.cacertfile = {certificates.authority.ca}\n"
        f"ssl_options.certfile = {certificates.cert}\n"
        f"ssl_options.keyfile = {certificates.key}\n"
        "ssl_options.verify = verify_peer\n"
        "ssl_options.fail_if_no_peer_cert = true\n"
    )
    try:
        server.start()
        yield Secure(server, port, lambda: server.ctl("eval", "ssl:clear_pem_cache()."))
    finally:
        server.close()


def tls_settings(certificates, port):
    files = {"tls-cert-file": certificates.cert, "tls-key-file": certificates.key}
    files |= {"tls-ca-cert-file": certificates.authority.ca}
    return {"tls-port": port, "tls-auth-clients": "yes", **files}


@pytest.fixture(scope="module")
def redis(certificates):
    port = free_port()
    server = Redis(
        *(word for name, value in tls_settings(certificates, port).items() for word in (f"--{name}", str(value)))
    )

    def reread():
        for name, path in (("tls-key-file", certificates.key), ("tls-cert-file", certificates.cert)):
            server.command("CONFIG", "SET", name, str(path))

    try:
        server.start()
        yield Secure(server, port, reread)
    finally:
        server.close()


@pytest.fixture
def amqps(rabbit, certificates):
    """URL of a virtual host, over TLS; the server shows its good certificate."""
    with rabbit.server.vhost() as url:
        yield url.replace("amqp://", "amqps://").replace(f":{rabbit.server.port}/", f":{rabbit.port}/")
    if certificates.cert.read_bytes() != certificates.good.cert.read_bytes():
        certificates.serve(certificates.good)
        rabbit.reread()


@pytest.fixture
def rediss(redis, certificates):
    redis.server.flush()
    yield f"rediss://127.0.0.1:{redis.port}/0"
    certificates.serve(certificates.good)
    redis.reread()


@pytest.fixture
async def buses():
    """Makes buses, and stops them."""
    made = []

    def make(url, tls, sender="startd.n1"):
        made.append(AmqpBus(url, sender=sender, tls=tls, connect_timeout_s=30.0))
        return made[-1]

    yield make
    for bus in made:
        await bus.stop()


@pytest.fixture
async def stores():
    made = []

    def make(url, tls):
        made.append(open_store(url, tls=tls))
        return made[-1]

    yield make
    for store in made:
        await store.stop()


async def is_told(what, *words):
    """health's waiting_for says all this."""
    try:
        await eventually(lambda: all(word in what.health.waiting_for for word in words), 60)
    except TimeoutError:
        raise AssertionError(f"{words}: not in {what.health.waiting_for!r}, {what.health.last_error!r}") from None


async def test_bus_over_tls_carries_calls_and_large_messages(amqps, certificates, buses):
    server, client = buses(amqps, certificates.tls), buses(amqps, certificates.tls, "gateway.ap1")
    await asyncio.gather(server.start(), client.start())
    got = []

    async def serve(envelope):
        got.append(envelope.body)
        return Ack()

    await server.serve("startd.n1", serve)
    assert isinstance(await client.call("startd.n1", AskConfig(), timeout=60), Ack)
    await client.send("startd.n1", AskConfig(pattern="X" * 1_000_000))
    await eventually(lambda: len(got) == 2, 60)
    assert len(got[1].pattern) == 1_000_000


async def test_url_may_name_the_files_for_a_program_that_follows_events(amqps, certificates, buses):
    tls = certificates.tls
    daemon = buses(amqps, tls)
    await daemon.start()
    url = f"{amqps}?cafile={tls.ca_file}&certfile={tls.cert_file}&keyfile={tls.key_file}"
    source = AmqpSource(url, "watcher", ("daemon.#",), durable=False, patience_s=60.0)
    await source.open()
    try:
        event = DaemonStarted(at=1.0, daemon="startd@n1", subsystem="STARTD", release="1")
        await daemon.publish(Exchange.EVENTS, event.type, event)
        async with asyncio.timeout(60):
            found = await source.next()
        found.done("")
        assert found.item.type == event.type
    finally:
        await source.close()


TROUBLES = {
    "unknown authority": (lambda c: c.but(ca_file=str(c.others.ca)), "AUTH_SSL_CLIENT_CAFILE"),
    "no certificate of ours": (lambda c: c.but(cert_file="", key_file=""), "AUTH_SSL_CLIENT_CERTFILE"),
    "a stranger's certificate": (
        lambda c: c.but(cert_file=str(c.stranger.cert), key_file=str(c.stranger.key)),
        "AUTH_SSL_CLIENT_CERTFILE",
    ),
    "no such file": (lambda c: c.but(ca_file="/nowhere/ca.pem"), "AUTH_SSL_CLIENT_CAFILE: /nowhere/ca.pem"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_bus_tells_what_is_wrong_and_tries_again(amqps, certificates, buses, trouble):
    tls, words = TROUBLES[trouble]
    bus = buses(amqps, tls(certificates))
    starting = asyncio.create_task(bus.start())
    await is_told(bus, words)
    assert not starting.done()
    await bus.stop()
    await asyncio.wait({starting})


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_store_tells_what_is_wrong_and_tries_again(rediss, certificates, stores, trouble):
    tls, words = TROUBLES[trouble]
    store = stores(rediss, tls(certificates))
    starting = asyncio.create_task(store.start())
    await is_told(store, words)
    assert not starting.done()
    starting.cancel()
    await asyncio.wait({starting})


async def test_bus_tells_of_a_port_without_tls(rabbit, certificates, buses):
    bus = buses(rabbit.server.url.replace("amqp://", "amqps://"), certificates.tls)
    starting = asyncio.create_task(bus.start())
    await is_told(bus, f"127.0.0.1:{rabbit.server.port}", "does not speak TLS")
    await bus.stop()
    await asyncio.wait({starting})


async def test_store_tells_of_a_port_without_tls(redis, certificates, stores):
    store = stores(f"rediss://127.0.0.1:{redis.server.port}", certificates.tls)
    starting = asyncio.create_task(store.start())
    await is_told(store, "does not speak TLS keeps silent")
    starting.cancel()
    await asyncio.wait({starting})


async def test_bus_outlives_a_certificate_that_expires(rabbit, amqps, certificates, buses):
    """On a connection that is opened anew; once it is renewed all goes on."""
    bus = buses(amqps, certificates.tls)
    await bus.start()
    certificates.serve(certificates.expired)
    await asyncio.to_thread(rabbit.reread)
    bus._publisher.current.connection.abort()
    await is_told(bus, f"127.0.0.1:{rabbit.port}", "renew it")
    certificates.serve(certificates.good)
    await asyncio.to_thread(rabbit.reread)
    await eventually(lambda: bus.health.connected, 60, "a connection with the renewed certificate")
    assert bus.health.reconnects == 1


async def test_hosts_are_looked_at_unless_the_knob_says_otherwise(amqps, certificates, buses):
    elsewhere = amqps.replace("127.0.0.1", "localhost")
    bus = buses(elsewhere, certificates.tls)
    starting = asyncio.create_task(bus.start())
    await is_told(bus, "localhost:", "for another host")
    await bus.stop()
    await asyncio.wait({starting})
    careless = buses(elsewhere, certificates.but(check_host=False))
    async with asyncio.timeout(60):
        await careless.start()


async def test_store_outlives_certificates_that_are_wrong_for_a_while(redis, rediss, certificates, stores):
    store = stores(rediss, certificates.tls)
    await store.start()
    await store.set("a", "b")
    for pair, words in ((certificates.expired, "renew it"), (certificates.elsewhere, "for another host")):
        certificates.serve(pair)
        await asyncio.to_thread(redis.reread)
        await asyncio.to_thread(redis.server.command, "CLIENT", "KILL", "TYPE", "normal")
        reading = asyncio.create_task(store.get("a"))
        await is_told(store, f"127.0.0.1:{redis.port}", words)
        certificates.serve(certificates.good)
        await asyncio.to_thread(redis.reread)
        await asyncio.wait({reading})
        reading.exception()
        assert await store.get("a") == b"b"


async def test_renewed_certificate_of_ours_is_shown_without_a_restart(amqps, certificates, buses, tmp_path):
    """The daemon waits while its certificate is not taken, and is let in when the file is another."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(certificates.stranger.cert, cert)
    shutil.copy(certificates.stranger.key, key)
    bus = buses(amqps, certificates.but(cert_file=str(cert), key_file=str(key)))
    starting = asyncio.create_task(bus.start())
    await is_told(bus, "does not take the certificate")
    shutil.copy(certificates.client.key, key)
    shutil.copy(certificates.client.cert, cert)
    async with asyncio.timeout(60):
        await starting


@pytest.fixture
def sentinel(redis, certificates, tmp_path):
    port = free_port()
    lines = [f"{name} {value}" for name, value in tls_settings(certificates, port).items()]
    lines += ["tls-replication yes", f"sentinel monitor pool 127.0.0.1 {redis.port} 1"]
    conf = tmp_path / "sentinel.conf"
    conf.write_text("\n".join(lines) + "\n")
    log = tmp_path / "sentinel.log"
    process = Leashed([Redis.find(), conf, "--sentinel", "--port", "0", "--bind", "127.0.0.1"], log=log, cwd=tmp_path)
    try:
        wait_until(lambda: "monitor master" in log.read_text(), what="sentinel")
        yield f"rediss+sentinel://127.0.0.1:{port}/pool"
    finally:
        process.close()


@pytest.mark.usefixtures("rediss")
async def test_sentinels_and_the_server_that_they_name_over_tls(sentinel, certificates, stores):
    store = stores(sentinel, certificates.tls)
    async with asyncio.timeout(60):
        await store.start()
    await store.set("a", "b")
    assert await store.get("a") == b"b"
    other = stores(sentinel, certificates.but(ca_file=str(certificates.others.ca)))
    starting = asyncio.create_task(other.start())
    await is_told(other, "AUTH_SSL_CLIENT_CAFILE")
    starting.cancel()
    await asyncio.wait({starting})


def knobs(tls):
    return {
        "AUTH_SSL_CLIENT_CAFILE": tls.ca_file,
        "AUTH_SSL_CLIENT_CERTFILE": tls.cert_file,
        "AUTH_SSL_CLIENT_KEYFILE": tls.key_file,
    }


def test_daemon_goes_by_the_knobs(amqps, rediss, certificates, tmp_path):
    """A collector as a process: ready over TLS alone."""
    process = DaemonProcess(
        "collector", "cm1", tmp_path, amqp_url=amqps, redis_url=rediss, config=knobs(certificates.tls)
    )
    try:
        process.start()
        assert process.ask("/readyz")[0] == 200
    finally:
        process.close()


def test_daemon_says_which_file_it_lacks(tmp_path):
    config = {"AUTH_SSL_CLIENT_CAFILE": str(tmp_path / "ca.pem")}
    env = DaemonProcess("collector", "cm1", tmp_path, amqp_url="amqps://a", redis_url="redis://a", config=config).env
    command = [sys.executable, "-m", "services.collector"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 78
    assert f"AUTH_SSL_CLIENT_CAFILE: {tmp_path}/ca.pem: No such file" in done.stderr
    assert "Traceback" not in done.stderr


def test_example_of_the_documentation_makes_certificates_that_serve(tmp_path):
    """The commands of docs/tls.md, with two hosts of it shaking hands."""
    text = Path("docs/tls.md").read_text()
    commands = text.partition("```sh\n")[2].partition("```")[0]
    subprocess.run(["sh", "-ec", commands], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "broker.example.pem", tmp_path / "broker.example.key")
    server.load_verify_locations(tmp_path / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    ours = ClientTls(str(tmp_path / "ca.pem"), "", str(tmp_path / "roost.pem"), str(tmp_path / "roost.key"), False)
    assert shake_hands(ours.context(), server, "broker.example")["subject"] == ((("commonName", "roost daemons"),),)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(ours.context(), server, "redis.example")


def shake_hands(client, server, host):
    """In memory; what the client's certificate says. Raises ssl.SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname=host), server.wrap_bio(up, down, server_side=True)]
    for _ in range(4):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[1].getpeercert()
