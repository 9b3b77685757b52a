"""How long a claim is kept idle for the next job (SUB-11)."""

import pytest

from services.schedd.core.idle_claims import MAX_IDLE_S, idle_s
from tests.spec import spec
from tests.unit.schedd.test_decisions import cluster_of, job_of


@spec("SUB-11")
@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("300", 300.0),
        ("1 + 1", 2.0),
        ("20.9", 20.0),
        ("0", 0.0),
        ("0.5", 0.0),
        ("-5", 0.0),
        ("true", 0.0),
        ('"300"', 0.0),
        ("undefined", 0.0),
        ("1.0/0.0", 0.0),
        ("4000000000", MAX_IDLE_S),
    ],
)
def test_what_is_no_whole_number_of_seconds_keeps_nothing(said, seconds):
    assert idle_s(job_of(cluster_of(""), text=f"KeepClaimIdle = {said}")) == seconds


def test_a_job_that_does_not_ask_keeps_nothing():
    assert idle_s(job_of(cluster_of(""))) == 0.0
