"""The secrets of a central manager: each is made once, and kept where its daemon reads it. Blocks."""

from __future__ import annotations

import secrets as random
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cryptography import x509

from roost.errors import ClientError
from shared.bus.statements import make_key_pair, public_file
from shared.own_authority import OwnAuthority

#: Days that a server's certificate is good for: it is made anew where this runs in the last third of them.
CERTIFICATE_DAYS = 825


def passwords(places: Mapping[str, Path]) -> dict[str, str]:
    """By user: the one that its URL in this file has, or a new one. Raises OSError."""
    return {user: _known(place, user) or random.token_urlsafe(32) for user, place in places.items()}


def _known(path: Path, user: str) -> str:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ""
    for line in lines:
        parts = urlsplit(line[line.find("=") + 1 :] if line.startswith("ROOST_") else line)
        if unquote(parts.username or "") == user and parts.password:
            return unquote(parts.password)
    return ""


def authority(directory: Path) -> OwnAuthority:
    """The pool's own, whose key is root's alone."""
    return OwnAuthority(directory / "ca.pem", directory / "ca.key")


def certificate(owner: OwnAuthority, name: str, hosts: Sequence[str]) -> str:
    """PEM of a server's certificate and key: the one that is there, or a new one where it ends soon or lacks a name.
    Raises ClientError."""
    try:
        owner.ensure_server(name, hosts, time.time(), CERTIFICATE_DAYS)
        return owner.server_file(name).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise ClientError(f"the certificate of {name}: {error}", "failed") from error


def key_pair(place: Path) -> tuple[str, str]:
    """A gateway's key and its public half, in PEM: that of the file, or a new one. Raises OSError, ValueError."""
    with tempfile.TemporaryDirectory() as directory:
        private = Path(directory, "key")
        if place.exists():
            private.write_bytes(place.read_bytes())
            private.chmod(0o600)
        make_key_pair(private, public_file(private))
        return private.read_text(encoding="ascii"), public_file(private).read_text(encoding="ascii")


def certificate_problem(pem: str, name: str) -> str:
    """Why a server of this name can not show this certificate, in words; empty: it can. Pure."""
    if "PRIVATE KEY" not in pem:
        return "it holds no private key"
    try:
        first = x509.load_pem_x509_certificate(pem.encode("ascii"))
        names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound) as error:
        return f"it holds no certificate of a server ({error})"
    known = [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
    fits = name in known or f"*.{name.partition('.')[2]}" in known
    return "" if fits else f"it is for {', '.join(known) or 'nobody'}, not for {name}"
