"""What is heard becomes what was said, whatever the broker does to the messages on the way."""

import random

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.compression import compress
from shared.daemon.ad_plan import Published, first_sequence, plan
from shared.daemon.ad_rows import MOST_AD_BYTES, BadAd, StoredAd, difference, pack, unpack
from shared.daemon.ad_table import AdTable, Outcome, inbox_of
from shared.messages.ads import MOST_UPDATES, AdDelta, AdHeartbeat, AdInvalidate, AdUpdate
from tests.spec import spec


def said(ads=None, *, last=None, start=1000):
    last = last or Published("Machine", "startd@n1", start, 0)
    return plan(last, {name: pack(attributes) for name, attributes in (ads or {}).items()})


def heard(table, my_type="Machine"):
    return {name: row.attributes() for _, name, row in table.rows(my_type)}


WIDE = {f"A{i}": i for i in range(40)}


def test_first_is_whole_then_delta_then_heartbeat():
    last, first = said({"slot1": WIDE | {"State": "Idle"}})
    last, second = said({"slot1": WIDE | {"State": "Busy"}}, last=last)
    last, third = said({"slot1": WIDE | {"State": "Busy"}}, last=last)
    assert [type(m) for m in (first, second, third)] == [AdUpdate, AdDelta, AdHeartbeat]
    assert unpack(second.changes[0]) == {"State": "Busy"}
    assert third.base == second.sequence == second.base + 1
    assert [m.sequence for m in (first, second, third)] == [1, 2, 3]


def test_large_change_travels_whole():
    last, _ = said({"slot1": {"A": 1, "B": 2}})
    _, message = said({"slot1": {"A": 5, "B": 6}}, last=last)
    assert isinstance(message, AdUpdate)


def test_value_that_changes_only_its_type_is_a_change():
    patch = difference(pack({"A": 1, "B": True, "C": 0.0}), pack({"A": 1.0, "B": 1, "C": -0.0}))
    assert set(patch.changed) == {"A", "B", "C"}


def test_new_spelling_of_a_name_leaves_one_attribute():
    before, after = pack({"memory": 4, "X": 1}), pack({"Memory": 5, "X": 1})
    row = StoredAd(before)
    row.apply(difference(before, after))
    assert row.attributes() == {"Memory": 5, "X": 1}


def test_expressions_survive_patching():
    expression = msgpack.ExtType(1, b"TARGET.x > 3")
    before, after = pack({"R": expression, "S": 1}), pack({"R": expression, "S": 2})
    row = StoredAd(before)
    row.apply(difference(before, after))
    assert unpack(row.packed()) == {"R": expression, "S": 2}


def test_duplicate_and_older_are_ignored():
    table = AdTable()
    last, first = said({"s": WIDE})
    _, second = said({"s": WIDE | {"A1": 99}}, last=last)
    assert table.apply(first, 0).outcome is Outcome.APPLIED
    assert table.apply(second, 0).outcome is Outcome.APPLIED
    assert table.apply(second, 1).outcome is Outcome.OLDER
    assert table.apply(first, 1).outcome is Outcome.OLDER
    assert heard(table)["s"]["A1"] == 99


def test_delta_without_its_base_asks():
    table = AdTable()
    last, _ = said({"s": WIDE})
    last, second = said({"s": WIDE | {"A1": 99}}, last=last)
    change = table.apply(second, 0)
    assert change.ask
    assert change.outcome is Outcome.MISSING
    assert len(table) == 0


def test_heartbeat_after_a_lost_delta_asks():
    table = AdTable()
    last, first = said({"s": WIDE})
    table.apply(first, 0)
    last, _lost = said({"s": WIDE | {"A1": 99}}, last=last)
    _, beat = said({"s": WIDE | {"A1": 99}}, last=last)
    assert table.apply(beat, 0).ask


def test_lost_heartbeat_costs_nothing():
    table = AdTable()
    last, first = said({"s": WIDE})
    table.apply(first, 0)
    last, _lost = said({"s": WIDE}, last=last)
    _, delta = said({"s": WIDE | {"A1": 99}}, last=last)
    assert table.apply(delta, 0).outcome is Outcome.APPLIED
    assert table.group("Machine", "startd@n1").lost == 1


def test_daemon_that_skips_all_numbers_in_each_of_its_lives_does_not_overflow_what_was_lost():
    table = AdTable()
    for life in range(1, 4):
        for sequence in (1, MOST_UPDATES):
            last = Published("Machine", "startd@n1", life, sequence - 1)
            table.apply(plan(last, {"s": pack({"A": sequence})})[1], 0)
    group = table.group("Machine", "startd@n1")
    assert (group.lost, group.received) == (MOST_UPDATES, 6)


@pytest.mark.parametrize(
    "wrong", [{"sequence": -1}, {"sequence": 2**63 - 1}, {"start_time": -1}, {"start_time": 2**63}]
)
def test_number_of_a_message_that_no_daemon_reaches_is_refused(wrong):
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        AdHeartbeat(**{"my_type": "Machine", "daemon": "startd@n1", "start_time": 1, "base": 1, "sequence": 2} | wrong)


def test_new_life_of_a_daemon_replaces_its_ads():
    table = AdTable()
    table.apply(said({"s1": WIDE, "s2": WIDE})[1], 0)
    change = table.apply(said({"s1": {"A": 1}}, start=2000)[1], 1)
    assert change.removed == ("s2",)
    assert heard(table) == {"s1": {"A": 1}}


def test_late_message_of_an_earlier_life_is_ignored():
    table = AdTable()
    table.apply(said({"s": {"A": 2}}, start=2000)[1], 0)
    assert table.apply(said({"s": {"A": 1}}, start=1000)[1], 1).outcome is Outcome.OLDER


def test_daemon_whose_clock_was_set_back_is_believed_after_a_while():
    table = AdTable()
    table.apply(said({"s": {"A": 1}}, start=2000)[1], 0)
    assert table.apply(said({"s": {"A": 2}}, start=1000)[1], 61).outcome is Outcome.APPLIED


def test_daemon_on_a_machine_whose_clock_was_set_back_is_believed_at_once():
    table = AdTable()
    table.apply(said({"s": {"A": 1}}, start=9000)[1], 9100)
    assert table.apply(said({"s": {"A": 2}}, start=5400)[1], 5500).outcome is Outcome.APPLIED
    assert table.apply(said({"s": {"A": 3}}, start=5300)[1], 5501).outcome is Outcome.OLDER


def test_second_life_within_one_second_counts_on_from_above():
    died, back = 1000.200, 1000.350
    table = AdTable()
    for number, now in enumerate((died, back)):
        last = Published("Machine", "startd@n1", int(now), first_sequence(now))
        _, message = plan(last, {"s": pack({"Life": number})})
        assert table.apply(message, now).outcome is Outcome.APPLIED
    assert heard(table)["s"] == {"Life": 1}


def test_invalidated_ads_do_not_come_back_late():
    table = AdTable()
    last, first = said({"s": WIDE})
    table.apply(first, 0)
    _, late = said({"s": WIDE | {"A1": 9}}, last=last)
    gone = AdInvalidate(my_type="Machine", daemon="startd@n1", start_time=1000, sequence=3)
    assert table.apply(gone, 0).removed == ("s",)
    assert table.apply(late, 1).outcome is Outcome.OLDER
    assert len(table) == 0


def test_invalidation_by_name_keeps_the_others():
    table = AdTable()
    table.apply(said({"s1": WIDE, "s2": WIDE})[1], 0)
    gone = AdInvalidate(my_type="Machine", daemon="startd@n1", start_time=1000, sequence=2, names=["s1", "nope"])
    assert table.apply(gone, 0).removed == ("s1",)
    assert set(heard(table)) == {"s2"}


def test_two_schedds_may_have_a_submitter_of_one_name():
    table = AdTable()
    for number, daemon in enumerate(("schedd@a", "schedd@b")):
        table.apply(
            AdUpdate(
                my_type="Submitter",
                daemon=daemon,
                start_time=1,
                sequence=1,
                names=["u@p"],
                ads=[pack({"N": number})],
            ),
            0,
        )
    assert sorted(row.attributes()["N"] for _, _, row in table.rows("Submitter")) == [0, 1]


def test_long_list_may_come_in_parts():
    def part(sequence, name, complete):
        return AdUpdate(
            my_type="Machine",
            daemon="d@x",
            start_time=1,
            sequence=sequence,
            names=[name],
            ads=[pack({})],
            complete=complete,
        )

    table = AdTable()
    assert table.apply(part(2, "b", False), 0).ask
    table.apply(part(1, "a", True), 0)
    table.apply(part(2, "b", False), 0)
    assert set(heard(table)) == {"a", "b"}
    assert table.apply(part(4, "d", False), 0).ask


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_ads_are_no_older_for_a_clock_that_was_set(seconds):
    table = AdTable(900)
    table.apply(said({"slot1": {"A": 1}})[1], 1000.0)
    assert table.expired(1100.0) == []
    table.clock_set(seconds)
    assert table.expired(1899.0 + seconds) == []
    assert len(table.expired(1900.0 + seconds)) == 1


def test_silent_ads_expire_after_their_lifetime():
    table = AdTable(lifetime_s=900)
    table.apply(said({"plain": {"A": 1}, "brief": {"ClassAdLifetime": 60}, "long": {"classadlifetime": 5000}})[1], 100)
    assert table.expired(159) == []
    ((group, names),) = table.expired(160)
    assert names == ["brief"]
    table.remove("Machine", "startd@n1", names)
    assert table.expired(999) == []
    ((group, names),) = table.expired(1000)
    assert names == ["plain"]
    table.remove(*group.key, names)
    ((group, names),) = table.expired(5100)
    table.remove(*group.key, names)
    assert list(table.groups()) == []
    assert table.expired(1e9) == []


@spec("W-08")
def test_heartbeats_keep_ads_alive():
    table = AdTable(lifetime_s=900)
    last, message = said({"s": WIDE})
    table.apply(message, 0)
    for now in range(300, 3000, 300):
        last, message = said({"s": WIDE}, last=last)
        table.apply(message, now)
        assert table.expired(now) == []
    assert table.expired(2700 + 899) == []
    assert len(table.expired(2700 + 900)) == 1


def test_shorter_lifetime_in_a_delta_counts():
    table = AdTable(lifetime_s=900)
    last, message = said({"s": WIDE})
    table.apply(message, 0)
    _, message = said({"s": WIDE | {"ClassAdLifetime": 10}}, last=last)
    table.apply(message, 1)
    assert [names for _, names in table.expired(11)] == [["s"]]


def test_expired_ads_are_offered_until_taken():
    table = AdTable(lifetime_s=10)
    table.apply(said({"s": WIDE})[1], 0)
    assert len(table.expired(10)) == len(table.expired(11)) == 1


@pytest.mark.parametrize(
    "message",
    [
        AdUpdate(my_type="M", daemon="d@x", start_time=1, sequence=2, names=["a", "b"], ads=[b"\x80"]),
        AdDelta(
            my_type="M",
            daemon="d@x",
            start_time=1,
            base=1,
            sequence=2,
            names=["a"],
            changes=[],
            removed_attrs=[],
        ),
        AdDelta(
            my_type="M",
            daemon="d@x",
            start_time=1,
            base=1,
            sequence=2,
            names=["a"],
            changes=[b"\xc1"],
            removed_attrs=[[]],
        ),
    ],
)
def test_malformed_message_changes_nothing(message):
    table = AdTable()
    table.apply(AdUpdate(my_type="M", daemon="d@x", start_time=1, sequence=1, names=["a"], ads=[pack({"A": 1})]), 0)
    with pytest.raises(BadAd):
        table.apply(message, 5)
    assert heard(table, "M") == {"a": {"A": 1}}
    assert table.group("M", "d@x").sequence == 1


def test_ad_is_found_by_its_name():
    table = AdTable()
    last, message = said({"s1": WIDE, "s2": WIDE})
    table.apply(message, 0)
    last, message = said({"s1": WIDE, "s3": WIDE}, last=last)
    table.apply(message, 0)
    assert list(table.named("Machine", "s3")) == ["startd@n1"]
    assert table.named("Machine", "s2") == {}
    _, message = said({"s3": {"A": 1}}, start=2000)
    table.apply(message, 0)
    assert table.named("Machine", "s1") == {}
    assert table.named("Machine", "S3") == {"startd@n1": "s3"}
    table.remove("Machine", "startd@n1")
    assert table.named("Machine", "s3") == {}


def test_inbox_of_a_daemon():
    assert inbox_of("startd@node1.example.org") == "startd.node1.example.org"


values = st.one_of(st.integers(0, 3), st.booleans(), st.text(max_size=3), st.floats(0, 1))
ads = st.dictionaries(
    st.sampled_from(["s1", "s2", "s3"]), st.dictionaries(st.sampled_from("ABCDEFGH"), values), max_size=3
)


@settings(max_examples=150)
@given(states=st.lists(ads, min_size=1, max_size=12), seed=st.integers(0, 2**32))
def test_whatever_is_lost_doubled_or_late_both_ends_agree_in_the_end(states, seed):
    """The sender answers each question with everything; the last messages get through."""
    chance = random.Random(seed)
    table = AdTable()
    last = Published("Machine", "startd@n1", 1000, 0)
    under_way = []
    for state in states:
        last, message = plan(last, {n: pack(a) for n, a in state.items()})
        under_way += [message] * chance.choice([0, 1, 1, 1, 2])
        chance.shuffle(under_way)
        while under_way and chance.random() < 0.7:
            table.apply(under_way.pop(), 0)
    for message in under_way:
        table.apply(message, 0)
    last, beat = plan(last, last.ads)
    if table.apply(beat, 0).ask:
        _, whole = plan(Published("Machine", "startd@n1", 1000, last.sequence), last.ads)
        table.apply(whole, 0)
    assert heard(table) == {name: unpack(packed) for name, packed in last.ads.items()}


def test_an_ad_of_more_than_an_answer_can_hold_is_refused_also_where_it_grows():
    table = AdTable()
    last, whole = said({"slot1": WIDE, "slot2": WIDE})
    table.apply(whole, 0)
    with pytest.raises(BadAd, match=rf"'slot1' has \d+ bytes; at most {MOST_AD_BYTES} are taken"):
        table.apply(said({"slot1": {"A": "x" * MOST_AD_BYTES}, "slot2": WIDE}, last=last)[1], 0)
    grown = dict(WIDE)
    sequence = whole.sequence

    def change(attributes, removed=()):
        head = {"my_type": "Machine", "daemon": "startd@n1", "start_time": 1000, "base": sequence}
        changes = {"names": ["slot1"], "changes": [pack(attributes)], "removed_attrs": [list(removed)]}
        return AdDelta(**head, sequence=sequence + 1, **changes)

    for number in range(20):
        more = {f"Text{number}": "x" * 100_000}
        table.apply(change(more), 0)
        grown |= more
        sequence += 1
    with pytest.raises(BadAd, match=r"'slot1' has 2100\d+ bytes; at most"):
        table.apply(change({"Text20": "x" * 100_000}), 0)
    assert heard(table)["slot1"] == grown  # what was refused has changed nothing
    table.apply(change({"Text0": "now short"}, [f"Text{n}" for n in range(1, 10)]), 0)
    sequence += 1
    for _ in range(30):  # many changes of one attribute do not make it large
        table.apply(change({"Text0": "y" * 100_000}), 0)
        sequence += 1
    assert len(table.group("Machine", "startd@n1").rows["slot1"].packed()) < MOST_AD_BYTES


def test_an_ad_that_is_compressed_by_itself_is_refused():
    _, whole = said({"slot1": WIDE})
    with pytest.raises(BadAd, match="compressed by itself"):
        AdTable().apply(whole.model_copy(update={"ads": [compress(bytes(1 << 20))]}), 0)
