"""A daemon of this machine gets a user of the broker by a join token, and its files: what `roost enroll` does."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path

from roost.client import Client
from shared import private_files
from shared.bus.definitions import password_hash, with_login
from shared.files import replace_on_disk

#: What the daemon's directory holds.
PASSWORD, URL, CONFIGURATION, KEYS = "password", "amqp_url", "config", "gateways.pem"


@dataclass(frozen=True, slots=True)
class Enrolled:
    """user: of the broker. url: of the broker, with its password. keys: file of the gateways' public keys; None: the
    registrar knows none."""

    user: str
    directory: Path
    url: str
    keys: Path | None


def join(pool: str | None, role: str, name: str, token: str, place: Path) -> Enrolled:
    """Get the user of one daemon and write what it needs into place/ROLE.NAME, each file 0600. The same again, with the
    password of the first time, where it was done before. pool: URL of a gateway; None: the one that commands here ask.
    Raises OSError and ClientError."""
    directory = place / f"{role}.{name}"
    password = _password(directory)
    with Client(pool, "") as client:
        found = client.enroll(token, role, name, _hash(password))
    user = str(found["user"])
    url = ",".join(with_login(one, user, password) for one in found["amqp"])
    replace_on_disk(directory / URL, url.encode())
    knobs = f"{role.upper()}.ROOST_AMQP_URL = {url}\n"
    keys = None
    if told := found.get("gateway_keys"):
        keys = (directory / KEYS).absolute()
        replace_on_disk(keys, "".join(told).encode())
        knobs += f"{role.upper()}.ROOST_GATEWAY_KEYS = {keys}\n"
    replace_on_disk(directory / CONFIGURATION, knobs.encode())
    return Enrolled(user, directory, url, keys)


def _password(directory: Path) -> str:
    """The one of an earlier try, whose answer may have been lost, or a new one. Raises OSError."""
    private_files.make_directory(directory)
    path = directory / PASSWORD
    if not path.exists():
        replace_on_disk(path, secrets.token_urlsafe(32).encode())
    return path.read_text(encoding="utf-8")


def _hash(password: str) -> str:
    """As the broker takes it, and the same each time."""
    return password_hash(password, hashlib.sha256(b"salt of " + password.encode()).digest()[:4])
