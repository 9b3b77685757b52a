"""Jobs that are over before the pool has heard that they began do not keep those behind them waiting."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from roost.submit import Description, here
from tests.integration.pools import EmbeddedPool
from tests.waiting import wait_until

TEXT = "executable = /bin/true\ntransfer_executable = false\nshould_transfer_files = NO\nqueue\n"


@pytest.mark.timeout(180)
def test_quick_jobs_one_after_the_other_never_wait_for_a_match_to_expire(tmp_path: Path) -> None:
    pool = EmbeddedPool(tmp_path / "pool")
    try:
        pool.start("-cpus", "1")
        cluster = next(Description(TEXT, here("quick.sub", tmp_path), now=time.time()).clusters())
        with pool.client() as client:
            for _ in range(25):
                number = client.submit(cluster.ad, cluster.jobs()).cluster
                # A match that is forgotten expires after 10 s only.
                wait_until(lambda number=number: len(pool.final(number)) == 1, 8, f"the end of job {number}.0")
    finally:
        pool.close()
