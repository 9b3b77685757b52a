"""Cycle statistics in the negotiator's ad (NEG-41)."""

import pytest

from services.negotiator.metrics import MAX_NAMES, CycleStatistics, attributes
from tests.spec import spec

CYCLES = [
    CycleStatistics(began=260.0, ended=262.0, matches=10, pie_spins=2),
    CycleStatistics(began=200.0, ended=202.0, matches=4),
    CycleStatistics(began=140.0, ended=141.0),
]


@spec("NEG-41")
def test_newest_cycle_is_number_0():
    ad = attributes(CYCLES, 3)
    assert [ad[f"LastNegotiationCycleTime{n}"] for n in range(3)] == [260, 200, 140]
    assert [ad[f"LastNegotiationCycleMatches{n}"] for n in range(3)] == [10, 4, 0]
    assert ad["LastNegotiationCycleDuration0"] == pytest.approx(2.0)
    assert ad["LastNegotiationCyclePieSpins0"] == 2


@spec("NEG-41")
@pytest.mark.parametrize("length", [0, 1, 2])
def test_so_many_cycles_as_the_knob_says_are_shown(length):
    shown = {name for name in attributes(CYCLES, length) if name.startswith("LastNegotiationCycleEnd")}
    assert shown == {f"LastNegotiationCycleEnd{n}" for n in range(length)}


def test_period_goes_from_end_to_end_and_the_sustained_rate_by_it():
    ad = attributes(CYCLES, 3)
    assert ad["LastNegotiationCyclePeriod0"] == pytest.approx(60.0)
    assert ad["LastNegotiationCycleMatchRate0"] == pytest.approx(5.0)
    assert ad["LastNegotiationCycleMatchRateSustained0"] == pytest.approx(10 / 60)
    assert ad["LastNegotiationCyclePeriod2"] == pytest.approx(1.0)


def test_clock_that_stepped_back_gives_no_negative_figures():
    ad = attributes([CycleStatistics(began=100.0, ended=90.0, matches=3), CYCLES[0]], 2)
    assert ad["LastNegotiationCycleDuration0"] == ad["LastNegotiationCyclePeriod0"] == 0.0
    assert ad["LastNegotiationCycleMatchRate0"] == 0.0


def test_names_are_listed_up_to_a_bound():
    many = [f"user{n}@pool" for n in range(MAX_NAMES + 1)]
    ad = attributes([CycleStatistics(began=0.0, ended=1.0, submitters_share_limit=many)], 1)
    shown = ad["LastNegotiationCycleSubmittersShareLimit0"].split(", ")
    assert shown == [*many[:MAX_NAMES], "..."]
