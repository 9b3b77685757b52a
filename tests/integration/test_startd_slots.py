"""Slots of a whole startd: what only its parts show, the disk that changes, and configurations that can not be."""

from pathlib import Path

import pytest

from services.startd.components.device_ads import DeviceAds
from services.startd.core.machine.slot_types import ImpossiblePartition
from services.startd.isolation import scratch_dirs
from shared.messages.claims import ClaimGranted, ReleaseClaim
from tests.daemons import make_context
from tests.spec import spec
from tests.startd_pool import Pool
from tests.waiting import eventually


def ads(pool):
    return [pool.startd.shared.ads.ad_of(slot) for slot in pool.startd.shared.slot_manager.slots.values()]


@spec("SLT-29")
async def test_load_and_idle_times_are_shown(tmp_path):
    async with Pool(tmp_path, NUM_SLOTS_TYPE_1=2) as pool:
        for ad in ads(pool):
            for name in ("LoadAvg", "TotalLoadAvg", "KeyboardIdle", "ConsoleIdle"):
                assert isinstance(ad.eval(name), int | float), name


@spec("SLT-08")
async def test_a_disk_that_fills_is_seen(tmp_path):
    """What jobs of this startd have written is counted as theirs."""
    macros = {"DISK": "", "NUM_SLOTS_TYPE_1": 1, "SLOT_TYPE_1": "disk=50%, 1/4", "SLOT_TYPE_1_PARTITIONABLE": "true"}
    async with Pool(tmp_path, **macros) as pool:
        (gear,) = (part for part in pool.startd.components if isinstance(part, DeviceAds))
        gear.look_at_disks()
        assert ads(pool)[0]["TotalSlotDisk"] == 5_000_000
        activation, granted = await pool.run("/bin/sleep", Arguments="1000", RequestDisk=1_000_000)
        assert isinstance(granted, ClaimGranted)
        await pool.running(activation.job_id)
        (run,) = pool.startd.shared.runs.by_key.values()
        run.record.usage["disk_kib"] = 200_000
        pool.machine.now = type(pool.machine.now)(disk_kib=7_800_000)
        gear.look_at_disks()
        parent, child = ads(pool)
        assert (parent["TotalSlotDisk"], parent["TotalDisk"]) == (4_000_000, 8_000_000)
        assert parent["Disk"] == 4_000_000 - child["Disk"]
        pool.machine.now = type(pool.machine.now)(disk_kib=1000)
        gear.look_at_disks()
        assert ads(pool)[0]["Disk"] == 0


@spec("SLT-09")
@pytest.mark.parametrize(
    "macros",
    [
        {"NUM_SLOTS_TYPE_1": 2, "SLOT_TYPE_1": "cpus=5"},
        {"MACHINE_RESOURCE_INVENTORY_Cogs": "/nowhere/inventory"},
        {"NUM_SLOTS_TYPE_1": 1, "SLOT_TYPE_1": "cogs=2"},
    ],
)
async def test_a_startd_that_can_not_divide_its_machine_ends_and_says_why(tmp_path, macros):
    with pytest.raises(ImpossiblePartition, match=r"SLOT_TYPE_1|MACHINE_RESOURCE_INVENTORY_Cogs"):
        async with Pool(tmp_path, **macros):
            pytest.fail("it started")


@spec("SLT-09")
async def test_reconfiguring_to_what_can_not_be_changes_nothing(tmp_path):
    """The mistake is told while the old division still holds, not by a startd that does not come back."""
    async with Pool(tmp_path) as pool:
        before = [ad["Cpus"] for ad in ads(pool)]
        kept = pool.startd.context.config
        broken = make_context(
            "STARTD",
            "node1",
            bus=pool.startd.context.bus,
            config=pool.macros | {"NUM_SLOTS_TYPE_1": 9},
            directory=tmp_path,
        )
        pool.startd.context.config = broken.config
        with pytest.raises(ImpossiblePartition):
            await pool.startd.reconfigure()
        pool.startd.context.config = kept
        assert [ad["Cpus"] for ad in ads(pool)] == before


@spec("SLT-08")
async def test_jobs_run_on_the_disk_that_their_slot_shows(tmp_path):
    """SLOT<N>_EXECUTE; also for a startd that was killed meanwhile, and nothing is left there."""
    other = tmp_path / "other"
    job = tmp_path / "job"
    job.write_text("#!/bin/sh\necho $_CONDOR_SCRATCH_DIR\ntest -w $_CONDOR_SCRATCH_DIR/. || exit 1\nexec sleep 1000\n")
    job.chmod(0o755)
    async with Pool(tmp_path, NUM_SLOTS_TYPE_1=2, SLOT2_EXECUTE=str(other)) as pool:
        running = {}
        for slot in ("slot1@node1", "slot2@node1"):
            activation = pool.activation(cmd=str(job), Iwd=str(tmp_path), Out=slot)
            running[slot] = await pool.call(pool.request(activation, slot=slot))
            await pool.running(activation.job_id)
            await eventually(lambda slot=slot: (tmp_path / slot).read_text())
        assert Path((tmp_path / "slot1@node1").read_text().strip()).parent == pool.execute
        assert Path((tmp_path / "slot2@node1").read_text().strip()).parent == other
        abandoned = other / f"{scratch_dirs.prefix('node1')}abandoned"
        abandoned.mkdir()
        await pool.restart()
        assert not abandoned.exists()
        assert [path.name for path in other.iterdir()] == [Path((tmp_path / "slot2@node1").read_text().strip()).name]
        for granted in running.values():
            await pool.call(ReleaseClaim(claim_id=granted.claim_id, reason="over", graceful=False))
        await eventually(lambda: not list(other.iterdir()) and not list(pool.execute.glob("dir_*")))
