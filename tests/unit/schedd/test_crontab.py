"""When jobs with cron_minute and its like start next."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine.queue.crontab import BadCronTab, WallClock, next_run, parse_crontab
from tests.spec import spec

NAMES = ("CronMinute", "CronHour", "CronDayOfMonth", "CronMonth", "CronDayOfWeek")


def crontab(text):
    return parse_crontab(dict(zip(NAMES, text.split(), strict=True)))


@spec("SUB-03")
@pytest.mark.parametrize(
    ("text", "after", "found"),
    [
        ("* * * * *", "2026-11-27 03:55:10", "2026-11-27 03:56"),
        ("* * * * *", "2026-11-27 03:56:00", "2026-11-27 03:57"),
        ("*/5 * * * *", "2026-11-27 23:55:00", "2026-11-28 00:00"),
        ("0-30/10 * * * *", "2026-11-27 03:31", "2026-11-27 04:00"),
        ("15,45 6 * * *", "2026-11-27 06:15:00", "2026-11-27 06:45"),
        ("0 0 1 1 *", "2026-11-27 03:55", "2027-01-01 00:00"),
        ("0 0 29 2 *", "2026-11-27 03:55", "2028-02-29 00:00"),
        ("0 3 * * 0", "2026-11-27 03:55", "2026-11-29 03:00"),
        ("0 3 * * 7", "2026-11-27 03:55", "2026-11-29 03:00"),
        ("0 3 * * 1-5", "2026-11-27 03:55", "2026-11-30 03:00"),
        # The first of the month, and every Saturday.
        ("0 3 1 * 6", "2026-11-27 03:55", "2026-11-28 03:00"),
        ("0 3 1 * 6", "2026-11-28 03:55", "2026-12-01 03:00"),
        ("0 3 1 12 6", "2026-11-28 03:55", "2026-12-01 03:00"),
        ("0 3 1-31 * 6", "2026-11-27 03:55", "2026-11-28 03:00"),
        ("0 3 1-31 * 6", "2026-11-28 03:55", "2026-11-29 03:00"),
        ("0 0 29 2 *", "2097-01-01 00:00", "2104-02-29 00:00"),
    ],
)
def test_the_next_time(text, after, found):
    assert crontab(text).next_after(datetime.fromisoformat(after)) == datetime.fromisoformat(found)


def test_what_is_not_given_is_every_one_and_what_never_comes_is_none():
    assert parse_crontab({"CronMinute": "30"}) == crontab("30 * * * *")
    assert crontab("59 23 31 12 *").next_after(datetime(9999, 12, 31, 23, 59)) is None


def berlin(seconds):
    return datetime.fromtimestamp(seconds, ZoneInfo("Europe/Berlin")).replace(tzinfo=None)


def of_berlin(moment):
    return moment.replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp()


@pytest.mark.parametrize(
    ("after", "found"),
    [
        # The clock goes from 2:00 to 3:00: what lies between runs an hour later.
        ("2026-03-29T01:59:00+01:00", "2026-03-29T03:30:00+02:00"),
        # It goes from 3:00 back to 2:00: 2:30 counts once,
        ("2026-10-25T02:29:00+02:00", "2026-10-25T02:30:00+02:00"),
        ("2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"),
        # unless somebody asks when the first is over.
        ("2026-10-25T02:10:00+01:00", "2026-10-25T02:30:00+01:00"),
    ],
)
def test_hours_that_are_left_out_or_come_twice(after, found):
    moment = datetime.fromisoformat(after).timestamp()
    next_one = next_run(crontab("30 2 * * *"), moment, WallClock(berlin, of_berlin))
    assert next_one == datetime.fromisoformat(found).timestamp()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("60 * * * *", "CronMinute = 60: want numbers from 0 to 59"),
        ("* 5-3 * * *", "CronHour = 5-3: want numbers from 0 to 23, the smaller one first"),
        ("* * 0 * *", "CronDayOfMonth = 0: want numbers from 1 to 31"),
        ("* * * jan *", "CronMonth = jan: want numbers, a-b"),
        ("* * * * */0", "CronDayOfWeek = \\*/0: a step is 1 or more"),
        ("0 0 30 2 *", "CronDayOfMonth = 30: no such day is in the months of CronMonth"),
        ("5, * * * *", "CronMinute = 5,: want numbers"),
        ("-1 * * * *", "CronMinute = -1: want numbers"),
    ],
)
def test_what_can_not_be_read_says_why(text, said):
    with pytest.raises(BadCronTab, match=f"^{said}"):
        crontab(text)


_FIELDS = st.tuples(
    *(
        st.one_of(
            st.just("*"),
            st.integers(1, 9).map(lambda step: f"*/{step}"),
            st.lists(st.integers(least, most), min_size=1, max_size=3).map(lambda found: ",".join(map(str, found))),
        )
        for least, most in ((0, 59), (0, 23), (1, 28), (1, 12), (0, 7))
    )
)


@settings(max_examples=60, deadline=None)
@given(_FIELDS, st.datetimes(datetime(2000, 1, 1), datetime(2090, 1, 1)))
def test_it_is_the_first_minute_that_fits(fields, moment):
    """Against a look at each of the following minutes, of two days at most."""
    try:
        table = crontab(" ".join(fields))
    except BadCronTab:
        assume(False)
    found = table.next_after(moment)
    minute = moment.replace(second=0, microsecond=0)
    for number in range(1, 2880):
        later = minute + timedelta(minutes=number)
        if table.on(later) and later.hour in table.hours and later.minute in table.minutes:
            assert found == later
            return
    assert found is not None
    assert found > minute + timedelta(minutes=2879)
