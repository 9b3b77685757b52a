"""What this machine is and how busy it is, behind a source that tests replace."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

from services.startd.machine.console import Console
from services.startd.machine.wiring import Interface, default_route, waking

_ARCH = {"x86_64": "X86_64", "amd64": "X86_64", "i386": "INTEL", "i686": "INTEL", "aarch64": "aarch64"}


@dataclass(frozen=True, slots=True)
class Detected:
    """What does not change while the daemon lives."""

    hostname: str
    cpus: int  # logical
    cores: int  # physical
    memory_mib: int
    swap_kib: int
    arch: str
    opsys: str = "LINUX"
    opsys_name: str = ""
    opsys_major: int = 0
    opsys_long_name: str = ""
    cpu_model: str = ""
    interface: Interface | None = None  # by which it can be woken


@dataclass(frozen=True, slots=True)
class Sample:
    """What does."""

    disk_kib: int = 0  # free where EXECUTE lies
    load_avg: float = 0.0
    keyboard_idle_s: int = 0  # since anybody typed, at a terminal or at the console
    console_idle_s: int = 0
    free_swap_kib: int = 0
    clock_min: int = 0  # minutes since local midnight
    clock_day: int = 0  # Sunday 0


class Source(Protocol):
    def detect(self) -> Detected: ...

    def sample(self, execute: Path, now: float) -> Sample: ...


@dataclass(slots=True)
class RealMachine:
    """The machine that this process runs on."""

    os_release: Path = Path("/etc/os-release")
    console: Console = field(default_factory=Console)

    def detect(self) -> Detected:
        name, major, long_name = _distribution(_os_release(self.os_release))
        machine = platform.machine()
        return Detected(
            hostname=platform.node() or "localhost",
            cpus=len(os.sched_getaffinity(0)),
            cores=psutil.cpu_count(logical=False) or psutil.cpu_count() or 1,
            memory_mib=int(psutil.virtual_memory().total // 2**20),
            swap_kib=int(psutil.swap_memory().total // 1024),
            arch=_ARCH.get(machine.lower(), machine),
            opsys=platform.system().upper(),
            opsys_name=name,
            opsys_major=major,
            opsys_long_name=long_name,
            cpu_model=_cpu_model(),
            interface=_interface(),
        )

    def sample(self, execute: Path, now: float) -> Sample:
        local = time.localtime(now)
        keyboard_idle, console_idle = self.console.idle(now)
        return Sample(
            disk_kib=shutil.disk_usage(execute).free // 1024,
            load_avg=round(os.getloadavg()[0], 2),
            keyboard_idle_s=keyboard_idle,
            console_idle_s=console_idle,
            free_swap_kib=int(psutil.swap_memory().free // 1024),
            clock_min=local.tm_hour * 60 + local.tm_min,
            clock_day=(local.tm_wday + 1) % 7,
        )


def _interface() -> Interface | None:
    try:
        route = Path("/proc/net/route").read_text()
    except OSError:
        route = ""
    found = []
    for name, addresses in psutil.net_if_addrs().items():
        hardware = next((one.address for one in addresses if one.family == psutil.AF_LINK), "")
        inet = next((one for one in addresses if one.family == socket.AF_INET), None)
        found.append(Interface(name, hardware, inet.address if inet else "", (inet.netmask or "") if inet else ""))
    return waking(found, default_route(route))


def _os_release(path: Path) -> Mapping[str, str]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key: value.strip("\"'") for key, _, value in pairs}


def _distribution(release: Mapping[str, str]) -> tuple[str, int, str]:
    """HTCondor's name of a distribution, its major version, its long name."""
    names = {"debian": "Debian", "ubuntu": "Ubuntu", "rhel": "RedHat", "centos": "CentOS", "rocky": "Rocky"}
    names |= {"almalinux": "AlmaLinux", "fedora": "Fedora", "opensuse-leap": "openSUSE", "sles": "SLES"}
    ident = release.get("ID", "linux")
    version = release.get("VERSION_ID", "0").partition(".")[0]
    major = int(version) if version.isdigit() else 0
    return names.get(ident, ident.capitalize()), major, release.get("PRETTY_NAME", "Linux")


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        return ""
    return ""
