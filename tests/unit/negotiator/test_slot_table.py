"""Slots between cycles: what is offered, and what waits for a match to arrive."""

from __future__ import annotations

import random

import numpy as np
import pytest

from engine.match.cycle import negotiate
from engine.match.model import CycleConfig, Matched, Request
from engine.match.preemption import users_of
from engine.match.slot_arrays import frame_of
from engine.match.slot_table import SlotTable
from shared.classad import ClassAd, parse_expr
from shared.compression import AdCompressor, train_dictionary
from shared.daemon.ad_rows import Patch, difference

CONFIG = CycleConfig()
NAME = "slot1@ep"


def ad(cpus: int, claims: int | None) -> ClassAd:
    made = ClassAd({"Name": NAME, "PartitionableSlot": True, "State": "Unclaimed", "Cpus": cpus, "SlotWeight": cpus})
    made["Requirements"] = parse_expr("true")
    if claims is not None:
        made["RoostClaims"] = claims
    return made


def looked(cpus: int, look: int) -> ClassAd:
    made = ad(cpus, 10)
    made["RoostLook"] = look
    return made


def match(count: int) -> Matched:
    return Matched("alice@pool", Request("schedd.ap", 1, 5, ClassAd()), NAME, count, float(count))


def offered(table: SlotTable) -> bool:
    slots = table.snapshot(CONFIG, {}, {}).slots
    return bool(slots.matching.table.table.companions[slots.OFFERED].any())


def matched(count: int) -> SlotTable:
    table = SlotTable()
    assert table.put(NAME, ad(8, 10))
    table.matched(match(count), until=100.0)
    assert not offered(table)
    return table


def test_slot_whose_job_came_and_went_between_two_ads_is_offered_again() -> None:
    table = matched(1)
    assert table.put(NAME, ad(8, 11))
    assert offered(table)


def test_slot_waits_until_the_startd_was_asked_for_every_job_of_the_match() -> None:
    table = matched(3)
    assert not table.put(NAME, ad(6, 12))
    assert not offered(table)
    assert table.in_use(CONFIG)["alice@pool"] == (1.0, 1)
    assert table.put(NAME, ad(5, 13))
    assert offered(table)


def test_news_about_something_else_leave_the_match_on_its_way() -> None:
    table = matched(1)
    assert not table.put(NAME, ad(8, 10))
    assert not offered(table)


def test_startd_in_another_life_or_without_the_count_ends_the_waiting() -> None:
    for claims in (0, None):
        table = matched(2)
        assert table.put(NAME, ad(8, claims))
        assert offered(table)


def test_full_slot_asks_for_no_cycle_when_its_match_has_arrived() -> None:
    table = matched(1)
    assert not table.put(NAME, ad(0, 11))


def test_jobs_that_the_schedd_no_longer_has_do_not_hold_the_slot() -> None:
    table = matched(3)
    assert not table.unmatched(match(3), 1)
    assert table.in_use(CONFIG)["alice@pool"] == (2.0, 2)
    assert table.put(NAME, ad(6, 12))
    assert offered(table)
    table.matched(match(3), until=100.0)
    assert table.unmatched(match(3))
    assert offered(table)


def test_match_that_never_arrives_ends_with_its_time() -> None:
    table = matched(1)
    assert table.next_end() == 100.0
    assert not table.expire(99.0)
    assert table.expire(100.0)
    assert offered(table)
    assert table.next_end() is None


def test_a_slot_that_was_drained_or_its_owners_and_is_free_again_asks_for_a_cycle() -> None:
    """Also a partitionable one, whose room has not changed."""
    for state in ("Drained", "Owner"):
        for partitionable in (True, False):
            table, away = SlotTable(), ad(8, 10)
            away["State"], away["PartitionableSlot"] = state, partitionable
            there = ad(8, 10)
            there["PartitionableSlot"] = partitionable
            assert table.put(NAME, away)  # it is new
            assert not table.put(NAME, away)
            assert table.put(NAME, there)
            assert not table.put(NAME, there)
            assert not table.put(NAME, away)


def test_a_slot_that_asks_to_be_looked_at_again_is_unless_it_is_taken() -> None:
    table = SlotTable()
    assert table.put(NAME, looked(8, 1))
    assert not table.put(NAME, looked(8, 1))
    assert table.put(NAME, looked(8, 2))
    assert not table.put(NAME, looked(0, 3))
    assert table.put(NAME, looked(8, 3))


def plain(**more: object) -> ClassAd:
    """As an execution point says it: SlotWeight is the name of another attribute, START an expression."""
    made = ClassAd(
        {"Name": NAME, "State": "Unclaimed", "Cpus": 2, "Memory": 512, "MachineResources": "Cpus Memory gpus"}
    )
    made["SlotWeight"], made["Start"] = parse_expr("Cpus"), parse_expr("LoadAvg < 0.5")
    made["Requirements"] = parse_expr("START")
    made.update(more)
    return made


@pytest.mark.parametrize(
    ("changed", "enough"),
    [
        ({"LoadAvg": 0.3}, True),
        ({"Arch": "aarch64", "HasTea": True}, True),
        ({"HasTea": None}, True),  # gone, as far as it was there
        ({"State": "Claimed", "RemoteUser": "eve@pool"}, False),
        ({"Cpus": 1}, False),  # a weight
        ({"gpus": 1}, False),  # a resource
        ({"LoadAvg": 0.3, "RoostClaims": 4}, False),
        ({"Start": parse_expr("LoadAvg < 0.4")}, False),
    ],
)
def test_what_changed_in_an_ad_is_enough_where_it_decides_nothing_by_itself(
    changed: dict[str, object], enough: bool
) -> None:
    table, before, after = SlotTable(CONFIG), plain(HasTea=False, LoadAvg=0.9), plain(HasTea=False, LoadAvg=0.9)
    for name, value in changed.items():
        if value is None:
            del after[name]
        else:
            after[name] = value
    table.put(NAME, after)  # names that nobody has written before have ads looked at whole
    table.put(NAME, before)
    for flushed in (False, True):
        if flushed:
            table.flush()
        assert table.patch(NAME, difference(before.pack(), after.pack())) is enough
        assert ClassAd.unpack(table.packed(NAME)) == (after if enough else before)
    table.flush()
    columns = {name: column.cell(0, table.table.codes) for name, column in table.table.columns.items()}
    expected = after if enough else before
    assert all(cell == expected.find(name) for name, cell in columns.items() if name in ("loadavg", "arch", "state"))


def test_what_changed_is_not_enough_for_a_slot_with_a_match_on_its_way_or_none_that_is_known() -> None:
    before = plain(LoadAvg=0.9)
    table, patch = SlotTable(CONFIG), difference(before.pack(), plain(LoadAvg=0.1).pack())
    assert not table.patch(NAME, patch)
    table.put(NAME, before)
    assert table.patch(NAME, patch)
    table.matched(match(1), until=100.0)
    assert not table.patch(NAME, patch)


def test_an_ad_of_which_an_expression_decides_has_to_be_looked_at_whole() -> None:
    table = SlotTable(CONFIG)
    table.put(NAME, plain(Memory=parse_expr("1024 * Detected")))
    assert not table.patch(NAME, difference(plain().pack(), plain(LoadAvg=0.1).pack()))


def test_ads_are_the_same_when_they_were_compressed() -> None:
    ads = {f"slot1@ep{number}": plain(Name=f"slot1@ep{number}", Number=number) for number in range(200)}
    dictionary = train_dictionary([each.pack() for each in ads.values()], 70000)
    assert dictionary is not None
    compressor = AdCompressor()
    table = SlotTable(CONFIG, compressor)
    for name, each in ads.items():
        table.put(name, each)
    assert table.compact(10) == []  # with what?
    compressor.add(70000, dictionary, 1.0)
    assert len(table.compact(150)) == 150
    table.flush()
    assert len(table.compact(150)) == 50
    assert table.compact(150) == []
    assert {name: table.packed(name) for name in ads} == {name: each.pack() for name, each in ads.items()}
    table.table.want(["number"])
    numbers = table.table.columns["number"].number
    assert [f"slot1@ep{number:.0f}" for number in numbers] == list(table.table.keys)
    table.put("slot1@ep7", ads["slot1@ep7"])
    assert table.compact(150) == ["slot1@ep7"]


def rows(table: SlotTable) -> dict[str, tuple[object, ...]]:
    """By slot: what its row holds, and its place in the order of names."""
    numbers = [np.nan_to_num(table.table.columns[name].number, nan=-1.0) for name in ("cpus", "loadavg")]
    ranks = table.table.columns["rank"].tag
    held = zip(*numbers, ranks, table.places(), strict=True)
    return {name: tuple(cells) for name, cells in zip(table.table.keys, held, strict=True)}


@pytest.mark.parametrize("seed", range(5))
def test_what_comes_while_a_thread_is_at_work_on_the_table_is_taken_in_after_it(seed: int) -> None:
    """And in the same way where that work failed."""
    dice, late, at_once = random.Random(seed), SlotTable(), SlotTable()
    taken = None
    for _ in range(200):
        name, kind = f"slot{dice.randrange(40)}@ep", dice.random()
        one = ad(dice.randrange(1, 100), 10)
        one["Name"] = name
        one["Requirements"] = parse_expr("LoadAvg =!= 0.7")
        if dice.random() < 0.3:
            one["Rank"] = parse_expr(f"TARGET.Wish{dice.randrange(5)} + {dice.randrange(9)}")
        load = Patch.of({"LoadAvg": dice.random()}) if dice.random() < 0.7 else Patch.of({}, ("LoadAvg",))
        for table in (late, at_once):
            if kind < 0.5:
                table.put(name, one)
            elif kind < 0.8:
                table.patch(name, load)
            else:
                table.drop(name)
        if taken is None and dice.random() < 0.2:
            taken = late.take()
        elif taken is not None and dice.random() < 0.2:
            if dice.random() < 0.5:
                late.carry_out(taken)
                late.places()
            else:
                late.put_back(taken)
            taken = None
        if dice.random() < 0.2:
            at_once.flush()
    if taken is not None:
        late.carry_out(taken)
    late.flush()
    at_once.flush()
    assert rows(late) == rows(at_once)
    assert sorted(late.table.keys) == sorted(late.ads)


def test_a_slot_that_went_while_a_thread_was_at_work_is_not_offered() -> None:
    table = SlotTable()
    table.put(NAME, ad(8, 10))
    table.flush()
    table.drop(NAME)
    slots = table.snapshot(CONFIG, {}, {}, flush=False).slots
    assert slots.matching.table.table.companions[slots.OFFERED].tolist() == [False]


def test_a_slot_that_comes_with_an_expression_for_its_user_breaks_no_cycle() -> None:
    table = SlotTable()
    table.put(NAME, ad(8, 10))
    assert negotiate(table.snapshot(CONFIG, {}, {}), CONFIG, 1000.0).matches == ()
    odd = ad(8, 10)
    odd["Name"], odd["State"] = "slot1@odd", "Claimed"
    odd["RemoteUser"] = parse_expr('strcat("bob", "@pool")')
    table.put("slot1@odd", odd)
    snapshot = table.snapshot(CONFIG, {}, {})
    negotiate(snapshot, CONFIG, 1001.0)
    assert users_of(frame_of(snapshot.slots)).names == ["bob@pool"]
