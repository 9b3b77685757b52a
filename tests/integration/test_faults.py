"""Daemons killed and hung in turn while real jobs run: nothing acknowledged is lost, nothing is done twice.

The short form of `python -m bench.faults`, which measures as well.
"""

import pytest

from bench.faults.faults import Fault, at_maxmemory, endure, of_daemons
from bench.faults.pool import FaultPool
from bench.faults.workload import Workload
from tests.spec import spec

#: The other faults of that bench are these again, in another mixture.
LEFT_OUT = {"the active negotiator killed", "the active HAD killed", "both collectors killed"}
#: So that a lead changes only because of a fault, also on a busy machine.
CALM = {"ROOST_HAD_LEASE": "2.5"}


@spec("HA-03", "HA-07", "HA-09", "COL-06", "LEA-02")
@pytest.mark.dear(
    held_by="tests/integration/test_batch.py::test_killing_a_daemon_in_the_middle_loses_and_duplicates_nothing"
)
@pytest.mark.servers
@pytest.mark.timeout(600)
def test_whatever_daemon_dies_or_hangs_no_job_is_lost_and_none_runs_twice(tmp_path, amqp_url, redis_server):
    """Nor when Redis refuses writes for a while."""
    with (
        FaultPool(tmp_path / "pool", amqp_url, redis_server.url, **CALM) as pool,
        Workload(tmp_path / "work", pool.connect) as work,
    ):
        work.start()
        faults = [fault for fault in of_daemons(pool, 1.0, 1.0) if fault.name not in LEFT_OUT]
        assert {fault.name.split()[-1] for fault in faults} == {"killed", "hung", "once"}
        faults.append(Fault("Redis at maxmemory", lambda: at_maxmemory(redis_server), 3.0, {}))
        for fault in faults:
            print(fault.name, work.without(*endure(fault, work, pool)))
        verdict = work.end()
        print(verdict)
        assert verdict.jobs > len(faults)
        assert verdict.faults() == []
        # The accountant's charges go on through all of it: claims are a little longer than what runs in them.
        assert verdict.charged_s == pytest.approx(verdict.ran_s, rel=0.25, abs=5.0)
