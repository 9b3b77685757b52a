"""Several pools side by side: what each gateway's answers say, a line a pool. No I/O.

Another pool's answer is a stranger's: numbers that are none and texts that are too long are left out."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

#: Characters of a text that are shown, and of what a file of a pool holds.
MOST_TEXT: Final = 300
MOST_FILE: Final = 20_000
#: Hosts to which a token may go without TLS.
_HERE: Final = ("localhost", "127.0.0.1", "::1")
_SLOTS: Final = ("slots", "cpus", "used_cpus", "gpus", "utilisation")
_QUEUE: Final = ("running", "idle", "held")
LEVELS: Final = ("error", "warning", "note")


def check_url(text: str) -> str:
    """The address of a pool's gateway without a slash at its end. Raises ValueError."""
    url = text.strip().rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError(f"{url[:MOST_TEXT]!r} is no address of a gateway: write https://HOST:9680")
    if parts.scheme == "http" and parts.hostname not in _HERE:
        raise ValueError(f"{url[:MOST_TEXT]} has no TLS, and the token would pass in clear: write https://")
    return url


def document(data: bytes | None) -> Mapping[str, Any]:
    """An answer's body. Raises ValueError where it is no JSON object."""
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError):
        raise ValueError("what answers there is no gateway of Roost") from None
    if not isinstance(found, dict):
        raise ValueError("what answers there is no gateway of Roost")
    return found


def line(overview: Mapping[str, Any], attention: Mapping[str, Any], version: object) -> dict[str, Any]:
    """{slots, cpus, used_cpus, gpus, utilisation, running, idle, held, users, version, error_count, warning_count,
    note_count, first}. The last counts are of what needs attention, first is the gravest of it. A number that the pool
    does not tell is None."""
    users = _part(overview, "users").get("count")
    slots, queue = _part(overview, "slots"), _part(overview, "queue")
    findings = attention.get("findings")
    found = [one for one in findings if isinstance(one, dict)] if isinstance(findings, list) else []
    return {
        **{name: _number(slots.get(name)) for name in _SLOTS},
        **{name: _number(queue.get(name)) for name in _QUEUE},
        "users": _number(users),
        "version": _text(version),
        **{f"{level}_count": sum(one.get("level") == level for one in found) for level in LEVELS},
        "first": next((_text(one.get("text")) for level in LEVELS for one in found if one.get("level") == level), ""),
    }


def _part(overview: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = overview.get(name)
    return part if isinstance(part, dict) else {}


def _number(value: object) -> float | int | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if math.isfinite(value) and abs(value) < 1e15 else None


def _text(value: object) -> str:
    return value[:MOST_TEXT] if isinstance(value, str) else ""
