"""TLS of daemons to their servers: what a URL and the configuration say, files that can not be used, OpenSSL's words
and the mends."""

import contextlib
import os
import shutil
import ssl
import subprocess

import pytest

from shared.config import load_config
from shared.config.knobs.tls import TlsSettings
from shared.tls import ClientTls, TlsTrouble, explained
from tests.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority):
    return authority.issue("daemon")


def configured(**knobs):
    env = {f"_CONDOR_{name}": value for name, value in knobs.items()}
    return ClientTls.of(TlsSettings.from_config(load_config([], subsystem="COLLECTOR", env=env)))


def test_knobs_are_those_of_htcondors_clients():
    assert configured(
        AUTH_SSL_CLIENT_CAFILE="/etc/pool/ca.pem",
        AUTH_SSL_CLIENT_CADIR="/etc/pool/cas",
        AUTH_SSL_CLIENT_CERTFILE="/etc/pool/daemon.pem",
        AUTH_SSL_CLIENT_KEYFILE="/etc/pool/daemon.key",
        AUTH_SSL_CLIENT_USE_DEFAULT_CAS="false",
        SSL_SKIP_HOST_CHECK="true",
    ) == ClientTls(
        ca_file="/etc/pool/ca.pem",
        ca_dir="/etc/pool/cas",
        cert_file="/etc/pool/daemon.pem",
        key_file="/etc/pool/daemon.key",
        default_cas=False,
        check_host=False,
    )


def test_without_knobs_the_machines_authorities_count_and_hosts_are_checked():
    context = configured().context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.fixture
def machine(tmp_path, monkeypatch, authority):
    """A machine whose one authority stands in a file, and in a directory to be found by its name."""
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    bundle, directory = tmp_path / "cert.pem", tmp_path / "certs"
    directory.mkdir()
    shutil.copy(authority.ca, bundle)
    shutil.copy(authority.ca, directory / "ours.pem")
    subprocess.run(["openssl", "rehash", directory], check=True)
    paths = ssl.get_default_verify_paths()._replace(cafile=str(bundle), capath=str(directory))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    return bundle, directory


def agree(context, pair):
    """A handshake in memory with a server that shows this certificate. Raises ssl.SSLError."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair.cert, pair.key)
    ends = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(ends[0], ends[1], server_side=True)
    waiting = [context.wrap_bio(ends[1], ends[0], server_hostname="127.0.0.1"), ours]
    for _ in range(10):
        for end in list(waiting):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
                waiting.remove(end)
    assert not waiting


def test_of_the_machines_authorities_those_are_read_that_a_handshake_needs(machine, authority, tmp_path):
    context = ClientTls().context()
    assert not context.get_ca_certs()
    agree(context, authority.issue("server", "IP:127.0.0.1"))
    assert len(context.get_ca_certs()) == 1
    (tmp_path / "other").mkdir()
    with pytest.raises(ssl.SSLError, match="unable to get local issuer"):
        agree(context, Authority(tmp_path / "other", "Another").issue("server", "IP:127.0.0.1"))


def test_where_the_directory_lacks_some_or_others_are_named_it_is_as_openssl_has_it(machine, authority, monkeypatch):
    bundle, _ = machine
    loaded = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda context, purpose: loaded.append(purpose))
    ClientTls().context()
    assert not loaded
    bundle.write_bytes(authority.ca.read_bytes() * 2)
    ClientTls().context()
    assert len(loaded) == 1
    shutil.copy(authority.ca, bundle)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    ClientTls().context()
    bundle.unlink()
    monkeypatch.delenv("SSL_CERT_FILE")
    ClientTls().context()
    assert len(loaded) == 3


def test_hosts_go_unchecked_only_where_that_is_said():
    context = ClientTls(check_host=False).context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.check_hostname


@pytest.mark.servers
@pytest.mark.parametrize(("default_cas", "count"), [(False, 1), (True, 2)])
def test_the_machines_authorities_are_believed_besides(authority, monkeypatch, tmp_path, default_cas, count):
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority(tmp_path, "Machine's").ca))
    context = ClientTls(ca_file=str(authority.ca), default_cas=default_cas).context()
    assert context.cert_store_stats()["x509_ca"] == count


def test_url_may_name_files_of_its_own():
    common = ClientTls(ca_file="/ca", cert_file="/c", key_file="/k")
    tls, url = common.for_url("amqps://me:pw@a/v?cafile=/other%20ca&heartbeat=5&certfile=/both")
    assert url == "amqps://me:pw@a/v?heartbeat=5"
    assert tls == ClientTls(ca_file="/other ca", cert_file="/both", key_file="")
    assert common.for_url("rediss://a:1/0?prefix=p:") == (common, "rediss://a:1/0?prefix=p:")


def test_check_looks_at_urls_with_tls_alone():
    broken = ClientTls(ca_file="/nowhere/ca.pem")
    broken.check("amqp://a,amqp://b")
    broken.check("redis://a")
    broken.check("memory:")
    for url in ("amqps://a,amqps://b", "rediss://a", "rediss+sentinel://a,b/s"):
        with pytest.raises(TlsTrouble, match=r"AUTH_SSL_CLIENT_CAFILE: /nowhere/ca\.pem: No such file"):
            broken.check(url)


@pytest.mark.servers
def test_files_that_can_not_be_used_are_named_with_the_knob_and_the_mend(authority, pair, tmp_path):
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate\n")
    encrypted = tmp_path / "encrypted.key"
    command = ["openssl", "pkey", "-in", pair.key, "-aes128", "-passout", "pass:secret", "-out", encrypted]
    subprocess.run(command, check=True, capture_output=True)
    other = authority.issue("other")
    for tls, text in (
        (ClientTls(ca_file=str(junk)), f"AUTH_SSL_CLIENT_CAFILE: {junk}: .*want certificates of authorities in PEM"),
        (ClientTls(cert_file="/nowhere"), "AUTH_SSL_CLIENT_CERTFILE: /nowhere: No such file"),
        (ClientTls(key_file=str(pair.key)), "AUTH_SSL_CLIENT_KEYFILE is set without AUTH_SSL_CLIENT_CERTFILE"),
        (ClientTls(cert_file=str(pair.cert), key_file=str(junk)), f"{junk}: .*want a certificate"),
        (ClientTls(cert_file=str(pair.cert), key_file=str(other.key)), "KEY_VALUES_MISMATCH|key values mismatch"),
        (ClientTls(cert_file=str(pair.cert), key_file=str(encrypted)), "the key is encrypted"),
    ):
        with pytest.raises(TlsTrouble, match=text):
            tls.context()


@pytest.mark.servers
def test_files_are_read_again_when_they_were_renewed(authority, pair, tmp_path):
    cert, key = tmp_path / "d.pem", tmp_path / "d.key"
    cert.write_bytes(pair.cert.read_bytes())
    key.write_bytes(pair.key.read_bytes())
    tls = ClientTls(ca_file=str(authority.ca), cert_file=str(cert), key_file=str(key))
    first = tls.context()
    assert tls.context() is first
    fresh = authority.issue("fresh")
    os.replace(fresh.cert, cert)
    with pytest.raises(TlsTrouble, match="AUTH_SSL_CLIENT_KEYFILE"):  # half-way
        tls.context()
    os.replace(fresh.key, key)
    assert tls.context() is not first


def failed(text):
    """An error as libraries wrap it."""
    try:
        try:
            raise ssl.SSLError(1, text)
        except ssl.SSLError as cause:
            raise ConnectionError(f"Server communication error: {cause!r}") from cause
    except ConnectionError as error:
        return error


@pytest.mark.parametrize(
    ("words", "mend"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:1)", "renew it"),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate is not yet valid (_ssl.c:1)",
            "clock",
        ),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate",
            "AUTH_SSL_CLIENT_CAFILE",
        ),
        (
            "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: Hostname mismatch, certificate is not valid "
            "for 'a'. (_ssl.c:1)",
            "for another host",
        ),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1)", "does not speak TLS"),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", "AUTH_SSL_CLIENT_CERTFILE"),
        ("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:1)", "does not take the certificate"),
        ("[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert certificate expired", "does not take the certificate"),
    ],
)
def test_openssls_words_come_with_the_mend(words, mend):
    told = explained(failed(words), "broker:5671")
    assert told.startswith("TLS with broker:5671: ")
    assert mend in told
    assert "\n" not in told
    assert "_ssl.c" not in told


def test_other_errors_are_not_taken_for_handshakes():
    assert explained(ConnectionRefusedError(111, "Connect call failed"), "a") == ""
    assert explained(TimeoutError(), "a") == ""
