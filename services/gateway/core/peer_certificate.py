"""The certificate that a client has shown, once TLS has verified it against AUTH_SSL_SERVER_CAFILE. Whom it stands for
is decided elsewhere."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID
from starlette.types import Scope

#: Where it stands in the scope of a request; who has shown none has no such entry.
PEER_CERTIFICATE: Final = "roost.peer_certificate"

#: Short names of attributes, as OpenSSL's one-line form and HTCondor's mapfiles have them.
_SHORT: Final = {
    NameOID.COUNTRY_NAME: "C",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.LOCALITY_NAME: "L",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.COMMON_NAME: "CN",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.EMAIL_ADDRESS: "emailAddress",
    NameOID.SERIAL_NUMBER: "serialNumber",
    NameOID.USER_ID: "UID",
    NameOID.SURNAME: "SN",
    NameOID.GIVEN_NAME: "GN",
    NameOID.TITLE: "title",
    NameOID.STREET_ADDRESS: "street",
}


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """subject and issuer: as RFC 4514 writes them, the last part first ("CN=alice,O=Example,C=DE"); subject_dn and
    issuer_dn: as HTCondor's mapfiles do ("/C=DE/O=Example/CN=alice"). dns, emails, uris, addresses: its alternative
    names. fingerprint: SHA-256, in hexadecimal digits; until: its end, s since 1970."""

    subject: str
    subject_dn: str
    issuer: str
    issuer_dn: str
    dns: tuple[str, ...]
    emails: tuple[str, ...]
    uris: tuple[str, ...]
    addresses: tuple[str, ...]
    serial: str
    fingerprint: str
    until: float


def read(der: bytes) -> PeerCertificate:
    """What a certificate in DER says. Raises ValueError."""
    certificate = x509.load_der_x509_certificate(der)
    try:
        named = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        named = x509.SubjectAlternativeName([])
    return PeerCertificate(
        subject=certificate.subject.rfc4514_string(),
        subject_dn=one_line(certificate.subject),
        issuer=certificate.issuer.rfc4514_string(),
        issuer_dn=one_line(certificate.issuer),
        dns=tuple(named.get_values_for_type(x509.DNSName)),
        emails=tuple(named.get_values_for_type(x509.RFC822Name)),
        uris=tuple(named.get_values_for_type(x509.UniformResourceIdentifier)),
        addresses=tuple(map(str, named.get_values_for_type(x509.IPAddress))),
        serial=f"{certificate.serial_number:x}",
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(),
        until=certificate.not_valid_after_utc.timestamp(),
    )


def one_line(name: x509.Name) -> str:
    """A name in the order of its parts, each behind a slash; parts of one level are joined by a plus. A slash or plus
    within a value is written \\/ or \\+, and what can not be printed as \\xHH, so that no value looks like two."""
    levels = []
    for level in name.rdns:
        parts = (f"{_SHORT.get(part.oid, part.oid.dotted_string)}={_escaped(part.value)}" for part in level)
        levels.append("/" + "+".join(parts))
    return "".join(levels)


def _escaped(value: str | bytes) -> str:
    text = value if isinstance(value, str) else value.hex()
    shown = (f"\\{one}" if one in "\\/+" else one if one.isprintable() else f"\\x{ord(one):02X}" for one in text)
    return "".join(shown)


def of_connection(found: ssl.SSLObject | None) -> PeerCertificate | None:
    """What the client of a connection has shown; None: nothing, or the connection speaks no TLS. What TLS could not
    verify never comes here: the handshake failed."""
    der = found.getpeercert(binary_form=True) if found is not None else None
    return read(der) if der is not None else None


def of_scope(scope: Scope) -> PeerCertificate | None:
    """Of the request that is being answered."""
    found = scope.get(PEER_CERTIFICATE)
    return found if isinstance(found, PeerCertificate) else None
