"""A startd that comes back to a machine that changed meanwhile: its jobs go on, and their processes are the same."""

import pytest

from shared.messages.claims import DeactivateClaim
from tests.spec import spec
from tests.startd_pool import Machine, Pool

STATIC = {"NUM_SLOTS_TYPE_1": "2", "SLOT_TYPE_1": "1/2"}


@spec("SLT-31")
@pytest.mark.parametrize("knobs", [{}, STATIC], ids=["partitionable", "static"])
async def test_jobs_outlive_a_restart_while_the_disk_fills(tmp_path, knobs):
    """The disk is what is free: it is another number at each start, and counts for no job that runs."""
    async with Pool(tmp_path, Machine(disk_kib=10_000_000), **knobs) as pool:
        activation, granted = await pool.run("/bin/sleep", Arguments="1000", RequestDisk=1_000_000)
        before = (await pool.running(activation.job_id)).started_at
        for disk in (9_800_000, 100, 10_000_000):
            pool.macros["DISK"] = disk
            await pool.restart()
            assert pool.startd.shared.slot_manager.claims[granted.claim_id].run
            assert pool.conditions()[granted.slot] == "Claimed/Busy"
        assert not pool.schedd.lost
        stop = DeactivateClaim(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, how="fast", why="remove")
        await pool.call(stop)
        end = await pool.schedd.end_of(activation.job_id)
        assert (end.exit.reason, end.started_at) == ("killed", before)


@spec("SLT-31")
async def test_a_job_whose_cores_are_gone_is_told_which(tmp_path):
    async with Pool(tmp_path) as pool:
        small, _ = await pool.run("/bin/sleep", Arguments="1000", RequestCpus=2)
        large, _ = await pool.run("/bin/sleep", Arguments="1000", RequestCpus=4)
        for one in (small, large):
            await pool.running(one.job_id)
        pool.macros["NUM_CPUS"] = 5
        await pool.restart()
        end = await pool.schedd.end_of(large.job_id)
        assert end.exit.reason == "evicted"
        assert "Cpus 3 of 4" in end.exit.message
        assert [str(slot.condition) for slot in pool.startd.shared.slot_manager.slots.values() if slot.claim] == [
            "Claimed/Busy"
        ]
        assert small.job_id not in {key.partition("/")[0] for key in pool.schedd.ends}
