"""The most memory that all processes of a job held, as its cgroup tells at the end."""

import contextlib
import itertools
import select
import subprocess
import sys

import psutil
import pytest

from services.startd.exec.process_tree import measure_tree
from services.startd.forkserver.cgroup import Cgroup
from services.startd.forkserver.nanny import FIRST_LOOK_S, LOOK_GROWTH, MOST_LOOK_S, MemoryLooks
from services.startd.forkserver.processes import memory_of_kib

MIB = 2**20


def group(folder, *, version, peak, files, shared):
    """Files of a cgroup as the kernel has them, in bytes."""
    if version == 1:
        (folder / "memory.max_usage_in_bytes").write_text(f"{peak}\n")
        # Without `total_` of this very cgroup, with it of those below, too.
        (folder / "memory.stat").write_text(
            f"cache 0\nrss 5\ntotal_cache {files + shared}\ntotal_rss 5\ntotal_shmem {shared}\n"
        )
        return Cgroup({"memory": str(folder)})
    (folder / "memory.peak").write_text(f"{peak}\n")
    (folder / "memory.stat").write_text(f"anon 5\nfile {files + shared}\nkernel 7\nshmem {shared}\n")
    return Cgroup({"unified": str(folder)})


@pytest.mark.parametrize("version", [1, 2])
def test_it_is_what_the_cgroup_had_at_most_less_the_files_it_holds(tmp_path, version):
    cgroup = group(tmp_path, version=version, peak=300 * MIB, files=100 * MIB, shared=40 * MIB)
    assert cgroup.resident_peak_kib() == 200 * 1024
    assert cgroup.tells_peak()


@pytest.mark.parametrize("version", [1, 2])
def test_more_files_than_it_ever_had_are_nothing(tmp_path, version):
    assert group(tmp_path, version=version, peak=MIB, files=2 * MIB, shared=0).resident_peak_kib() == 0


def test_a_peak_of_an_earlier_job_is_not_this_ones(tmp_path):
    """Slots keep their cgroups, and memory.peak of version 2 is not set back."""
    cgroup = group(tmp_path, version=2, peak=300 * MIB, files=0, shared=0)
    (tmp_path / "memory.events").write_text("oom 0\n")
    with contextlib.suppress(PermissionError):  # the poll takes the kernel's own file only
        cgroup.watch(select.poll())
    assert cgroup.resident_peak_kib() == 0
    assert not cgroup.tells_peak()
    (tmp_path / "memory.peak").write_text(f"{310 * MIB}\n")
    assert cgroup.resident_peak_kib() == 310 * 1024


def test_where_there_is_no_cgroup_nothing_is_known(tmp_path):
    assert Cgroup({}).resident_peak_kib() == 0
    assert Cgroup({"unified": str(tmp_path)}).resident_peak_kib() == 0
    assert not Cgroup({}).tells_peak()
    assert not Cgroup({"unified": str(tmp_path)}).tells_peak()


# Where no cgroup tells it

HELD = 40 * MIB
#: Holds memory, has three children of which each holds as much of its own, and shares its own with them.
FAMILY = f"""
import os, sys
shared = bytearray(b"x") * {HELD}
children = []
for _ in range(3):
    reader, writer = os.pipe()
    if os.fork() == 0:
        own = bytearray(b"y") * {HELD}
        os.write(writer, b"up")
        sys.stdin.read()
        os._exit(0)
    os.read(reader, 2)
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def family():
    process = subprocess.Popen([sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"up\n"
        yield process
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def test_memory_that_processes_share_counts_once(family):
    first = psutil.Process(family.pid)
    held = memory_of_kib(family.pid) + sum(memory_of_kib(child.pid) for child in first.children())
    assert 4 * HELD < held * 1024 < 6 * HELD
    assert sum(child.memory_info().rss for child in first.children()) > 6 * HELD
    assert 3 * HELD < measure_tree(family.pid).resident_set_kib * 1024 < 5 * HELD


def test_a_process_that_is_gone_has_none():
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    assert memory_of_kib(gone.pid) == 0


def test_looks_keep_the_most_that_all_processes_held(family):
    looks = MemoryLooks(0.0)
    looks.look(FIRST_LOOK_S / 2)
    assert looks.peak_kib == 0  # not due yet
    looks.look(FIRST_LOOK_S)
    assert looks.peak_kib * 1024 > 4 * HELD
    assert looks.peak_kib >= memory_of_kib(family.pid)
    most = looks.peak_kib = looks.peak_kib + 10**9
    looks.look(looks.next)
    assert looks.peak_kib == most


def test_looks_come_ever_less_often(monkeypatch):
    """So soon that little is missed: no more than a fifth of the time so far; and in a long run twice a minute."""
    looks, now, times = MemoryLooks(0.0), 0.0, []
    monkeypatch.setattr("services.startd.forkserver.nanny.descendants_of", lambda pid: [])
    monkeypatch.setattr("services.startd.forkserver.nanny.time.thread_time", lambda: 0.0)
    while now < 600:
        now = looks.next
        assert looks.left_ms(now) <= 1
        times.append(now)
        looks.look(now)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert all(gap <= max(FIRST_LOOK_S * LOOK_GROWTH, 0.26 * at + 0.1) for at, gap in zip(times, gaps, strict=False))
    assert max(gaps) == pytest.approx(MOST_LOOK_S)
    assert len(times) < 60


def test_looks_that_take_long_come_less_often(monkeypatch):
    looks = MemoryLooks(0.0)
    clock = iter([1.0, 3.0])
    monkeypatch.setattr("services.startd.forkserver.nanny.descendants_of", lambda pid: [])
    monkeypatch.setattr("services.startd.forkserver.nanny.time.thread_time", lambda: next(clock))
    looks.look(5.0)
    assert looks.next == 5.0 + 200.0
