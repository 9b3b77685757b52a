"""Times as people type them for `roost explain`."""

from datetime import datetime, timedelta

import pytest

from roost.cli.times import interval_of, lasting, moment_of
from roost.errors import UsageError

NOW = datetime(2026, 11, 22, 13, 30, 5).timestamp()
MIDNIGHT = datetime(2026, 11, 22).timestamp()


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", NOW),
        ("today", MIDNIGHT),
        ("Yesterday", (datetime(2026, 11, 22) - timedelta(days=1)).timestamp()),
        ("-2h", NOW - 7200),
        ("-1d12h30m", NOW - 131400),
        ("-1.5h", NOW - 5400),
        ("-45s", NOW - 45),
        ("1795353587", 1795353587.0),
        ("1795353587.25", 1795353587.25),
        ("10:00", MIDNIGHT + 36000),
        ("9:05:07", MIDNIGHT + 32707),
        ("2026-11-22", MIDNIGHT),
        ("2026-11-22T10:00", MIDNIGHT + 36000),
        ("2026-11-22 10:00:30", MIDNIGHT + 36030),
        ("2026-11-22T10:00Z", 1795341600.0),
        ("2026-11-22T12:00+02:00", 1795341600.0),
    ],
)
def test_forms_of_a_time(text, meant):
    assert moment_of(text, NOW) == pytest.approx(meant)


@pytest.mark.parametrize("text", ["", "tomorrow", "2h", "-2", "25:00", "10:61", "2026-13-01", "9" * 30, "-h", "12"])
def test_what_is_no_time_is_refused_with_the_forms_there_are(text):
    with pytest.raises(UsageError, match=r"-at wants a time.*2026-11-22T10:00.*-2h"):
        moment_of(text, NOW)


def test_intervals():
    assert interval_of("-2h", "", NOW) == (NOW - 7200, 0.0)
    assert interval_of("", "", NOW) == (0.0, 0.0)
    with pytest.raises(UsageError, match="before it begins"):
        interval_of("-1h", "-2h", NOW)


def test_how_long_something_took():
    assert [lasting(s) for s in (0.25, 12.34, 245, 10800, 187200)] == [
        "0.250 s",
        "12.3 s",
        "4:05",
        "3:00:00",
        "2+04:00:00",
    ]
