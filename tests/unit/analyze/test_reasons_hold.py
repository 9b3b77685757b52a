"""What is said of why jobs wait, against the negotiation cycle: what is lifted makes them run."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.analyze.reason_pools import reason_pool, wrongs_of


@given(st.integers(0, 2**40))
@settings(max_examples=8)  # of pools; the test below has 40, and reason_pools thousands
def test_a_job_said_to_run_is_matched_and_one_that_is_blocked_is_once_that_is_lifted(seed: int) -> None:
    assert list(wrongs_of(reason_pool(seed))) == []


def test_generated_pools_have_every_cause() -> None:
    """Else the test above would say less than it seems to."""
    met: Counter[tuple[str, ...]] = Counter()
    for seed in range(40):
        assert list(wrongs_of(reason_pool(seed), met)) == []
    causes = {cause for several in met for cause in several}
    assert causes >= {
        *("claimed", "in-use", "draining", "offline", "no-claim-id", "match-under-way", "limit", "quota", "ceiling"),
        *("slot-requirements", "job-requirements"),
    }
