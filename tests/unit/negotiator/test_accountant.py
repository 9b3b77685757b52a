"""The accounting records: what is charged, what is written, what is forgotten, what is told (rows ACC)."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.fairshare.accountant import SETTLE_S, EndedChange
from engine.fairshare.accounting_ads import AT_ONCE, MAX_PUBLISHED
from engine.fairshare.accounting_listing import PAGE_SIZE
from engine.fairshare.accounting_records import MOST_NEWCOMERS
from engine.fairshare.group_negotiation import negotiate_groups
from engine.fairshare.group_tree import GroupConfig, GroupTree
from engine.fairshare.priorities import Factors, ImportedRecord, Share, pie_fractions
from services.negotiator.stored_accountant import StoredAccountant
from shared.state import keys
from shared.state.accounting import write_records
from shared.state.embedded import EmbeddedStore
from tests.spec import spec
from tests.unit.negotiator.told_time import Moment, TimedAccountant, TimedStore

DAY = 86400.0
HOUR = 3600.0
T0 = 1_000_000_000.0


@pytest.fixture
async def store():
    made = TimedStore()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def written(monkeypatch):
    """How many records each write has."""
    counts: list[int] = []

    async def counted(*where, submitters, groups, claims, **options):
        counts.append(len(submitters) + len(groups) + len(claims))
        return await write_records(*where, submitters=submitters, groups=groups, claims=claims, **options)

    monkeypatch.setattr("services.negotiator.stored_accountant.write_records", counted)
    return counts


def strict(find) -> None:
    assert find() == []


def books(store=None, *, factors=None, half_life=DAY, groups=None, shard="") -> TimedAccountant:
    tree = GroupTree.of(groups or GroupConfig())
    return TimedAccountant(store or TimedStore(), "n", factors or Factors(), half_life, shard, tree, check=strict)


def of_clock(store: EmbeddedStore, clock: Moment) -> StoredAccountant:
    return StoredAccountant(store, "n", Factors(), DAY, now=clock.now, check=strict)


def ads_of(accountant, now):
    return {ad.eval("Name"): ad for ad in accountant.ads(now)}


PHYSICS = GroupConfig(
    names=("group_physics", "group_physics.hep"), quota={"group_physics": 20, "group_physics.hep": 15}
)


async def test_the_books_are_checked_after_each_thing_that_changes_them(store):
    asked = []
    accountant = TimedAccountant(
        store, "n", Factors(), DAY, "", GroupTree.of(PHYSICS), check=lambda find: asked.append(find())
    )

    def done() -> int:
        count = len(asked)
        asked.clear()
        return count

    await accountant.load()
    assert done() == 1
    accountant.charge({"alice@p": (1.0, 1)}, T0)
    assert done() == 1
    accountant.change("alice@p", "factor", 5.0, T0)
    assert done() == 1
    await accountant.commit(1)
    assert done() == 1
    accountant.configure(Factors(), HOUR, GroupTree.of(PHYSICS), T0)
    assert done() == 1
    accountant.end_changes(T0)
    assert done() == 1
    accountant.record_cycle([], {}, 1.0)
    assert done() == 1


# --- charging

STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.25, 1.0, 7.0, 61.0, 3600.0]),
        st.dictionaries(st.sampled_from(["a@p", "g.b@p", "g.s.c@p"]), st.integers(0, 5), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


@spec("ACC-03", "ACC-05", "ACC-18")
@settings(max_examples=150)
@given(steps=STEPS)
def test_records_that_are_touched_only_when_use_changes_say_what_charging_every_step_says(steps):
    """Against a plain model that charges everybody at every step; groups too."""
    groups = GroupConfig(names=("g", "g.s"), quota={"g": 2, "g.s": 1})
    accountant = books(groups=groups)
    members = {"g": ("g.b@p", "g.s.c@p"), "g.s": ("g.s.c@p",)}
    model = {name: [0.5, 0.0, 0.0] for name in ("a@p", "g.b@p", "g.s.c@p", "g", "g.s")}
    use: dict[str, int] = {}
    now = T0
    for wait, following in steps:
        now += wait
        for name, state in model.items():
            slots = use.get(name, 0) if "@" in name else sum(use.get(m, 0) for m in members[name])
            own = use.get(name, 0) if "@" in name else use.get({"g": "g.b@p", "g.s": "g.s.c@p"}[name], 0)
            beta = 0.5 ** (wait / DAY)
            state[0] = max(0.5, beta * state[0] + (1 - beta) * 2.5 * slots)
            state[1] += own * wait
            state[2] += 2.5 * own * wait
        use = following
        accountant.charge({name: (2.5 * slots, slots) for name, slots in use.items()}, now)
        told = ads_of(accountant, now)
        for name, (priority, usage, weighted) in model.items():
            if name not in told:
                assert usage == 0.0
                continue
            ad = told[name]
            assert ad.eval("Priority") / ad.eval("PriorityFactor") == pytest.approx(priority)
            assert ad.eval("AccumulatedUsage") == pytest.approx(usage)
            assert ad.eval("WeightedAccumulatedUsage") == pytest.approx(weighted)
            slots = use.get(name, 0) if "@" in name else use.get({"g": "g.b@p", "g.s": "g.s.c@p"}[name], 0)
            assert ad.eval("ResourcesUsed") == slots


@spec("ACC-04")
def test_use_counts_by_its_weight():
    accountant = books()
    accountant.charge({"alice@p": (8.0, 1)}, T0)
    alice = accountant.record("alice@p", T0 + DAY)
    assert alice.priority == pytest.approx(0.5 * 0.5 + 0.5 * 8.0)
    assert (alice.usage, alice.weighted_usage) == (DAY, 8 * DAY)


@spec("ACC-18")
def test_begin_and_last_usage():
    accountant = books()
    accountant.charge({}, T0)
    accountant.charge({"alice@p": (1.0, 1)}, T0 + 10)
    accountant.charge({}, T0 + 30)
    accountant.charge({}, T0 + 1000)
    record = accountant.record("alice@p", T0 + 1000)
    assert (record.begin, record.last, record.usage) == (T0 + 10, T0 + 30, 20.0)


@spec("ACC-12", "W-12")
async def test_a_late_comer_gets_his_share_back():
    """100 cores, factors 1, A alone for 48 h, then ideal shares every minute."""
    accountant = books(factors=Factors(default=1.0))
    accountant.charge({"a@p": (100.0, 100)}, T0)
    now = T0 + 48 * HOUR

    def share_of_a() -> float:
        eup = {name: accountant.record(name, now).priority for name in ("a@p", "b@p")}
        return 100 * pie_fractions(list(eup), eup)["a@p"]

    assert accountant.record("a@p", now).priority == pytest.approx(75.125, abs=1e-3)
    assert accountant.record("b@p", now).priority == 0.5
    assert share_of_a() == pytest.approx(0.661, abs=0.01)
    expected = {1: 4.3, 3: 10.7, 6: 18.4, 12: 29.4, 24: 40.9, 48: 48.0, 96: 49.9}
    for minute in range(96 * 60 + 1):
        mine = share_of_a()
        assert mine <= 50.0
        if minute % 60 == 0 and minute // 60 in expected:
            assert mine == pytest.approx(expected[minute // 60], rel=0.02)
        accountant.charge({"a@p": (mine, 50), "b@p": (100 - mine, 50)}, now)
        now += 60


@spec("ACC-22")
def test_a_clock_that_steps_back_leaves_priorities_as_they_are():
    """What uses something goes on from the new time, and so does what only decays, however often it is set."""
    accountant = books()
    accountant.charge({"idle@p": (10.0, 10), "busy@p": (3.0, 3)}, T0)
    accountant.charge({"busy@p": (3.0, 3)}, T0 + DAY)
    before = {name: accountant.record(name, T0 + 2 * DAY) for name in ("idle@p", "busy@p")}
    accountant.clock_set(-DAY)
    accountant.clock_set(HOUR - DAY)
    accountant.charge({"busy@p": (3.0, 3)}, T0 + HOUR)
    for name, record in before.items():
        now = accountant.record(name, T0 + HOUR)
        assert (now.priority, now.usage) == (pytest.approx(record.priority), pytest.approx(record.usage))
    later = accountant.record("busy@p", T0 + 2 * HOUR)
    assert later.usage == pytest.approx(before["busy@p"].usage + 3 * HOUR)
    assert accountant.record("idle@p", T0 + HOUR + DAY).priority == pytest.approx(before["idle@p"].priority / 2)


@spec("ACC-22")
def test_a_clock_that_is_set_forth_charges_no_time_that_nobody_had():
    accountant = books()
    accountant.charge({"idle@p": (10.0, 10), "busy@p": (3.0, 3)}, T0)
    accountant.charge({"busy@p": (3.0, 3)}, T0 + DAY)
    before = {name: accountant.record(name, T0 + DAY + 60.0) for name in ("idle@p", "busy@p")}
    set_to = T0 + DAY + 60.0 + HOUR
    accountant.clock_set(HOUR)
    accountant.charge({"busy@p": (3.0, 3)}, set_to)
    for name, record in before.items():
        now = accountant.record(name, set_to)
        assert (now.priority, now.usage) == (pytest.approx(record.priority), pytest.approx(record.usage))
    later = accountant.record("busy@p", set_to + HOUR)
    assert later.usage == pytest.approx(before["busy@p"].usage + 3 * HOUR)


def test_a_clock_that_trembles_charges_no_second_twice():
    accountant = books()
    accountant.charge({"alice@p": (1.0, 1)}, T0)
    for now in (T0 + 10.0, T0 + 9.5, T0 + 9.9, T0 + 10.5):
        accountant.charge({"alice@p": (1.0, 1)}, now)
    assert accountant.record("alice@p", T0 + 10.5).usage == pytest.approx(10.5)


@spec("ACC-22")
@pytest.mark.parametrize("wrong_s", [-HOUR, HOUR, -60.0, 60.0])
@pytest.mark.parametrize("takes_over", ["another", "the same, set right", "another that is as wrong"])
async def test_who_takes_over_charges_for_the_time_that_passed_whichever_clock_was_wrong(wrong_s, takes_over):
    """20 s without a leader; Redis's clock is right."""
    time, clock = Moment(T0), Moment(T0 + wrong_s)
    store = EmbeddedStore(now=time.now)
    await store.start()
    first = of_clock(store, clock)
    first.charge({"alice@p": (4.0, 4)}, clock.at)
    clock.at, time.at = clock.at + 10.0, time.at + 10.0
    first.charge({"alice@p": (4.0, 4)}, clock.at)
    await first.commit(0)
    clock.at, time.at = clock.at + 20.0, time.at + 20.0
    if takes_over == "another":
        clock.at = time.at
    second = first if takes_over == "the same, set right" else of_clock(store, clock)
    if second is first:
        clock.at = time.at
        first.clock_set(-wrong_s)
    for _ in range(2):  # whoever reads them twice, without a write, is where he was
        await second.load()
        second.charge({"alice@p": (4.0, 4)}, clock.at)
        assert second.record("alice@p", clock.at).usage == pytest.approx(4 * 30.0)
    await second.commit(0)
    third = of_clock(store, clock)
    await third.load()
    third.charge({}, clock.at + 5.0)
    assert third.record("alice@p", clock.at + 5.0).usage == pytest.approx(4 * 35.0)
    await store.stop()


@spec("ACC-22")
async def test_a_clock_that_is_set_between_two_writes_is_known_to_who_reads_what_it_wrote(store):
    """Redis's clock is of no help here: it was set as ours was."""
    ours = Moment(T0)
    one = of_clock(store, ours)
    one.charge({"alice@p": (1.0, 1)}, T0)
    one.charge({"alice@p": (1.0, 1)}, T0 + 10.0)
    await one.commit(0)
    one.clock_set(HOUR)
    ours.at = T0 + 20.0 + HOUR
    await one.load()
    one.charge({"alice@p": (1.0, 1)}, ours.at)
    assert one.record("alice@p", ours.at).usage == pytest.approx(20.0)
    await one.commit(0)  # what is read now is by the new time
    ours.at += 10.0
    await one.load()
    one.charge({"alice@p": (1.0, 1)}, ours.at)
    assert one.record("alice@p", ours.at).usage == pytest.approx(30.0)


async def test_books_of_a_machine_whose_clock_was_ahead(store):
    first = books(store)
    first.charge({"alice@p": (4.0, 4)}, T0 + DAY)
    await first.commit(0)
    await store.delete(keys.accountant_written(""))  # nobody noted when that was
    second = of_clock(store, Moment(T0))
    await second.load()
    second.charge({"alice@p": (4.0, 4)}, T0)
    assert second.record("alice@p", T0).usage == 0.0
    assert second.record("alice@p", T0 + 60).usage == 240.0


# --- factors


@spec("ACC-09", "ACC-10", "W-14", "W-25")
def test_factor_is_chosen_on_first_use_and_kept():
    """Stored before nice-user, group, remote, default."""
    factors = Factors(local_domain="p", groups=(("group_physics", 2.0),))
    accountant = books(factors=factors, groups=PHYSICS)
    kinds = {
        "alice@p": 1000.0,
        "bob@elsewhere": 1e7,
        "nice-user.carol@p": 1e10,
        "group_physics.dave@p": 2.0,
        "group_physics.dave@elsewhere": 2.0,
        "Group_Physics.other.erin@p": 2.0,  # an unlisted subgroup is its listed parent
        "group_physics.hep.frank@p": 1000.0,  # a listed one does not inherit
        "group_chem.gina@p": 1000.0,  # no such group
    }
    assert {name: accountant.record(name, T0).factor for name in kinds} == kinds
    assert ads_of(accountant, T0)["group_physics.dave@p"].eval("Priority") == 1.0
    accountant.charge(dict.fromkeys(kinds, (1.0, 1)), T0)
    accountant.configure(Factors(default=5.0), DAY, accountant.records.tree, T0 + 1)
    assert {name: accountant.record(name, T0 + 1).factor for name in kinds} == kinds
    assert accountant.record("new@p", T0 + 1).factor == 5.0


def test_another_half_life_holds_from_now_on():
    accountant = books()
    accountant.charge({"idle@p": (10.0, 10)}, T0)
    accountant.charge({}, T0 + 100 * DAY)
    accountant.configure(accountant.records.factors, 2 * DAY, accountant.records.tree, T0 + 101 * DAY)
    assert accountant.record("idle@p", T0 + 101 * DAY).priority == pytest.approx(5.0)
    assert accountant.record("idle@p", T0 + 103 * DAY).priority == pytest.approx(2.5)


# --- what is written


async def test_only_what_changed_is_written_however_many_there_are(store, written):
    """Thousands that only decay cost nothing: not in a charge, not in a write."""
    accountant = books(store)
    await accountant.load()
    everybody = {f"user{n}@p": (1.0, 1) for n in range(3000)}
    accountant.charge(everybody, T0)
    accountant.charge({}, T0 + 100)
    await accountant.commit(0)
    written.clear()
    for second in range(101, 140):
        accountant.charge({"alice@p": (1.0 + second, 1)}, T0 + second)
        await accountant.commit(0)
    assert sum(written) <= 2 * 39 + 5  # the user and the root group
    written.clear()
    accountant.charge({"alice@p": (150.0, 1)}, T0 + 139.5)
    await accountant.commit(0)
    assert written == [2]
    assert accountant.record("user7@p", T0 + 100 + DAY).priority == pytest.approx(0.5)


@spec("ACC-17")
async def test_the_books_do_not_grow_with_time(store):
    """Records are written in place, so there is no log to compact."""
    accountant = books(store)
    await accountant.load()
    for minute in range(500):
        accountant.charge({"alice@p": (minute % 3, minute % 3)}, T0 + 60 * minute)
        await accountant.commit(0)
    rows = await store.hgetall(keys.accountant(""))
    assert list(rows) == [b"alice@p"]
    assert len(rows[b"alice@p"]) < 300


async def test_names_without_use_are_not_on_the_books(store, written):
    """100,000 names that ask for slots cost no memory for good, and nothing is written."""
    accountant = books(store)
    await accountant.load()
    for number in range(100_000):
        accountant.record(f"user{number}@p", T0)
    accountant.charge({}, T0 + 1)
    await accountant.commit(0)
    assert not written
    assert len(accountant.ads(T0 + 1)) == MOST_NEWCOMERS + 1  # and the root group
    assert accountant.record("user99999@p", T0 + 2).factor == 1000.0


async def test_records_with_nothing_to_remember_are_forgotten(store):
    accountant = books(store)
    await accountant.load()
    accountant.change("bob@p", "factor", 10.0, T0)
    accountant.change("carol@p", "priority", 2.0, T0)
    accountant.change("dave@p", "floor", 2.0, T0)
    accountant.charge({"erin@p": (1.0, 1)}, T0)
    accountant.charge({}, T0 + 1)
    await accountant.commit(0)
    accountant.change("bob@p", "factor", 1000.0, T0 + 2)  # as every new one has it
    await accountant.commit(0)
    later = books(store)
    await later.load()
    assert set(later.records.submitters) == {"carol@p", "dave@p", "erin@p"}
    later.charge({}, T0 + 100 * DAY)  # carol's priority is at the floor
    await later.commit(0)
    assert set(await store.hgetall(keys.accountant(""))) == {b"dave@p", b"erin@p"}


async def test_a_failed_write_is_made_good(store):
    accountant = books(store)
    await accountant.load()
    accountant.change("alice@p", "factor", 7.0, T0)
    good, store.run = store.run, None
    with pytest.raises(TypeError):
        await accountant.commit(0)
    store.run = good
    await accountant.commit(0)
    later = books(store)
    await later.load()
    assert later.record("alice@p", T0).factor == 7.0


async def test_use_that_changes_while_the_books_are_read_again(store):
    """After a gap on the bus they are, and slots that come and go meanwhile are charged."""
    accountant = books(store)
    await accountant.load()
    accountant.charge({"alice@p": (1.0, 1)}, T0)
    read = store.hgetall

    async def slowly(key):
        rows = await read(key)
        if key == keys.accountant_groups(""):
            accountant.charge({}, T0 + 1.0)
        return rows

    store.hgetall = slowly
    await accountant.load()
    assert accountant.records.submitters == {}  # nothing of it was written yet


async def test_records_of_other_versions_are_read(store):
    """An older record lacks fields, a newer one has more; a damaged one is told and left alone."""
    old = {"priority": 3.0, "factor": 1000.0, "in_use": 0.0, "slots_in_use": 0, "usage": 5.0, "updated": T0}
    rows = {"old@p": old, "new@p": {**old, "hue": "blue", "ceiling": 4}, "bad@p": ["?"], "worse@p": {"usage": "much"}}
    await store.hset(keys.accountant(""), {name: msgpack.packb(row) for name, row in rows.items()})
    await store.hset(keys.accountant(""), {"cut@p": b"\x81"})
    accountant = books(store)
    await accountant.load()
    assert sorted(accountant.unreadable) == ["bad@p", "cut@p", "worse@p"]
    assert accountant.record("old@p", T0).priority == 3.0
    assert accountant.record("new@p", T0).ceiling == 4.0
    accountant.charge({}, T0 + 100 * DAY)
    await accountant.commit(0)
    assert b"cut@p" in await store.hgetall(keys.accountant(""))


# --- an administrator's changes


async def test_a_change_for_a_while_ends_by_itself_also_across_a_restart(store):
    accountant = books(store)
    await accountant.load()
    accountant.change("alice@p", "factor", 10.0, T0, duration=3600.0)
    accountant.change("alice@p", "ceiling", 5.0, T0, duration=7200.0)
    accountant.change("bob@p", "floor", 3.0, T0, duration=60.0)
    ad = ads_of(accountant, T0)["alice@p"]
    assert (ad.eval("PriorityFactor"), ad.eval("PriorityFactorUntil"), ad.eval("PriorityFactorAfter")) == (
        10.0,
        int(T0 + 3600),
        1000,
    )
    await accountant.commit(0)
    later = books(store)
    await later.load()
    assert later.end_changes(T0 + 59.0) == []
    assert later.end_changes(T0 + 3600.0) == [
        EndedChange("alice@p", "factor", 1000.0),
        EndedChange("bob@p", "floor", 0.0),
    ]
    assert later.end_changes(T0 + 3601.0) == []
    assert later.record("alice@p", T0 + 3601).factor == 1000.0
    assert later.record("alice@p", T0 + 3601).ceiling == 5.0
    await later.commit(0)
    assert set(await store.hgetall(keys.accountant(""))) == {b"alice@p"}  # of bob there is nothing to remember
    assert later.end_changes(T0 + 7200.0) == [EndedChange("alice@p", "ceiling", -1.0)]


def test_a_change_for_good_ends_one_for_a_while_and_a_second_one_keeps_what_was_before():
    accountant = books()
    accountant.change("alice@p", "factor", 5.0, T0)
    accountant.change("alice@p", "factor", 10.0, T0, duration=100.0)
    accountant.change("alice@p", "factor", 20.0, T0 + 50, duration=100.0)
    assert accountant.end_changes(T0 + 120) == []
    assert accountant.end_changes(T0 + 150) == [EndedChange("alice@p", "factor", 5.0)]
    accountant.change("alice@p", "factor", 10.0, T0 + 200, duration=100.0)
    accountant.change("alice@p", "factor", 7.0, T0 + 210)
    assert accountant.end_changes(T0 + 400) == []
    assert accountant.record("alice@p", T0 + 400).factor == 7.0


@pytest.mark.parametrize(
    ("submitter", "what", "value", "duration", "says"),
    [
        ("alice@p", "factor", 0.99, 0.0, "below 1"),
        ("alice@p", "priority", 0.4, 0.0, "below 0.5"),
        ("alice@p", "ceiling", -3.0, 0.0, "-1 for none"),
        ("alice@p", "last", 1e15, 0.0, "too large"),
        ("alice@p", "factor", float("nan"), 0.0, "too large"),
        ("alice@p", "colour", 1.0, 0.0, "unknown change 'colour'"),
        ("alice@p", "factor", None, 0.0, "needs a number"),
        ("alice@p", "priority", 5.0, 60.0, "factor, floor, ceiling can"),
        ("alice@p", "reset", None, 60.0, "for a while"),
        ("alice@p", "factor", 5.0, -1.0, "a duration of -1"),
        ("alice@p", "delete", None, 0.0, "no submitter 'alice@p'"),
        ("", "factor", 5.0, 0.0, "'' is no name"),
        ("a\0b@p", "factor", 5.0, 0.0, "is no name"),
        ("x" * 601, "factor", 5.0, 0.0, "is no name"),
        ("group_physics", "factor", 5.0, 0.0, "is an accounting group"),
        ("alice@p", "reset-all", None, 0.0, "neither a name"),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(submitter, what, value, duration, says):
    accountant = books(groups=PHYSICS)
    before = ads_of(accountant, T0)
    with pytest.raises(ValueError, match=says):
        accountant.change(submitter, what, value, T0, duration)
    assert ads_of(accountant, T0) == before
    assert not accountant.records.submitters


def test_usage_is_reset_for_one_and_for_all():
    accountant = books(groups=PHYSICS)
    accountant.charge({"alice@p": (2.0, 1), "group_physics.bob@p": (3.0, 1)}, T0)
    accountant.change("alice@p", "reset", None, T0 + 100)
    told = ads_of(accountant, T0 + 100)
    assert told["alice@p"].eval("WeightedAccumulatedUsage") == 0.0
    assert told["alice@p"].eval("BeginUsageTime") == int(T0 + 100)
    assert told["group_physics.bob@p"].eval("WeightedAccumulatedUsage") == 300.0
    assert told["group_physics"].eval("WeightedAccumulatedUsage") == 300.0
    accountant.change("", "reset-all", None, T0 + 100)
    assert {ad.eval("AccumulatedUsage") for ad in accountant.ads(T0 + 100)} == {0.0}
    assert accountant.record("alice@p", T0 + 110).weighted_usage == 20.0


def test_who_is_deleted_while_he_uses_something_begins_anew():
    accountant = books(groups=PHYSICS)
    use = {"group_physics.bob@p": (3.0, 3)}
    accountant.charge(use, T0)
    accountant.change("group_physics.bob@p", "delete", None, T0 + 10)
    accountant.charge(use, T0 + 10)
    told = ads_of(accountant, T0 + 20)
    assert told["group_physics.bob@p"].eval("AccumulatedUsage") == 30.0
    assert told["group_physics"].eval("ResourcesUsed") == 3
    assert told["group_physics"].eval("AccumulatedUsage") == 60.0


# --- groups


@spec("ACC-21")
async def test_groups_are_charged_and_told_with_what_the_cycle_gave_them(store):
    """IsAccountingGroup ads with quotas, demand and use; their usage survives a restart."""
    accountant = books(store, groups=PHYSICS)
    await accountant.load()
    use = {"group_physics.hep.higgs@p": (8.0, 2), "group_physics.einstein@p": (2.0, 2), "alice@p": (1.0, 1)}
    accountant.charge(use, T0)
    in_use = {"group_physics.hep": 8.0, "group_physics": 2.0, "<none>": 1.0}
    plans = negotiate_groups(
        accountant.records.tree,
        PHYSICS,
        100.0,
        {"group_physics.hep": 60.0},
        lambda group: in_use[group],
        lambda turn: 0.0,
    )
    accountant.record_cycle(plans, {"alice@p": Share(fraction=0.25, limit=24.0, given=3.0)}, 100.0)
    await accountant.commit(0)
    later = books(store, groups=PHYSICS)
    await later.load()
    later.record_cycle(plans, {}, 100.0)
    for told in (ads_of(accountant, T0 + DAY), ads_of(later, T0 + DAY)):
        assert list(told)[:3] == ["<none>", "group_physics", "group_physics.hep"]
        hep, physics = told["group_physics.hep"], told["group_physics"]
        shown = {
            name: hep.eval(name)
            for name in ("ConfigQuota", "EffectiveQuota", "SubtreeQuota", "Requested", "SurplusPolicy", "ResourcesUsed")
        }
        assert shown == {
            "ConfigQuota": 15.0,
            "EffectiveQuota": 15.0,
            "SubtreeQuota": 15.0,
            "Requested": 60.0,
            "SurplusPolicy": "no",
            "ResourcesUsed": 2,
        }
        assert hep.eval("IsAccountingGroup") is True
        assert hep.eval("AccountingGroup") == "group_physics"
        assert hep.eval("NegotiatorName") == "n"
        assert hep.eval("WeightedAccumulatedUsage") == 8 * DAY
        assert physics.eval("WeightedAccumulatedUsage") == 2 * DAY  # of its own submitters
        assert physics.eval("Priority") / physics.eval("PriorityFactor") == pytest.approx(5.25)  # 10 of the subtree
        assert told["<none>"].eval("ResourcesUsed") == 1
        assert told["group_physics.hep.higgs@p"].eval("AccountingGroup") == "group_physics.hep"
        assert told["group_physics.hep.higgs@p"].eval("IsAccountingGroup") is False
    alice = ads_of(accountant, T0)["alice@p"]
    assert (alice.eval("SubmitterShare"), alice.eval("SubmitterLimit")) == (0.25, 25.0)
    assert ads_of(later, T0)["alice@p"].eval("SubmitterShare") == 0.0


def test_use_follows_a_change_of_the_groups():
    accountant = books()
    accountant.charge({"group_physics.hep.a@p": (2.0, 2)}, T0)
    accountant.configure(Factors(), DAY, GroupTree.of(PHYSICS), T0 + 10)
    told = ads_of(accountant, T0 + 20)
    assert told["<none>"].eval("AccumulatedUsage") == 20.0
    assert told["group_physics.hep"].eval("AccumulatedUsage") == 20.0
    assert told["group_physics.hep"].eval("ResourcesUsed") == 2
    accountant.configure(Factors(), DAY, GroupTree.of(GroupConfig()), T0 + 30)
    accountant.charge({}, T0 + 40)
    accountant.configure(Factors(), DAY, GroupTree.of(PHYSICS), T0 + 50)
    told = ads_of(accountant, T0 + 50)
    assert told["<none>"].eval("AccumulatedUsage") == 40.0
    assert told["group_physics.hep"].eval("AccumulatedUsage") == 40.0
    assert told["group_physics.hep"].eval("ResourcesUsed") == 0


# --- telling


def test_pages_have_everybody_once_groups_first():
    accountant = books(groups=PHYSICS)
    for number in range(2500):
        accountant.charge({f"user{number:04}@p": (1.0, 1)}, T0 + number)
    found, after, pages = [], "", 0
    while True:
        ads, after = accountant.page(T0 + 2500, after=after, most=10 * PAGE_SIZE)
        found += [ad.eval("Name") for ad in ads]
        pages += 1
        if pages == 1:  # names that come meanwhile disturb nobody
            accountant.charge({"alice@p": (1.0, 1)}, T0 + 2500)
        if not after:
            break
    assert pages == 3
    assert found == ["<none>", "group_physics", "group_physics.hep", *(f"user{n:04}@p" for n in range(2500))]
    ads, after = accountant.page(T0 + 2500, most=2, active_since=T0 + 2400)
    names = [ad.eval("Name") for ad in ads]
    while after:
        ads, after = accountant.page(T0 + 2500, after=after, most=2, active_since=T0 + 2400)
        names += [ad.eval("Name") for ad in ads]
    assert names[3:] == ["alice@p", *(f"user{n:04}@p" for n in range(2399, 2500))]
    ads, _ = accountant.page(T0 + 2500, only=["user0001", "user0002@p", "user0003@q", "group_physics"])
    assert [ad.eval("Name") for ad in ads] == ["group_physics", "user0001@p", "user0002@p"]


@spec("ACC-21")
async def test_the_collector_is_told_what_changed_and_no_flood(store):
    """Changes at once, the rest now and then, a few hundred at a time; names that are gone are taken back."""
    accountant = books(store)
    await accountant.load()
    everybody = {f"user{n}@p": (1.0, 1) for n in range(AT_ONCE + 50)}
    accountant.charge(everybody, T0)
    first, gone = accountant.ads_to_publish(T0)
    assert (len(first), gone) == (AT_ONCE, set())
    second, _ = accountant.ads_to_publish(T0 + 5)
    assert len({**first, **second}) == AT_ONCE + 50 + 1  # the root group too
    assert accountant.ads_to_publish(T0 + 10) == ({}, set())
    accountant.charge({**everybody, "user3@p": (2.0, 2)}, T0 + 11)
    changed, _ = accountant.ads_to_publish(T0 + 15)
    assert {name: ad.eval("ResourcesUsed") for name, ad in changed.items()} == {
        "user3@p": 2,
        "<none>": AT_ONCE + 51,
    }
    accountant.charge({}, T0 + 20)
    while accountant.ads_to_publish(T0 + 20)[0]:
        pass
    assert not accountant.ads_to_publish(T0 + 20 + SETTLE_S)[0]  # who uses nothing any more only decays
    again, _ = accountant.ads_to_publish(T0 + 20 + 300)
    assert len(again) == AT_ONCE
    accountant.change("user9@p", "delete", None, T0 + 330)
    assert accountant.ads_to_publish(T0 + 331)[1] == {"user9@p"}
    await accountant.load()  # nothing was written: these accounting records are empty
    told, gone = accountant.ads_to_publish(T0 + 340)
    assert set(told) == {"<none>"}
    assert len(gone) == AT_ONCE + 49


def test_the_collector_holds_those_who_were_active_last():
    accountant = books()
    for first in range(0, MAX_PUBLISHED + 50, 50):  # each charge looks at all submitters
        accountant.charge({f"user{number}@p": (1.0, 1) for number in range(first, first + 50)}, T0 + first)
    held: set[str] = set()
    for step in range(60):
        told, gone = accountant.ads_to_publish(T0 + MAX_PUBLISHED + 50 + step)
        held = (held | set(told)) - gone
    assert len(held) <= MAX_PUBLISHED
    assert {f"user{MAX_PUBLISHED + 49}@p", f"user{MAX_PUBLISHED}@p"} <= held
    assert "user0@p" not in held


# --- records of another pool

IMPORTED = {
    "alice@p": ImportedRecord(40.0, 7.0, 100.0, 250.0, T0 - DAY, T0 - HOUR, 1.0, 9.0),
    "group_physics.bob@p": ImportedRecord(priority=3.0),
    "nobody@p": ImportedRecord(),
    "group_physics": ImportedRecord(20.0, 5.0, 10.0, 20.0, T0 - DAY, T0 - HOUR),
    "group_gone": ImportedRecord(20.0),
}


@spec("ACC-23")
async def test_records_of_another_pool_are_taken_in_once(store):
    accountant = books(store, groups=PHYSICS)
    await accountant.load(1)
    planned = accountant.import_plan(IMPORTED, T0, replacing=False)
    assert accountant.records.submitters == {}
    assert accountant.records.groups == {}
    done = accountant.import_records(IMPORTED, T0 - DAY, T0, replacing=False)
    assert done == planned
    assert done.taken == ("alice@p", "group_physics.bob@p", "group_physics")
    assert done.usual == ("nobody@p",)
    assert list(done.left) == ["group_gone"]
    await accountant.commit(1)
    again = books(store, groups=PHYSICS)
    await again.load(1)
    alice = again.record("alice@p", T0)
    assert alice.priority == pytest.approx(20.0)  # a half life later
    assert (alice.factor, alice.usage, alice.weighted_usage) == (7.0, 100.0, 250.0)
    assert (alice.begin, alice.last, alice.floor, alice.ceiling) == (T0 - DAY, T0 - HOUR, 1.0, 9.0)
    assert again.record("group_physics.bob@p", T0).factor == Factors().default
    assert again.records.groups["group_physics"].priority == pytest.approx(10.0)
    assert again.records.groups["group_physics"].weighted_usage == 20.0
    other = {name: replace(record, priority=90.0) for name, record in IMPORTED.items()}
    second = again.import_records(other, T0, T0 + 1, replacing=False)
    assert second.known == ("alice@p", "group_physics.bob@p", "group_physics")
    assert again.record("alice@p", T0 + 1).priority < 21.0
    again.import_records(other, T0 + 1, T0 + 1, replacing=True)
    assert again.record("alice@p", T0 + 1).priority == 90.0


@spec("ACC-23")
def test_what_is_in_use_here_goes_on_to_be_charged():
    accountant = books(groups=PHYSICS)
    accountant.charge({"alice@p": (2.0, 1)}, T0)
    accountant.import_records(IMPORTED, T0, T0, replacing=True)
    accountant.charge({"alice@p": (2.0, 1)}, T0 + 10)
    alice = accountant.record("alice@p", T0 + 10)
    assert (alice.weighted_usage, alice.slots_in_use, alice.last) == (270.0, 1, T0 + 10)


@spec("ACC-23")
@pytest.mark.parametrize(
    "wrong",
    [
        {"a\0b@p": ImportedRecord()},
        {"x" * 601 + "@p": ImportedRecord()},
        {"b@p": ImportedRecord(priority=0.1)},
        {"b@p": ImportedRecord(priority=float("nan"))},
        {"b@p": ImportedRecord(usage=-1.0)},
        {"b@p": ImportedRecord(weighted_usage=float("inf"))},
        {"b@p": ImportedRecord(factor=0.5)},
        {"b@p": ImportedRecord(last=1e300)},
    ],
)
def test_one_wrong_record_keeps_all_out(wrong):
    accountant = books(groups=PHYSICS)
    with pytest.raises(ValueError):
        accountant.import_records({**IMPORTED, **wrong}, T0, T0, replacing=False)
    assert accountant.records.submitters == {}
    assert accountant.records.groups == {}
