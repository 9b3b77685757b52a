"""What the collector refuses, what becomes absent, and whom it asks."""

import itertools

import pytest

from services.collector.core.acceptance import AbsentPolicy, absent_ad, check, returned
from services.collector.core.resync import FIRST_WAIT_S, GRACE_S, MOST, Resync
from shared.classad import parse_expr
from shared.daemon.ad_rows import pack, unpack
from shared.daemon.ad_table import AdTable
from shared.messages.ads import AdHeartbeat, AdInvalidate, AdUpdate
from tests.spec import spec


def update(**changes):
    fields = {
        "my_type": "Machine",
        "daemon": "startd@a",
        "start_time": 1,
        "sequence": 1,
        "names": ["s"],
        "ads": [b"\x80"],
    }
    return AdUpdate(**(fields | changes))


def test_proper_message_is_taken():
    assert check(update()) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"my_type": ""},
        {"my_type": "Ma/chine"},
        {"my_type": "M" * 100},
        {"daemon": "nobody"},
        {"daemon": "startd@" + "x" * 2000},
        {"names": [""]},
        {"names": ["n" * 2000]},
    ],
)
def test_improper_message_is_refused_with_a_reason(changes):
    assert check(update(**changes))


def test_invalidation_of_everything_names_nothing():
    assert check(AdInvalidate(my_type="Machine", daemon="startd@a", start_time=1, sequence=1)) == ""


POLICY = AbsentPolicy(parse_expr("Memory > 5"), keep_s=100.0)


@spec("ABS-01", "ABS-04")
def test_expiring_machine_ad_that_fits_becomes_absent():
    ad = absent_ad(POLICY, "Machine", "s", "startd@a", pack({"Memory": 10}), 50.0, 1000.0)
    assert unpack(ad.packed) == {"Memory": 10, "Absent": True}
    assert (ad.expires, ad.last_heard) == (1100.0, 50.0)


@spec("ABS-04")
def test_absent_ad_may_be_kept_for_ever():
    assert absent_ad(AbsentPolicy(parse_expr("true"), keep_s=0), "Machine", "s", "d", pack({}), 1, 2).expires == 0


@pytest.mark.parametrize(
    ("policy", "my_type", "packed"),
    [
        (POLICY, "Machine", pack({"Memory": 1})),
        (POLICY, "Machine", pack({})),
        (POLICY, "Scheduler", pack({"Memory": 10})),
        (POLICY, "Machine", b"\xde\x00"),
        (AbsentPolicy(), "Machine", pack({"Memory": 10})),
    ],
)
def test_other_ads_are_not_remembered(policy, my_type, packed):
    assert absent_ad(policy, my_type, "s", "startd@a", packed, 1.0, 2.0) is None


@spec("ABS-03")
def test_update_replaces_the_absent_ad():
    gone = {"s": absent_ad(POLICY, "Machine", "s", "startd@a", pack({"Memory": 10}), 1.0, 2.0)}
    assert returned(update(), gone) == ["s"]
    assert returned(update(names=["t"]), gone) == []
    assert returned(update(my_type="Scheduler"), gone) == []
    assert returned(AdHeartbeat(my_type="Machine", daemon="d@x", start_time=1, base=1, sequence=2), gone) == []


KEY = ("Machine", "startd@a")


def test_late_message_is_waited_for_before_asking():
    table, asking = AdTable(), Resync()
    asking.missed(KEY, 1, 5, 100.0)
    assert asking.due(table, 100.0) == []
    table.apply(update(sequence=5), 0)
    assert asking.due(table, 100.0 + GRACE_S) == []
    assert len(asking) == 0


def test_daemon_is_asked_again_ever_more_slowly_and_then_left_alone():
    table, asking = AdTable(), Resync()
    asking.missed(KEY, 1, 5, 0.0)
    asked, now = [], 0.0
    while len(asking):
        now += 0.1
        if asking.due(table, now):
            asked.append(now)
    waits = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert len(asked) == MOST
    assert waits[0] == pytest.approx(FIRST_WAIT_S, abs=0.2)
    assert all(later > earlier - 0.05 for earlier, later in itertools.pairwise(waits))
    asking.missed(KEY, 1, 6, now)
    assert asking.due(table, now + 1) == [KEY]


def test_what_was_missed_in_an_older_life_is_answered_by_a_newer():
    table, asking = AdTable(), Resync()
    asking.missed(KEY, 1, 500, 0.0)
    table.apply(update(start_time=2, sequence=1), 0)
    assert asking.due(table, 10.0) == []
    assert len(asking) == 0
