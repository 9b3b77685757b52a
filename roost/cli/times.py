"""Reads times as people type them, and shows times to them, in local time. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from roost.errors import UsageError

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_BEFORE: Final = re.compile(r"-((?:\d+(?:\.\d+)?[smhdw])+)$")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?$")
#: Larger numbers are no seconds since 1970 that any clock here will show.
_LAST: Final = 253402300799.0
FORMS: Final = "2026-11-22T10:00, 10:00 (today), -2h, -1d12h, yesterday, now, or seconds since 1970"


def moment_of(text: str, now: float, option: str = "-at") -> float:
    """Seconds since 1970 of what somebody typed after `option`. Raises UsageError naming the forms there are."""
    word = text.strip()
    if before := _BEFORE.match(word):
        return now - sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(before.group(1)))
    if re.fullmatch(r"\d{5,}(\.\d+)?", word) and float(word) <= _LAST:
        return float(word)
    today = datetime.fromtimestamp(now).replace(hour=0, minute=0, second=0, microsecond=0)
    named = {"now": now, "today": today.timestamp(), "yesterday": (today - timedelta(days=1)).timestamp()}
    if word.lower() in named:
        return named[word.lower()]
    try:
        if clock := _CLOCK.match(word):
            hour, minute, second = (int(part or 0) for part in clock.groups())
            return today.replace(hour=hour, minute=minute, second=second).timestamp()
        if re.match(r"\d{4}-\d\d-\d\d", word):
            return datetime.fromisoformat(word).timestamp()
    except (ValueError, OverflowError):
        pass
    raise UsageError(f"{option} wants a time, not {text[:60]!r}: {FORMS}")


def interval_of(start: str, end: str, now: float, names: tuple[str, str] = ("-from", "-to")) -> tuple[float, float]:
    """Both ends; 0 for one that is not named. Raises UsageError where it ends before it begins."""
    first = moment_of(start, now, names[0]) if start else 0.0
    last = moment_of(end, now, names[1]) if end else 0.0
    if first and last and first >= last:
        raise UsageError(f"the time ends ({end}) before it begins ({start})")
    return first, last


def shown(seconds: float) -> str:
    """A moment to the second."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def lasting(seconds: float) -> str:
    """How long something took: 0.250 s, 12.3 s, 4:05, 3:00:00, 2+04:00:00."""
    if seconds < 10:
        return f"{seconds:.3f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    if days:
        return f"{days}+{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def counted(number: int, word: str) -> str:
    """A number of things: 1 job, 2 jobs."""
    return f"{number} {word}" + ("" if number == 1 else "s")
