"""The accountant alone, without Redis and cycles: who is charged, when, and what is looked at (rows ACC, GRP)."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from engine.fairshare.accountant import SETTLE_S, Accountant
from engine.fairshare.claim_charging import Claim, LateCharge, Takeover
from engine.fairshare.group_tree import GroupConfig, GroupTree
from engine.fairshare.priorities import MINIMUM_PRIORITY, Factors, ImportedRecord, Record, Share, backdate, settle
from engine.fairshare.quotas import QuotaSetting
from tests.spec import spec

HOUR = 3600.0
T0 = 1_000_000_000.0
NAMES = ("a", "a.b", "c")
KEY = ("slot1@ep", "claim")


def strict(find) -> None:
    assert find() == []


def accountant(*, names=NAMES, check=strict) -> Accountant:
    tree = GroupTree.of(GroupConfig(names=names, quota=dict.fromkeys(names, 10)))
    return Accountant("n", Factors(), HOUR, tree, check=check)


def priorities(one: Accountant) -> dict[str, float]:
    return {key: record.priority for key, record in one.records.groups.items()}


# --- what is looked at


def test_a_new_accountant_has_charged_nothing_and_looks_at_all_it_has():
    one = accountant()
    assert (one.until, one.claims_known, one.check_invariants()) == (0.0, True, [])
    one.records.put_claim(KEY, Claim("v@p", 5.0, T0))
    assert ["v@p" in said for said in one.check_invariants()] == [True]
    one.records.put_claim(KEY, None)
    one.records.put_group("a", Record(factor=1000.0, in_use=7.0, slots_in_use=7, subtree_in_use=7.0))
    assert ["group a" in said for said in one.check_invariants()] == [True, True]


def test_records_that_were_just_read_are_not_held_to_our_groups_and_claims_until_they_are_charged():
    """Another negotiator left them, with other groups, perhaps, and within a takeover."""
    theirs = {"a.u@p": Record(factor=1000.0, in_use=2.0, slots_in_use=1, updated=T0, begin=T0, last=T0)}
    one = accountant(check=lambda find: None)
    one.charge({}, T0)
    one.read(dict(theirs), {}, {KEY: Claim("v@p", 5.0, T0)}, T0, claims_known=False)
    assert (one.claims_known, one.check_invariants()) == (False, [])
    one.charge({"a.u@p": (2.0, 1)}, T0 + 1.0)
    assert one.records.groups["a"].in_use == 2.0  # at once, though we settled but a second ago
    assert ["v@p" in said for said in one.check_invariants()] == [True]
    one.charge({"a.u@p": (2.0, 1)}, T0 + SETTLE_S, changed={KEY: None})
    assert one.check_invariants() == []
    one.records.put_group("c", Record(factor=1000.0, in_use=7.0, slots_in_use=7, subtree_in_use=7.0, updated=T0))
    assert ["group c" in said for said in one.check_invariants()] == [True, True]


def test_whoever_is_deleted_while_it_uses_something_has_claims_until_the_next_charge():
    one = accountant(check=lambda find: None)
    one.charge({"u@p": (1.0, 1)}, T0, changed={KEY: Claim("u@p", 1.0, T0)})
    one.change("u@p", "delete", None, T0)
    assert one.check_invariants() == []
    one.charge({}, T0)
    assert ["u@p" in said for said in one.check_invariants()] == [True]


def test_a_group_that_nobody_uses_sinks_and_has_nothing_in_use():
    one = accountant()
    one.records.put_group("c", Record(factor=1000.0, priority=50.0, updated=T0 - HOUR, subtree_in_use=0.0))
    one.charge({}, T0)
    assert (one.records.groups["c"].priority, one.records.groups["c"].subtree_in_use) == (25.0, 0.0)


@spec("ACC-18")
def test_whoever_reads_records_goes_on_from_the_latest_of_them():
    one = accountant()
    late = {"u@p": Record(factor=1000.0, updated=T0 + 7.0)}
    one.read(late, {"a": Record(factor=1000.0, subtree_in_use=0.0, updated=T0 + 9.0)}, {}, T0, claims_known=True)
    assert one.until == T0 + 9.0
    one.read({}, {}, {}, T0, claims_known=True)
    assert one.until == T0


# --- charging


@spec("ACC-03", "ACC-18")
def test_use_is_charged_to_the_group_and_moves_all_above_it_but_the_root():
    one = accountant()
    one.charge({"a.b.u@p": (2.0, 1)}, T0)
    one.charge({}, T0 + HOUR)
    groups = one.records.groups
    assert (groups["a.b"].weighted_usage, groups["a.b"].usage) == (2.0 * HOUR, HOUR)
    assert (groups["a"].weighted_usage, groups["a"].usage) == (0.0, 0.0)
    assert groups["a"].priority == groups["a.b"].priority > MINIMUM_PRIORITY
    assert "c" not in groups
    assert one.records.group_record("", T0).priority == MINIMUM_PRIORITY
    assert [(groups[key].in_use, groups[key].slots_in_use, groups[key].subtree_in_use) for key in ("a", "a.b")] == [
        (0.0, 0, 0.0),
        (0.0, 0, 0.0),
    ]


def test_who_has_no_group_is_charged_with_the_root():
    one = accountant()
    one.charge({"u@p": (2.0, 1)}, T0)
    one.charge({}, T0 + HOUR)
    (key,) = one.records.groups
    assert one.records.groups[key].weighted_usage == 2.0 * HOUR


@pytest.mark.parametrize("use", [(0.0, 1), (1.0, 0)])
def test_of_who_is_new_any_use_is_charged_and_none_is_no_record(use):
    one = accountant()
    one.charge({"none@p": (0.0, 0), "u@p": use}, T0)
    assert set(one.records.submitters) == {"u@p"}


@spec("ACC-16")
def test_what_is_in_use_is_settled_after_a_minute_and_not_before():
    one = accountant()
    one.charge({"a.u@p": (1.0, 1)}, T0)
    for after, charged in ((SETTLE_S - 1.0, 0.0), (SETTLE_S, SETTLE_S), (2 * SETTLE_S - 1.0, SETTLE_S)):
        one.charge({"a.u@p": (1.0, 1)}, T0 + after)
        assert one.records.submitters["a.u@p"].weighted_usage == charged
        assert one.records.groups["a"].weighted_usage == charged


def test_claims_are_kept_as_they_are_told_and_forgotten_as_they_end():
    one = accountant(check=lambda find: None)
    one.charge({}, T0, changed={KEY: Claim("u@p", 1.0, T0)})
    assert one.records.claims == {KEY: Claim("u@p", 1.0, T0)}
    one.charge({}, T0, changed={KEY: None})
    assert one.records.claims == {}


# --- what is heard late


@spec("ACC-16", "ACC-18")
def test_what_is_heard_late_is_charged_to_the_user_and_its_group_and_moves_those_above():
    one = accountant()
    one.charge({}, T0)
    now = T0 + 100.0
    one.charge({}, now, late=[LateCharge("a.b.u@p", 2.0, T0, T0 + 60.0)])
    expected = backdate(settle(Record(factor=1000.0), now, HOUR), 2.0, 1, T0, T0 + 60.0, HOUR)
    assert one.records.submitters["a.b.u@p"] == expected
    groups = one.records.groups
    assert (groups["a.b"].weighted_usage, groups["a.b"].usage) == (120.0, 60.0)
    assert (groups["a"].weighted_usage, groups["a"].usage) == (0.0, 0.0)
    assert groups["a"].priority == groups["a.b"].priority == expected.priority
    assert one.records.group_record("", now).priority == MINIMUM_PRIORITY


def test_who_has_no_group_and_is_heard_of_late_moves_the_root():
    one = accountant()
    one.charge({}, T0, late=[LateCharge("u@p", 2.0, T0 - 60.0, T0)])
    (key,) = one.records.groups
    assert (one.records.groups[key].weighted_usage, one.records.groups[key].usage) == (120.0, 60.0)


def test_of_what_is_heard_late_nothing_is_charged_beyond_now_and_nothing_for_no_time():
    one = accountant()
    one.charge({}, T0, late=[LateCharge("u@p", 2.0, T0 - 60.0, T0 + 60.0), LateCharge("v@p", 1.0, T0 + 5.0, T0 + 9.0)])
    assert one.records.submitters["u@p"].weighted_usage == 120.0
    assert "v@p" not in one.records.submitters


# --- taking over


@pytest.mark.parametrize("known", [True, False], ids=["claims are named", "of a version that names none"])
@spec("ACC-16", "ACC-18")
def test_who_takes_over_charges_on_from_the_records(known):
    asked = []

    def take_over(recorded, base, now):
        asked.append((recorded, base, now))
        return Takeover({"a.v@p": (3.0, 2)}, [LateCharge("a.w@p", 1.0, T0, T0 + 10.0)])

    claim = Claim("a.v@p", 3.0, T0)
    in_use = {"in_use": 1.0, "slots_in_use": 1, "begin": T0, "last": T0, "updated": T0}
    one = accountant(check=lambda find: None)
    one.read({"a.u@p": Record(factor=1000.0, **in_use)}, {}, {KEY: claim}, T0, claims_known=known)
    one.take_over(SimpleNamespace(take_over=take_over), T0 + 40.0)
    assert asked == [({KEY: claim} if known else None, T0, T0 + 40.0)]
    assert one.claims_known
    users = one.records.submitters
    assert {name: (users[name].in_use, users[name].slots_in_use) for name in users} == {
        "a.u@p": (0.0, 0),
        "a.v@p": (3.0, 2),
        "a.w@p": (0.0, 0),
    }
    assert users["a.u@p"].weighted_usage == 0.0
    assert users["a.w@p"].weighted_usage == 10.0
    one.charge({"a.v@p": (3.0, 2)}, T0 + 40.0 + SETTLE_S)
    assert users["a.v@p"].weighted_usage == 3.0 * (40.0 + SETTLE_S)


def test_who_takes_over_by_a_clock_that_is_a_little_behind_charges_from_where_the_records_end():
    asked = []

    def take_over(recorded, base, now):
        asked.append((base, now))
        return Takeover({}, [])

    one = accountant()
    one.read({}, {}, {}, T0, claims_known=True)
    one.take_over(SimpleNamespace(take_over=take_over), T0 - 0.5)
    assert asked == [(T0, T0)]


# --- clocks


@spec("ACC-22")
def test_time_never_steps_back():
    one = accountant()
    one.charge({"a.u@p": (1.0, 1)}, T0)
    one.charge({}, T0 - 50.0)
    assert one.until == T0
    one.charge({}, T0 + SETTLE_S)
    assert "a.u@p" in one.records.submitters
    assert one.records.submitters["a.u@p"].weighted_usage == 0.0  # he used it for no time


@spec("ACC-22")
@pytest.mark.parametrize("seconds", [HOUR, -HOUR])
def test_a_clock_that_is_set_is_followed_and_nothing_charged_for_that(seconds):
    one = accountant()
    claim = Claim("a.u@p", 1.0, T0 - 5.0)
    over = Claim("a.u@p", 1.0, T0 - 50.0, T0 - 20.0, theirs=T0 - 20.5)
    one.charge({"a.u@p": (1.0, 1)}, T0, changed={KEY: claim, ("slot2@ep", T0 - 50.0): over})
    one.records.changed.clear()
    one.records.changed_groups.clear()
    one.records.changed_claims.clear()
    one.clock_set(seconds)
    assert one.until == T0 + seconds
    assert one.records.claims == {
        KEY: claim._replace(began=T0 - 5.0 + seconds),
        ("slot2@ep", T0 - 50.0): over._replace(began=T0 - 50.0 + seconds, until=T0 - 20.0 + seconds),
    }
    # All is to be written anew: part of it by the old time would be charged for what lies between.
    assert one.records.changed == one.records.submitters.keys()
    assert one.records.changed_groups == one.records.groups.keys() > set()
    assert one.records.changed_claims.keys() == one.records.claims.keys()
    one.charge({"a.u@p": (1.0, 1)}, T0 + seconds + SETTLE_S - 1.0)
    assert one.records.submitters["a.u@p"].weighted_usage == 0.0  # the time to settle is no other for that
    one.charge({}, T0 + seconds + SETTLE_S, changed={KEY: None})
    assert one.records.submitters["a.u@p"].weighted_usage == SETTLE_S
    assert one.check_invariants() == []


def test_an_accountant_that_read_nothing_yet_has_no_time_to_set():
    one = accountant()
    one.clock_set(-HOUR)
    assert one.until == 0.0


# --- settings


@spec("ACC-05")
def test_another_half_life_holds_for_what_is_not_in_use_and_for_groups_from_now_on():
    one = accountant()
    one.charge({"a.u@p": (8.0, 8)}, T0)
    one.charge({}, T0 + HOUR)
    before, group = one.records.submitters["a.u@p"], one.records.groups["a"]
    one.configure(Factors(), 1e12, one.records.tree, T0 + 2 * HOUR)
    assert one.records.submitters["a.u@p"].priority == settle(before, T0 + 2 * HOUR, HOUR).priority
    assert one.records.groups["a"].priority == settle(group, T0 + 2 * HOUR, HOUR).priority
    assert one.record("a.u@p", T0 + 9 * HOUR).priority == pytest.approx(before.priority / 2, rel=1e-6)


# --- quotas


STATIC, NOTHING, PART, ZERO_PART = (
    QuotaSetting(7.0, False),
    QuotaSetting(0.0, False),
    QuotaSetting(0.5, True),
    QuotaSetting(0.0, True),
)


@spec("GRP-02")
@pytest.mark.parametrize("quota", [STATIC, NOTHING, PART, ZERO_PART], ids=str)
def test_a_quota_that_is_set_is_told_until_it_is_taken_back(quota):
    one = accountant()
    assert one.quotas() == {}
    assert one.set_quota("A.b", quota, T0) is None
    assert one.quotas() == {"a.b": quota}
    assert one.set_quota("a.b", None, T0) == quota
    assert one.quotas() == {}
    assert one.set_quota("a.b", None, T0) is None


@spec("GRP-02")
def test_a_quota_of_a_group_that_is_gone_can_only_be_taken_back():
    one = accountant()
    one.set_quota("c", STATIC, T0)
    one.configure(Factors(), HOUR, GroupTree.of(GroupConfig(names=("a",), quota={"a": 10})), T0)
    with pytest.raises(ValueError, match=r"no accounting group 'c' in GROUP_NAMES; known: a$"):
        one.set_quota("c", PART, T0)
    assert one.set_quota("c", None, T0) == STATIC
    with pytest.raises(ValueError, match="no accounting group 'c'"):
        one.set_quota("c", None, T0)


@pytest.mark.parametrize("count", [0, 10, 11])
def test_who_names_no_group_is_told_which_there_are(count):
    one = accountant(names=tuple(f"g{number:02}" for number in range(count)))
    with pytest.raises(ValueError, match="known: ") as refused:
        one.set_quota("x", STATIC, T0)
    names = [f"g{number:02}" for number in range(min(count, 10))]
    assert str(refused.value).endswith("known: " + (", ".join(names) or "none") + (" and 1 more" if count > 10 else ""))


def test_a_quota_that_makes_no_sense_changes_nothing():
    one = accountant()
    with pytest.raises(ValueError, match="all of the pool"):
        one.set_quota(one.records.tree.root.name, STATIC, T0)
    with pytest.raises(ValueError):
        one.set_quota("a", QuotaSetting(-3.0, False), T0)
    assert one.quotas() == {}


# --- what is in use


@spec("ACC-03")
def test_what_is_in_use_is_a_groups_own_and_what_is_below_it():
    one = accountant()
    one.charge({"a.b.u@p": (2.0, 1), "c.v@p": (0.0, 0), "c.w@p": (1.0, 3)}, T0)
    one.charge({"c.w@p": (1.0, 3), "a.b.u@p": (4.0, 2)}, T0 + 1.0)  # the first of them is as it was

    def uses(key: str) -> tuple[float, int, float]:
        record = one.records.groups[key]
        return record.in_use, record.slots_in_use, record.subtree_in_use

    assert [uses(key) for key in ("a", "a.b", "c")] == [(0.0, 0, 4.0), (4.0, 2, 4.0), (1.0, 3, 1.0)]
    one.charge({"c.w@p": (1.0, 3), "a.b.u@p": (4.0, 2)}, T0 + 2 * SETTLE_S)  # all added up anew
    assert [uses(key) for key in ("a", "a.b", "c")] == [(0.0, 0, 4.0), (4.0, 2, 4.0), (1.0, 3, 1.0)]


def test_other_groups_have_at_once_what_their_submitters_use():
    one = accountant()
    one.charge({"a.b.u@p": (2.0, 1)}, T0)
    one.configure(Factors(), HOUR, GroupTree.of(GroupConfig(names=("a",), quota={"a": 10})), T0 + HOUR)
    groups = one.records.groups
    assert [(groups[key].in_use, groups[key].slots_in_use, groups[key].subtree_in_use) for key in ("a", "a.b")] == [
        (2.0, 1, 2.0),
        (0.0, 0, 0.0),
    ]
    assert groups["a.b"].weighted_usage == 2.0 * HOUR
    one.charge({}, T0 + 2 * HOUR)
    assert groups["a.b"].weighted_usage == 2.0 * HOUR  # nothing is in use there any more


@spec("ACC-10")
def test_who_was_never_seen_has_a_record_as_of_now_and_leaves_none():
    one = accountant()
    assert one.record("u@p", T0) == Record(factor=1000.0, updated=T0)
    assert one.records.submitters == {}


def test_what_is_settled_is_no_news():
    one = accountant()
    one.charge({"u@p": (1.0, 1)}, T0)
    one.ads_to_publish(T0)
    told = []
    one.records.publication.change = told.append
    one.charge({"u@p": (1.0, 1)}, T0 + SETTLE_S)
    assert "u@p" not in told


# --- records that were just read


def test_of_records_that_were_read_those_that_say_nothing_go_and_others_are_told_the_latest_first():
    one = accountant()
    using = {"in_use": 1.0, "slots_in_use": 1}
    one.read(
        {
            "usual@p": Record(factor=1000.0, updated=T0),
            "old@p": Record(factor=1000.0, updated=T0, last=T0 - 50.0),
            "late@p": Record(factor=1000.0, updated=T0, last=T0 - 20.0),
            "uses@p": Record(factor=1000.0, updated=T0, last=T0 - 90.0, **using),
            # What would be forgotten, were it not in use.
            "fresh@p": Record(factor=1000.0, updated=T0, **using),
        },
        {},
        {},
        T0,
        claims_known=True,
    )
    told = []
    one.records.publication.restart = told.append
    one.record("old@p", T0)
    assert list(one.records.submitters) == ["old@p", "late@p", "uses@p", "fresh@p"]
    groups = [group.name for group in one.records.tree.groups]
    assert told == [[*groups, "uses@p", "fresh@p", "late@p", "old@p"]]
    one.record("old@p", T0 + 1.0)
    assert len(told) == 1


# --- changes


def test_what_an_administrator_sets_is_there_at_once_and_what_was_comes_back_in_time():
    one = accountant()
    one.charge({}, T0)
    one.change("u@p", "factor", 7.0, T0)
    assert one.records.submitters["u@p"].factor == 7.0
    one.change("u@p", "factor", 3.0, T0, duration=60.0)
    (kept,) = one.records.submitters["u@p"].temporary
    assert (kept.before, kept.until) == (7.0, T0 + 60.0)
    assert one.end_changes(T0 + 59.0) == []
    assert [(one.submitter, one.value) for one in one.end_changes(T0 + 60.0)] == [("u@p", 7.0)]
    one.change("u@p", "factor", 1000.0, T0 + 60.0)
    assert one.records.submitters == {}  # what says nothing is not kept


def test_what_comes_back_in_time_is_kept_where_it_says_something_and_forgotten_where_not():
    one = accountant()
    one.change("v@p", "factor", 9.0, T0)
    for name in ("u@p", "v@p"):
        one.change(name, "factor", 7.0, T0, duration=60.0)
    one.end_changes(T0 + 60.0)
    assert {name: record.factor for name, record in one.records.submitters.items()} == {"v@p": 9.0}


@pytest.mark.parametrize("duration", [-1.0, 1.1e10, float("nan")])
def test_a_change_for_a_time_that_makes_no_sense_changes_nothing(duration):
    one = accountant()
    with pytest.raises(ValueError, match="use 0"):
        one.change("u@p", "factor", 7.0, T0, duration=duration)
    assert one.records.submitters == {}
    one.change("u@p", "factor", 7.0, T0, duration=1e10)
    one.change("v@p", "factor", 7.0, T0, duration=0.5)
    assert one.records.submitters["v@p"].temporary[0].until == T0 + 0.5


def test_a_change_of_nobody_or_of_a_group_is_refused():
    one = accountant()
    for name, why in (("", "no name"), ("A.b", "accounting group")):
        with pytest.raises(ValueError, match=why):
            one.change(name, "factor", 7.0, T0)
    assert one.records.submitters == {}


def test_reset_all_is_for_users_and_groups_and_takes_neither_name_nor_duration():
    one = accountant()
    one.charge({"a.u@p": (2.0, 1)}, T0)
    one.charge({}, T0 + HOUR)
    for name, duration in (("u@p", 0.0), ("", 60.0)):
        with pytest.raises(ValueError, match="reset-all"):
            one.change(name, "reset-all", None, T0 + HOUR, duration=duration)
    assert one.records.submitters["a.u@p"].weighted_usage == 2.0 * HOUR
    one.change("", "reset-all", None, T0 + 2 * HOUR)
    for record in (one.records.submitters["a.u@p"], one.records.groups["a"]):
        assert (record.weighted_usage, record.usage, record.begin) == (0.0, 0.0, T0 + 2 * HOUR)


def test_who_is_deleted_is_gone_seen_or_not_and_nobody_else_is():
    one = accountant()
    one.record("new@p", T0)
    one.charge({"a.u@p": (2.0, 1), "v@p": (1.0, 1)}, T0)
    one.change("new@p", "delete", None, T0)
    assert "new@p" not in one.records.newcomers
    one.change("a.u@p", "delete", None, T0 + HOUR)
    assert set(one.records.submitters) == {"v@p"}
    assert one.records.groups["a"].in_use == 0.0
    with pytest.raises(ValueError, match="no submitter"):
        one.change("new@p", "delete", None, T0 + HOUR)


# --- records of another pool


def test_of_another_pools_records_those_are_taken_that_say_something_and_are_not_here():
    one = accountant()
    one.charge({"here@p": (1.0, 1), "c.x@p": (1.0, 1)}, T0)
    one.charge({}, T0 + HOUR)
    theirs = {
        "here@p": ImportedRecord(priority=9.0, weighted_usage=5.0),
        "new@p": ImportedRecord(priority=9.0, weighted_usage=5.0, usage=4.0, begin=T0 - 9.0, last=T0 - 5.0),
        "usual@p": ImportedRecord(),
        "a": ImportedRecord(priority=9.0, weighted_usage=6.0, factor=3.0),
        "c": ImportedRecord(priority=9.0, weighted_usage=6.0),
        "nobody": ImportedRecord(weighted_usage=6.0),
    }
    now = T0 + HOUR
    found = one.import_plan(theirs, now, replacing=False)
    assert (found.taken, found.known, found.usual) == (("new@p", "a"), ("here@p", "c"), ("usual@p",))
    assert list(found.left) == ["nobody"]
    assert "no such accounting group" in found.left["nobody"]
    assert "new@p" not in one.records.submitters
    assert one.import_records(theirs, now, now, replacing=False) == found
    new = one.records.submitters["new@p"]
    assert (new.priority, new.weighted_usage, new.usage, new.begin) == (9.0, 5.0, 4.0, T0 - 9.0)
    assert new.factor == 1000.0
    group = one.records.groups["a"]
    assert (group.priority, group.weighted_usage, group.factor, group.ceiling) == (9.0, 6.0, 1000.0, -1.0)
    assert one.records.submitters["here@p"].weighted_usage == HOUR
    assert "usual@p" not in one.records.submitters
    again = one.import_plan(theirs, now, replacing=True)
    assert (again.taken, again.known) == (("here@p", "new@p", "a", "c"), ())


def test_priorities_of_another_pool_decay_from_when_it_charged_last():
    one = accountant()
    one.import_records(
        {"u@p": ImportedRecord(priority=8.0), "a": ImportedRecord(priority=8.0)}, T0, T0 + HOUR, replacing=False
    )
    assert (one.records.submitters["u@p"].priority, one.records.groups["a"].priority) == (4.0, 4.0)


def test_whose_priority_has_decayed_meanwhile_leaves_no_record_and_users_are_taken_after_groups():
    one, theirs = accountant(), dict.fromkeys(("a", "u@p"), ImportedRecord(priority=8.0))
    one.import_records(theirs, T0, T0 + HOUR, replacing=False)
    assert (list(one.records.groups), list(one.records.submitters)) == (["a"], ["u@p"])
    one = accountant()
    one.import_records(theirs, T0, T0 + 100 * HOUR, replacing=False)
    assert one.records.submitters == {}


def test_a_record_of_another_pool_that_can_not_be_leaves_all_as_it_was():
    one = accountant()
    with pytest.raises(ValueError):
        one.import_records(
            {"u@p": ImportedRecord(priority=8.0), "v@p": ImportedRecord(priority=float("nan"))}, T0, T0, replacing=False
        )
    assert one.records.submitters == {}


def test_a_groups_record_counts_as_there_when_it_says_anything():
    for record, there in (
        (Record(factor=1000.0), False),
        (Record(factor=1000.0, last=T0), True),
        (Record(factor=1000.0, weighted_usage=1.0), True),
        (Record(factor=1000.0, priority=1.0), True),
    ):
        one = accountant(check=lambda find: None)
        one.read({}, {"a": replace(record, subtree_in_use=0.0, updated=T0)}, {}, T0, claims_known=True)
        found = one.import_plan({"a": ImportedRecord(priority=9.0)}, T0, replacing=False)
        assert bool(found.known) == there


# --- telling


def test_ads_and_pages_are_as_of_now():
    one = accountant()
    one.charge({"u@p": (1.0, 1)}, T0)
    later = T0 + HOUR
    (page, _), ads = one.page(later, only=["u@p"]), one.ads(later)
    assert [ad.eval_string("Name") for ad in page] == ["u@p"]
    for told in (page[0], next(ad for ad in ads if ad.eval_string("Name") == "u@p")):
        assert told.eval("WeightedAccumulatedUsage") == HOUR
    published, gone = one.ads_to_publish(later)
    assert published["u@p"].eval("WeightedAccumulatedUsage") == HOUR
    assert gone == set()
    assert one.until == later


def test_shares_of_a_cycle_are_told_of_those_who_took_part():
    one = accountant()
    one.charge({"u@p": (1.0, 1)}, T0)
    one.record_cycle([], {"u@p": Share(fraction=0.25, limit=2.0, given=1.0)}, 8.0)
    assert one.listing.shares["u@p"].fraction == 0.25
    assert set(one.ads_to_publish(T0)[0]) >= {"u@p"}
