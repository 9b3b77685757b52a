"""The simulation of fair share shows the numbers of the manual's worked examples."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench.fairshare import __main__ as command
from bench.fairshare import scenarios
from bench.fairshare.simulation import User, always, at, deal, simulate
from engine.fairshare.priorities import Record
from tests.spec import spec

# One worker, which simulates each scenario once.
pytestmark = pytest.mark.xdist_group("fairshare")
ROOT = Path(__file__).parents[3]


@spec("W-09")
@pytest.mark.parametrize(("days", "rup"), [(1, 5.0), (2, 2.5), (3, 1.25), (4.3, 0.5077), (4.33, 0.5), (6, 0.5)])
def test_a_priority_without_use_decays(days, rup):
    assert at(scenarios.decay(), 24 * days).rup["user"] == pytest.approx(rup, abs=1e-3)


@spec("W-11")
@pytest.mark.parametrize(
    ("hour", "rup"),
    [(0, 0.5), (1, 3.3326), (6, 16.3308), (12, 29.6429), (24, 50.25), (36, 64.8214), (48, 75.125), (72, 87.5625)],
)
def test_a_priority_grows_with_use(hour, rup):
    assert at(scenarios.growth(), hour).rup["user"] == pytest.approx(rup, abs=1e-3)


@spec("W-11")
@pytest.mark.parametrize(("hours", "rup"), [(12, 35.5321), (24, 25.125), (48, 12.5625), (96, 3.1406), (240, 0.5)])
def test_a_priority_sinks_when_the_jobs_are_gone(hours, rup):
    assert at(scenarios.growth_and_decay(), 24 + hours).rup["user"] == pytest.approx(rup, abs=1e-3)


@pytest.fixture(scope="module")
def a_against_b():
    return scenarios.a_against_b()


@spec("W-12")
def test_a_newcomer_deserves_150_times_as_much(a_against_b):
    moment = at(a_against_b, 48)
    assert moment.rup["A"] == pytest.approx(75.125, abs=1e-3)
    assert moment.rup["B"] == 0.5
    assert moment.eup["A"] / moment.eup["B"] == pytest.approx(150.25, abs=0.01)
    assert moment.cores["A"] == pytest.approx(0.661, abs=0.01)
    assert moment.cores["B"] == pytest.approx(99.34, abs=0.01)


@spec("W-12")
@pytest.mark.parametrize(
    ("hours", "cores"), [(1, 4.3), (3, 10.7), (6, 18.4), (12, 29.4), (24, 40.9), (48, 48.0), (96, 49.9)]
)
def test_two_users_come_to_halves(a_against_b, hours, cores):
    moment = at(a_against_b, 48 + hours)
    assert moment.cores["A"] == pytest.approx(cores, rel=0.02)
    assert sum(moment.cores.values()) == pytest.approx(100.0)


@spec("W-12")
def test_who_came_first_never_has_more_than_half_again(a_against_b):
    assert max(moment.cores["A"] for moment in a_against_b if moment.seconds >= 48 * 3600) <= 50.0


@spec("W-12")
def test_whole_cycles_with_whole_slots_come_to_halves_too(a_against_b):
    moments = scenarios.a_against_b_in_cycles()
    for hours in (1, 3, 6, 12, 24, 48):
        whole, ideal = at(moments, hours), at(a_against_b, 48 + hours)
        for name in "AB":
            assert whole.cores[name] == pytest.approx(ideal.cores[name], abs=2.0)
            assert whole.rup[name] == pytest.approx(ideal.rup[name], abs=1.5)
    assert all(moment.cores["A"] <= 50 for moment in moments if moment.seconds >= 1800)
    assert all(98 <= sum(moment.cores.values()) <= 100 for moment in moments if moment.seconds >= 1800)


@spec("W-13")
def test_shares_are_inverse_to_priorities():
    assert dict(scenarios.inverse_ratio()) == pytest.approx({"A": 40.0, "B": 20.0, "C": 10.0})
    assert dict(scenarios.inverse_ratio(10.0)) == pytest.approx({"A": 10.0, "B": 40.0, "C": 20.0})


@spec("W-14")
def test_a_larger_factor_gets_less():
    moments = scenarios.factors()
    assert dict(moments[0].cores) == pytest.approx({"factor 1000": 60.0, "factor 2000": 30.0})
    # The priorities follow: in the long run the ratio is the root of that of the factors.
    last = moments[-1].cores
    assert last["factor 1000"] / last["factor 2000"] == pytest.approx(2**0.5, rel=1e-3)


@spec("W-15")
def test_floors_come_first_and_ceilings_hold():
    moments = scenarios.floor_and_ceiling()
    for moment in moments:
        late = moment.seconds >= 24 * 3600
        assert moment.cores["B"] >= 10.0 - 1e-9
        assert moment.cores["A"] == pytest.approx(30.0 if late else 90.0)
        assert sum(moment.cores.values()) == pytest.approx(100.0)
    assert [m.seconds for m in moments] == sorted({m.seconds for m in moments})


@spec("ACC-05")
def test_steps_of_any_length_give_the_same_priorities():
    coarse, fine = (simulate({"u": User(always(100.0))}, 100.0, 24, step=step)[-1].rup["u"] for step in (7200.0, 10.0))
    assert coarse == pytest.approx(fine, abs=1e-9)


def test_nobody_gets_more_than_there_is_or_than_wanted():
    eup = {"a": 1.0, "b": 1.0, "c": 3.0, "idle": 1.0}
    wants = {"a": 5.0, "b": 500.0, "c": 500.0, "idle": 0.0}
    records = {name: Record(factor=1.0) for name in wants} | {"c": Record(factor=1.0, floor=40.0, ceiling=20.0)}
    given = deal(eup, records, wants, 100.0)
    assert given == pytest.approx({"a": 5.0, "b": 75.0, "c": 20.0, "idle": 0.0})
    assert deal(eup, records, dict.fromkeys(wants, 1.0), 100.0) == dict.fromkeys(wants, 1.0)


def test_plots_are_the_same_each_time_and_the_page_shows_them_all(tmp_path):
    from bench.fairshare import plots

    one, two = plots.write(tmp_path / "one"), plots.write(tmp_path / "two")
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
    page = (ROOT / "docs" / "fair-share.md").read_text()
    for path in one:
        text = path.read_text()
        assert len(text) < 30_000
        assert text.startswith("<?xml")
        assert f"(images/{path.name})" in page
        assert (ROOT / "docs" / "images" / path.name).exists()


def test_the_command_prints_and_writes_the_figures(tmp_path, monkeypatch, capsys):
    out = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["bench.fairshare", "--json", str(out)])
    command.main()
    assert "75.1250" in capsys.readouterr().out
    figures = json.loads(out.read_text())
    assert figures["a-against-b"][2]["rup"]["A"] == pytest.approx(75.125)
