"""Scratch directories with a file system of their own (rows SCR): loop devices for real, LVM's commands by
stand-ins. Needs root."""

import asyncio
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from services.startd.isolation.scratch_volumes import SPARE_KIB
from tests.integration.isolated_pool import IsolatedPool, open_directory
from tests.spec import spec
from tests.waiting import eventually

pytestmark = pytest.mark.mounts
ENFORCE = {"STARTD_ENFORCE_DISK_LIMITS": "true", "ROOST_DISK_CHECK_INTERVAL": "1"}
READY = "touch ready; exec sleep 1000"
FILL = "head -c 30000000 /dev/zero > big"


@pytest.fixture
def place():
    with open_directory() as path:
        yield path


@pytest.fixture
async def pool(place):
    async with IsolatedPool(place, **ENFORCE) as pool:
        assert pool.startd.shared.isolation.volumes.trouble == ""
        yield pool


async def ready(pool, job_id) -> Path:
    await pool.running(job_id)
    scratch = pool.scratch_of(job_id)
    await eventually((scratch / "ready").exists)
    return scratch


def mounts(pid="self") -> str:
    return Path(f"/proc/{pid}/mountinfo").read_text()


def loops() -> str:
    return subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout


@spec("SCR-01")
async def test_a_job_has_a_file_system_of_its_disk(pool):
    report, out = await pool.run("df -k . | tail -1; touch x; cat script.sh | head -c 2", RequestDisk=20480)
    assert report.exit.reason == "exited", report.exit
    size = int(out.split()[1])
    assert 20480 * 0.9 <= size - SPARE_KIB <= 21504
    assert out.endswith("df")


@spec("SCR-02")
async def test_a_job_that_fills_it_is_held(pool):
    """Also one that goes on as if nothing had happened, and whatever the size of its writes."""
    large = "dd if=/dev/zero of=big bs={} count=20; exit 0"
    for script in (f"{FILL}; exit 1", f"{FILL}; exec sleep 1000", large.format("1M"), large.format("7M")):
        report, _ = await pool.run(script, RequestDisk=8192)
        assert (report.exit.reason, report.exit.hold_code, report.exit.hold_subcode) == ("hold", 34, 104), report.exit
        assert "KB" in report.exit.message


@spec("SCR-03")
async def test_without_it_a_job_may_write_what_there_is_room_for(place):
    async with IsolatedPool(place) as pool:
        report, _ = await pool.run(FILL, RequestDisk=1024, TransferOutput="")
        assert report.exit.exit_code == 0
        assert not (place / "spool" / "startd_disk.img").exists()


@spec("SCR-05")
async def test_the_smallest_volume_has_4_mb(pool):
    """The file system itself takes some of it."""
    _, out = await pool.run("df -k . | tail -1; head -c 2000000 /dev/zero > x && echo enough", RequestDisk=1)
    assert int(out.split()[1]) <= 5120 + SPARE_KIB
    assert out.endswith("enough\n")


@spec("SCR-06")
async def test_it_is_private_to_the_job_and_goes_with_it(pool):
    job_id, endpoint = await pool.begin("echo mine > file; touch ready; while [ ! -e go ]; do sleep 0.05; done")
    scratch = await ready(pool, job_id)
    outside = pool.execute / pool.run_of(job_id).record.scratch
    assert (scratch / "file").read_text() == "mine\n"
    assert list(outside.iterdir()) == []
    assert str(outside) not in mounts()
    _, out = await pool.run(f"ls -a ..; ls {outside}; cat {outside}/file; echo end")
    assert outside.name not in out  # nor in another job
    assert "mine" not in out
    (scratch / "go").touch()
    report = await pool.pool.schedd.end_of(job_id)
    assert report.exit.exit_code == 0
    assert (endpoint.output / "file").read_text() == "mine\n"
    await eventually(lambda: not outside.exists())
    server = pool.startd.shared.fork_server.pid
    await eventually(lambda: outside.name not in mounts(server))
    await eventually(lambda: outside.name not in loops())
    assert not [name for name in os.listdir(pool.path / "spool") if name.startswith("startd_disk")]


@spec("SCR-06")
async def test_the_knobs_take_effect_on_restart_only(place):
    async with IsolatedPool(place) as pool:
        manager = pool.startd.shared.isolation
        manager.reread(replace(manager.rules, disk=replace(manager.rules.disk, enforce=True)))
        assert not manager.rules.disk.enforce
        report, _ = await pool.run(FILL, RequestDisk=1024, TransferOutput="")
        assert report.exit.exit_code == 0


async def test_a_restarted_startd_finds_the_file_systems(pool):
    job_id, endpoint = await pool.begin("touch ready; while [ ! -e go ]; do sleep 0.05; done; echo late > file")
    await ready(pool, job_id)
    await pool.pool.restart()
    scratch = pool.scratch_of(job_id)
    assert (scratch / "ready").exists()
    (scratch / "go").touch()
    report = await pool.pool.schedd.end_of(job_id)
    assert report.exit.exit_code == 0
    assert (endpoint.output / "file").read_text() == "late\n"


async def test_without_the_tools_the_disk_is_measured(place, monkeypatch):
    empty = place / "bin"
    empty.mkdir()
    for name in ("sh", "python3", "head", "sleep"):
        found = next(p for folder in ("/usr/bin", "/bin") if (p := Path(folder, name)).exists())
        (empty / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(empty))
    async with IsolatedPool(place, **ENFORCE) as pool:
        assert "mkfs.ext4" in pool.startd.shared.isolation.volumes.trouble
        report, _ = await pool.run(f"{FILL}; exec sleep 1000", RequestDisk=8192)
        assert (report.exit.reason, report.exit.hold_code, report.exit.hold_subcode) == ("hold", 34, 104), report.exit
        assert re.search("limit of (8|9)[0-9]{3} KB", report.exit.message)
        assert "usage: 29" in report.exit.message  # 30 MB in KB
        report, _ = await pool.run("echo fine", RequestDisk=8192)
        assert report.exit.exit_code == 0


LVM = {
    # A "volume" is a file; what formats and mounts it takes it for a device.
    "lvcreate": """#!/bin/sh
echo "$(basename $0) $*" >> {log}
while [ $# -gt 0 ]; do
  case $1 in --name) name=$2;; --size|--virtualsize) size=$2;; esac; shift
done
truncate -s "${{size%k}}K" {volumes}/$name
""",
    "lvremove": """#!/bin/sh
echo "$(basename $0) $*" >> {log}
for last; do :; done
rm {volumes}/"${{last##*/}}"
""",
    "lvs": "#!/bin/sh\nls {volumes}\n",
}


def detach(devices):
    for device in devices:
        subprocess.run(["losetup", "--detach", device], check=False)


@spec("SCR-04")
@pytest.mark.parametrize(
    ("knobs", "expected"),
    [
        ({}, r"--size (\d+)k vg"),
        ({"LVM_THINPOOL_NAME": "pool"}, r"--virtualsize (\d+)k --thinpool pool vg"),
        ({"LVM_THINPOOL_NAME": "pool", "LVM_USE_THIN_PROVISIONING": "false"}, r"--size (\d+)k vg"),
    ],
    ids=["thick", "thin", "thin forbidden"],
)
async def test_a_volume_group_is_used_where_there_is_one(place, monkeypatch, knobs, expected):
    programs, log, volumes = place / "bin", place / "log", place / "volumes"
    for folder in (programs, volumes):
        folder.mkdir()
    for name, text in LVM.items():
        (programs / name).write_text(text.format(log=log, volumes=volumes))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    attached = {}

    async def mount(source, target, fstype, options):
        """A stand-in of a volume is a file: it needs a loop device, as the volume would not."""
        done = await asyncio.create_subprocess_exec(
            "losetup", "--find", "--show", source, stdout=asyncio.subprocess.PIPE
        )
        attached[target] = (await done.communicate())[0].decode().strip()
        await really(attached[target], target, fstype, options)

    monkeypatch.setattr(
        "services.startd.isolation.scratch_volumes.volume_device", lambda rules, name: str(volumes / name)
    )
    async with IsolatedPool(place, **ENFORCE, LVM_VOLUME_GROUP_NAME="vg", **knobs) as pool:
        really = pool.startd.shared.fork_server.mount
        pool.startd.shared.fork_server.mount = mount
        try:
            report, out = await pool.run("df -k . | tail -1; pwd", RequestDisk=20480)
            assert report.exit.reason == "exited", report.exit
            assert 20480 * 0.9 <= int(out.split()[1]) - SPARE_KIB <= 21504
            await eventually(lambda: "lvremove" in log.read_text())
            made, removed = log.read_text().splitlines()
            name = out.split()[-1].rpartition("/")[2]
            assert f"--name {name}" in made
            size = re.search(expected + "$", made)[1]
            assert 20480 <= int(size) - SPARE_KIB <= 21504  # as requests are rounded
            assert removed.endswith(f"vg/{name}")
            # What a crash left behind goes at the next start; what is not ours stays.
            (volumes / name).touch()
            (volumes / "others").touch()
            await pool.pool.restart()
            assert os.listdir(volumes) == ["others"]
        finally:
            detach(attached.values())


async def test_a_volume_group_that_is_not_there_sends_the_job_elsewhere(place, monkeypatch):
    programs = place / "bin"
    programs.mkdir()
    for name in LVM:
        (programs / name).write_text("#!/bin/sh\necho 'no such volume group' >&2\n[ $0 = lvs ] || exit 5\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    async with IsolatedPool(place, **ENFORCE, LVM_VOLUME_GROUP_NAME="vg") as pool:
        report, _ = await pool.run("true")
        assert report.exit.reason == "failed"
        assert "no such volume group" in report.exit.message
