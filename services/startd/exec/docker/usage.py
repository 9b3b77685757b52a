"""What a container uses: from the files of its control group where this machine has them (a millisecond, no request),
else from the engine's statistics.

The files of both versions of control groups are understood; where the engine's own is mounted elsewhere, or the startd
is in a container itself, there are none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from services.startd.core.run.job_launch import Measured

ROOT = Path("/sys/fs/cgroup")
_HERTZ = os.sysconf("SC_CLK_TCK")
_KIB = 1024
_MB = 1e6


def places(container: str, root: Path = ROOT) -> Iterator[Path]:
    """Directories that may be a container's group: version 1 (of memory), version 2, each by itself or by systemd;
    Docker's and Podman's, of root and of this account."""
    own = f"user.slice/user-{os.geteuid()}.slice/user@{os.geteuid()}.service"
    for top in (root / "memory", root):
        yield top / "docker" / container
        yield top / "system.slice" / f"docker-{container}.scope"
        yield top / own / "app.slice" / f"docker-{container}.scope"
        yield top / own / "user.slice" / f"docker-{container}.scope"
        for podman in (
            top / "libpod_parent" / f"libpod-{container}",
            top / "machine.slice" / f"libpod-{container}.scope",
            top / own / "user.slice" / f"libpod-{container}.scope",
        ):
            yield podman / "container"  # where its runtime makes one within
            yield podman


def group_of(container: str, root: Path = ROOT) -> Path | None:
    for place in places(container, root):
        if (place / "cgroup.procs").exists():
            return place
    return None


def main_pid(container: str, root: Path = ROOT) -> int:
    """The container's first process as this machine knows it; 0: it can not be seen from here."""
    group = group_of(container, root)
    try:
        first = (group / "cgroup.procs").read_text().split(None, 1) if group else []
    except OSError:
        return 0
    return int(first[0]) if first else 0


def from_files(container: str, own_network: bool, root: Path = ROOT, proc: Path = Path("/proc")) -> Measured | None:
    """None: there are no such files, or the container has ended. own_network: what it sends and receives is its own."""
    group = group_of(container, root)
    if group is None:
        return None
    try:
        measured = (
            _version_1(container, group, root) if (group / "memory.usage_in_bytes").exists() else _version_2(group)
        )
    except (OSError, ValueError, KeyError):
        return None
    more = dict(measured.attributes)
    if own_network and (pid := main_pid(container, root)):
        try:
            more |= network_attributes(*_network(proc / str(pid) / "net" / "dev"))
        except (OSError, ValueError):
            return replace(measured, attributes=more)
    return replace(measured, attributes=more)


def _version_1(container: str, memory: Path, root: Path) -> Measured:
    def of(controller: str) -> Path:
        return root / controller / memory.relative_to(root / "memory")

    usage = int((memory / "memory.usage_in_bytes").read_text())
    stat = _pairs(memory / "memory.stat")
    ticks = _pairs(of("cpuacct") / "cpuacct.stat")
    read = write = 0
    for line in _lines(of("blkio") / "blkio.throttle.io_service_bytes_recursive"):
        words = line.split()
        if len(words) == 3:
            read += int(words[2]) if words[1] == "Read" else 0
            write += int(words[2]) if words[1] == "Write" else 0
    files = stat.get("total_cache", 0) - stat.get("total_shmem", 0)
    pids = _lines(of("pids") / "pids.current")
    procs = int(pids[0]) if pids else len((memory / "cgroup.procs").read_text().split())
    return Measured(
        user_cpu_s=ticks["user"] / _HERTZ,
        sys_cpu_s=ticks["system"] / _HERTZ,
        image_size_kib=usage // _KIB,
        resident_set_kib=max(0, usage - stat.get("total_inactive_file", 0)) // _KIB,
        procs=procs,
        resident_peak_kib=_peak_kib(memory / "memory.max_usage_in_bytes", files),
        attributes=block_attributes(read, write),
    )


def _version_2(group: Path) -> Measured:
    usage = int((group / "memory.current").read_text())
    stat = _pairs(group / "memory.stat")
    cpu = _pairs(group / "cpu.stat")
    read = write = 0
    for line in _lines(group / "io.stat"):
        fields = dict(field.split("=", 1) for field in line.split()[1:])
        read += int(fields.get("rbytes", 0))
        write += int(fields.get("wbytes", 0))
    pids = _lines(group / "pids.current")
    return Measured(
        user_cpu_s=cpu["user_usec"] / 1e6,
        sys_cpu_s=cpu["system_usec"] / 1e6,
        image_size_kib=usage // _KIB,
        resident_set_kib=max(0, usage - stat.get("inactive_file", 0)) // _KIB,
        procs=int(pids[0]) if pids else 0,
        resident_peak_kib=_peak_kib(group / "memory.peak", stat.get("file", 0) - stat.get("shmem", 0)),
        attributes=block_attributes(read, write),
    )


def _peak_kib(file: Path, files: int) -> int:
    """The most memory that was held at a time, without what is kept of files now; 0: the kernel does not tell."""
    lines = _lines(file)
    return max(0, int(lines[0]) - max(0, files)) // _KIB if lines else 0


def _pairs(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}


def _lines(path: Path) -> list[str]:
    """The lines of a file that a kernel may lack."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _network(path: Path) -> tuple[int, int]:
    """Bytes received and sent by all interfaces but the loopback."""
    received = sent = 0
    for line in path.read_text().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        if name.strip() != "lo":
            fields = numbers.split()
            received += int(fields[0])
            sent += int(fields[8])
    return received, sent


def block_attributes(read: int, write: int) -> dict[str, object]:
    """HTCondor's attributes of a job for bytes that went through the disks."""
    return {"BlockReadKbytes": read // _KIB, "BlockWriteKbytes": write // _KIB}


def network_attributes(received: int, sent: int) -> dict[str, object]:
    """HTCondor's attributes of a job for bytes that went through its network."""
    return {"NetworkInputMb": round(received / _MB, 3), "NetworkOutputMb": round(sent / _MB, 3)}


def from_statistics(stats: Mapping[str, Any]) -> Measured:
    """What a container uses, from the engine's `GET /containers/{id}/stats`, which lacks what its kernel does not
    count."""
    cpu = (stats.get("cpu_stats") or {}).get("cpu_usage") or {}
    memory = stats.get("memory_stats") or {}
    counted = memory.get("stats") or {}
    usage = int(memory.get("usage") or 0)
    inactive = int(counted.get("total_inactive_file") or counted.get("inactive_file") or 0)
    attributes: dict[str, object] = {}
    blocks = (stats.get("blkio_stats") or {}).get("io_service_bytes_recursive")
    if blocks is not None:
        sums = {"read": 0, "write": 0}
        for one in blocks:
            operation = str(one.get("op", "")).lower()
            if operation in sums:
                sums[operation] += int(one.get("value", 0))
        attributes |= block_attributes(sums["read"], sums["write"])
    if networks := stats.get("networks"):
        received = sum(int(one.get("rx_bytes", 0)) for one in networks.values())
        sent = sum(int(one.get("tx_bytes", 0)) for one in networks.values())
        attributes |= network_attributes(received, sent)
    return Measured(
        user_cpu_s=float(cpu.get("usage_in_usermode") or 0) / 1e9,
        sys_cpu_s=float(cpu.get("usage_in_kernelmode") or 0) / 1e9,
        image_size_kib=usage // _KIB,
        resident_set_kib=max(0, usage - inactive) // _KIB,
        procs=int((stats.get("pids_stats") or {}).get("current") or 0),
        attributes=attributes,
    )
