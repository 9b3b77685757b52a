"""What this machine is, has and is busy with, behind a source that tests replace.

A terminal or the console was used when its device was read or written last, or when the interrupts of keyboard and
mouse were counted on. The programs that MACHINE_RESOURCE_INVENTORY_<name> names tell which custom resources there are.
One that can not be started is a mistake of the configuration, and refused. One that hangs, fails or prints what nobody
can read (a broken GPU driver) costs the machine this resource, not its other ones, and the log says so.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil
from structlog.stdlib import BoundLogger

from services.startd.core.machine.detected import (
    Detected,
    Interface,
    Processor,
    Sample,
    default_route,
    parse_cpuinfo,
    waking_interface,
)
from services.startd.core.machine.resources import Output, programs
from services.startd.core.machine.slot_types import ImpossiblePartition
from shared.config import Config
from shared.config.knobs import StartdSettings
from shared.linux_release import linux_release
from shared.subprocess_runner import ProgramFailed, clean_environment, run

#: Lines of /proc/interrupts that count keys and movements of the mouse.
_INPUT = ("i8042", "keyboard", "mouse")


@dataclass(slots=True)
class Console:
    """`devices`: names under /dev (CONSOLE_DEVICES). Times are on the wall clock, seconds."""

    devices: tuple[str, ...] = ("mouse", "console")
    dev: Path = Path("/dev")
    interrupts: Path = Path("/proc/interrupts")
    boot: float = field(default_factory=psutil.boot_time)
    _counted: int | None = None
    _pressed: float = 0.0

    def idle(self, now: float) -> tuple[int, int]:
        """Seconds since a terminal (or the console) was used, and since the console was; since boot when never."""
        console = max(self.boot, self._used(now), _latest(self.dev / name for name in self.devices))
        logged_in = (user.terminal for user in psutil.users())
        terminals = max(console, _latest(self.dev / terminal for terminal in logged_in if terminal))
        return max(0, int(now - terminals)), max(0, int(now - console))

    def _used(self, now: float) -> float:
        """When a key was pressed: the interrupts counted since the last look."""
        try:
            lines = self.interrupts.read_text().splitlines()
        except OSError:
            return 0.0
        counted = sum(_count(line) for line in lines if any(word in line.lower() for word in _INPUT))
        if self._counted is not None and counted != self._counted:
            self._pressed = now
        self._counted = counted
        return self._pressed


def _count(line: str) -> int:
    """All processors' counts of one line, which begins with the interrupt's number."""
    total = 0
    for word in line.split()[1:]:
        if not word.isdigit():
            break
        total += int(word)
    return total


def _latest(paths: Iterable[Path]) -> float:
    """When one of these devices was last read or written, as far as they are there."""
    latest = 0.0
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue  # a stale login record, or no such device on this machine
        latest = max(latest, status.st_atime)
    return latest


_ARCH = {"x86_64": "X86_64", "amd64": "X86_64", "i386": "INTEL", "i686": "INTEL", "aarch64": "aarch64"}


class Source(Protocol):
    def detect(self) -> Detected: ...

    def sample(self, execute: Path, now: float) -> Sample: ...


@dataclass(slots=True)
class RealMachine:
    """The machine that this process runs on."""

    etc: Path = Path("/etc")
    console: Console = field(default_factory=Console)

    def detect(self) -> Detected:
        release = linux_release(self.etc)
        machine = platform.machine()
        core_ids = tuple(sorted(os.sched_getaffinity(0)))
        return Detected(
            hostname=platform.node() or "localhost",
            cpus=len(core_ids),
            core_ids=core_ids,
            cores=psutil.cpu_count(logical=False) or psutil.cpu_count() or 1,
            memory_mib=int(psutil.virtual_memory().total // 2**20),
            swap_kib=int(psutil.swap_memory().total // 1024),
            arch=_ARCH.get(machine.lower(), machine),
            opsys=platform.system().upper(),
            opsys_name=release.name,
            opsys_major=release.major,
            opsys_version=release.version,
            opsys_long_name=release.long_name,
            processor=_processor(),
            interface=_interface(),
            user_namespaces=may_make_user_namespaces(),
            utsname=tuple(os.uname()),
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


def may_make_user_namespaces(knobs: Path = Path("/proc/sys")) -> bool:
    """Whether the kernel lets any account make namespaces of users."""

    def number(name: str, otherwise: int) -> int:
        try:
            return int((knobs / name).read_text())
        except (OSError, ValueError):
            return otherwise  # a kernel without this knob

    return (
        number("user/max_user_namespaces", 0) > 0
        and number("kernel/unprivileged_userns_clone", 1) > 0
        and number("kernel/apparmor_restrict_unprivileged_userns", 0) == 0
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
    return waking_interface(found, default_route(route))


def _processor() -> Processor:
    try:
        return parse_cpuinfo(Path("/proc/cpuinfo").read_text(errors="replace"))
    except OSError:
        return Processor()


#: Names under which files call for GPU discovery: where no such program is installed, ours is meant.
DISCOVERY = ("condor_gpu_discovery", "gpu_discovery", "roost-gpu-discovery")


async def take_inventory(
    config: Config, log: BoundLogger, environment: Mapping[str, str] | None = None
) -> dict[str, Output]:
    """What the programs say, by resource. Raises ImpossiblePartition."""
    wanted = programs(config)
    if not wanted:
        return {}
    knobs = StartdSettings.from_config(config)
    timeout = knobs.roost_inventory_timeout
    env = clean_environment(os.environ if environment is None else environment)
    found = await asyncio.gather(*(_ask(name, line, timeout, env, log) for name, line in wanted.items()))
    return dict(zip(wanted, found, strict=True))


async def _ask(name: str, line: str, timeout_s: float, env: Mapping[str, str], log: BoundLogger) -> Output:
    knob = f"MACHINE_RESOURCE_INVENTORY_{name}"
    try:
        # Blanks part the words, quotes are characters like others: as HTCondor reads it.
        ended = await run(command(line.split()), env=env, timeout_s=timeout_s)
    except ProgramFailed as error:
        raise ImpossiblePartition(f"{knob} = {line}: {error}. Mend the path, or take the knob out") from error
    if ended.stderr:
        log.warning("inventory_stderr", resource=name, stderr=ended.stderr.decode("utf-8", "replace")[-1000:])
    text = ended.stdout.decode("utf-8", "replace")
    if ended.timed_out:
        return Output(trouble=f"it did not end within {timeout_s:g} s (ROOST_INVENTORY_TIMEOUT)")
    if ended.cut:
        return Output(trouble="it printed more than a resource can be")
    return Output(text, trouble="" if ended.good or text else f"it failed: {ended}")


def command(argv: list[str]) -> list[str]:
    """The words to run: GPU discovery is part of the product, wherever files say that it lies."""
    if argv and os.path.basename(argv[0]) in DISCOVERY and not os.access(argv[0], os.X_OK):
        return [sys.executable, "-m", "shared.gpus", *argv[1:]]
    return argv
