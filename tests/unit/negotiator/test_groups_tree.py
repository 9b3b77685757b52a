"""Accounting groups as configured: the tree, who belongs to which group, what is wrong with a configuration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.fairshare.group_tree import ROOT, GroupConfig, GroupTree, SubmitterDemand, group_demand
from shared.config import ConfigError
from tests.group_pools import configured
from tests.spec import spec


def tree_of(*names: str, **more: object) -> GroupTree:
    return GroupTree.of(GroupConfig(names=names, **more))


@spec("GRP-01")
def test_without_group_names_there_are_no_groups():
    config = configured("GROUP_QUOTA_physics = 3")
    tree = GroupTree.of(config)
    assert not tree
    assert [group.key for group in tree.groups] == [ROOT]
    assert tree.group_of("physics.alice@pool") == ROOT


@spec("GRP-02")
def test_names_do_not_tell_case_and_dots_make_the_tree():
    tree = tree_of("Group_Physics.HEP", "group_physics", "GROUP_CHEMISTRY")
    assert [group.name for group in tree.groups] == [ROOT, "GROUP_CHEMISTRY", "group_physics", "Group_Physics.HEP"]
    hep = tree.get("group_physics.hep")
    assert hep is not None
    assert [group.key for group in tree.upwards(hep)] == ["group_physics.hep", "group_physics", ROOT]


@spec("GRP-02")
def test_a_child_without_its_parent_is_ignored_and_told_of():
    tree = tree_of("physics.hep", "chemistry", dynamic_quota={"chemistry": 0.5, "physics.hep": 0.5})
    assert tree.get("physics.hep") is None
    assert tree.problems == ("GROUP_NAMES: physics.hep is ignored, as its parent physics is not listed; list it too",)


@spec("GRP-02")
def test_the_name_of_the_root_is_reserved():
    tree = tree_of("<NONE>", "g", quota={"g": 1})
    assert [group.key for group in tree.groups] == [ROOT, "g"]
    assert tree.problems == ("GROUP_NAMES: <none> is the root, which is always there; remove it from the list",)


@spec("GRP-03", "GRP-25")
@pytest.mark.parametrize(
    ("submitter", "group"),
    [
        ("alice@pool", ROOT),
        ("unknown.alice@pool", ROOT),
        ("Physics.alice@pool", "physics"),
        ("physics.HEP.alice@pool", "physics.hep"),
        ("physics.hep.first.last@pool", "physics.hep"),
        ("physics.unlisted.alice@pool", "physics"),  # an unlisted subgroup: its listed parent
        ("orphan.child.alice@pool", ROOT),  # the parent of a listed group is not listed
        ("physics@pool", ROOT),  # a user with a group's name
        ("physics.hep", "physics.hep"),  # the group itself
        ("physics.alice", "physics"),
        ("x.y@z@pool", ROOT),
        ("", ROOT),
    ],
)
def test_whose_group_a_submitter_belongs_to(submitter, group):
    assert tree_of("physics", "physics.hep", "orphan.child").group_of(submitter) == group


@spec("GRP-04")
def test_a_static_quota_beats_a_dynamic_one():
    tree = tree_of("a", "b", quota={"A": 7}, dynamic_quota={"a": 0.5, "B": 0.25})
    assert [(group.key, group.config_quota, group.static) for group in tree.groups[1:]] == [
        ("a", 7.0, True),
        ("b", 0.25, False),
    ]


@spec("GRP-05")
def test_a_group_without_a_quota_stays_with_quota_0():
    tree = tree_of("a")
    assert [(group.key, group.config_quota) for group in tree.groups[1:]] == [("a", 0.0)]
    assert tree.problems == ("a has neither GROUP_QUOTA_a nor GROUP_QUOTA_DYNAMIC_a; its quota is 0",)


@spec("GRP-12")
def test_surplus_is_off_by_default_and_set_for_all_or_for_one():
    assert [group.accepts_surplus for group in tree_of("a", "b").groups] == [True, False, False]
    tree = tree_of("a", "b", accept_surplus=True, accept_surplus_by={"B": False})
    assert [group.accepts_surplus for group in tree.groups] == [True, True, False]
    assert [group.surplus_policy for group in tree.groups[1:]] == ["byQuota", "no"]


@spec("GRP-23")
def test_autoregroup_is_set_for_all_or_for_one():
    tree = tree_of("a", "b", autoregroup_by={"a": True})
    assert [group.surplus_policy for group in tree.groups] == ["regroup", "regroup", "no"]
    tree = tree_of("a", "b", autoregroup=True, autoregroup_by={"a": False})
    assert [group.autoregroup for group in tree.groups] == [True, False, True]


@spec("GRP-17")
def test_demand_is_cores_or_jobs_of_the_group_itself():
    tree = tree_of("p", "p.h")
    waiting = [
        SubmitterDemand("p.h.alice@x", idle=3, running=2, weighted_idle=12, weighted_running=16.5),
        SubmitterDemand("p.h.bob@x", idle=1, running=0),  # its schedd tells no weights
        SubmitterDemand("p.carol@x", idle=5, running=0, weighted_idle=5, weighted_running=0),
        SubmitterDemand("dave@x", idle=1, running=1, weighted_idle=2, weighted_running=2),
    ]
    assert group_demand(tree, GroupConfig(), waiting) == {"p.h": 29.5, "p": 5.0, ROOT: 4.0}
    assert group_demand(tree, GroupConfig(weighted_demand=False), waiting) == {"p.h": 6.0, "p": 5.0, ROOT: 2.0}


def test_the_knobs_are_read_with_their_defaults():
    config = configured("GROUP_NAMES = A, b b.c\nGROUP_QUOTA_A = 2 * 5\nGROUP_QUOTA_DYNAMIC_b = 1/4.0")
    assert config.names == ("A", "b", "b.c")
    assert dict(config.quota) == {"a": 10.0}
    assert dict(config.dynamic_quota) == {"b": 0.25}
    assert config.allow_oversubscription
    assert config.strict_enforce
    assert config.weighted_demand
    assert config.max_allocation_rounds == 3
    assert config.round_robin_rate == 1e100
    assert not config.accept_surplus
    assert not config.autoregroup


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("GROUP_QUOTA_a = plenty", "GROUP_QUOTA_A = plenty is not usable (give a number"),
        ("GROUP_QUOTA_a = -1", "GROUP_QUOTA_A = -1 is not usable (give at least 0"),
        ("GROUP_QUOTA_DYNAMIC_a = 1.5", "GROUP_QUOTA_DYNAMIC_A = 1.5 is not usable (give at most 1"),
        ("GROUP_ACCEPT_SURPLUS_a = perhaps", "GROUP_ACCEPT_SURPLUS_A = perhaps is not usable"),
        ("GROUP_SORT_EXPR = )", "GROUP_SORT_EXPR = ) is not usable (give a ClassAd expression"),
        ("GROUP_QUOTA_MAX_ALLOCATION_ROUNDS = 0", "give at least 1"),
        ("GROUP_QUOTA_ROUND_ROBIN_RATE = 0.5", "give at least 1"),
    ],
)
def test_a_value_that_can_not_be_used_names_the_macro_and_the_mend(lines, told):
    with pytest.raises(ConfigError) as error:
        configured(f"GROUP_NAMES = a\n{lines}")
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"names": ("a", "A")}, "a is listed twice"),
        ({"names": ("a..b", "a")}, "a..b has an empty part between dots"),
        ({"names": [".".join("a" * n) for n in range(1, 60)]}, "has more than 50 levels; the group is ignored"),
        ({"names": ("a",), "quota": {"a": 1, "b": 1}}, "GROUP_QUOTA_b: no such group is in GROUP_NAMES"),
        ({"names": ("a",), "autoregroup_by": {"z": True}}, "GROUP_AUTOREGROUP_z: no such group"),
        ({"names": ("a",), "dynamic_quota": {"a": 2.0}}, "GROUP_QUOTA_DYNAMIC_a = 2 is no quota and counts as 0"),
        ({"names": ("a",), "quota": {"a": float("nan")}}, "GROUP_QUOTA_a = nan is no quota and counts as 0"),
    ],
)
def test_what_is_odd_in_a_configuration_is_told_and_does_no_harm(config, problem):
    tree = GroupTree.of(GroupConfig(**config))
    assert problem in "\n".join(tree.problems)
    assert tree.get("a") is not None


def test_a_user_with_the_name_of_a_group_is_told_of():
    tree = tree_of("Physics")
    assert tree.clashes(["physics@pool", "physics.alice@pool", "bob@pool", "physics"]) == [
        "physics@pool: a group has the name of this user; rename the group, as group_physics"
    ]


names = st.lists(st.text("ab.<>-A", min_size=1, max_size=6), max_size=12)


@given(names, st.randoms())
def test_any_list_of_names_gives_the_same_tree_in_any_order(listed, random):
    shuffled = list(listed)
    random.shuffle(shuffled)
    tree = tree_of(*listed)
    assert tree == tree_of(*shuffled)
    for group in tree.groups[1:]:
        assert group.parent < group.index
        assert group.index in tree.groups[group.parent].children
        assert tree.group_of(f"{group.name}.user@pool") == group.key
