"""Worked examples with numbers: how often a claim is kept alive."""

from services.schedd.core.claim import alive_s
from tests.spec import spec


@spec("LEA-04", "W-58")
def test_a_claims_jobs_shorten_the_interval_and_never_lengthen_it():
    interval, seen = 300, []
    for lease in (2400, 600, 2400, 15):
        interval = alive_s(interval, lease)
        seen.append(interval)
    assert seen == [300, 200, 200, 10]
