"""Leases of claims."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.schedd.core.claim import given_up_at
from services.startd.core.slots.leases import Leases, first_of, lease_of, lease_s, left_of, silence
from services.startd.forkserver.server import AFTER_LEASE_S
from shared.classad import ClassAd
from tests.spec import spec


def test_lease_is_the_jobs_own_or_six_missed_alives():
    assert lease_s(2400, 300, 6) == 2400
    assert lease_s(0, 300, 6) == 1800


def test_a_renewed_lease_ends_later():
    leases = Leases()
    leases.grant("a", 10, 0)
    assert leases.renew(["a", "b"], 8) == ["b"]
    assert leases.expired(17.9) == {}
    assert leases.expired(18) == {"a": 10}
    assert leases.expired(100) == {}
    assert "a" not in leases


@given(
    st.lists(
        st.tuples(st.sampled_from("grd"), st.sampled_from("abc"), st.floats(0, 5), st.floats(0.5, 9)),
        max_size=60,
    )
)
def test_a_claim_expires_exactly_when_nobody_spoke_for_its_lease(steps):
    leases, ends, now = Leases(), {}, 0.0
    for what, claim, later, lease in steps:
        now += later
        over = {c: lease for c, (end, lease) in ends.items() if end <= now}
        assert leases.expired(now) == over
        for c in over:
            del ends[c]
        if what == "g":
            leases.grant(claim, lease, now)
            ends[claim] = (now + lease, lease)
        elif what == "r":
            assert leases.renew([claim], now) == ([] if claim in ends else [claim])
            if claim in ends:
                ends[claim] = (now + ends[claim][1], ends[claim][1])
        else:
            leases.drop(claim)
            ends.pop(claim, None)
        assert all((c in leases) == (c in ends) for c in "abc")
        if ends:
            assert leases.next_end() <= min(end for end, _ in ends.values())


@spec("LEA-09")
def test_a_claim_that_its_schedd_may_not_know_of_has_a_short_lease_until_it_is_renewed():
    leases = Leases()
    leases.grant("a", 2400, 0, first=40)
    assert leases.left_s("a", 0) == 40
    leases.asked_again("a", 30, 40)  # the answer was lost
    assert leases.left_s("a", 30) == 40
    leases.asked_again("b", 30, 40)
    assert leases.left_s("b", 30) is None
    leases.renew(["a"], 60)
    assert leases.left_s("a", 60) == 2400
    leases.asked_again("a", 70, 40)  # a request that was late, of a claim that is known by now
    assert leases.left_s("a", 70) == 2390
    leases.grant("c", 20, 0, first=40)
    assert leases.left_s("c", 0) == 20


@spec("LEA-02")
def test_a_lease_that_has_passed_is_not_renewed_though_nobody_looked():
    leases = Leases()
    leases.grant("a", 10, 0)
    assert leases.renew(["a"], 10) == ["a"]
    assert leases.expired(10) == {"a": 10}


@spec("LEA-02")
@pytest.mark.parametrize(
    ("kept", "left"),
    [
        ({"until": 130.0, "boot": "this"}, 30.0),
        ({"until": 70.0, "boot": "this"}, -30.0),
        ({"until": 130.0, "boot": "another"}, None),
        ({"until": "soon", "boot": "this"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_what_a_journal_says_of_a_lease(kept, left):
    assert left_of(kept, "this", 100.0) == left


@spec("LEA-02")
def test_a_lease_of_an_earlier_life_goes_on():
    leases = Leases()
    leases.restore("a", 2400, 130)
    leases.restore("b", 2400, 90)
    assert leases.expired(100) == {"b": 2400}
    assert leases.left_s("a", 100) == 30
    leases.renew(["a"], 100)
    assert leases.left_s("a", 100) == 2400


def test_a_second_is_a_lease_and_an_interval_of_none_counts_as_one():
    assert lease_s(1, 300, 6) == 1
    assert lease_s(0, 0, 6) == 6
    assert lease_of(ClassAd({"JobLeaseDuration": 1}), 300, 6) == 1


@spec("LEA-09")
@pytest.mark.parametrize(
    ("first", "lasted"),
    [(0.0, 2400), (40.0, 40), (9000.0, 2400)],
    ids=["renewed, or of a release that did not say", "in its first", "longer than the whole one"],
)
def test_a_lease_that_ends_in_a_further_life_tells_how_long_it_was(first, lasted):
    leases = Leases()
    leases.restore("a", 2400, 90, first)
    assert leases.expired(100) == {"a": lasted}


def test_how_long_a_first_lease_is():
    leases = Leases()
    leases.grant("a", 2400, 0, first=40)
    assert leases.first_s("a") == 40
    leases.asked_again("a", 30, 0)
    assert leases.first_s("a") == 2400
    leases.asked_again("a", 40, 50)
    assert leases.first_s("a") == 50
    leases.renew(["a"], 60)
    assert leases.first_s("a") == 0
    leases.asked_again("a", 70, 0)
    assert leases.first_s("a") == 0
    assert leases.first_s("b") == 0


@pytest.mark.parametrize(
    ("kept", "first"),
    [({"first": 40.0}, 40.0), ({"first": 40}, 40), ({"first": "forty"}, 0.0), ({}, 0.0), (None, 0.0)],
)
def test_what_a_journal_says_of_a_first_lease(kept, first):
    assert first_of(kept) == first


def test_why_a_claim_is_over_is_told_with_the_lease_that_it_had():
    assert silence(2400, 2400) == "the schedd was silent for the lease of 2400 s"
    assert silence(40, 2400) == (
        "the schedd was silent for 40 s, the lease until it has shown that it knows of the claim, of 2400 s from then"
        " on"
    )


@spec("LEA-09")
def test_only_a_first_lease_grows_when_the_claim_is_asked_for_again():
    leases = Leases()
    leases.grant("a", 50, 0, first=40)
    leases.renew(["a"], 30)
    leases.asked_again("a", 70, 40)
    assert leases.end_of("a") == 80
    # A new grant of the same name has no first lease, if it is given none.
    leases.grant("b", 50, 0, first=40)
    leases.grant("b", 50, 0)
    leases.asked_again("b", 30, 40)
    assert leases.end_of("b") == 50
    # One of an earlier life may be in its first.
    leases.restore("c", 50, 60)
    leases.asked_again("c", 30, 40)
    assert leases.end_of("c") == 70


@spec("LEA-09")
def test_where_there_are_no_first_leases_whoever_asks_again_has_the_whole_one():
    leases = Leases()
    leases.grant("a", 50, 0)
    leases.asked_again("a", 30, 0)
    assert leases.end_of("a") == 80
    leases.asked_again("a", 20, 0)  # one that was late takes nothing away
    assert leases.end_of("a") == 80


@spec("LEA-09")
def test_an_answered_report_ends_the_first_lease_and_counts_from_when_it_was_sent():
    leases = Leases()
    leases.grant("a", 2400, 0, first=40)
    assert leases.is_first("a")
    leases.confirm("a", 3, 20)
    assert leases.end_of("a") == 2403
    assert not leases.is_first("a")
    leases.renew(["a"], 30)
    leases.confirm("a", 4, 35)  # an answer that was late takes nothing away
    assert leases.end_of("a") == 2430
    leases.confirm("b", 4, 35)
    assert "b" not in leases


@spec("LEA-09", "LEA-02")
def test_a_first_lease_that_has_passed_is_over_whatever_is_answered_later():
    leases = Leases()
    leases.grant("a", 2400, 0, first=40)
    leases.confirm("a", 1, 40)
    assert leases.expired(40) == {"a": 40}


@spec("LEA-09")
@given(st.floats(0, 39.9), st.floats(0, 1e4), st.floats(0, 1e4), st.floats(41, 1e5), st.floats(-0.0005, 0.0005))
def test_the_schedd_gives_a_confirmed_claim_up_after_its_lease_only(sent, way, back, lease, drift):
    """However long the report and its answer were on their way, and whichever clock is quicker: the schedd counts from
    the moment that it has the report."""
    leases = Leases()
    leases.grant("a", lease, 0.0, first=40.0)
    leases.confirm("a", sent, sent + way + back)
    ends = leases.end_of("a")
    assert ends * (1 + drift) + AFTER_LEASE_S < given_up_at((sent + way) * (1 + drift), 0.0, lease)
