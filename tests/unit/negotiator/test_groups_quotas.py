"""Quotas of groups and their parts of surplus, in numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.fairshare.group_tree import ROOT, GroupConfig, GroupTree
from engine.fairshare.quotas import allocate, allocate_whole, assign_quotas, divide
from tests.group_pools import configured
from tests.spec import spec

PHYSICS = """
GROUP_NAMES = group_physics, group_physics.hep, group_physics.lep, group_chemistry
GROUP_QUOTA_group_physics = 20
GROUP_QUOTA_group_physics.hep = 15
GROUP_QUOTA_group_physics.lep = 5
GROUP_QUOTA_group_chemistry = 10
GROUP_ACCEPT_SURPLUS = false
GROUP_ACCEPT_SURPLUS_group_physics.lep = true
GROUP_ACCEPT_SURPLUS_group_physics.hep = true
"""
SCALED = "NEGOTIATOR_ALLOW_QUOTA_OVERSUBSCRIPTION = False\n"


def quotas(text: str, pool: float) -> dict[str, float]:
    config = configured(text)
    tree = GroupTree.of(config)
    return dict(zip([group.key for group in tree.groups], assign_quotas(tree, config, pool).own, strict=True))


def allocated(text: str, pool: float, **asked: float) -> dict[str, float]:
    """Asked for and given by the last part of a group's name."""
    config = configured(text)
    tree = GroupTree.of(config)
    short = [group.key.rpartition(".")[2].removeprefix("group_") for group in tree.groups]
    got = allocate(tree, assign_quotas(tree, config, pool), [asked.get(name, 0.0) for name in short])
    return {name: amount for name, amount in zip(short, got, strict=True) if name in asked}


STATIC = "GROUP_NAMES = physics, chemistry\nGROUP_QUOTA_physics = 20\nGROUP_QUOTA_chemistry = 10\n"


@spec("GRP-08", "GRP-09", "W-18")
@pytest.mark.parametrize(
    ("pool", "more", "physics", "chemistry", "none"),
    [(30, "", 20, 10, 0), (15, SCALED, 10, 5, 0), (15, "", 20, 10, 0), (60, "", 20, 10, 30), (60, SCALED, 20, 10, 30)],
)
def test_static_quotas(pool, more, physics, chemistry, none):
    assert quotas(STATIC + more, pool) == pytest.approx({ROOT: none, "physics": physics, "chemistry": chemistry})
    got = allocated(STATIC + more, pool, physics=60, chemistry=60)
    assert got == pytest.approx({"physics": physics, "chemistry": chemistry}, abs=1e-3)


def dynamic(chemistry: float, physics: float) -> str:
    return (
        f"GROUP_NAMES = physics, chemistry\nGROUP_QUOTA_DYNAMIC_chemistry = {chemistry}\n"
        f"GROUP_QUOTA_DYNAMIC_physics = {physics}\n"
    )


@spec("GRP-06", "GRP-10", "W-19")
@pytest.mark.parametrize("pool", [30, 60])
def test_dynamic_quotas_follow_the_pool(pool):
    times = pool / 30
    expected = {"chemistry": 9.9 * times, "physics": 19.8 * times, ROOT: 0.3 * times}
    assert quotas(dynamic(0.33, 0.66), pool) == pytest.approx(expected, abs=1e-3)
    expected = {"chemistry": 20 * times, "physics": 10 * times, ROOT: 0}
    assert quotas(dynamic(0.8, 0.4), pool) == pytest.approx(expected, abs=1e-3)


@spec("W-20")
def test_dynamic_quotas_of_subgroups():
    text = (
        "GROUP_NAMES = group_physics, group_physics.hep, group_physics.lep, group_chemistry\n"
        "GROUP_QUOTA_DYNAMIC_group_chemistry = 0.33334\nGROUP_QUOTA_DYNAMIC_group_physics = 0.66667\n"
        "GROUP_QUOTA_DYNAMIC_group_physics.hep = 0.75\nGROUP_QUOTA_DYNAMIC_group_physics.lep = 0.25\n"
    )
    got = quotas(text, 30)
    expected = {"group_physics.hep": 15, "group_physics.lep": 5, "group_chemistry": 10}
    assert {key: got[key] for key in expected} == pytest.approx(expected, abs=1e-3)


MIXED = "GROUP_NAMES = fixed, part\nGROUP_QUOTA_fixed = 10\nGROUP_QUOTA_DYNAMIC_part = 0.5\n"


@spec("GRP-07", "W-22")
def test_static_children_come_first_and_dynamic_ones_share_the_rest():
    assert quotas(MIXED, 30) == pytest.approx({"fixed": 10, "part": 10, ROOT: 10})
    assert quotas(MIXED + SCALED, 8) == pytest.approx({"fixed": 8, "part": 0, ROOT: 0})
    assert quotas(MIXED, 8) == pytest.approx({"fixed": 10, "part": 0, ROOT: 0})


@spec("GRP-03")
def test_the_root_has_the_whole_pool():
    config = configured("")
    tree = GroupTree.of(config)
    assert assign_quotas(tree, config, 30.0).own == (30.0,)
    config = configured(PHYSICS)
    tree = GroupTree.of(config)
    assert assign_quotas(tree, config, 50.0).subtree[0] == 50.0


@spec("GRP-11")
def test_what_a_group_with_children_keeps_for_itself():
    # physics leaves 20 - 15 = 5 to itself if lep has no quota; oversubscribed it keeps all 20, the root never does.
    text = PHYSICS.replace("GROUP_QUOTA_group_physics.lep = 5", "GROUP_QUOTA_group_physics.lep = 0")
    assert quotas(text + SCALED, 50)["group_physics"] == pytest.approx(5)
    assert quotas(text, 50)["group_physics"] == pytest.approx(20)
    assert quotas(text + SCALED, 50)[ROOT] == quotas(text, 50)[ROOT] == pytest.approx(20)


def test_below_a_quota_of_0_there_is_nothing():
    text = "GROUP_NAMES = a, a.b\nGROUP_QUOTA_a = 0\nGROUP_QUOTA_a.b = 10\n"
    assert quotas(text, 50) == {ROOT: 50, "a": 0, "a.b": 0}


REFUSES = PHYSICS + SCALED
ACCEPTS = REFUSES + "GROUP_ACCEPT_SURPLUS_group_physics = true\n"


@spec("GRP-13", "GRP-14", "GRP-15", "W-21")
@pytest.mark.parametrize(
    ("text", "asked", "got"),
    [
        (REFUSES, (60, 60, 60), (15, 5, 10)),
        (REFUSES, (60, 0, 60), (20, 0, 10)),
        (REFUSES, (0, 60, 0), (0, 20, 0)),
        (REFUSES, (60, 60, 0), (15, 5, 0)),  # and 10 slots stay idle (GRP-14)
        (ACCEPTS, (60, 60, 0), (22.5, 7.5, 0)),
        (ACCEPTS, (60, 0, 0), (30, 0, 0)),
        (ACCEPTS, (60, 60, 60), (15, 5, 10)),
        (PHYSICS, (60, 60, 60), (30, 10, 10)),  # raw allocations count the parent's quota twice
    ],
)
def test_surplus(text, asked, got):
    names = ("hep", "lep", "chemistry")
    found = allocated(text, 30, **dict(zip(names, asked, strict=True)))
    assert found == pytest.approx(dict(zip(names, got, strict=True)), abs=1e-3)


SIBLINGS = """
GROUP_NAMES = p, p.a, p.b, q, zero
GROUP_QUOTA_p = 20
GROUP_QUOTA_p.a = 10
GROUP_QUOTA_p.b = 10
GROUP_QUOTA_q = 10
GROUP_QUOTA_zero = 0
GROUP_ACCEPT_SURPLUS = true
NEGOTIATOR_ALLOW_QUOTA_OVERSUBSCRIPTION = false
"""


@spec("GRP-13")
def test_siblings_come_before_everybody_else():
    # p.a leaves 6: its sibling takes 4 of it, and 2 go up, to q.
    assert allocated(SIBLINGS, 30, a=4, b=14, q=60) == pytest.approx({"a": 4, "b": 14, "q": 12})
    assert allocated(SIBLINGS, 30, a=4, b=60, q=60) == pytest.approx({"a": 4, "b": 16, "q": 10})


@spec("GRP-15")
def test_quota_0_shares_only_what_all_others_leave():
    assert allocated(SIBLINGS, 30, a=60, b=0, q=60, zero=60)["zero"] == 0
    assert allocated(SIBLINGS, 30, a=0, b=0, q=22, zero=60) == pytest.approx({"a": 0, "b": 0, "q": 22, "zero": 8})


@spec("GRP-16")
def test_enough_surplus_gives_each_all_it_asks():
    assert allocated(SIBLINGS, 30, a=1, b=12, q=11, zero=3) == pytest.approx({"a": 1, "b": 12, "q": 11, "zero": 3})


def test_the_root_takes_surplus_like_a_child():
    text = STATIC + "GROUP_ACCEPT_SURPLUS = true\n"
    config = configured(text)
    tree = GroupTree.of(config)
    # Quotas in a pool of 40: root 10, physics 20, chemistry 10. Physics asks nothing; its 20 go 10:10.
    asked = [60.0 if group.key in (ROOT, "chemistry") else 0.0 for group in tree.groups]
    assert allocate(tree, assign_quotas(tree, config, 40.0), asked) == pytest.approx([20, 20, 0])


@pytest.mark.parametrize(
    ("amount", "wanted", "weights", "parts"),
    [
        (10, [8, 8], [3, 1], [7.5, 2.5]),
        (10, [4, 8], [3, 1], [4, 6]),
        (10, [4, 4], [3, 1], [4, 4]),
        (10, [20, 3, 3], [0, 1, 1], [4, 3, 3]),
        (10, [20, 20], [0, 0], [5, 5]),
        (10, [2, 20], [0, 0], [2, 8]),
        (0, [2, 20], [1, 0], [0, 0]),
        (10, [], [], []),
    ],
)
def test_an_amount_is_divided_by_weight_but_nobody_gets_more_than_it_wants(amount, wanted, weights, parts):
    assert divide(amount, wanted, weights) == pytest.approx(parts)


@pytest.mark.parametrize("weights", [[1e-323], [5e-324, 5e-324, 5e-324], [1e-323, 1.0], [1.5e-323, 5e-324, 0.0]])
@pytest.mark.parametrize("amount", [0.6, 2.375, 2.5])
def test_the_least_weights_there_are_make_nothing_of_nothing(amount, weights):
    """Products with weights that small are rounded by halves: 2.375 of them were 2.5."""
    assert sum(divide(amount, [10.0] * len(weights), weights)) <= amount


def in_whole_slots(config: GroupConfig, pool: float, since: dict[str, float], **asked: float):
    tree = GroupTree.of(config)
    keys = [group.key for group in tree.groups]
    got, served = allocate_whole(
        tree,
        assign_quotas(tree, config, pool),
        [asked.get(key, 0.0) for key in keys],
        [since.get(key, 0.0) for key in keys],
    )
    return dict(zip(keys, got, strict=True)), {keys[index] for index in served}


def test_without_weights_fractions_of_slots_go_round_as_whole_ones():
    config = GroupConfig(
        names=("a", "b", "c"),
        dynamic_quota=dict.fromkeys("abc", 1 / 3),
        accept_surplus=True,
        weighted_slots=False,
    )
    # 10 slots: 3.333 each; the tenth goes to who has waited longest, else to the first.
    got, served = in_whole_slots(config, 10, {}, a=9, b=9, c=9)
    assert (got, served) == ({ROOT: 0, "a": 4, "b": 3, "c": 3}, {"a"})
    got, served = in_whole_slots(config, 10, {"a": 5.0, "c": 3.0}, a=9, b=9, c=9)
    assert (got, served) == ({ROOT: 0, "a": 3, "b": 4, "c": 3}, {"b"})
    got, served = in_whole_slots(config, 10, {"a": 5.0, "b": 6.0, "c": 3.0}, a=9, b=9, c=9)
    assert (got, served) == ({ROOT: 0, "a": 3, "b": 3, "c": 4}, {"c"})
    # Who refuses surplus refuses these too.
    refusing = GroupConfig(names=("a", "b", "c"), dynamic_quota=dict.fromkeys("abc", 1 / 3), weighted_slots=False)
    assert in_whole_slots(refusing, 10, {}, a=9, b=9, c=9)[0] == {ROOT: 0, "a": 3, "b": 3, "c": 3}


# --- properties -------------------------------------------------------------------------------------------

KEYS = ("a", "a.x", "a.x.1", "a.x.2", "a.y", "b", "b.x", "c", "d")
amounts = st.one_of(st.just(0.0), st.floats(0.01, 100), st.integers(0, 50).map(float))


@st.composite
def pools(draw: st.DrawFn):
    names = tuple(key for key in KEYS if draw(st.booleans()) or key in ("a", "a.x", "b"))
    config = GroupConfig(
        names=names,
        quota={key: draw(amounts) for key in names if draw(st.booleans())},
        dynamic_quota={key: draw(st.floats(0, 1)) for key in names if draw(st.booleans())},
        accept_surplus=draw(st.booleans()),
        accept_surplus_by={key: draw(st.booleans()) for key in names if draw(st.booleans())},
        allow_oversubscription=draw(st.booleans()),
    )
    return config, draw(amounts), {key: draw(amounts) for key in (ROOT, *names)}


def run(config: GroupConfig, pool: float, asked: dict[str, float]):
    tree = GroupTree.of(config)
    shares = assign_quotas(tree, config, pool)
    return tree, shares, allocate(tree, shares, [asked[group.key] for group in tree.groups])


def subtree(tree: GroupTree, index: int) -> list[int]:
    return [index, *(below for child in tree.groups[index].children for below in subtree(tree, child))]


@spec("GRP-14")
@given(pools())
def test_allocations_stay_within_demand_pool_and_caps(pool):
    config, weight, asked = pool
    tree, shares, got = run(config, weight, asked)
    for group in tree.groups:
        assert -1e-9 <= got[group.index] <= asked[group.key] + 1e-6
        # Nobody is left with less than its own quota while it asks for it.
        assert got[group.index] >= min(asked[group.key], shares.own[group.index]) - 1e-6
        if not group.accepts_surplus and not config.allow_oversubscription:
            assert sum(got[i] for i in subtree(tree, group.index)) <= shares.subtree[group.index] + 1e-6
    if not config.allow_oversubscription:
        assert sum(shares.own) == pytest.approx(weight, abs=1e-6)
        assert sum(got) <= weight + 1e-6


@spec("GRP-13")
@given(pools())
def test_no_surplus_is_lost_while_somebody_may_take_it(pool):
    config, weight, asked = pool
    tree, shares, got = run(config, weight, asked)
    open_to_all = [group for group in tree.groups if all(node.accepts_surplus for node in tree.upwards(group))]
    if sum(got) < sum(shares.own) - 1e-6:
        for group in open_to_all:
            assert got[group.index] == pytest.approx(asked[group.key], abs=1e-6)


@given(pools(), st.randoms())
def test_the_order_of_group_names_does_not_matter(pool, random):
    config, weight, asked = pool
    names = list(config.names)
    random.shuffle(names)
    turned = GroupConfig(
        names=tuple(names),
        quota=dict(reversed(config.quota.items())),
        dynamic_quota=config.dynamic_quota,
        accept_surplus=config.accept_surplus,
        accept_surplus_by=config.accept_surplus_by,
        allow_oversubscription=config.allow_oversubscription,
    )
    assert run(turned, weight, asked)[2] == run(config, weight, asked)[2]


@given(pools())
def test_whole_slots_are_whole_and_no_more_than_the_pool(pool):
    config, weight, asked = pool
    tree = GroupTree.of(config)
    shares = assign_quotas(tree, config, weight)
    requested = [asked[group.key] for group in tree.groups]
    got, _ = allocate_whole(tree, shares, requested, [0.0] * len(requested))
    assert all(amount == int(amount) >= 0 for amount in got)
    assert all(amount <= want + 1e-6 for amount, want in zip(got, requested, strict=True))
    if not config.allow_oversubscription:
        assert sum(got) <= weight + 1e-6


@given(
    st.floats(0, 1000),
    st.lists(st.tuples(st.floats(0, 1000), st.one_of(st.just(0.0), st.floats(1e-3, 1e6))), max_size=8),
)
def test_dividing_gives_away_all_that_is_wanted_in_the_ratio_of_the_weights(amount, takers):
    wanted, weights = [want for want, _ in takers], [weight for _, weight in takers]
    parts = divide(amount, wanted, weights)
    assert sum(parts) == pytest.approx(min(amount, sum(wanted)), rel=1e-9, abs=1e-9)
    assert all(-1e-12 <= part <= want + 1e-9 for part, want in zip(parts, wanted, strict=True))
    hungry = [(part, weight) for part, want, weight in zip(parts, wanted, weights, strict=True) if part < want - 1e-6]
    rates = [part / weight for part, weight in hungry if weight > 0]
    assert rates == pytest.approx([max(rates, default=0.0)] * len(rates), rel=1e-6, abs=1e-9)
