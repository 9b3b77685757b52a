"""Time: time, absTime, relTime, their parts, formatTime and interval (manual: "Predefined Functions").

`time()` is the moment of the evaluation, the same all through it. The parts of an absolute time (getYear, ...) are
those of the machine's own zone, whatever zone the time carries; splitTime and formatTime follow the time's zone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from shared.classad.functions.coerce import (
    epoch_seconds,
    low_32_bits,
    special,
    to_int32,
    to_int64,
    to_number,
)
from shared.classad.functions.registry import Function, table
from shared.classad.time_text import at
from shared.classad.values import ERROR, UNDEFINED, Value

if TYPE_CHECKING:
    from shared.classad.ad import ClassAd
    from shared.classad.context import Context
    from shared.classad.expr import Expr

MAX_FORMATTED: Final = 1023
"""The longest text that formatTime makes, in bytes; a longer one is ERROR (the reference overruns a buffer there)."""


def time_(context: Context, arguments: tuple[Expr, ...]) -> Value:
    """time(): seconds since the epoch at evaluation (spec row CLA-17)."""
    return int(context.now)


def current_time(context: Context, arguments: tuple[Expr, ...]) -> Value:
    """currentTime(): the present as an absolute time."""
    return at(int(context.now)) or ERROR


def day_time(context: Context, arguments: tuple[Expr, ...]) -> Value:
    """dayTime(): the time since midnight."""
    now = time.localtime(context.now)
    return timedelta(hours=now.tm_hour, minutes=now.tm_min, seconds=now.tm_sec)


def timezone_offset(context: Context, arguments: tuple[Expr, ...]) -> Value:
    """timezoneOffset(): how far the machine's zone is east of Greenwich."""
    return timedelta(seconds=time.localtime(context.now).tm_gmtoff)


def abs_time(context: Context, arguments: tuple[Expr, ...]) -> Value:
    """absTime(seconds[, offset]): a moment from seconds since the epoch, by their low 32 bits.

    Strings come back as they are: only the literal `absTime("...")` is read as a time, by the parser.
    """
    if not arguments:
        return current_time(context, arguments)
    values = [context.evaluate(argument) for argument in arguments]
    offset: int | None = None
    if len(values) == 2:
        found = _seconds(values[1])
        if found is None:
            return ERROR
        offset = found
    value = values[0]
    if isinstance(value, str | datetime) or special(value) is not None:
        return value
    seconds = _seconds(value)
    return ERROR if seconds is None else at(seconds, offset) or ERROR


def _seconds(value: Value) -> int | None:
    """The whole seconds of an integer, a real or a relative time, in 32 bits."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return low_32_bits(value)
    if isinstance(value, float):
        return to_int32(value)
    return to_int32(value.total_seconds()) if isinstance(value, timedelta) else None


def rel_time(arguments: list[Value]) -> Value:
    """relTime(seconds). A string that is no literal is no time at all: zero, as in the reference."""
    value = arguments[0]
    if isinstance(value, timedelta) or special(value) is not None:
        return value
    if isinstance(value, str):
        return timedelta(0)
    if isinstance(value, bool):
        return ERROR
    if isinstance(value, datetime):
        return timedelta(seconds=epoch_seconds(value))
    if isinstance(value, int):
        return timedelta(seconds=low_32_bits(value))
    if isinstance(value, float):
        try:
            return timedelta(seconds=value)
        except (OverflowError, ValueError):
            return ERROR  # beyond 2.7 million years, or no number
    return ERROR


def _part(name: str, of_moment: Callable[[time.struct_time], int] | None, unit: tuple[int, int] | None) -> Function:
    """A part of a time: of an absolute one by its calendar, of a relative one as (its rest by unit[0]) / unit[1]."""

    def call(arguments: list[Value]) -> Value:
        value = arguments[0]
        if isinstance(value, datetime) and of_moment is not None:
            return of_moment(time.localtime(epoch_seconds(value)))
        if isinstance(value, timedelta) and unit is not None:
            seconds = to_int32(value.total_seconds())
            part = abs(seconds) % unit[0] // unit[1]
            return -part if seconds < 0 else part
        return ERROR

    return Function(name, 1, 1, call)


def split_time(arguments: list[Value]) -> Value:
    """splitTime(time): an ad of its parts; a number is a time in the machine's own zone."""
    from shared.classad.ad import ClassAd  # ads know about evaluation, which knows about functions

    value = arguments[0]
    if value is UNDEFINED:
        return UNDEFINED
    if isinstance(value, timedelta):
        return _split_interval(value)
    if isinstance(value, datetime):
        parts, offset = value.timetuple(), value.utcoffset() or timedelta(0)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        try:
            parts = time.localtime(value if isinstance(value, int) else to_int32(value))
        except (OverflowError, OSError, ValueError):
            return ERROR  # in a year that can not be counted to
        offset = timedelta(seconds=parts.tm_gmtoff)
    else:
        return ERROR
    return ClassAd(
        {
            "Type": "AbsoluteTime",
            "Year": parts.tm_year,
            "Month": parts.tm_mon,
            "Day": parts.tm_mday,
            "Hours": parts.tm_hour,
            "Minutes": parts.tm_min,
            "Seconds": parts.tm_sec,
            "Offset": int(offset.total_seconds()),
        }
    )


def _split_interval(value: timedelta) -> ClassAd:
    """The parts of a relative time; only the largest that is not zero carries the sign."""
    from shared.classad.ad import ClassAd

    size = abs(value)
    parts: dict[str, int | float] = {
        "Days": size.days,
        "Hours": size.seconds // 3600,
        "Minutes": size.seconds % 3600 // 60,
        "Seconds": size.seconds % 60 + size.microseconds / 1e6,
    }
    if value < timedelta(0):
        largest = next(name for name in parts if parts[name])
        parts[largest] = -parts[largest]
    return ClassAd({"Type": "RelativeTime", **parts})


def format_time(context: Context, arguments: tuple[Expr, ...]) -> Value:
    """formatTime([time[, format]]): as C's strftime(), in C's locale; the present and `%c` by default.

    As in the reference, `%Z` is the name of the zone's standard time and `%z` is always +0000.
    """
    values = [context.evaluate(argument) for argument in arguments]
    moment = values[0] if values else int(context.now)
    layout = values[1] if len(values) == 2 else "%c"
    if not isinstance(layout, str) or isinstance(moment, bool):
        return ERROR
    zone = time.tzname[0]
    try:
        if isinstance(moment, datetime):
            offset = moment.utcoffset()
            parts = time.gmtime(epoch_seconds(moment) + (0 if offset is None else int(offset.total_seconds())))
        elif isinstance(moment, int | float):
            parts = time.localtime(moment if isinstance(moment, int) else to_int32(moment))
            zone = zone if parts.tm_isdst else parts.tm_zone
        else:
            parts = _parts_of(moment)
        text = time.strftime(layout, time.struct_time((*parts[:8], 0, zone, 0)))
    except (OverflowError, OSError, ValueError):
        return ERROR  # no time, or in a year that can not be counted to
    return text if len(text) <= MAX_FORMATTED else ERROR


_FIELDS: Final = (("Year", 1900), ("Month", 1), ("Day", 0), ("Hours", 0), ("Minutes", 0), ("Seconds", 0))


def _parts_of(value: Value) -> time.struct_time:
    """The calendar of an ad such as splitTime makes: integers under these names, what is missing at its least.

    Raises ValueError for anything but an ad, OverflowError for years that are too far off.
    """
    from shared.classad.ad import ClassAd

    if not isinstance(value, ClassAd):
        raise ValueError("neither a time nor the parts of one")
    year, month, day, hour, minute, second = (
        found if type(found := value.eval(name)) is int else least for name, least in _FIELDS
    )
    date = datetime(year, month, 1) + timedelta(days=day - 1)
    in_year = (date - datetime(year, 1, 1)).days + 1
    return time.struct_time((year, month, day, hour, minute, second, date.weekday(), in_year, 0))


def interval(arguments: list[Value]) -> Value:
    """interval(seconds): days+hh:mm:ss without leading zero parts; seconds by their low 32 bits."""
    number = to_number(arguments[0])
    if number is None:
        return ERROR
    seconds = low_32_bits(to_int64(number) if isinstance(number, float) else number)
    sign = "-" if seconds < 0 else ""
    minutes, second = divmod(abs(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{sign}{days}+{hour:02}:{minute:02}:{second:02}"
    if hours:
        return f"{sign}{hour}:{minute:02}:{second:02}"
    return f"{sign}{minute}:{second:02}" if minutes else f"{sign}{second}"


FUNCTIONS: Final = table(
    Function("time", 0, 0, lazy=time_),
    Function("currentTime", 0, 0, lazy=current_time),
    Function("dayTime", 0, 0, lazy=day_time),
    Function("timezoneOffset", 0, 0, lazy=timezone_offset),
    Function("absTime", 0, 2, lazy=abs_time),
    Function("relTime", 1, 1, rel_time),
    _part("getYear", lambda parts: parts.tm_year, None),
    _part("getMonth", lambda parts: parts.tm_mon, None),
    _part("getDayOfYear", lambda parts: parts.tm_yday - 1, None),
    _part("getDayOfMonth", lambda parts: parts.tm_mday, None),
    _part("getDayOfWeek", lambda parts: (parts.tm_wday + 1) % 7, None),
    _part("getDays", None, (1 << 32, 86_400)),
    _part("getHours", lambda parts: parts.tm_hour, (86_400, 3600)),
    _part("getMinutes", lambda parts: parts.tm_min, (3600, 60)),
    _part("getSeconds", lambda parts: parts.tm_sec, (60, 1)),
    Function("splitTime", 1, 1, split_time),
    Function("formatTime", 0, 2, lazy=format_time, costly=True),
    Function("interval", 1, 1, interval),
)
