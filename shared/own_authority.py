"""A pool's own certificate authority: where nobody gives certificates, daemons have them made here, and made anew
before they end. HTCondor's names for its files are TRUST_DOMAIN_CAFILE and TRUST_DOMAIN_CAKEY.

A certificate and its key are one file, which is replaced as a whole: no reader ever sees half a pair.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shared import private_files

#: Days that an authority is good for, and a server's certificate where daemons renew theirs themselves.
AUTHORITY_DAYS: Final = 3650
SERVER_DAYS: Final = 90
#: A certificate is made anew when less than this part of its time is left.
RENEW_PART: Final = 1 / 3
#: Other machines' clocks may be behind by so much.
_BACKDATED: Final = timedelta(minutes=10)
_LONGEST_NAME: Final = 64  # of a common name, RFC 5280

_PRIVATE: Final = (
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
)


@dataclass(frozen=True, slots=True)
class OwnAuthority:
    """The authority whose certificate is in `ca_file` and whose key in `ca_key`."""

    ca_file: Path
    ca_key: Path

    def server_file(self, name: str) -> Path:
        """Where certificate and key of a server lie, beside the authority's."""
        return self.ca_file.parent / f"{name}.pem"

    def ensure(self, now: float) -> bool:
        """Make the authority where there is none, and its certificate anew, with the same key, before it ends. Says
        whether it did. now: s since 1970. Raises OSError, ValueError with the mend."""
        with _locked(self.ca_file.parent):
            return self._ensure(now)

    def ensure_server(self, name: str, hosts: Sequence[str], now: float, days: int = SERVER_DAYS) -> bool:
        """Make `server_file(name)` where it lacks, ends soon, is of another authority or lacks one of `hosts` (names
        and addresses). Says whether it did. Raises as `ensure`."""
        with _locked(self.ca_file.parent):
            self._ensure(now)
            authority = self._certificate()
            file = self.server_file(name)
            with contextlib.suppress(FileNotFoundError, ValueError):
                if not due(x509.load_pem_x509_certificate(file.read_bytes()), authority, hosts, now):
                    return False
            key = ec.generate_private_key(ec.SECP256R1())
            certificate = _server(hosts, key.public_key(), authority, self._key(), now, days)
            _write(file, key.private_bytes(*_PRIVATE) + certificate.public_bytes(serialization.Encoding.PEM), 0o600)
            return True

    def _ensure(self, now: float) -> bool:
        if not self.ca_key.exists():
            if self.ca_file.exists():
                raise ValueError(
                    f"{self.ca_file} is an authority's certificate, but its key {self.ca_key} is not there: put it "
                    "there (TRUST_DOMAIN_CAKEY), or name certificates in AUTH_SSL_SERVER_CERTFILE"
                )
            private_files.make_directory(self.ca_key.parent)
            _write(self.ca_key, ec.generate_private_key(ec.SECP256R1()).private_bytes(*_PRIVATE), 0o600)
        elif self.ca_file.exists() and not _ends_soon(self._certificate(), now):
            return False
        key = self._key()
        certificate = _authority(key, now)
        _write(self.ca_file, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        return True

    def _certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.ca_file.read_bytes())

    def _key(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self.ca_key.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(
                f"{self.ca_key} holds no key of an elliptic curve: name another file for the pool to make one"
            )
        return key


def due(certificate: x509.Certificate, authority: x509.Certificate, hosts: Sequence[str], now: float) -> str:
    """Why a server's certificate must be made anew; empty: it need not. Pure."""
    if _ends_soon(certificate, now):
        return "it ends soon"
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return "it is of another authority"
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    have = {*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))}
    lacking = [host for host in hosts if str(_address(host) or host) not in have]
    return f"it does not name {', '.join(lacking)}" if lacking else ""


def _ends_soon(certificate: x509.Certificate, now: float) -> bool:
    until, since = certificate.not_valid_after_utc, certificate.not_valid_before_utc
    return until.timestamp() - now < (until - since).total_seconds() * RENEW_PART


def _authority(key: ec.EllipticCurvePrivateKey, now: float) -> x509.Certificate:
    # The name tells authorities of several pools apart; the key's, so that it stays when the certificate is renewed.
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Roost"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"Pool authority {identifier.digest.hex()[:12]}"),
        ]
    )
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    builder = _begun(name, name, key.public_key(), now, AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True).add_extension(identifier, critical=False)
    return builder.sign(key, hashes.SHA256())


def _server(
    hosts: Sequence[str],
    public: ec.EllipticCurvePublicKey,
    authority: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    now: float,
    days: int,
) -> x509.Certificate:
    named: list[x509.GeneralName] = []
    for host in dict.fromkeys(hosts):
        address = _address(host)
        named.append(x509.DNSName(host) if address is None else x509.IPAddress(address))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, next(iter(hosts))[:_LONGEST_NAME])])
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    builder = _begun(subject, authority.subject, public, now, days)
    builder = builder.add_extension(x509.SubjectAlternativeName(named), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return builder.add_extension(issuer, critical=False).sign(key, hashes.SHA256())


def _begun(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: float, days: int
) -> x509.CertificateBuilder:
    at = datetime.fromtimestamp(now, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - _BACKDATED)
        .not_valid_after(at + timedelta(days=days))
    )


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Two daemons of one machine must not both make the authority."""
    private_files.make_directory(directory)
    with open(directory / "lock", "a", opener=private_files.opener) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: Path, data: bytes, mode: int) -> None:
    descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
