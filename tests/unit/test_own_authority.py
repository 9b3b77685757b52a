"""A pool's own authority: what it makes is believed by OpenSSL, is kept while it is good, and made anew in time."""

import ssl
import stat
from datetime import UTC, datetime

import pytest
from cryptography import x509

from shared.own_authority import AUTHORITY_DAYS, SERVER_DAYS, OwnAuthority, due

NOW = datetime(2026, 5, 1, tzinfo=UTC).timestamp()
DAY = 86400.0
HOSTS = ["pool.example", "localhost", "127.0.0.1", "::1"]


@pytest.fixture
def authority(tmp_path):
    return OwnAuthority(tmp_path / "tls" / "ca.pem", tmp_path / "tls" / "ca.key")


def shown(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_authority_and_server_are_made_once_and_their_keys_are_the_owners_alone(authority):
    assert authority.ensure_server("gateway", HOSTS, NOW)
    file = authority.server_file("gateway")
    before = authority.ca_file.read_bytes(), authority.ca_key.read_bytes(), file.read_bytes()
    assert not authority.ensure(NOW + DAY)
    assert not authority.ensure_server("gateway", HOSTS, NOW + DAY)
    assert (authority.ca_file.read_bytes(), authority.ca_key.read_bytes(), file.read_bytes()) == before
    assert [stat.S_IMODE(path.stat().st_mode) for path in (authority.ca_key, file)] == [0o600, 0o600]
    assert not list(file.parent.glob(".*"))  # nothing half-written is left


def test_a_certificate_names_what_was_asked_for_and_is_the_authoritys(authority):
    authority.ensure_server("gateway", HOSTS, NOW)
    ca, server = shown(authority.ca_file), shown(authority.server_file("gateway"))
    server.verify_directly_issued_by(ca)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["pool.example", "localhost"]
    assert list(map(str, names.get_values_for_type(x509.IPAddress))) == ["127.0.0.1", "::1"]
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    days = (server.not_valid_after_utc.timestamp() - NOW) / DAY
    assert days == SERVER_DAYS


@pytest.mark.parametrize(
    ("now", "hosts", "why"),
    [
        (NOW, HOSTS, ""),
        (NOW, HOSTS[:1], ""),  # one that names more will do
        (NOW + 0.6 * SERVER_DAYS * DAY, HOSTS, ""),
        (NOW + 0.7 * SERVER_DAYS * DAY, HOSTS, "it ends soon"),
        (NOW + 2 * SERVER_DAYS * DAY, HOSTS, "it ends soon"),
        (NOW, [*HOSTS, "other.example", "10.0.0.1"], "it does not name other.example, 10.0.0.1"),
        (NOW, ["0:0:0:0:0:0:0:1"], ""),  # the same address in another spelling
    ],
)
def test_when_a_certificate_is_due(authority, now, hosts, why):
    authority.ensure_server("gateway", HOSTS, NOW)
    assert due(shown(authority.server_file("gateway")), shown(authority.ca_file), hosts, now) == why


def test_a_certificate_of_another_authority_is_made_anew(authority, tmp_path):
    other = OwnAuthority(tmp_path / "other" / "ca.pem", tmp_path / "other" / "ca.key")
    other.ensure_server("gateway", HOSTS, NOW)
    authority.ensure(NOW)
    authority.server_file("gateway").write_bytes(other.server_file("gateway").read_bytes())
    assert authority.ensure_server("gateway", HOSTS, NOW)
    shown(authority.server_file("gateway")).verify_directly_issued_by(shown(authority.ca_file))


def test_what_was_cut_off_is_made_anew(authority):
    authority.ensure_server("gateway", HOSTS, NOW)
    authority.server_file("gateway").write_text("-----BEGIN CERTIFICATE-----\n")
    assert authority.ensure_server("gateway", HOSTS, NOW)


def test_an_authority_that_ends_is_renewed_with_its_key_so_that_what_it_made_counts_on(authority):
    authority.ensure(NOW)
    late = NOW + 0.7 * AUTHORITY_DAYS * DAY
    authority.ensure_server("gateway", HOSTS, late)
    old = shown(authority.ca_file)
    assert old.not_valid_after_utc.timestamp() > NOW + AUTHORITY_DAYS * DAY
    server = shown(authority.server_file("gateway"))
    authority.ensure(late + 0.7 * AUTHORITY_DAYS * DAY)
    assert shown(authority.ca_file).not_valid_after_utc > old.not_valid_after_utc
    server.verify_directly_issued_by(shown(authority.ca_file))


def test_without_the_key_nothing_is_made_and_the_mend_is_said(authority):
    authority.ensure(NOW)
    kept = authority.ca_file.read_bytes()
    authority.ca_key.unlink()
    with pytest.raises(ValueError, match="TRUST_DOMAIN_CAKEY"):
        authority.ensure_server("gateway", HOSTS, NOW)
    assert authority.ca_file.read_bytes() == kept


def test_openssl_takes_the_files(authority):
    authority.ensure_server("gateway", HOSTS, NOW)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.server_file("gateway"))
    client = ssl.create_default_context(cafile=authority.ca_file)
    assert client.cert_store_stats()["x509_ca"] >= 1
