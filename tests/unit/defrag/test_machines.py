"""How machines are read from ads."""

import pytest

from services.defrag.core.machines import ATTRIBUTES, Expressions, averages, machines_of
from shared.classad import ClassAd, parse_expr
from tests.spec import spec
from tests.unit.defrag.pools import DAY0, read, rules, slot_ad


@spec("DFR-04")
def test_a_machine_is_whole_when_all_cpus_of_a_partitionable_slot_are_left():
    policy = rules()
    found = read(policy, slot_ad("a", 8), slot_ad("b", 7), slot_ad("c", 0), slot_ad("d", 8, PartitionableSlot=False))
    assert {name: machine.whole for name, machine in found.items()} == {
        "startd.a": True,
        "startd.b": False,
        "startd.c": False,
    }


def test_what_is_true_of_one_slot_is_true_of_the_machine():
    policy = rules(DEFRAG_REQUIREMENTS="SlotID == 2", DEFRAG_RANK="SlotID * 10")
    found = read(policy, slot_ad("a", 0, slot=1, SlotID=1), slot_ad("a", 8, slot=2, SlotID=2))
    (machine,) = found.values()
    assert (machine.fits, machine.whole, machine.rank) == (True, True, 20.0)
    (other,) = read(policy, slot_ad("b", 0, SlotID=1)).values()
    assert (other.fits, other.whole) == (False, False)


def test_sleeping_machines_and_ads_of_nobody_are_passed_over():
    policy = rules()
    ads = [slot_ad("a", Offline=True), slot_ad("b", MyAddress="schedd.b"), slot_ad("c", MyAddress=7), slot_ad("d")]
    assert list(read(policy, *ads)) == ["startd.d"]


def test_slots_of_a_machine_may_come_on_several_pages():
    policy = rules()
    first = read(policy, slot_ad("a", 0, slot=1), slot_ad("b"))
    both = machines_of([slot_ad("a", 8, slot=2)], policy.expressions, DAY0, first)
    assert list(both) == ["startd.a", "startd.b"]
    assert (both["startd.a"].whole, first["startd.a"].whole) == (True, False)


def test_a_drained_machine_is_one_of_which_all_slots_are():
    policy = rules()
    ads = [
        slot_ad("a", slot=1, Draining=True, State="Drained"),
        slot_ad("a", slot=2, Draining=True, State="Claimed"),
        slot_ad("b", Draining=True, State="Drained"),
    ]
    found = read(policy, *ads)
    assert [(m.draining, m.drained) for m in found.values()] == [(True, False), (True, True)]


@pytest.mark.parametrize("rank", ["undefined", "error", '"much"', "1/0", 'real("NaN")'])
def test_a_rank_that_is_no_number_is_nothing(rank):
    (machine,) = read(rules(DEFRAG_RANK=rank), slot_ad("a")).values()
    assert machine.rank == 0.0


def test_expressions_say_what_is_asked_of_the_collector():
    asked = Expressions(
        parse_expr("MY.Owner =!= undefined && Site == TARGET.Other"),
        parse_expr("Memory > 1"),
        None,
        parse_expr("-Cost"),
    ).attributes()
    assert {"Owner", "Site", "Memory", "Cost"} <= set(asked)
    assert set(ATTRIBUTES) <= set(asked)


@spec("DFR-11")
def test_costs_are_averaged_over_the_time_of_all_cpus():
    """AvgDrainingBadput and AvgDrainingUnclaimed, by each machine's own clock and since it counts."""
    policy = rules()
    found = read(
        policy,
        slot_ad(
            "a", total=8, MyCurrentTime=DAY0 + 50, RoostDrainingCountedSince=DAY0 - 950,
            TotalMachineDrainingBadput=400, TotalMachineDrainingUnclaimedTime=80,
        ),
        slot_ad("b", total=2, TotalMachineDrainingBadput=100, TotalMachineDrainingUnclaimedTime=20),
        slot_ad("c", total=4, DaemonStartTime="never"),
    )  # fmt: skip
    assert averages(found.values()) == (pytest.approx(500 / 10_000), pytest.approx(100 / 10_000))
    assert averages([]) == (0.0, 0.0)


def test_rubbish_in_an_ad_stops_nothing():
    ad = slot_ad("a", Draining="maybe", LastDrainStartTime="yesterday", TotalCpus=ClassAd(), RoostOff=3, Machine="")
    (machine,) = read(rules(), ad).values()
    assert (machine.name, machine.draining, machine.last_start, machine.off) == ("a", False, None, False)
