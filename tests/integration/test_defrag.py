"""A pool full of small jobs, in which a job that wants a whole machine gets one because machines drain (DFR-*)."""

import pytest

from shared.bus.api import RemoteFailure
from shared.bus.memory import MemoryBus
from shared.classad import ClassAd
from shared.messages.orders import Vacate
from tests.integration.inside import InsidePool
from tests.spec import spec
from tests.waiting import wait_until

CPUS = 3
RUNNING, COMPLETED = 2, 4


@pytest.fixture
def pool(tmp_path):
    inside = InsidePool(
        tmp_path / "pool",
        DAEMON_LIST="$(DAEMON_LIST), DEFRAG",
        NUM_CPUS=str(CPUS),
        DEFRAG_INTERVAL="1",
        DEFRAG_DRAINING_MACHINES_PER_HOUR="0",
        DEFRAG_MAX_CONCURRENT_DRAINING="1",
        NEGOTIATOR_CYCLE_DELAY="0",
        NEGOTIATOR_MIN_INTERVAL="0",
    )
    yield inside
    inside.close()


def sleeper(seconds, **more):
    ad = {"Cmd": "/bin/sleep", "Args": str(seconds), "Iwd": "/tmp", "TransferExecutable": False}
    return ClassAd({**ad, "ShouldTransferFiles": "NO", "RequestMemory": 16, "RequestDisk": 16, **more})


def statuses(client, ids):
    return [job.eval("JobStatus") for job in client.jobs(*ids)]


@spec("DFR-01", "DFR-03", "DFR-04", "DFR-05", "DFR-06", "DFR-07", "DFR-11", "DFR-12", "DFR-02")
def test_a_job_that_needs_a_whole_machine_gets_one(pool):
    """From the submit file's side to what tools show."""
    with pool.client() as client:
        small = client.submit(sleeper(600, RequestCpus=1), [ClassAd() for _ in range(CPUS)]).ids()
        wait_until(lambda: statuses(client, small) == [RUNNING] * CPUS, what="small jobs everywhere")
        large = client.submit(sleeper(1, RequestCpus=CPUS, JobPrio=10), [ClassAd()]).ids()

        def told(attribute):
            return [ad.eval(attribute) for ad in client.ads(constraint='MyType == "Defrag"')]

        # Without a rate it looks, and does nothing (DFR-02).
        wait_until(lambda: told("DefragIsActive") == [True], what="defrag's ad")
        wait_until(lambda: "DEFRAG_DRAINING_MACHINES_PER_HOUR is 0" in told("DefragSaid")[0], what="its first look")
        assert statuses(client, large) == [1]

        defrag = pool.runner("defrag").daemon
        pool.pool.plan.knobs["DEFRAG_DRAINING_MACHINES_PER_HOUR"] = "3600"
        pool.roost("reconfig", "-defrag")
        wait_until(lambda: not statuses(client, large) or statuses(client, large) == [COMPLETED], what="the large job")
        pool.pool.plan.knobs["DEFRAG_DRAINING_MACHINES_PER_HOUR"] = "0"
        pool.roost("reconfig", "-defrag")
        wait_until(lambda: RUNNING in statuses(client, small), what="small jobs again")

        (drained,) = {event["drained"][0] for event in events(client) if event["drained"]}
        assert drained == pool.runner("startd").daemon.context.name
        assert defrag.state.successes >= 1
        (machine,) = [ad for ad in client.ads("Machine") if ad.eval("PartitionableSlot") is True]
        assert machine.eval("TotalMachineDrainingBadput") > 0
        assert machine.eval("LastDrainStopTime") >= machine.eval("LastDrainStartTime")
        client.act("remove", small)
        wait_until(lambda: not statuses(client, small), what="nothing left behind")
    found = pool.roost("status", "-any", "-constraint", 'MyType == "Defrag"', "-af", "MyType", "DrainSuccesses").split()
    assert found[0] == "Defrag"
    assert int(found[1]) >= 1
    bus = MemoryBus(pool.pool._hub, sender="defrag.x")
    pool.run(bus.start())
    with pytest.raises(RemoteFailure, match="gateway may send it, and nobody else"):  # it may drain machines, no more
        pool.run(bus.call(f"startd.{drained}", Vacate()))
    pool.run(bus.stop())
    assert "TotalDrained" in pool.roost("status", "-defrag")
    assert pool.roost("status", "-defrag", "-af", "Name").strip() == pool.runner("defrag").daemon.context.name


def events(client):
    return client.journal("events", type="defrag.round", limit=1000)["events"]
