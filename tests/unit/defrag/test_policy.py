"""What a round of defragmentation decides, and what the next one knows of it."""

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.defrag.core.policy import FORGET_S, RECENT_S, DefragState, Order, PoolView, candidates, decide
from shared.config import ConfigError
from tests.spec import spec
from tests.unit.defrag.pools import DAY0, read, round_of, rules, slot_ad

#: The manual's example, every hour one machine.
SAMPLE = {
    "DEFRAG_INTERVAL": 3600,
    "DEFRAG_DRAINING_MACHINES_PER_HOUR": 1.0,
    "DEFRAG_MAX_WHOLE_MACHINES": 20,
    "DEFRAG_MAX_CONCURRENT_DRAINING": 10,
}


def named(decided):
    return [order.machine for order in decided.drains]


def draining(startd, request="defrag:old", **more):
    return slot_ad(startd, **{"Draining": True, "DrainingRequestId": request, "LastDrainStartTime": DAY0 - 50, **more})


@spec("DFR-01", "W-33")
def test_the_manuals_example_drains_one_machine_a_round():
    policy = rules(**SAMPLE)
    ads = [slot_ad(f"n{i}") for i in range(5)]
    decided = round_of(policy, DefragState(), *ads)
    assert named(decided) == ["startd.n0"]
    assert decided.drains[0].request_id == "defrag:n1"
    assert decided.state.last_round == DAY0


@spec("DFR-02")
@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("DEFRAG_DRAINING_MACHINES_PER_HOUR", "0"),
        ("DEFRAG_MAX_CONCURRENT_DRAINING", "0"),
        ("DEFRAG_MAX_WHOLE_MACHINES", "0"),
    ],
)
def test_nothing_is_drained_where_a_knob_is_0(knob, value):
    decided = round_of(rules(**SAMPLE | {knob: value}), DefragState(), slot_ad("a"), slot_ad("b"))
    assert named(decided) == []
    assert knob in decided.state.seen.why


@spec("DFR-02")
def test_by_default_nothing_is_drained():
    assert named(round_of(rules(), DefragState(), slot_ad("a"))) == []


@spec("DFR-03", "W-33")
@pytest.mark.parametrize(("whole", "drains"), [(19, 1), (20, 0), (21, 0)])
def test_no_machine_is_drained_when_enough_are_whole(whole, drains):
    ads = [slot_ad(f"whole{i}", 8) for i in range(whole)]
    decided = round_of(rules(**SAMPLE), DefragState(), *ads, slot_ad("a"))
    assert len(decided.drains) == drains
    assert decided.state.seen.whole == whole


@spec("DFR-03", "W-33")
@pytest.mark.parametrize(("under_way", "drains"), [(9, 1), (10, 0)])
def test_no_machine_is_drained_when_enough_are_draining(under_way, drains):
    """Whoever drains them."""
    ads = [draining(f"d{i}", request=f"{'defrag:' if i % 2 else 'admin'}{i}") for i in range(under_way)]
    decided = round_of(rules(**SAMPLE), DefragState(), *ads, slot_ad("a"))
    assert len(decided.drains) == drains
    assert decided.state.seen.draining == under_way


@spec("DFR-03")
def test_a_round_fills_up_to_the_limit_of_draining_machines():
    policy = rules(**SAMPLE | {"DEFRAG_DRAINING_MACHINES_PER_HOUR": 8, "DEFRAG_MAX_CONCURRENT_DRAINING": 3})
    ads = [draining("d0"), *(slot_ad(f"n{i}") for i in range(9))]
    assert named(round_of(policy, DefragState(), *ads)) == ["startd.n0", "startd.n1"]


@spec("DFR-03")
def test_what_an_administrator_has_emptied_stands_for_none_of_ours():
    """A machine that is drained for a repair is not in the way, nor is it a whole one; one that still drains is."""
    policy = rules(**SAMPLE | {"DEFRAG_MAX_CONCURRENT_DRAINING": 1, "DEFRAG_MAX_WHOLE_MACHINES": 1})
    repair = draining("r", request="someone", State="Drained", Cpus=8)
    decided = round_of(policy, DefragState(), repair, slot_ad("a"))
    assert named(decided) == ["startd.a"]
    assert (decided.state.seen.draining, decided.state.seen.whole) == (0, 0)
    assert named(round_of(policy, DefragState(), draining("r", request="someone"), slot_ad("a"))) == []


@spec("DFR-04")
def test_whole_draining_and_unfit_machines_are_no_candidates():
    policy = rules(**SAMPLE | {"DEFRAG_DRAINING_MACHINES_PER_HOUR": 9, "DEFRAG_REQUIREMENTS": 'Site =?= "here"'})
    ads = [
        slot_ad("whole", 8, Site="here"),
        draining("draining", Site="here"),
        slot_ad("off", Site="here", RoostOff="graceful"),
        slot_ad("away"),
        slot_ad("asleep", Site="here", Offline=True),
        slot_ad("one-job", 0, Site="here", NumDynamicSlots=1),
        slot_ad("fits", Site="here"),
    ]
    assert named(round_of(policy, DefragState(), *ads)) == ["startd.fits"]


@spec("DFR-04")
def test_a_machine_that_one_job_has_for_itself_is_not_drained():
    """It is not whole, by the default expression, but what would be drained is the job that waited for it."""
    policy = rules(**SAMPLE)
    assert named(round_of(policy, DefragState(), slot_ad("a", 0, NumDynamicSlots=1))) == []
    for ads in (
        [slot_ad("a", 1, NumDynamicSlots=1)],
        [slot_ad("a", 0, NumDynamicSlots=2)],
        [slot_ad("a", 0, NumDynamicSlots=1), slot_ad("a", 3, slot=2, NumDynamicSlots=1)],
    ):
        assert named(round_of(policy, DefragState(), *ads)) == ["startd.a"]


@spec("DFR-05")
def test_the_cheapest_machine_comes_first():
    """By -ExpectedMachineGracefulDrainingBadput; of equal ones that whose last drain is longest ago."""
    policy = rules(**SAMPLE)
    ads = [
        slot_ad("dear", ExpectedMachineGracefulDrainingBadput=9000),
        slot_ad("lately", ExpectedMachineGracefulDrainingBadput=10, LastDrainStartTime=DAY0 - 5),
        slot_ad("once", ExpectedMachineGracefulDrainingBadput=10, LastDrainStartTime=DAY0 - 500),
        slot_ad("never", ExpectedMachineGracefulDrainingBadput=10),
        slot_ad("cheap", ExpectedMachineGracefulDrainingBadput=0),
    ]
    found = candidates(read(policy, *ads).values(), ())
    assert [one.name for one in found] == ["cheap", "never", "once", "lately", "dear"]


@spec("DFR-05")
def test_rank_is_what_DEFRAG_RANK_says():
    policy = rules(**SAMPLE | {"DEFRAG_RANK": "Memory"})
    ads = [slot_ad("small", Memory=1), slot_ad("large", Memory=9)]
    assert named(round_of(policy, DefragState(), *ads)) == ["startd.large"]


@spec("DFR-06")
@pytest.mark.parametrize("how", ["graceful", "quick", "fast"])
def test_drains_are_graceful_unless_it_is_said_otherwise(how):
    assert rules().how == "graceful"
    assert rules(DEFRAG_DRAINING_SCHEDULE=how.upper()).how == how
    with pytest.raises(ConfigError, match="graceful, quick, fast"):
        rules(DEFRAG_DRAINING_SCHEDULE="slow")


@spec("DFR-07")
def test_START_of_draining_machines_goes_with_graceful_drains_only():
    start = {"DEFRAG_DRAINING_START_EXPR": "TARGET.Short =?= true"}
    assert rules().start == ""
    assert rules(**start).start == "TARGET.Short is true"
    assert rules(**start, DEFRAG_DRAINING_SCHEDULE="quick").start == ""


def test_own_drains_end_early_when_enough_is_free():
    """DEFRAG_CANCEL_REQUIREMENTS; what somebody else drains goes on, and what is empty ends by itself."""
    policy = rules(**SAMPLE | {"DEFRAG_CANCEL_REQUIREMENTS": "Cpus >= 4", "DEFRAG_DRAINING_MACHINES_PER_HOUR": 9})
    ads = [
        draining("ours", Cpus=4),
        draining("full", Cpus=3),
        draining("theirs", request="xyz", Cpus=4),
        draining("group", request="defrag:gpus:1", Cpus=4),
        draining("empty", Cpus=8, State="Drained"),
    ]
    decided = round_of(policy, DefragState(), *ads)
    assert [machine.name for machine in decided.cancels] == ["ours"]
    assert named(decided) == []  # not drained anew in the same round
    assert decided.state.cancels == 1
    assert decided.state.seen.draining == 4
    assert round_of(rules(DEFRAG_CANCEL_REQUIREMENTS=""), DefragState(), *ads).cancels == ()


def test_policies_of_different_names_know_their_own_drains():
    with pytest.raises(ConfigError, match="DEFRAG_NAME"):
        rules(DEFRAG_NAME="a b:c")
    gpus = rules(name="gpus", DEFRAG_NAME="gpus")
    assert (gpus.own("defrag:gpus:1"), gpus.own("defrag:1"), gpus.own("defrag:cpus:1")) == (True, False, False)
    assert (rules().own("defrag:1"), rules().own("defrag:gpus:1"), rules().own("")) == (True, False, False)


# ---------------------------------------------------------------- what the next round knows


@spec("DFR-03")
def test_an_order_counts_until_the_machine_shows_it():
    """The collector may hear of a drain late: no further machine is drained in its place, nor this one again."""
    policy = rules(**SAMPLE | {"DEFRAG_INTERVAL": 60, "DEFRAG_DRAINING_MACHINES_PER_HOUR": 60})
    limited = dataclasses.replace(policy, most_draining=1)
    first = round_of(limited, DefragState(), slot_ad("a"), slot_ad("b"))
    state = first.state.answered(first.drains[0], DAY0, taken=True)
    again = round_of(limited, state, slot_ad("a"), slot_ad("b"), now=DAY0 + 60)
    assert named(again) == []
    assert again.state.seen.draining == 1
    other = round_of(policy, state, slot_ad("a"), slot_ad("b"), now=DAY0 + 60)
    assert named(other) == ["startd.b"]
    shown = draining("a", request=first.drains[0].request_id)
    assert round_of(limited, state, shown, slot_ad("b"), now=DAY0 + 60).state.orders == {}


def test_an_order_that_came_to_nothing_is_forgotten():
    policy = rules(**SAMPLE | {"DEFRAG_INTERVAL": 60, "DEFRAG_DRAINING_MACHINES_PER_HOUR": 60})
    first = round_of(policy, DefragState(), slot_ad("a"))
    later = round_of(policy, first.state, slot_ad("a"), now=DAY0 + FORGET_S)
    assert named(later) == ["startd.a"]
    assert (later.state.failures, later.state.successes, later.state.drained) == (1, 0, 0)


def test_an_order_that_was_taken_without_an_answer_is_counted():
    first = round_of(rules(**SAMPLE), DefragState(), slot_ad("a"))
    done = slot_ad("a", 8, LastDrainStartTime=DAY0 + 1)
    later = round_of(rules(**SAMPLE), first.state, done, now=DAY0 + 3600)
    assert (later.state.successes, later.state.failures, later.state.drained) == (1, 0, 1)


def test_orders_name_the_last_drain_of_their_machine():
    """So that a machine takes each once, however often and late it hears it."""
    first = round_of(rules(**SAMPLE | {"DEFRAG_DRAINING_MACHINES_PER_HOUR": 2}), DefragState(), slot_ad("a"),
                     slot_ad("b", LastDrainStartTime=77))  # fmt: skip
    assert [order.check for order in first.drains] == [
        "LastDrainStartTime =?= undefined",
        "LastDrainStartTime =?= 77",
    ]


def test_a_refused_order_is_no_machine_that_arrives():
    first = round_of(rules(**SAMPLE), DefragState(), slot_ad("a"))
    state = first.state.answered(first.drains[0], DAY0, taken=False)
    assert (state.orders, state.draining, state.failures) == ({}, (), 1)
    assert round_of(rules(**SAMPLE), state, slot_ad("a"), now=DAY0 + 3600).state.drained == 0


def test_machines_that_are_done_arrive_and_are_averaged():
    """DrainedMachines, MeanDrainedArrival and the peaks of its ad."""
    policy = rules(**SAMPLE | {"DEFRAG_DRAINING_MACHINES_PER_HOUR": 2})
    state = round_of(policy, DefragState(), slot_ad("a"), slot_ad("b")).state
    ours = [one.request_id for one in state.orders.values()]
    both = [draining("a", ours[0]), draining("b", ours[1])]
    state = round_of(policy, state, *both, now=DAY0 + 3600).state
    assert (state.draining_peak, state.drained, state.mean_arrival_s) == (2, 0, 0.0)
    done = [slot_ad("a", 8, LastDrainStartTime=DAY0 - 50), slot_ad("b", 8, LastDrainStartTime=DAY0 - 50)]
    state = round_of(policy, state, *done, now=DAY0 + 7200).state
    assert (state.drained, state.whole_peak, state.mean_arrival_s, state.draining) == (2, 2, 3600.0, ())


def test_recent_numbers_look_back_for_their_time():
    order = Order("startd.a", "defrag:1", DAY0, None)
    state = DefragState().answered(order, DAY0, taken=True).answered(order, DAY0 + 10, taken=False)
    assert state.recently(DAY0 + 20) == (1, 1)
    assert state.recently(DAY0 + RECENT_S + 5) == (0, 1)
    assert state.recently(DAY0 + 2 * RECENT_S) == (0, 0)
    assert len(state.answered(order, DAY0 + 2 * RECENT_S, taken=True).recent) == 1


def test_a_book_comes_back_as_it_was_written():
    state = round_of(rules(**SAMPLE), DefragState(), slot_ad("a"), draining("b")).state
    state = state.answered(Order("startd.z", "defrag:9", DAY0, 5), DAY0, taken=True)
    assert state.seen != PoolView()
    assert DefragState.unpack(state.pack()) == state
    assert DefragState.unpack(b"") == DefragState()


@pytest.mark.parametrize("note", [b"{", b"[]", b"{}", b'{"orders": [{"machine": 1}]}', b"\xff", b'{"orders": 3}'])
def test_a_damaged_book_is_told(note):
    with pytest.raises(ValueError, match="damaged"):
        DefragState.unpack(note)


def test_a_round_of_a_clock_that_was_set_back_since_counts_for_nothing():
    state = DefragState(last_round=DAY0)
    policy = rules(DEFRAG_DRAINING_MACHINES_PER_HOUR=6)
    assert named(round_of(policy, state, slot_ad("a"), slot_ad("b"), now=DAY0 - 9000)) == ["startd.a"]


# ---------------------------------------------------------------- many rounds


@spec("DFR-01", "DFR-03")
@settings(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rate=st.sampled_from([0.5, 1, 6, 30]),
    most=st.integers(1, 4),
    whole=st.integers(1, 6),
)
def test_limits_hold_over_many_rounds_with_late_ads_and_lost_answers(seed, rate, most, whole):
    """Machines take some rounds to empty, are carved up again, show what they do a round late; answers get lost."""
    chance = random.Random(seed)
    policy = rules(
        DEFRAG_INTERVAL=300,
        DEFRAG_DRAINING_MACHINES_PER_HOUR=rate,
        DEFRAG_MAX_CONCURRENT_DRAINING=most,
        DEFRAG_MAX_WHOLE_MACHINES=whole,
    )
    left = {f"n{i}": 0 for i in range(8)}  # machine -> rounds until it is empty
    real = {name: slot_ad(name) for name in left}
    shown, late = dict(real), set()
    state, began, turns = DefragState(), 0, 40
    for turn in range(turns):
        now = DAY0 + 300 * turn
        machines = read(policy, *shown.values(), now=now)
        decided = decide(policy, state, machines, now, lambda turn=turn: f"{turn}-{chance.random()}")
        under_way = sum(1 for ad in real.values() if ad.eval("Draining") is True)
        assert not decided.drains or len(decided.drains) + under_way <= most
        if sum(1 for machine in machines.values() if machine.whole and not machine.draining) >= whole:
            assert not decided.drains
        state = DefragState.unpack(decided.state.pack())
        for order in decided.drains:
            name = order.machine.removeprefix("startd.")
            assert real[name].eval("Draining") is not True
            began += 1
            real[name] = slot_ad(name, Draining=True, DrainingRequestId=order.request_id, LastDrainStartTime=now)
            left[name] = chance.randint(1, 4)
            if chance.random() < 0.8:
                state = state.answered(order, now, taken=True)
        for name, ad in list(real.items()):
            start = {"LastDrainStartTime": ad.eval("LastDrainStartTime")} if "LastDrainStartTime" in ad else {}
            if ad.eval("Draining") is True:
                left[name] -= 1
                if left[name] < 0:
                    real[name] = slot_ad(name, 8, **start)
            elif chance.random() < 0.2:
                real[name] = slot_ad(name, chance.choice([0, 3]), **start)
            if name in late or chance.random() < 0.7:
                shown[name] = real[name]
                late.discard(name)
            else:
                late.add(name)
    assert began <= rate * turns * 300 / 3600 + rate * 24 + 2
