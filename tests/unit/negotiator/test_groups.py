"""The turns of groups in a cycle: order, rounds, round robin, strict caps, autoregroup."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.fairshare import priorities
from engine.fairshare.group_negotiation import (
    KEY_NO_NUMBER,
    KEY_NO_QUOTA,
    KEY_ROOT,
    GroupResult,
    GroupTurn,
    negotiate_groups,
)
from engine.fairshare.group_tree import ROOT, GroupConfig, GroupTree
from shared.classad import parse_expr
from shared.config.knobs import KNOBS
from tests.group_pools import Pool, configured
from tests.spec import spec

PHYSICS = """
GROUP_NAMES = group_physics, group_physics.hep, group_physics.lep, group_chemistry
GROUP_QUOTA_group_physics = 20
GROUP_QUOTA_group_physics.hep = 15
GROUP_QUOTA_group_physics.lep = 5
GROUP_QUOTA_group_chemistry = 10
GROUP_ACCEPT_SURPLUS_group_physics.lep = true
GROUP_ACCEPT_SURPLUS_group_physics.hep = true
"""
HEP, LEP, CHEMISTRY = "group_physics.hep", "group_physics.lep", "group_chemistry"
TWO = "GROUP_NAMES = a, b\nGROUP_QUOTA_a = 10\nGROUP_QUOTA_b = 10\n"


def used(pool: Pool, config: GroupConfig, **more: object) -> dict[str, float]:
    pool.cycle(config, **more)
    return {group: amount for group, amount in pool.in_use.items() if amount}


@spec("GRP-01", "GRP-22")
def test_without_groups_there_is_one_turn_without_a_limit():
    pool = Pool(30, {ROOT: 12})
    plans = pool.cycle(configured("GROUP_QUOTA_ROUND_ROBIN_RATE = 1"))  # which has no effect then
    assert pool.turns == [GroupTurn(ROOT, (ROOT,), math.inf, math.inf)]
    assert (plans[ROOT].in_use, plans[ROOT].given, plans[ROOT].requested) == (12, 12, 12)


@spec("W-18")
def test_members_use_their_quota_and_no_more():
    config = configured("GROUP_NAMES = physics, chemistry\nGROUP_QUOTA_physics = 20\nGROUP_QUOTA_chemistry = 10")
    assert used(Pool(30, {"physics": 60, "chemistry": 60}), config) == {"physics": 20, "chemistry": 10}
    assert used(Pool(60, {"physics": 60, "chemistry": 60}), config) == {"physics": 20, "chemistry": 10}


@spec("W-19", "W-20")
def test_fractions_of_slots_can_not_be_used():
    text = "GROUP_NAMES = p, c\nGROUP_QUOTA_DYNAMIC_c = 0.33\nGROUP_QUOTA_DYNAMIC_p = 0.66\n"
    pool = Pool(30, {"p": 60, "c": 60, ROOT: 60})
    plans = pool.cycle(configured(text))
    assert {key: plan.quota for key, plan in plans.items()} == pytest.approx({"p": 19.8, "c": 9.9, ROOT: 0.3})
    assert pool.in_use == {"p": 19, "c": 9}
    # 14.99985 slots are meant to be 15.
    text = "GROUP_NAMES = p, p.hep\nGROUP_QUOTA_DYNAMIC_p = 0.66666\nGROUP_QUOTA_DYNAMIC_p.hep = 0.75\n"
    assert used(Pool(30, {"p.hep": 60}), configured(text)) == {"p.hep": 15}


SCALED = PHYSICS + "NEGOTIATOR_ALLOW_QUOTA_OVERSUBSCRIPTION = False\n"
OPEN = SCALED + "GROUP_ACCEPT_SURPLUS_group_physics = true\n"


@spec("GRP-12", "GRP-13", "GRP-14", "W-21")
@pytest.mark.parametrize(
    ("text", "asked", "got"),
    [
        (SCALED, (60, 60, 60), (15, 5, 10)),
        (SCALED, (60, 0, 60), (20, 0, 10)),
        (SCALED, (0, 60, 0), (0, 20, 0)),
        (SCALED, (60, 60, 0), (15, 5, 0)),
        (OPEN, (60, 60, 0), (22, 7, 0)),  # 22.5 and 7.5 are allocated; two halves of a slot are of no use
        (OPEN, (60, 0, 0), (30, 0, 0)),
        (OPEN, (60, 60, 60), (15, 5, 10)),
    ],
)
def test_surplus_is_used(text, asked, got):
    names = (HEP, LEP, CHEMISTRY)
    pool = Pool(30, dict(zip(names, asked, strict=True)))
    pool.cycle(configured(text))
    assert [pool.in_use.get(name, 0) for name in names] == list(got)


@spec("GRP-29", "W-21")
def test_strict_quotas_hold_where_allocations_count_a_quota_twice():
    everybody = {HEP: 60.0, LEP: 60.0, CHEMISTRY: 60.0}
    pool = Pool(60, dict(everybody))
    plans = pool.cycle(configured(PHYSICS + "GROUP_QUOTA_MAX_ALLOCATION_ROUNDS = 1"))
    assert (plans[HEP].allocated, plans[LEP].allocated) == (30, 10)
    assert (plans[HEP].in_use + plans[LEP].in_use, plans[CHEMISTRY].in_use) == (20, 10)
    # Whoever negotiates first takes the parent's whole quota.
    assert (plans[HEP].in_use, plans[LEP].in_use) == (20, 0)
    loose = configured(PHYSICS + "NEGOTIATOR_STRICT_ENFORCE_QUOTA = false")
    assert used(Pool(60, everybody), loose) == {HEP: 30, LEP: 10, CHEMISTRY: 10}


@spec("GRP-29")
def test_what_counts_against_a_static_quota_is_as_configured_and_a_dynamic_one_as_computed():
    # Scaled down to 10, the static quota of a caps at 20 only, its allocation at 10; b's is a half of the remainder.
    config = GroupConfig(
        names=("s", "s.x", "d", "d.x"),
        quota={"s": 10},
        dynamic_quota={"s.x": 1.0, "d": 0.5, "d.x": 1.0},
        accept_surplus_by={"s.x": True, "d.x": True},
    )
    pool = Pool(40, {"s.x": 60, "d.x": 60})
    pool.cycle(config)
    assert pool.in_use == {"s.x": 10, "d.x": 15}
    # Use below counts, whoever's it is.
    pool = Pool(40, {"s": 4, "s.x": 60}, in_use={"s": 4})
    pool.cycle(config)
    assert pool.in_use == {"s": 4, "s.x": 6}


@spec("GRP-29")
def test_preemption_makes_room_below_a_full_parent_at_once():
    """hep takes a slot from lep: physics' use stays the same, so lep's other jobs still have room."""
    config = configured(PHYSICS)
    in_use = {HEP: 9.0, LEP: 9.0}
    turns: list[GroupTurn] = []

    def serve(turn: GroupTurn) -> float:
        turns.append(turn)
        if turn.group == HEP:
            in_use[HEP] += 2
            in_use[LEP] -= 2
            return 2.0
        return 0.0

    negotiate_groups(GroupTree.of(config), config, 60, {HEP: 60, LEP: 60}, lambda group: in_use.get(group, 0.0), serve)
    assert [(turn.group, turn.limit) for turn in turns[:2]] == [(HEP, 2.0), (LEP, 2.0)]


@spec("GRP-29")
def test_use_above_the_quota_leaves_no_room_and_does_no_harm():
    pool = Pool(60, {HEP: 60, LEP: 60}, in_use={HEP: 25})
    pool.cycle(configured(PHYSICS))
    assert pool.in_use == {HEP: 25}


@spec("GRP-28", "W-23")
def test_strict_priority_by_an_expression():
    text = (
        "GROUP_NAMES = group_physics, group_chemistry\nGROUP_QUOTA_group_physics = 1000000\n"
        "GROUP_QUOTA_group_chemistry = 10000\n"
    )
    first = configured(text + 'GROUP_SORT_EXPR = ifThenElse(AccountingGroup == "group_physics", 1, 2)')
    assert used(Pool(30, {"group_physics": 100, CHEMISTRY: 100}), first) == {"group_physics": 30}
    assert used(Pool(30, {"group_physics": 12, CHEMISTRY: 100}), first) == {"group_physics": 12, CHEMISTRY: 18}
    # By default the key is use by quota.
    pool = Pool(30, {"group_physics": 100, CHEMISTRY: 100}, in_use={"group_physics": 20, CHEMISTRY: 1})
    plans = pool.cycle(configured(text + "GROUP_QUOTA_MAX_ALLOCATION_ROUNDS = 1"))
    assert plans["group_physics"].sort_key == pytest.approx(2e-5)
    assert plans[CHEMISTRY].sort_key == pytest.approx(1e-4)
    assert pool.turns[0].group == "group_physics"
    assert pool.in_use == {"group_physics": 29, CHEMISTRY: 1}
    # Chemistry with nothing in use has the key 0, and is first whenever physics uses anything.
    pool = Pool(30, {"group_physics": 100, CHEMISTRY: 100}, in_use={"group_physics": 20})
    pool.cycle(configured(text))
    assert pool.in_use == {"group_physics": 20, CHEMISTRY: 10}


ORDER = "GROUP_NAMES = g1, g2, g3\nGROUP_QUOTA_g1 = 20\nGROUP_QUOTA_g2 = 10\nGROUP_QUOTA_g3 = 0\n"


@spec("GRP-18", "W-24")
def test_groups_negotiate_in_order_of_use_by_quota():
    text = ORDER + "GROUP_ACCEPT_SURPLUS = true\nGROUP_QUOTA_MAX_ALLOCATION_ROUNDS = 1"
    pool = Pool(60, {"g1": 22, "g2": 5, "g3": 60, ROOT: 2}, in_use={"g1": 8, "g2": 1})
    plans = list(pool.cycle(configured(text)).values())
    assert [plan.group for plan in plans] == ["g2", "g1", "g3", ROOT]
    assert [plan.sort_key for plan in plans] == pytest.approx([0.1, 0.4, KEY_NO_QUOTA, KEY_ROOT])
    assert [turn.group for turn in pool.turns] == ["g2", "g1", "g3", ROOT]


@spec("GRP-18")
def test_equal_keys_go_by_name():
    config = GroupConfig(names=("B", "a", "C"), quota={"a": 1, "b": 1, "c": 1})
    pool = Pool(30, {"a": 1, "b": 1, "c": 1, ROOT: 1})
    pool.cycle(config)
    assert [turn.group for turn in pool.turns] == ["a", "b", "c", ROOT]


@spec("GRP-18")
def test_equal_keys_go_level_by_level_of_the_tree():
    names = ("a", "a.x", "b", "c", "c.x")
    pool = Pool(30, dict.fromkeys(names, 1), weight=1.0)
    pool.cycle(GroupConfig(names=names, quota=dict.fromkeys(names, 2)))
    assert [turn.group for turn in pool.turns] == ["a", "b", "c", "a.x", "c.x"]


@spec("GRP-18")
def test_the_default_expression_is_what_none_stands_for():
    built_in = configured(ORDER + "GROUP_ACCEPT_SURPLUS = true\n")
    assert built_in.sort_expr is None
    written = replace(built_in, sort_expr=parse_expr(KNOBS["group_sort_expr"].default))
    asked = {"g1": 60.0, "g2": 60.0, "g3": 60.0, ROOT: 60.0}
    for have in ({}, {"g1": 8.0, "g2": 1.0}, {"g1": 1.0, ROOT: 3.0}):
        pools = [Pool(60, dict(asked), in_use=dict(have)) for _ in range(2)]
        plans = [pool.cycle(config) for pool, config in zip(pools, (written, built_in), strict=True)]
        assert plans[0] == plans[1]
        assert pools[0].turns == pools[1].turns


@spec("GRP-19")
def test_a_sort_expression_sees_four_attributes():
    config = GroupConfig(
        names=("P", "p.x"),
        quota={"p": 20, "p.x": 5},
        sort_expr=parse_expr(
            "GroupQuota * 1000 + GroupResourcesAllocated * 10 + GroupResourcesInUse"
            ' + strcmp(AccountingGroup, "P") / 10.0'
        ),
    )
    plans = Pool(30, {"p": 7, "p.x": 9}, in_use={"p": 7, "p.x": 2}).cycle(config)
    assert plans["p"].sort_key == pytest.approx(20_077)
    assert plans["p.x"].sort_key == pytest.approx(5_052, abs=0.2)


@spec("GRP-20")
@pytest.mark.parametrize("text", ["NoSuchAttribute", '"a text"', "error", 'real("NaN")'])
def test_a_key_that_is_no_number_sorts_last(text):
    expr = parse_expr(f'ifThenElse(AccountingGroup == "a", {text}, 3.4e38)')
    pool = Pool(30, {"a": 1, "b": 1, ROOT: 1})
    plans = pool.cycle(GroupConfig(names=("a", "b"), quota={"a": 1, "b": 1}, sort_expr=expr))
    assert plans["a"].sort_key == KEY_NO_NUMBER
    assert [turn.group for turn in pool.turns] == [ROOT, "b", "a"]


@spec("GRP-21")
def test_who_can_not_use_its_allocation_frees_it_for_the_next_round():
    text = TWO + "GROUP_ACCEPT_SURPLUS = true\n"
    pool = Pool(20, {"a": 60, "b": 60}, matching={"a": 3})
    plans = pool.cycle(configured(text))
    assert pool.in_use == {"a": 3, "b": 17}
    assert plans["b"].allocated == 17
    assert steps(pool) == [("a", 10), ("b", 10), ("a", 7), ("b", 7)]
    pool = Pool(20, {"a": 60, "b": 60}, matching={"a": 3})
    pool.cycle(configured(text + "GROUP_QUOTA_MAX_ALLOCATION_ROUNDS = 1"))
    assert pool.in_use == {"a": 3, "b": 10}


@spec("GRP-21")
def test_rounds_end_where_one_more_would_be_the_same():
    pool = Pool(20, {"a": 60, "b": 60}, in_use={"a": 10, "b": 10})
    pool.cycle(configured(TWO))
    assert len(pool.turns) == 2
    nothing_matches = Pool(20, {"a": 60, "b": 60}, matching={"a": 0, "b": 0})
    nothing_matches.cycle(configured(TWO + "GROUP_QUOTA_MAX_ALLOCATION_ROUNDS = 1000000"))
    assert len(nothing_matches.turns) <= 4


def steps(pool: Pool) -> list[tuple[str, float]]:
    return [(turn.group, turn.limit) for turn in pool.turns if turn.limit]


@spec("GRP-22")
def test_round_robin_hands_out_so_much_per_group_and_step():
    text = "GROUP_NAMES = a, b\nGROUP_QUOTA_a = 6\nGROUP_QUOTA_b = 3\nGROUP_QUOTA_ROUND_ROBIN_RATE = 2\n"
    pool = Pool(9, {"a": 60, "b": 60})
    pool.cycle(configured(text))
    assert steps(pool) == [("a", 2), ("b", 1)] * 3
    assert pool.in_use == {"a": 6, "b": 3}


@spec("GRP-22")
def test_a_quota_that_nobody_asks_for_sets_the_pace_of_the_round_robin_without_surplus():
    # As the reference has it: of 12 steps' worth for `<none>`, a gets one slot in every second step of 2.
    text = "GROUP_NAMES = a\nGROUP_QUOTA_a = 3\nGROUP_QUOTA_ROUND_ROBIN_RATE = 2\n"
    pool = Pool(15, {"a": 60})
    pool.cycle(configured(text))
    assert steps(pool) == [("a", 1)] * 3
    pool = Pool(15, {"a": 60})
    pool.cycle(configured(text + "GROUP_ACCEPT_SURPLUS_a = true\n"))
    assert steps(pool) == [("a", 2)] * 7 + [("a", 1)]


@spec("GRP-22")
def test_round_robin_shares_scarce_slots():
    text = "GROUP_NAMES = a, b\nGROUP_QUOTA_a = 10\nGROUP_QUOTA_b = 10\n"
    assert used(Pool(10, {"a": 60, "b": 60}), configured(text)) == {"a": 10}
    even = configured(text + "GROUP_QUOTA_ROUND_ROBIN_RATE = 1")
    assert used(Pool(10, {"a": 60, "b": 60}), even) == {"a": 5, "b": 5}


@spec("GRP-22")
def test_round_robin_does_not_go_on_for_a_million_steps():
    text = "GROUP_NAMES = a, b\nGROUP_QUOTA_a = 1000000\nGROUP_QUOTA_b = 10000\nGROUP_QUOTA_ROUND_ROBIN_RATE = 1\n"
    pool = Pool(30, {"a": 20, "b": 60})
    pool.cycle(configured(text), heaviest=8.0)
    assert pool.in_use == {"a": 20, "b": 10}
    assert len(pool.turns) < 300


@spec("GRP-23")
def test_members_negotiate_a_second_time_in_the_root():
    text = TWO + "GROUP_AUTOREGROUP = true\n"
    pool = Pool(30, {"a": 60, "b": 4, ROOT: 5})
    plans = pool.cycle(configured(text))
    turn = pool.turns[2]
    assert [turn.group for turn in pool.turns[:3]] == ["a", "b", ROOT]
    assert set(turn.members) == {ROOT, "a", "b"}
    assert (turn.limit, turn.quota) == (30, 30)
    # What a's members got there is on a's bill.
    assert plans["a"].in_use > 10
    assert sum(pool.in_use.values()) == 30
    assert plans[ROOT].surplus_policy == plans["a"].surplus_policy == "regroup"


@spec("GRP-23")
def test_autoregroup_of_one_group_and_the_root_last_whatever_the_order():
    text = TWO + 'GROUP_AUTOREGROUP_a = true\nGROUP_SORT_EXPR = ifThenElse(AccountingGroup == "<none>", 0, 1)\n'
    pool = Pool(30, {"a": 60, "b": 60})
    pool.cycle(configured(text))
    assert [turn.group for turn in pool.turns[:3]] == ["a", "b", ROOT]
    assert pool.turns[2].members == (ROOT, "a")
    assert pool.in_use == {"a": 20, "b": 10}
    pool = Pool(30, {})
    pool.cycle(configured(text))
    assert pool.turns == []


@spec("GRP-24")
def test_members_share_the_quota_by_their_priorities():
    """The slices of a group's submitters are parts of its quota."""
    config = configured(TWO)
    in_use: Counter[str] = Counter()

    def serve(turn: GroupTurn) -> float:
        eup = {"a.alice@p": 10.0, "a.bob@p": 40.0}
        parts = priorities.pie_fractions(list(eup), eup)
        for name, part in parts.items():
            in_use[name] = int(part * min(30.0, turn.quota))
        return float(sum(in_use.values()))

    negotiate_groups(
        GroupTree.of(config), config, 30, {"a": 60}, lambda group: float(sum(in_use.values())) * (group == "a"), serve
    )
    assert in_use == {"a.alice@p": 8, "a.bob@p": 2}


def test_a_group_at_its_allocation_gets_nothing_even_below_its_quota_if_no_group_lacks_any():
    # Its ads tell of 3 jobs, 5 slots are in use, its quota is 10.
    in_use = {"a": 5.0}
    turns: list[GroupTurn] = []
    for preemption in (False, True):
        config = GroupConfig(
            names=("a", "b"), quota={"a": 10, "b": 10}, accept_surplus=True, consider_preemption=preemption
        )
        negotiate_groups(
            GroupTree.of(config),
            config,
            30,
            {"a": 3},
            lambda group: in_use.get(group, 0.0),
            lambda t: turns.append(t) or 0.0,
        )
    # One turn, for slots that prefer its jobs.
    assert [(turn.group, turn.limit) for turn in turns] == [("a", 0.0)]


def test_a_group_at_its_allocation_goes_on_to_its_quota_where_another_lacks_some():
    # As the reference has it. Without surplus it is enough that another has a quota.
    for accept_surplus, asked in ((True, {"a": 3, "b": 2}), (False, {"a": 3})):
        config = GroupConfig(names=("a", "b"), quota={"a": 10, "b": 10}, accept_surplus=accept_surplus)
        pool = Pool(30, dict(asked), in_use={"a": 5.0})
        pool.cycle(config)
        assert GroupTurn("a", ("a",), 5.0, 10.0) in pool.turns


def test_groups_of_heavy_slots_leave_the_rounding_to_the_cycle():
    # Quota 3, slots of 4: the limit is 3, and whether one slot is handed out is the cycle's to say.
    pool = Pool(10, {"a": 60}, weight=4.0)
    pool.cycle(GroupConfig(names=("a",), quota={"a": 3}))
    assert pool.turns[0].limit == 3.0


def test_quotas_without_weights_are_whole_slots_and_fractions_go_round():
    config = GroupConfig(
        names=("a", "b", "c"), dynamic_quota=dict.fromkeys("abc", 1 / 3), accept_surplus=True, weighted_slots=False
    )
    last: dict[str, float] = {}
    extra = []
    for now in range(1, 7):
        pool = Pool(10, {"a": 60, "b": 60, "c": 60})
        plans = pool.cycle(config, last_remainder=last)
        assert sorted(pool.in_use.values()) == [3, 3, 4]
        extra.append(max(pool.in_use, key=pool.in_use.__getitem__))
        last |= {plan.group: float(now) for plan in plans.values() if plan.remainder}
    assert extra == ["a", "b", "c", "a", "b", "c"]


def test_a_pool_without_slots_or_demand_is_no_trouble():
    for pool in (Pool(0, {"a": 5}), Pool(10, {})):
        plans = pool.cycle(configured(TWO))
        assert pool.in_use == {}
        assert set(plans) == {"a", "b", ROOT}


@spec("W-10")
def test_a_plan_tells_what_userprio_shows():
    text = SCALED.replace("_ACCEPT_SURPLUS_group_physics.lep = true", "_ACCEPT_SURPLUS_group_physics.lep = false")
    plans = Pool(30, {HEP: 60, LEP: 60}).cycle(configured(text))
    assert plans[LEP] == GroupResult(
        group=LEP,
        name="group_physics.lep",
        parent="group_physics",
        config_quota=5.0,
        static=True,
        quota=5.0,
        subtree_quota=5.0,
        requested=60.0,
        allocated=5.0,
        in_use=5.0,
        given=5.0,
        sort_key=0.0,
        surplus_policy="no",
    )
    assert plans["group_physics"].parent == ROOT


def test_a_thousand_groups_cost_a_few_looks_each():
    names = tuple(f"g{i}" + (f".s{j}" if j else "") for i in range(100) for j in range(10))
    config = GroupConfig(names=names, dynamic_quota={name: 0.01 if "." not in name else 0.1 for name in names})
    tree = GroupTree.of(config)
    looks = Counter[str]()
    in_use = dict.fromkeys(names, 0.0)

    def look(group: str) -> float:
        looks[group] += 1
        return in_use.get(group, 0.0)

    def serve(turn: GroupTurn) -> float:
        in_use[turn.group] += turn.limit
        return turn.limit

    negotiate_groups(tree, config, 10_000, dict.fromkeys(names, 100.0), look, serve)
    assert sum(in_use.values()) == pytest.approx(10_000, rel=0.01)
    assert sum(looks.values()) < 10 * len(names)


# --- properties -------------------------------------------------------------------------------------------

KEYS = ("a", "a.x", "a.x.1", "a.x.2", "a.y", "b", "b.x", "c")


@st.composite
def pools(draw: st.DrawFn):
    names = tuple(key for key in KEYS if draw(st.booleans()) or key in ("a", "a.x", "b"))
    config = GroupConfig(
        names=names,
        quota={key: draw(st.integers(0, 40)) for key in names if draw(st.booleans())},
        dynamic_quota={key: draw(st.floats(0, 1)) for key in names if draw(st.booleans())},
        accept_surplus=draw(st.booleans()),
        accept_surplus_by={key: draw(st.booleans()) for key in names if draw(st.booleans())},
        autoregroup_by={"b": True} if draw(st.booleans()) and draw(st.booleans()) else {},
        allow_oversubscription=draw(st.booleans()),
        weighted_slots=draw(st.booleans()),
        consider_preemption=draw(st.booleans()),
        max_allocation_rounds=draw(st.integers(1, 4)),
        round_robin_rate=draw(st.sampled_from([1.0, 2.5, 1e100])),
    )
    counts = st.integers(0, 40)
    jobs = {key: draw(counts) for key in (ROOT, *names)}
    have = {key: min(jobs[key], draw(st.integers(0, 6))) for key in jobs}
    matching = {key: draw(counts) for key in jobs if draw(st.booleans())}
    slots = sum(have.values()) + draw(st.integers(0, 60))
    return config, lambda: Pool(slots, jobs, in_use=dict(have), matching=matching)


def below(tree: GroupTree, key: str) -> list[str]:
    return [group.key for group in tree.groups if group.key == key or group.key.startswith(key + ".")]


@spec("GRP-14", "GRP-29")
@given(pools())
def test_nobody_gets_more_than_the_room_that_refusing_groups_leave(case):
    config, make = case
    pool = make()
    before = dict(pool.in_use)
    tree = GroupTree.of(config)
    plans = pool.cycle(config)
    assert sum(pool.in_use.values()) <= pool.slots
    for group in tree.groups[1:]:
        if group.accepts_surplus or config.autoregroup_by:
            continue
        cap = group.config_quota if group.static else plans[group.key].subtree_quota
        had, has = (sum(use.get(key, 0.0) for key in below(tree, group.key)) for use in (before, pool.in_use))
        assert has <= max(had, cap) + 1e-3


@given(pools(), st.randoms())
def test_equal_pools_get_equal_turns_in_any_order_of_group_names(case, random):
    config, make = case
    names = list(config.names)
    random.shuffle(names)
    first, second = make(), make()
    assert first.cycle(config) == second.cycle(
        GroupConfig(**{**{f: getattr(config, f) for f in config.__slots__}, "names": tuple(names)})
    )
    assert first.turns == second.turns


@given(pools())
def test_slots_stay_idle_only_if_nobody_may_use_them(case):
    config, make = case
    pool = make()
    tree = GroupTree.of(config)
    plans = pool.cycle(config)
    if sum(pool.in_use.values()) >= pool.slots or config.max_allocation_rounds < 3:
        return
    for group in tree.groups[1:]:
        plan = plans[group.key]
        own = min(pool.jobs.get(group.key, 0), pool.matching.get(group.key, math.inf))
        if not config.allow_oversubscription and own > pool.in_use.get(group.key, 0.0):
            # It has its quota at least, but for what a group above it has used up.
            rooms = [
                (node.config_quota if node.static else plans[node.key].subtree_quota)
                - sum(pool.in_use.get(key, 0.0) for key in below(tree, node.key))
                for node in tree.upwards(group)
                if not node.accepts_surplus
            ]
            assert plan.in_use > plan.quota - 1.0 or min(rooms, default=math.inf) < 1.0
