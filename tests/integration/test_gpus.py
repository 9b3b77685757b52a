"""A startd with GPUs that are made up, and jobs that ask for some: GPU-01, GPU-04 to GPU-06."""

import sys

import pytest

from services.startd.components.gpu_monitor import GpuMonitor
from shared.classad import ClassAd, parse_expr
from shared.messages.claims import ClaimGranted, ClaimRefused, ReleaseClaim
from tests.spec import spec
from tests.startd_pool import Pool
from tests.waiting import eventually
from tests.wholepool import WholePool

FIRST, SECOND = "GPU-a0223334", "GPU-b1223334"
GPUS = {
    "MACHINE_RESOURCE_INVENTORY_GPUs": "/nowhere/condor_gpu_discovery -properties -simulate:4,1,2,1",
    "STARTD_CRON_JOBLIST": "GPUs_MONITOR",
    "STARTD_CRON_GPUs_MONITOR_EXECUTABLE": "/nowhere/condor_gpu_utilization",
    "STARTD_CRON_GPUs_MONITOR_MODE": "WaitForExit",
    "STARTD_CRON_GPUs_MONITOR_PERIOD": "300",
}
#: A monitor of GPUs that are always half busy.
MONITOR = """
import time
while True:
    print("a0223334-4445-5667-899a-abbccddeeff0 0.05 1234")
    print("-", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
async def pool(tmp_path, monkeypatch):
    monkeypatch.setattr(GpuMonitor, "program", (sys.executable, "-c", MONITOR))
    async with Pool(tmp_path, **GPUS) as pool:
        yield pool


def ad(pool, slot="slot1@node1"):
    manager = pool.startd.shared.slot_manager
    return pool.startd.shared.ads.ad_of(manager.slots[slot])


def devices(pool):
    return [str(one.eval("Id")) for one in ad(pool).eval("AvailableGPUs")]


async def test_jobs_get_gpus_that_suit_them_and_give_them_back(pool, tmp_path):
    cmd = tmp_path / "job"
    cmd.write_text(
        "#!/bin/sh\necho $CUDA_VISIBLE_DEVICES $_CONDOR_AssignedGPUs $NVIDIA_VISIBLE_DEVICES\nexec sleep 1000\n"
    )
    cmd.chmod(0o755)
    where = {"Iwd": str(tmp_path), "RequestGPUs": 1}
    young = {"RequireGPUs": parse_expr("Capability < 8.0"), "Out": "young"}
    activation, granted = await pool.run(str(cmd), **where, **young)
    assert isinstance(granted, ClaimGranted)
    await pool.running(activation.job_id)
    await eventually(lambda: (tmp_path / "young").read_text())
    uuid = "b1223334-4445-5667-899a-abbccddeeff0"
    assert (tmp_path / "young").read_text().split() == [SECOND, SECOND, f"GPU-{uuid}"]
    assert devices(pool) == [FIRST]
    assert ad(pool)["GPUs"] == 1
    assert ad(pool, granted.slot).eval("AssignedGPUs") == SECOND
    assert ad(pool, granted.slot).eval("GPUs_DeviceName") == "Tesla V100-PCIE-16GB"
    # No second GPU of this kind: the claim is refused, and nothing is taken.
    _, refused = await pool.run(str(cmd), **where, **young)
    assert isinstance(refused, ClaimRefused)
    assert "RequireGPUs" in refused.reason
    # A job without GPUs is told so.
    none, _ = await pool.run(str(cmd), Iwd=str(tmp_path), Out="none")
    await pool.running(none.job_id)
    await eventually(lambda: (tmp_path / "none").read_text())
    assert (tmp_path / "none").read_text().split() == ["10000", "10000", "none"]
    # After a crash of the startd the job goes on, with the GPU it had.
    await pool.restart()
    await eventually(lambda: granted.slot in pool.startd.shared.slot_manager.slots)
    assert devices(pool) == [FIRST]
    assert ad(pool, granted.slot).eval("AssignedGPUs") == SECOND
    await pool.call(ReleaseClaim(claim_id=granted.claim_id, reason="over", graceful=False))
    await eventually(lambda: devices(pool) == [FIRST, SECOND])


async def test_slots_and_jobs_tell_how_busy_their_gpus_are(pool):
    activation, granted = await pool.run(
        "/bin/sleep", Arguments="1000", RequestGPUs=1, RequireGPUs=parse_expr("Capability >= 8.0")
    )
    await pool.running(activation.job_id)
    await eventually(lambda: ad(pool, granted.slot).eval("DeviceGPUsMemoryPeakUsage") == 1234)
    await eventually(lambda: (ad(pool, granted.slot).eval("DeviceGPUsAverageUsage") or 0) > 0)
    assert ad(pool)["DeviceGPUsMemoryPeakUsage"] == 1234
    (run,) = pool.startd.shared.runs.by_key.values()
    await eventually(lambda: run.extras.get("GPUsAverageUsage", 0) > 0)
    await pool.call(ReleaseClaim(claim_id=granted.claim_id, reason="over", graceful=False))
    end = await pool.schedd.end_of(activation.job_id)

    told = ClassAd.unpack(end.updates)
    assert told["GPUsMemoryUsage"] == 1234
    assert told["GPUsAverageUsage"] > 0


@spec("GPU-04")
async def test_the_negotiator_gives_jobs_the_gpus_that_they_require(tmp_path):
    """From the queue to the device: with the words that roost submit writes. One GPU of a kind serves jobs one
    after the other; a job that no device suits waits."""
    job = tmp_path / "job"
    job.write_text('#!/bin/sh\necho "$1 $CUDA_VISIBLE_DEVICES" >> seen\n')
    job.chmod(0o755)
    counts = "(countMatches(MY.RequireGPUs,TARGET.AvailableGPUs) >= RequestGPUs)"
    async with WholePool(tmp_path, **GPUS) as pool:

        def ad_for(name: str, require: str) -> ClassAd:
            words = {"RequestGPUs": 1, "RequireGPUs": f"={require}", "Requirements": f"={counts}"}
            return pool.job(str(job), Args=name, **words)

        waiting = await pool.submit(ad_for("none", "Capability > 9.0"))
        old = await pool.submit(ad_for("old", "Capability < 8.0"), procs=2)
        new = await pool.submit(ad_for("new", "Capability >= 8.0 && GlobalMemoryMb > 30000"), procs=2)
        for cluster in (old, new):
            assert [ad.eval("JobStatus") for ad in await pool.rests(cluster, 2)] == [4, 4]
        seen = sorted((tmp_path / "seen").read_text().splitlines())
        assert seen == [f"new {FIRST}", f"new {FIRST}", f"old {SECOND}", f"old {SECOND}"]
        (ad,) = await pool.ads(f"{waiting}.0")
        assert ad.eval("JobStatus") == 1
        assert not pool.dead()
