"""Real and effective priorities: the manual's numbers (worked examples W-09, W-11, W-12, W-14)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.fairshare.claim_charging import charged_to
from engine.fairshare.priorities import (
    Factors,
    Record,
    Temporary,
    advance,
    change,
    choose_factor,
    effective,
    forgettable,
    pie_fractions,
    restore,
    settle,
)
from shared.classad import ClassAd
from tests.spec import spec

DAY = 86400.0
HOUR = 3600.0
T0 = 1_000_000_000.0


def after(record: Record, seconds: float, in_use: float) -> Record:
    started = advance(record, T0, DAY, in_use, int(in_use))
    return advance(started, T0 + seconds, DAY, in_use, int(in_use))


@spec("ACC-06", "W-09")
@pytest.mark.parametrize(("days", "expected"), [(1, 5.0), (2, 2.5), (3, 1.25), (4.33, 0.5), (10, 0.5)])
def test_priority_decays_by_half_a_day_down_to_the_floor(days: float, expected: float) -> None:
    idle = after(Record(priority=10.0, factor=1.0), days * DAY, 0.0)
    assert idle.priority == pytest.approx(expected, abs=2e-3)


@spec("ACC-03", "ACC-07", "W-11")
@pytest.mark.parametrize(
    ("hours", "expected"),
    [(1, 3.3326), (6, 16.3308), (12, 29.6429), (24, 50.25), (36, 64.8214), (48, 75.125), (72, 87.5625)],
)
def test_priority_grows_towards_what_is_in_use(hours: float, expected: float) -> None:
    assert after(Record(factor=1.0), hours * HOUR, 100.0).priority == pytest.approx(expected, abs=1e-3)


@spec("ACC-05")
@given(
    parts=st.lists(st.floats(1.0, 50_000.0), min_size=1, max_size=20),
    start=st.floats(0.5, 1000.0),
    use=st.floats(1.0, 500.0),
)
def test_splitting_an_interval_changes_nothing(parts: list[float], start: float, use: float) -> None:
    whole = Record(priority=start, factor=1.0, in_use=use, slots_in_use=3, updated=T0)
    split, now = whole, T0
    for part in parts:
        now += part
        split = advance(split, now, DAY, use, 3)
    once = advance(whole, now, DAY, use, 3)
    assert split.priority == pytest.approx(once.priority, rel=1e-9)
    assert split.weighted_usage == pytest.approx(once.weighted_usage, rel=1e-9)


def test_every_second_of_use_is_charged_once() -> None:
    record = advance(Record(factor=1.0, updated=T0), T0, DAY, 4.0, 2)
    record = advance(record, T0 + 10, DAY, 1.0, 1)
    record = advance(record, T0 + 25, DAY, 0.0, 0)
    record = advance(record, T0 + 100, DAY, 0.0, 0)
    assert (record.weighted_usage, record.usage) == (4.0 * 10 + 1.0 * 15, 2 * 10 + 1 * 15)
    assert (record.begin, record.last) == (T0, T0 + 25)


@spec("ACC-22")
def test_clock_that_steps_back_charges_nothing() -> None:
    record = Record(priority=7.0, factor=1.0, in_use=5.0, slots_in_use=5, updated=T0)
    back = advance(record, T0 - 500, DAY, 5.0, 5)
    assert (back.priority, back.weighted_usage, back.updated) == (7.0, 0.0, T0 - 500)


@spec("ACC-09", "ACC-10", "ACC-11", "W-14")
def test_factors_by_kind_of_submitter() -> None:
    factors = Factors(local_domain="here.org", groups=(("physics", 300.0),))
    assert choose_factor("alice@here.org", factors) == 1000.0
    assert choose_factor("alice@elsewhere.org", factors) == 1e7
    assert choose_factor("nice-user.alice@here.org", factors) == 1e10
    assert choose_factor("physics.alice@here.org", factors) == 300.0
    assert choose_factor("physics.hep.alice@here.org", factors) == 1000.0  # not inherited
    assert choose_factor("bob@elsewhere.org", Factors()) == 1000.0  # no local domain: nobody is remote
    assert choose_factor("physics.xy.bob@p", factors, "physics") == 300.0  # xy is no group in force
    assert choose_factor("nice-user@here.org", factors) == 1000.0  # a user of that name is no nice user
    assert [effective(Record(factor=factor)) for factor in (1000.0, 1e10, 1e7)] == [500.0, 5e9, 5e6]


@spec("ACC-08", "ACC-12", "W-14")
def test_the_larger_factor_gets_less() -> None:
    """Equal RUP, factors 1000 and 2000, 90 cores: 60 and 30."""
    records = {"a": Record(priority=3.0, factor=1000.0), "b": Record(priority=3.0, factor=2000.0)}
    shares = pie_fractions(list(records), {name: effective(record) for name, record in records.items()})
    assert {name: 90 * share for name, share in shares.items()} == pytest.approx({"a": 60.0, "b": 30.0})


@spec("ACC-02")
def test_a_new_record_has_the_best_priority_there_is() -> None:
    assert Record().priority == 0.5
    assert settle(Record(priority=0.6, updated=T0), T0 + 100 * DAY, DAY).priority == 0.5


@spec("ACC-14", "ACC-15")
@pytest.mark.parametrize(
    ("attributes", "discount", "charged"),
    [
        ({"State": "Claimed"}, False, "alice@p"),
        ({"State": "Preempting", "Activity": "Vacating"}, False, "alice@p"),  # ACC-15
        ({"State": "Matched"}, False, ""),
        ({"State": "Unclaimed"}, False, ""),
        ({"State": "Claimed", "PartitionableSlot": True}, False, ""),
        ({"State": "Claimed", "AccountingGroup": "group_physics.bob@p"}, False, "group_physics.bob@p"),
        ({"State": "Claimed", "Activity": "Suspended"}, False, "alice@p"),  # ACC-14
        ({"State": "Claimed", "Activity": "Suspended"}, True, ""),
        ({"State": "Claimed", "Activity": "Busy"}, True, "alice@p"),
        ({"State": "Claimed", "RemoteUser": 7}, False, ""),
    ],
)
def test_who_is_charged_for_a_slot(attributes: dict[str, object], discount: bool, charged: str) -> None:
    ad = ClassAd({"RemoteUser": "alice@p", **attributes})
    assert charged_to(ad, discount_suspended=discount) == charged


def test_what_was_before_a_change_for_a_while_comes_back() -> None:
    record = change(Record(factor=1000.0), "floor", 4.0, T0, until=T0 + 10)
    assert record.temporary == (Temporary("floor", 0.0, T0 + 10),)
    assert restore(record, T0 + 9) == (record, ())
    assert restore(record, T0 + 10) == (Record(factor=1000.0), record.temporary)


def test_only_what_says_nothing_can_be_forgotten() -> None:
    assert forgettable(Record(factor=1000.0), 1000.0)
    for told in (
        Record(factor=999.0),
        Record(factor=1000.0, priority=0.6),
        Record(factor=1000.0, slots_in_use=1),
        Record(factor=1000.0, last=T0),
        Record(factor=1000.0, usage=1.0),
        Record(factor=1000.0, floor=1.0),
        Record(factor=1000.0, ceiling=0.0),
        Record(factor=1000.0, temporary=(Temporary("floor", 0.0, T0),)),
    ):
        assert not forgettable(told, 1000.0)


@pytest.mark.parametrize(
    ("what", "value"), [("factor", 0.5), ("priority", 0.1), ("floor", -1.0), ("factor", None), ("speed", 3.0)]
)
def test_nonsense_changes_are_refused(what: str, value: float | None) -> None:
    with pytest.raises(ValueError):
        change(Record(factor=1.0), what, value, T0)


def test_changes_touch_only_what_they_name() -> None:
    record = Record(priority=3.0, factor=1000.0, weighted_usage=50.0, updated=T0)
    assert change(record, "factor", 10.0, T0).factor == 10.0
    assert change(record, "ceiling", 12.0, T0).ceiling == 12.0
    reset = change(record, "reset", None, T0 + 5)
    assert (reset.weighted_usage, reset.begin, reset.priority) == (0.0, T0 + 5, 3.0)
