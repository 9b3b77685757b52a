"""Leases of claims."""

from hypothesis import given
from hypothesis import strategies as st

from services.startd.core.slots.leases import Leases, lease_s


def test_lease_is_the_jobs_own_or_six_missed_alives():
    assert lease_s(2400, 300, 6) == 2400
    assert lease_s(0, 300, 6) == 1800


def test_a_renewed_lease_ends_later():
    leases = Leases()
    leases.grant("a", 10, 0)
    assert leases.renew(["a", "b"], 8) == ["b"]
    assert leases.expired(17.9) == []
    assert leases.expired(18) == ["a"]
    assert leases.expired(100) == []
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
        over = {c for c, (end, _) in ends.items() if end <= now}
        assert set(leases.expired(now)) == over
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
