"""When a job that runs again and again starts next: CronMinute, CronHour, CronDayOfMonth, CronMonth, CronDayOfWeek.

HTCondor's syntax: `*`, numbers, ranges `a-b`, steps `*/n` and `a-b/n`, lists with commas; no names. Sunday is 0 and
7. A field that is not given is `*`. Where both days are restricted (are not `*`), either will do. No library is used,
as croniter and its like accept more (names, `@daily`, seconds, `L`), and say less of what is wrong. Times are those
of the wall clock where the schedd is: datetimes without a zone. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

#: Attribute, least and greatest number.
FIELDS: Final = (
    ("CronMinute", 0, 59),
    ("CronHour", 0, 23),
    ("CronDayOfMonth", 1, 31),
    ("CronMonth", 1, 12),
    ("CronDayOfWeek", 0, 7),
)
#: Of each month, in a leap year.
_LENGTHS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
#: February 29 comes again within eight years, over the year 2100 too: so many days and months are looked at.
_STEPS: Final = 8 * 366
_PIECE: Final = re.compile(r"(?:(\*)|(\d{1,4})(?:\s*-\s*(\d{1,4}))?)(?:\s*/\s*(\d{1,4}))?")


class BadCronTab(ValueError):
    """A field that can not be read: the text names it and the mend."""


@dataclass(frozen=True, slots=True)
class CronTab:
    """The numbers of each field. by_month_day, by_week_day: whether the field restricts anything."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    month_days: frozenset[int]
    months: frozenset[int]
    week_days: frozenset[int]  # 0: Sunday
    by_month_day: bool
    by_week_day: bool

    def on(self, day: datetime) -> bool:
        """Whether it has times on a day."""
        if day.month not in self.months:
            return False
        in_month, in_week = day.day in self.month_days, day.isoweekday() % 7 in self.week_days
        if self.by_month_day and self.by_week_day:
            return in_month or in_week
        return in_month and in_week

    def next_after(self, moment: datetime) -> datetime | None:
        """The first whole minute after a moment at which it runs; None: not in any year that there is."""
        day = moment.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        for _ in range(_STEPS):
            if self.on(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        found = day.replace(hour=hour, minute=minute)
                        if found > moment.replace(fold=0):
                            return found
            try:
                # 32 days after the first is in the next month.
                later = timedelta(days=1 if day.month in self.months else 32)
                day = day + later if day.month in self.months else (day.replace(day=1) + later).replace(day=1)
            except OverflowError:
                return None
        return None


@dataclass(frozen=True, slots=True)
class WallClock:
    """What clocks on the wall show: local: of seconds since 1970; epoch: the seconds when they show it, for the first
    time or (fold = 1) the second."""

    local: Callable[[float], datetime]
    epoch: Callable[[datetime], float]


def next_run(crontab: CronTab, after: float, clock: WallClock) -> int | None:
    """Seconds since 1970 of the first run after a moment; None: there is none. An hour that comes twice a year counts
    once, unless the moment lies in its second coming; what lies in the hour that is left out runs an hour later."""
    found = crontab.next_after(clock.local(after))
    if found is None:
        return None
    at = clock.epoch(found)
    if at <= after:
        at = clock.epoch(found.replace(fold=1))
    return int(at) if at > after else None


def parse_crontab(fields: Mapping[str, str]) -> CronTab:
    """fields: the text of each attribute that is given. Raises BadCronTab."""
    read = {name: _numbers(name, fields.get(name, "*"), least, most) for name, least, most in FIELDS}
    by_month_day, by_week_day = (fields.get(name, "*").strip() != "*" for name in ("CronDayOfMonth", "CronDayOfWeek"))
    if not by_week_day and min(read["CronDayOfMonth"]) > max(_LENGTHS[month - 1] for month in read["CronMonth"]):
        raise BadCronTab(f"CronDayOfMonth = {fields['CronDayOfMonth'][:60]}: no such day is in the months of CronMonth")
    return CronTab(
        minutes=read["CronMinute"],
        hours=read["CronHour"],
        month_days=frozenset(read["CronDayOfMonth"]),
        months=frozenset(read["CronMonth"]),
        week_days=frozenset(number % 7 for number in read["CronDayOfWeek"]),
        by_month_day=by_month_day,
        by_week_day=by_week_day,
    )


def _numbers(name: str, text: str, least: int, most: int) -> tuple[int, ...]:
    found: set[int] = set()
    for piece in text.split(","):
        match = _PIECE.fullmatch(piece.strip())
        if match is None:
            raise BadCronTab(f"{name} = {text[:60]}: want numbers, a-b, *, steps such as */5, and commas between them")
        star, first, last, step = match.groups()
        begin = least if star else int(first)
        end = most if star else int(last) if last else begin
        if not least <= begin <= end <= most:
            raise BadCronTab(f"{name} = {text[:60]}: want numbers from {least} to {most}, the smaller one first")
        if step is not None and not int(step):
            raise BadCronTab(f"{name} = {text[:60]}: a step is 1 or more")
        found.update(range(begin, end + 1, int(step or 1)))
    return tuple(sorted(found))
