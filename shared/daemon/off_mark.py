"""Which daemons are switched off: a mark in SPOOL for each, so that it stays so over restarts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from shared.daemon.context import Context
from shared.files import replace_on_disk


@dataclass(frozen=True, slots=True)
class OffMark:
    """Since when a daemon is off (seconds since 1970), who switched it off, and why."""

    since: float
    by: str = ""
    reason: str = ""


def mark_off(context: Context, subsystem: str, by: str, reason: str) -> None:
    """From its next life on the daemon is off. Raises OSError."""
    told = {"since": context.clock.now(), "by": by, "reason": reason}
    replace_on_disk(_place(context, subsystem), json.dumps(told).encode())


def clear_off_mark(context: Context, subsystem: str) -> None:
    """From its next life on it is on. Raises OSError."""
    _place(context, subsystem).unlink(missing_ok=True)


def read_off_mark(context: Context, subsystem: str) -> OffMark | None:
    """Whether it is off. The mark counts, whatever is in it."""
    try:
        text = _place(context, subsystem).read_bytes()
    except OSError:
        return None
    try:
        told = json.loads(text)
        return OffMark(float(told["since"]), str(told["by"]), str(told["reason"]))
    except (ValueError, KeyError, TypeError):
        return OffMark(0.0)


def _place(context: Context, subsystem: str) -> Path:
    return context.spool / "off" / f"{subsystem.lower()}.{context.name.replace('/', '_')}"
