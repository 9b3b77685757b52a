"""Locates the pool: its directory, the gateway's address, the token. Shared by the command and the client library.

Order: what the caller says; ROOST_URL and ROOST_TOKEN (or ROOST_TOKEN_FILE) in the environment; the personal pool in
ROOST_POOL_DIR, else ~/.roost, which `roost up` describes in `pool.json`.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from roost.errors import ClientError

POOL_FILE = "pool.json"
CONFIG_FILE = "config"
TOKEN_FILE = "token"


@dataclass(frozen=True, slots=True)
class PoolLocation:
    url: str
    token: str


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


def _personal_url() -> str:
    try:
        described = json.loads((pool_dir() / POOL_FILE).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, ValueError) as error:
        raise ClientError(f"{pool_dir() / POOL_FILE} can not be read: {error}", code="no-pool") from error
    return str(described.get("url", ""))


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
