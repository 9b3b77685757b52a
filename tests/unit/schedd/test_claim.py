"""A claim of the schedd: what it weighs, whose it is, and that it comes back from the database as it was."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.queue.jobs import JobId, Shadow
from services.schedd.core.claim import MAX_WEIGHT, Claim, given_up_at, lease_s
from tests.unit.schedd.test_job_end import claim_of

#: What a schedd that was killed has to find out anew.
FORGOTTEN = {
    "heard",
    "told_until",
    "unanswered",
    "kept",
    "disconnected",
    "fits",
    "generation",
    "ad",
    "autocluster",
    "start_in_s",
    "asked",
    "looked_at",
}
FORGOTTEN_OF_A_RUN = {"claim", "stored_usage", "output_began"}
NUMBERS = st.integers(0, 2**40)
TIMES = st.floats(0, 2e9)
WORDS = st.text(max_size=20)
JOBS = st.builds(JobId, st.integers(1, 2**31), st.integers(0, 2**20), st.integers(-1, 9))
RUNS = st.builds(
    Shadow,
    job=JOBS,
    attempt=NUMBERS,
    token=WORDS,
    transfer=st.booleans(),
    started=TIMES,
    sequence=st.integers(-1, 2**31),
    executing=TIMES,
    suspended=TIMES,
    stop=st.sampled_from(["", "remove", "hold", "vacate"]),
    how=st.sampled_from(["graceful", "fast"]),
    output=st.booleans(),
)
CLAIMS = st.builds(
    Claim,
    id=st.just("c1"),
    claim_id=WORDS,
    startd=WORDS,
    slot=WORDS,
    slot_ad=st.binary(max_size=40),
    submitter=WORDS,
    epoch=NUMBERS,
    lease_s=NUMBERS,
    alive_s=NUMBERS,
    shard=WORDS,
    preempts=st.lists(WORDS, max_size=3),
    preempt_claims=st.lists(WORDS, max_size=3),
    concurrency_limits=WORDS,
    match_exprs=st.binary(max_size=40),
    waits=st.none() | JOBS,
    waits_as=WORDS,
    granted=st.booleans(),
    granted_at=TIMES,
    shadow=st.none() | RUNS,
    previous=st.none() | st.tuples(WORDS, NUMBERS),
    idle_until=TIMES,
)


@given(CLAIMS)
def test_what_is_stored_comes_back(claim):
    again = Claim.unpack("c1", claim.pack())
    for field in fields(Claim):
        if field.name not in FORGOTTEN:
            assert getattr(again, field.name) == getattr(claim, field.name), field.name
    assert type(again.waits) is type(claim.waits)
    assert again.shadow is None or isinstance(again.shadow.job, JobId)


@given(CLAIMS, RUNS)
def test_what_is_not_stored_is_as_in_a_new_claim(claim, run):
    claim = replace(claim, heard=5.0, told_until=6.0, unanswered=True, kept=True, disconnected=True, shadow=run)
    claim.fits, claim.generation, claim.autocluster, claim.start_in_s = {1: True}, 3, 4, 5.0
    claim.asked = 2.0
    run.claim, run.output_began = "c1", 7.0
    again = Claim.unpack("c1", claim.pack())
    new = claim_of("Cpus = 1")
    for name in FORGOTTEN:
        assert getattr(again, name) == getattr(new, name), name
    fresh = Shadow(run.job, run.attempt, run.token, run.transfer, run.started)
    for name in FORGOTTEN_OF_A_RUN:
        assert getattr(again.shadow, name) == getattr(fresh, name), name


@pytest.mark.parametrize(
    ("slot", "weight"),
    [
        ("SlotWeight = 2.5; Cpus = 4", 2.5),
        ("SlotWeight = Cpus * 2; Cpus = 4", 8.0),
        ("Cpus = 4", 4.0),
        ("SlotWeight = 0; Cpus = 4", 0.0),
        ("SlotWeight = 0.5", 0.5),
        (f"SlotWeight = {MAX_WEIGHT}", MAX_WEIGHT),
        # What can not be: the cores count; and one where those can not be either.
        ("SlotWeight = -1; Cpus = 4", 4.0),
        (f"SlotWeight = {MAX_WEIGHT} * 1.001; Cpus = 4", 4.0),
        ("SlotWeight = true; Cpus = 4", 4.0),
        ('SlotWeight = "3"; Cpus = 4', 4.0),
        ("SlotWeight = error; Cpus = -1", 1.0),
        ("", 1.0),
    ],
)
def test_a_slot_weighs_what_it_says_else_its_cores(slot, weight):
    found = claim_of(slot).weight()
    assert found == weight
    assert isinstance(found, float)


def test_a_slot_that_is_to_be_carved_weighs_what_its_job_asks_for():
    claim = claim_of("PartitionableSlot = true; Cpus = 64; SlotWeight = 64")
    assert claim.weight() == 64.0  # nobody knows of its job
    claim.asked = 2.0
    assert claim.weight() == 2.0
    carved = claim_of("DynamicSlot = true; Cpus = 4; SlotWeight = 4")
    carved.asked = 2.0
    assert carved.weight() == 4.0


def test_the_slots_ad_is_read_once():
    claim = claim_of("Cpus = 4")
    assert claim.slot_classad().eval("Cpus") == 4
    assert claim.slot_classad() is claim.slot_classad()


def test_a_claim_is_on_the_startd_of_its_inbox():
    claim = claim_of("")
    assert claim.of("ep")
    assert not claim.of("startd.ep")
    assert not claim.of("")
    assert replace(claim, startd="startd.slot.example").of("slot.example")


@pytest.mark.parametrize(("duration", "lease"), [(1, 1), (1.0, 1), (1.9, 1), (0.99, 0)])
def test_a_second_is_the_shortest_lease(duration, lease):
    assert lease_s(duration) == lease


@pytest.mark.parametrize(
    ("heard", "told_until", "lease", "at"),
    [(1000.0, 0.0, 2400, 3407.4), (1000.0, 1300.0, 2400, 3707.4), (0.0, 0.0, 0, 5.0), (10.0, 5.0, 1000, 1016.0)],
)
def test_a_silent_claim_is_given_up_a_little_after_its_lease(heard, told_until, lease, at):
    assert given_up_at(heard, told_until, lease) == pytest.approx(at)
