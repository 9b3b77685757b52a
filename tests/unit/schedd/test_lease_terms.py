"""How long a claim lives without a word from its access point, and how often that speaks up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.schedd.core.claim import LEAST_ALIVE_S, MAX_LEASE_S, alive_s, given_up_at, lease_s
from services.startd.core.slots.leases import lease_of
from services.startd.core.slots.leases import lease_s as lease_at_startd
from services.startd.forkserver.server import AFTER_LEASE_S
from shared.classad import ClassAd
from shared.config import load_config
from shared.config.knobs import ScheddSettings, StartdSettings, SubmitSettings
from tests.spec import spec

ALIVE, MISSED = 300, 6


@spec("LEA-01", "LEA-03", "LEA-05")
def test_defaults_are_those_of_the_manual():
    """LEA-01: 40 minutes. LEA-03: 300 s. LEA-05: 6 missed keep-alives."""
    schedd = ScheddSettings.from_config(load_config([], subsystem="SCHEDD", env={}))
    startd = StartdSettings.from_config(load_config([], subsystem="STARTD", env={}))
    submit = SubmitSettings.from_config(load_config([], subsystem="SUBMIT", env={}))
    assert str(submit.job_default_lease_duration) == "2400"
    assert schedd.alive_interval == ALIVE
    assert startd.max_claim_alives_missed == MISSED


@spec("LEA-01", "LEA-05")
@pytest.mark.parametrize(
    ("duration", "lease"), [(2400, 2400), (60.9, 60), (0, 0), (-5, 0), (0.5, 0), (1e30, MAX_LEASE_S)]
)
def test_the_lease_is_the_jobs(duration, lease):
    """None where it is 0 or absent."""
    assert lease_s(duration) == lease
    ad = ClassAd({"JobLeaseDuration": duration})
    assert lease_of(ad, ALIVE, MISSED) == lease_at_startd(lease, ALIVE, MISSED) == (lease or 1800)


@spec("LEA-05", "LEA-06")
@pytest.mark.parametrize("job", [{}, {"JobLeaseDuration": "60"}, {"JobLeaseDuration": True}])
def test_without_one_it_is_six_keep_alives_of_when_the_claim_was_made(job):
    assert lease_of(ClassAd(job), ALIVE, MISSED) == 1800
    assert lease_of(ClassAd(job), 20, MISSED) == 120


@spec("LEA-03", "LEA-04")
@pytest.mark.parametrize(
    ("interval", "lease", "now"),
    [(300, 2400, 300), (300, 900, 300), (300, 899, 299), (300, 60, 20), (300, 12, 10), (300, 0, 300), (5, 60, 5)],
)
def test_keep_alives_come_three_times_in_a_lease(interval, lease, now):
    """The lower of what it was and a third of the lease, 10 s at least."""
    assert alive_s(interval, lease) == now


@spec("LEA-04")
@given(st.lists(st.integers(0, 100_000), max_size=8))
def test_the_interval_never_grows(leases):
    """Over all jobs of a claim."""
    interval = ALIVE
    for lease in leases:
        before, interval = interval, alive_s(interval, lease)
        assert LEAST_ALIVE_S <= interval <= before
        assert not lease or interval <= max(LEAST_ALIVE_S, lease // 3)


@spec("LEA-09")
@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(1, 1e6), st.floats(0, 1), st.floats(-0.0005, 0.0005))
def test_a_silent_claim_is_given_up_when_its_lease_has_passed_for_sure(heard, told_until, lease, part, drift):
    """The startd has renewed it at some moment until the last answer, or the last keep-alive that only may have come;
    its clock goes a little faster or slower; and what has the processes waits for the startd."""
    renewed = max(heard, told_until) * part
    assert renewed + (lease + AFTER_LEASE_S) * (1 + drift) < given_up_at(heard, told_until, lease)
