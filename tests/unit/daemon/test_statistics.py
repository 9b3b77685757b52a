"""What grew of late, how fast, and what a process tells of itself."""

import math
import time

import pytest

from shared.counters import Probe
from shared.daemon.process_usage import ProcessUsage
from shared.daemon.statistics import Averages, Statistics, Window
from tests.daemons import make_context
from tests.spec import spec


@spec("MON-21")
def test_a_window_tells_what_grew_in_it():
    window = Window(100.0, 0.0)
    assert window.grown({"A": 3}, 1.0) == ({"A": 3}, 1.0)  # all of a young life
    for second in range(2, 301):
        grown, seconds = window.grown({"A": 3 + second, "B": 7}, float(second))
        assert seconds == second if second < 100 else 100 <= seconds < 120
        assert grown["A"] == seconds + (3 if seconds == second else 0)  # since it began, or since it was looked at
    assert grown["B"] == 0


@spec("MON-21")
def test_a_window_that_is_looked_at_seldom_says_how_much_it_covers():
    window = Window(100.0, 0.0)
    assert window.grown({"A": 1}, 50.0) == ({"A": 1}, 50.0)
    assert window.grown({"A": 5}, 1000.0) == ({"A": 4}, 950.0)
    assert window.grown({"A": 5}, 1001.0) == ({"A": 4}, 951.0)
    assert window.grown({"A": 6}, 1100.0) == ({"A": 1}, 100.0)


def test_averages_come_close_to_a_steady_rate_and_forget():
    averages, total, now = Averages(0.0), 0.0, 0.0
    while now < 600:
        now, total = now + 5, total + 50
        rates = averages.look(total, now)
    assert rates["1m"] == pytest.approx(10, rel=1e-3)
    assert rates["5m"] == pytest.approx(10 * -math.expm1(-2), rel=1e-3)
    rates = averages.look(total, now + 60)
    assert rates["1m"] == pytest.approx(10 / math.e, rel=1e-2)
    assert averages.look(total, now + 60) == rates  # no time has passed


def test_a_probe_knows_the_least_and_the_most():
    probe = Probe()
    for value in (3.0, 1.0, 2.0):
        probe.add(value)
    assert (probe.count, probe.total, probe.least, probe.most) == (3, 6.0, 1.0, 3.0)


@spec("MON-21")
def test_a_busy_loop_is_busy_and_who_must_not_say_says_nothing(tmp_path):
    context = make_context("SCHEDD", "ap", directory=tmp_path)
    quiet = Statistics(context, 100.0, lambda: {"A": 2}).attributes()
    assert {"A": 2, "RecentA": 2}.items() <= quiet.items()
    assert not [name for name in quiet if "Monitor" in name or "Cycle" in name]
    context.usage = ProcessUsage()
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass
    told = Statistics(context, 100.0, dict).attributes()
    assert 0 < told["DaemonCoreDutyCycle"] <= 1
    assert told["RecentDaemonCoreDutyCycle"] == told["DaemonCoreDutyCycle"]
    assert 1000 < told["MonitorSelfResidentSetSize"] < told["MonitorSelfImageSize"]
