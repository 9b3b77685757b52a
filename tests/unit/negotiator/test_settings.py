"""When cycles start (NEG-01 to NEG-03)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.negotiator.settings import LastCycle, Timing, next_start, read_timing
from shared.config import load_config
from shared.config.knobs import NegotiatorSettings
from tests.spec import spec


def test_first_cycle_starts_at_once() -> None:
    assert next_start(Timing(), None, triggered=False) == float("-inf")


def after(*cycles: tuple[float, float], timing: Timing = Timing()) -> LastCycle:  # noqa: B008  it is frozen
    """The last of several cycles, each with its start and its end."""
    last: LastCycle | None = None
    for start, end in cycles:
        last = LastCycle.of(timing, last, start, end)
    assert last is not None
    return last


def test_trigger_after_a_quiet_spell_starts_at_once() -> None:
    assert next_start(Timing(), after((0.0, 0.05)), triggered=True) < 10.0


def test_a_job_that_comes_soon_after_another_need_not_wait() -> None:
    assert next_start(Timing(), after((10.0, 10.008)), triggered=True) <= 10.008
    assert next_start(Timing(), after((10.0, 10.008), (10.03, 10.038)), triggered=True) <= 10.038


def test_storm_of_triggers_is_coalesced_by_the_length_of_a_cycle() -> None:
    short = [(10.0 + n / 500, 10.001 + n / 500) for n in range(100)]  # in a fifth of the time that they call for
    assert next_start(Timing(), after(*short), triggered=True) == pytest.approx(10.8)
    long = [(10.0 + n / 10, 10.1 + n / 10) for n in range(10)]
    assert next_start(Timing(), after(*long), triggered=True) == pytest.approx(11.8)  # 0.2 s for each, but for one


def test_without_trigger_the_periodic_cycle_comes_after_the_interval() -> None:
    assert next_start(Timing(interval=60.0), after((100.0, 100.3)), triggered=False) == 160.0


@spec("NEG-01", "NEG-02", "NEG-03", "W-07")
@pytest.mark.parametrize(
    ("ended", "triggered", "expected"),
    [(50.0, False, 70.0), (3.0, False, 60.0), (3.0, True, 23.0)],
)
def test_knobs_that_an_administrator_set_bind_as_in_htcondor(ended: float, triggered: bool, expected: float) -> None:
    """INTERVAL 60, MIN_INTERVAL 5, CYCLE_DELAY 20."""
    timing = Timing(interval=60.0, min_interval=5.0, cycle_delay=20.0)
    assert next_start(timing, after((0.0, ended), timing=timing), triggered) == expected


def test_minimum_interval_counts_from_the_start() -> None:
    assert next_start(Timing(min_interval=5.0), after((0.0, 3.0)), triggered=True) == 5.0


# --- the knobs and the loop together


def starts(timing: Timing, triggers: list[float], length: float, until: float) -> list[float]:
    """When cycles of this length start, as the daemon's loop goes: from `next_start` of the triggers that came."""
    clock, last, waiting, found = 0.0, None, sorted(triggers), []
    while clock < until:
        come = [at for at in waiting if at <= clock]
        start = next_start(timing, last, bool(come))
        if start <= clock:
            waiting = [at for at in waiting if at > clock]
            found.append(clock)
            last = LastCycle.of(timing, last, clock, clock + length)
            clock += length
        else:
            clock = start if come else min([start, *waiting[:1]])
    return found


TIMINGS = [Timing(), Timing(min_interval=5.0), Timing(cycle_delay=20.0), Timing(min_interval=5.0, cycle_delay=20.0)]


@spec("NEG-01", "NEG-02", "NEG-03")
@settings(max_examples=60)
@given(
    timing=st.sampled_from(TIMINGS),
    triggers=st.lists(st.floats(0.0, 100.0), max_size=60),
    length=st.sampled_from([0.0, 0.0001, 0.01, 1.0, 70.0]),
)
def test_no_trigger_is_lost_and_no_knob_is_broken(timing: Timing, triggers: list[float], length: float) -> None:
    found = starts(timing, triggers, length, 300.0)
    gaps = [later - earlier for earlier, later in pairwise(found)]
    least = max(timing.min_interval, timing.cycle_delay + length)
    assert all(gap >= least - 1e-9 for gap in gaps)
    most = max(timing.interval, least)
    assert all(gap <= most + 1e-9 for gap in gaps)
    for at in triggers:
        answer = min(start for start in found if start >= at)
        before = max((start for start in found if start < answer), default=None)
        held = at if before is None else max(at, before + max(least, timing.coalesce))
        assert answer <= held + 1e-9


def test_thousands_of_triggers_in_a_second_start_some_cycles_only() -> None:
    storm = [n / 5000 for n in range(5000)]
    assert len(starts(Timing(), storm, 0.001, 1.0)) == pytest.approx(120, abs=2)  # one in ten times its length
    assert len(starts(Timing(), storm, 0.05, 1.0)) == 6  # ROOST_NEGOTIATOR_COALESCE
    assert len(starts(Timing(min_interval=0.5), storm, 0.001, 1.0)) == 2


@spec("NEG-01", "NEG-02")
@pytest.mark.parametrize(
    ("knobs", "bound"),
    [
        ({}, (0.0, 0.0)),
        ({"NEGOTIATOR_MIN_INTERVAL": "5"}, (5.0, 0.0)),
        ({"NEGOTIATOR_CYCLE_DELAY": "20"}, (0.0, 20.0)),
    ],
)
def test_defaults_of_htcondor_hold_nothing_back_until_they_are_written_down(
    knobs: dict[str, str], bound: tuple[float, float]
) -> None:
    """They are 5 s and 20 s: also where somebody writes just these."""
    env = {f"_CONDOR_{name}": value for name, value in knobs.items()}
    config = load_config([], subsystem="NEGOTIATOR", env=env)
    timing = read_timing(NegotiatorSettings.from_config(config), config)
    assert (timing.min_interval, timing.cycle_delay) == bound
    assert timing.interval == 60.0
