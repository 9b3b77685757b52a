"""Locates the pool: its directory, the gateway's address, the token. Shared by the command and the client library.

Order: what the caller says; ROOST_URL and ROOST_TOKEN (or ROOST_TOKEN_FILE) in the environment; the personal pool in
ROOST_POOL_DIR, else ~/.roost, which `roost up` describes in `pool.json`; the gateway of this machine at LOCAL_SOCKET.

Where nobody names an address or a token, a gateway of this machine is asked over its Unix socket: the kernel tells it
who asks, and no token is needed.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.errors import ClientError

POOL_FILE = "pool.json"
CONFIG_FILE = "config"
TOKEN_FILE = "token"
SOCKET_FILE = "gateway.socket"
#: Where the gateway of an access point listens to users of the machine (ROOST_GATEWAY_SOCKET).
LOCAL_SOCKET = Path("/run/roost/gateway.socket")


@dataclass(frozen=True, slots=True)
class PoolLocation:
    """socket: path of a Unix socket that is asked in place of the url's address; empty: none. token: empty where the
    socket tells who asks."""

    url: str
    token: str
    socket: str = ""


def pool_dir(given: str | os.PathLike[str] | None = None) -> Path:
    """The personal pool's directory, whether or not it exists."""
    named = given or os.environ.get("ROOST_POOL_DIR")
    try:
        return (Path(named) if named else Path.home() / ".roost").expanduser().absolute()
    except RuntimeError as error:  # no HOME, and the system does not know this user
        raise ClientError(f"{error}: set HOME, or name the pool's directory in ROOST_POOL_DIR", "no-pool") from error


def locate(url: str | None = None, token: str | None = None) -> PoolLocation:
    """Raises ClientError telling how to name or start a pool."""
    url = url or os.environ.get("ROOST_URL") or _personal_url()
    if not url:
        raise ClientError(
            f"no pool found: start one with `roost up`, or set ROOST_URL (looked in {pool_dir()})", code="no-pool"
        )
    if "://" not in url:
        url = f"http://{url}" if ":" in url else f"http://{url}:9680"
    return PoolLocation(url.rstrip("/"), token or os.environ.get("ROOST_TOKEN") or _token())


def locate_gateway(url: str | None = None, token: str | None = None) -> PoolLocation:
    """The same, over the Unix socket of this machine's gateway where nobody names another way."""
    if not (url or token or any(os.environ.get(name) for name in ("ROOST_URL", "ROOST_TOKEN", "ROOST_TOKEN_FILE"))):
        personal = _described()
        named = str(personal.get("socket", "")) if personal else str(LOCAL_SOCKET)
        if named and _usable(named):
            return PoolLocation(str(personal.get("url", "")) or "http://localhost", "", named)
    return locate(url, token)


def _usable(path: str) -> bool:
    """Whether there is a socket that will know us: a gateway believes no process with no-new-privileges, as of jobs."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode) or not os.access(path, os.R_OK | os.W_OK):
            return False
        with open("/proc/self/status") as status:
            return any(line.split() == ["NoNewPrivs:", "0"] for line in status)
    except OSError:
        return False


def _personal_url() -> str:
    return str(_described().get("url", ""))


def _described() -> dict[str, Any]:
    """What `roost up` says of the personal pool; empty: there is none."""
    try:
        described = json.loads((pool_dir() / POOL_FILE).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise ClientError(f"{pool_dir() / POOL_FILE} can not be read: {error}", code="no-pool") from error
    return dict(described)


def _token() -> str:
    path = Path(os.environ.get("ROOST_TOKEN_FILE") or pool_dir() / TOKEN_FILE)
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        raise ClientError(
            f"no token: set ROOST_TOKEN or ROOST_TOKEN_FILE (looked in {path})", code="unauthenticated"
        ) from None
    except OSError as error:
        raise ClientError(f"token file {path} can not be read: {error}", code="unauthenticated") from error
