"""The most memory that all processes of a job held, as its cgroup tells at the end."""

import contextlib
import select

import pytest

from services.startd.forkserver.cgroup import Cgroup

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
    (tmp_path / "memory.peak").write_text(f"{310 * MIB}\n")
    assert cgroup.resident_peak_kib() == 310 * 1024


def test_where_there_is_no_cgroup_nothing_is_known(tmp_path):
    assert Cgroup({}).resident_peak_kib() == 0
    assert Cgroup({"unified": str(tmp_path)}).resident_peak_kib() == 0
