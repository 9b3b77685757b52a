"""The directory of a personal pool, and what `roost up` says in it of the pool that is up."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from roost.errors import ClientError

#: Where the gateway is, and what `roost up` was told; there while the pool is up.
POOL_FILE = "pool.json"
CONFIG_FILE = "config"
TOKEN_FILE = "token"
SOCKET_FILE = "gateway.socket"


def pool_dir(given: str | os.PathLike[str] | None = None) -> Path:
    """The personal pool's directory, whether or not it exists."""
    named = given or os.environ.get("ROOST_POOL_DIR")
    try:
        return (Path(named) if named else Path.home() / ".roost").expanduser().absolute()
    except RuntimeError as error:  # no HOME, and the system does not know this user
        raise ClientError(f"{error}: set HOME, or name the pool's directory in ROOST_POOL_DIR", "no-pool") from error


def described() -> dict[str, Any]:
    """What `roost up` says of the personal pool; empty: there is none. Raises ClientError."""
    file = pool_dir() / POOL_FILE
    try:
        found = json.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise ClientError(f"{file} can not be read: {error}", code="no-pool") from error
    return dict(found)
