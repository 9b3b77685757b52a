"""TLS of our servers: what the configuration says, and contexts that follow their files."""

import shutil
import ssl
import time

import pytest
import structlog

from shared.config import load_config
from shared.config.knobs import GatewaySettings
from shared.errors import PermanentError
from shared.server_tls import LiveContext, ServerCertificate, ServerTls
from shared.tls import TlsTrouble
from tests.certificates import Authority

LOG = structlog.get_logger()
pytestmark = pytest.mark.servers  # openssl


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority):
    return authority.issue("server", "IP:127.0.0.1")


def settings(**knobs):
    env = {f"_CONDOR_{name}": str(value) for name, value in knobs.items()}
    return GatewaySettings.from_config(load_config([], subsystem="GATEWAY", env=env))


def agree(server, client, name="127.0.0.1"):
    """A handshake in memory: the server's and the client's end."""
    ends = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(ends[0], ends[1], server_side=True)
    theirs = client.wrap_bio(ends[1], ends[0], server_hostname=name)
    waiting = [theirs, ours]
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    with pytest.raises(ssl.SSLWantReadError):
        theirs.read(1)  # what TLS 1.3 says after the handshake
    return ours, theirs


def client(authority, pair=None):
    context = ssl.create_default_context(cafile=authority.ca)
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


def test_without_a_certificate_there_is_no_tls():
    assert ServerTls.of(settings()) is None


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"AUTH_SSL_SERVER_KEYFILE": "/k"}, "without AUTH_SSL_SERVER_CERTFILE"),
        ({"AUTH_SSL_SERVER_CERTFILE": "/a, /b", "AUTH_SSL_SERVER_KEYFILE": "/k"}, "a key for each"),
        ({"AUTH_SSL_REQUIRE_CLIENT_CERTIFICATE": "true"}, "speaks no TLS"),
        (
            {"AUTH_SSL_SERVER_CERTFILE": "/c", "AUTH_SSL_REQUIRE_CLIENT_CERTIFICATE": "true"},
            "without AUTH_SSL_SERVER_CAFILE",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(knobs, says):
    with pytest.raises(PermanentError, match=says):
        ServerTls.of(settings(**knobs))


def test_of_a_list_the_first_pair_that_is_there_counts(pair):
    found = ServerTls.of(
        settings(AUTH_SSL_SERVER_CERTFILE=f"/none.pem, {pair.cert}", AUTH_SSL_SERVER_KEYFILE=f"/none.key, {pair.key}")
    )
    assert (found.cert_file, found.key_file) == (str(pair.cert), str(pair.key))


def test_ciphers_are_new_ones(authority, pair):
    context = ServerTls(str(pair.cert), str(pair.key)).context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    names = {one["name"] for one in context.get_ciphers()}
    assert all("GCM" in name or "CHACHA20" in name for name in names)
    assert all(name.startswith(("ECDHE-", "TLS_")) for name in names)
    old = client(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.set_ciphers("AES256-SHA:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        agree(context, old)


def test_new_files_count_from_the_next_connection_on(authority, pair, tmp_path):
    at = tmp_path / "cert.pem", tmp_path / "key.pem"
    for path, source in zip(at, pair, strict=True):
        shutil.copy(source, path)
    live = LiveContext(ServerTls(str(at[0]), str(at[1])), LOG)
    _, before = agree(live.context, client(authority))
    renewed = authority.issue("renewed", "IP:127.0.0.1")
    shutil.copy(renewed.key, at[1])
    _, between = agree(live.context, client(authority))  # half a pair: that of before is shown on
    shutil.copy(renewed.cert, at[0])
    _, after = agree(live.context, client(authority))
    serials = [end.getpeercert()["serialNumber"] for end in (before, between, after)]
    assert serials[0] == serials[1] != serials[2]


def test_an_authority_that_is_taken_away_counts_no_more(authority, pair, tmp_path):
    others = Authority(tmp_path, "Others")
    ca = tmp_path / "cas.pem"
    shutil.copy(authority.ca, ca)
    live = LiveContext(ServerTls(str(pair.cert), str(pair.key), str(ca), require_client=True), LOG)
    person = authority.issue("person")
    ours, _ = agree(live.context, client(authority, person))
    assert ours.getpeercert(binary_form=True)
    shutil.copy(others.ca, ca)
    with pytest.raises(ssl.SSLError, match="verify failed"):
        agree(live.context, client(authority, person))


def test_a_certificate_may_be_asked_for_without_being_needed(authority, pair, tmp_path):
    context = ServerTls(str(pair.cert), str(pair.key), str(authority.ca)).context()
    ours, _ = agree(context, client(authority))
    assert ours.getpeercert(binary_form=True) is None
    with pytest.raises(ssl.SSLError, match="verify failed"):
        agree(context, client(authority, Authority(tmp_path, "Others").issue("stranger")))


@pytest.mark.parametrize("what", ["no such file", "no certificate", "another's key"])
def test_files_that_can_not_be_used_are_named(authority, pair, tmp_path, what):
    cert = tmp_path / "cert.pem"
    if what == "no certificate":
        cert.write_text("nothing")
    elif what == "another's key":
        shutil.copy(authority.issue("other").cert, cert)
    with pytest.raises(TlsTrouble, match=f"AUTH_SSL_SERVER_CERTFILE.*{cert}"):
        LiveContext(ServerTls(str(cert), str(pair.key)), LOG)


async def test_a_certificate_is_made_where_the_pool_has_its_own_authority(tmp_path):
    knobs = settings(ROOST_OWN_AUTHORITY="true", SPOOL=tmp_path, ROOST_TLS_NAMES="pool.example, 10.1.2.3")
    certificate = ServerCertificate(knobs, "gateway", ["192.0.2.7"], time.time, LOG)
    context = await certificate.load()
    for name in ("pool.example", "10.1.2.3", "192.0.2.7", "localhost", "127.0.0.1"):
        agree(context, ssl.create_default_context(cafile=tmp_path / "tls" / "ca.pem"), name)


async def test_a_certificate_that_is_given_wins_over_one_of_our_making(tmp_path, authority, pair):
    files = {"AUTH_SSL_SERVER_CERTFILE": pair.cert, "AUTH_SSL_SERVER_KEYFILE": pair.key}
    knobs = settings(ROOST_OWN_AUTHORITY="true", SPOOL=tmp_path, **files)
    context = await ServerCertificate(knobs, "gateway", [], time.time, LOG).load()
    agree(context, client(authority))
    assert not (tmp_path / "tls").exists()
