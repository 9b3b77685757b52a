"""The registry on disk: one file, this account's alone, replaced as a whole."""

from __future__ import annotations

import json
from pathlib import Path

from services.registrar.core.registry import JoinToken, Registry, from_json
from shared.config.errors import config_error
from shared.errors import PermanentError
from shared.files import replace_on_disk


class BadRegistry(PermanentError):
    """The file can not be used. It is left as it is."""


def read(path: Path) -> Registry:
    """Blocks. Raises BadRegistry."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Registry()
    except (OSError, UnicodeError) as error:
        raise BadRegistry(f"{path}: {error}") from error
    try:
        return from_json(json.loads(text))
    except ValueError as error:
        raise BadRegistry(f"{path}: {error}; put a copy of it back, or move it away to begin anew") from error


def write(path: Path, registry: Registry) -> None:
    """Blocks. Raises OSError, and the old one stays then."""
    replace_on_disk(path, json.dumps(registry.to_json(), indent=1).encode())


def known_tokens(path: str) -> dict[str, JoinToken]:
    """Join tokens of REGISTRAR_JOIN_TOKENS_FILE by digest. Blocks. Raises ConfigError."""
    found = {}
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        for line in filter(str.strip, lines):
            row = json.loads(line)
            found[str(row["digest"])] = JoinToken(
                tuple(map(str, row["roles"])), str(row["names"]), int(row["left"]), by=str(row.get("by", path))
            )
    except (OSError, UnicodeError, ValueError, KeyError, TypeError) as error:
        raise config_error(f"REGISTRAR_JOIN_TOKENS_FILE: {path}: {error!r}: want a line of JSON a token") from error
    return found
