"""Times written as text: what `absTime("...")` and `relTime("...")` with a literal mean.

Both are constants that the parser makes; a text that is no time is a syntax error there, as in the reference.
"""

from __future__ import annotations

import re
import time
from calendar import timegm
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

_ZONE: Final = re.compile(r"([+-])([0-9]{2}):?([0-9]{2})\Z")
_NOT_DIGITS: Final = re.compile(r"[^0-9]*")
_DIGITS: Final = re.compile(r"[0-9]*")

_INTERVAL: Final = re.compile(
    r"\s*+(-?)\s*+"
    r"(?:([0-9]*+)\s*+[+dD]\s*+)?"
    r"(?:([0-9]*+)\s*+(?::(?=.*[:mM])|[hH])\s*+)?"
    r"(?:([0-9]*+)\s*+[:mM]\s*+)?"
    r"([0-9]*(?:\.[0-9]+|\.(?=\s*+[sS]))?)\s*+[sS]?\s*+\Z"
)


def zone_of(offset_s: int) -> timezone | None:
    """A zone by its seconds east of Greenwich; None if it is a day or more, which Python's zones can not be."""
    if not -86_400 < offset_s < 86_400:
        return None
    return timezone(timedelta(seconds=offset_s)) if offset_s else UTC


def at(epoch_s: int, offset_s: int | None = None) -> datetime | None:
    """The moment in a zone, the machine's own by default. None outside the years 1 to 9999."""
    try:
        offset = time.localtime(epoch_s).tm_gmtoff if offset_s is None else offset_s
        zone = zone_of(offset)
        return None if zone is None else datetime.fromtimestamp(epoch_s, zone)
    except (OverflowError, OSError, ValueError):
        return None


def parse_abstime(text: str) -> datetime | None:
    """The moment a text names: year (four digits), month, day and, if given, hour, minute and second (two each).

    Anything may stand between them; fields that are out of range carry over. A zone (+hh:mm, +hhmm or Z)
    may end the text, else it is the machine's own. None if the text is no moment.
    """
    offset: int | None = None
    zone = _ZONE.search(text)
    if zone is not None:
        offset = int(zone[2]) * 3600 + int(zone[3]) * 60
        offset = -offset if zone[1] == "-" else offset
        text = text[: zone.start()]
    elif text.endswith(("z", "Z")):
        offset = 0
        text = text[:-1]
    fields: list[int] = []
    place = 0
    for width in (4, 2, 2, 2, 2, 2):
        place = _after(_NOT_DIGITS, text, place)
        field = text[place : place + width]
        if not field and fields:
            break
        if len(field) < width:
            return None
        fields.append(int(_DIGITS.match(field)[0]))  # type: ignore[index]
        place += width
    if _after(_NOT_DIGITS, text, place) < len(text):
        return None
    year, month, day, hour, minute, second = (*fields, *_MISSING[len(fields) :])
    year, month = year + (month - 1) // 12, (month - 1) % 12 + 1
    try:
        if offset is not None:
            seconds = timegm((year, month, 1, hour, minute, second, 0, 0, 0)) + (day - 1) * 86_400
            return at(seconds - offset, offset)
        return at(int(time.mktime((year, month, day, hour, minute, second, 0, 0, -1))))
    except (OverflowError, ValueError):
        return None


_MISSING: Final = (0, 1, 0, 0, 0, 0)  # a month or a day that is left out: a missing day is the last of the month before


def _after(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return place if found is None else found.end()


def parse_reltime(text: str) -> float | None:
    """The seconds a text names: [-]days+hh:mm:ss.fff without leading parts at will, or 1d2h3m4s; else None."""
    found = _INTERVAL.match(text)
    if found is None:
        return None
    sign, days, hours, minutes, seconds = found.groups()
    total = (
        int(days or 0) * 86_400
        + int(hours or 0) * 3600
        + int(minutes or 0) * 60
        + (0.0 if seconds in ("", ".") else float(seconds))
    )
    return -total if sign == "-" else total
