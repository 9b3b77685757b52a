"""File systems of their own for scratch directories (STARTD_ENFORCE_DISK_LIMITS): made, looked into, removed (SCR-01 to
SCR-05).

They are mounted by the fork server, in a mount namespace of its own, which its jobs inherit and nobody else sees; the
startd reaches them by the fork server's /proc/PID/root. So they outlive the startd, and when the fork server is gone
with all jobs, the kernel unmounts them. A loop file has no name any more once it is attached, and its loop device
clears itself: whatever dies, nothing is left. Logical volumes of an earlier life are removed at the next start.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import shutil
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from services.startd.core.isolation import DiskSettings
from services.startd.core.run.failures import Fault
from services.startd.forkserver.client import ForkServer

#: The smallest volume (SCR-05).
LEAST_KIB = 4096
#: It never lives through a reboot: no journal, no reserve, and what can be done later is.
_FORMAT = ("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard")
MOUNT_OPTIONS = "barrier=0,nodiscard"
#: So much larger than the slot's Disk is the file system, KiB: a job that needs some of it has used more than its disk.
#: A write is refused as a whole where a large page of the kernel's cache finds no room, 2 MiB, so that a file system
#: which refused one may show as much as free; to that comes room for one more small file.
SPARE_KIB = 2 * 1024 + 64


@dataclass(frozen=True, slots=True)
class Violation:
    """A run that is killed by us, and must be held for it."""

    fault: Fault
    message: str


@dataclass(frozen=True, slots=True)
class FreeSpace:
    """What is left in a file system."""

    size_kib: int
    free_kib: int
    free_files: int


def volume_size_kib(disk_kib: int) -> int:
    """KiB of the volume of a slot with this much Disk."""
    return max(LEAST_KIB, disk_kib)


def format_command(device: str) -> list[str]:
    return [*_FORMAT, device]


def create_command(rules: DiskSettings, name: str, size_kib: int) -> list[str]:
    """The command that makes a logical volume: thin, from the pool, where one is named (SCR-04)."""
    start = ["lvcreate", "--yes", "--quiet", "--wipesignatures", "y", "--name", name]
    if rules.thin_pool:
        return [*start, "--virtualsize", f"{size_kib}k", "--thinpool", rules.thin_pool, rules.volume_group]
    return [*start, "--size", f"{size_kib}k", rules.volume_group]


def remove_command(rules: DiskSettings, name: str) -> list[str]:
    return ["lvremove", "--yes", "--quiet", f"{rules.volume_group}/{name}"]


def list_command(rules: DiskSettings) -> list[str]:
    """Prints the names of all logical volumes of the group, one a line."""
    return ["lvs", "--noheadings", "--options", "lv_name", rules.volume_group]


def volume_device(rules: DiskSettings, name: str) -> str:
    return f"/dev/{rules.volume_group}/{name}"


def over_volume(room: FreeSpace) -> Violation | None:
    """Whether a job filled its disk (SCR-02), whatever the size of the write that found no room."""
    if room.free_kib > SPARE_KIB and room.free_files > 0:
        return None
    what = "" if room.free_files else " (no more files can be made)"
    used = room.size_kib - room.free_kib
    return Violation(
        Fault.OVER_DISK,
        f"Job has filled its scratch file system of {room.size_kib - SPARE_KIB} KB: {used} KB are used{what}.",
    )


def over_measure(used_kib: int, disk_kib: int) -> Violation | None:
    """Whether a job used more than its disk, where its scratch directory has no file system of its own."""
    if used_kib <= volume_size_kib(disk_kib):
        return None
    return Violation(
        Fault.OVER_DISK,
        f"Job has gone over disk limit of {volume_size_kib(disk_kib)} KB. Measured usage: {used_kib} KB.",
    )


_LOOP_CTL_GET_FREE, _LOOP_CONFIGURE, _AUTOCLEAR = 0x4C82, 0x4C0A, 4
#: struct loop_config as far as the flags: descriptor, block size, 5 words and 3 half words of nothing, flags.
_LOOP_CONFIG, _LOOP_CONFIG_BYTES = struct.Struct("=II40x12xI"), 304
#: So often is a free loop device asked for: others ask too.
_LOOP_TRIES = 16
#: The longest any of the commands may take, seconds.
COMMAND_S = 120.0


class ScratchVolumes:
    """`trouble`: why scratch directories get no file systems here, though the knobs ask for them: they are measured
    then."""

    def __init__(self, rules: DiskSettings, execute: Path, server: ForkServer | None, *, able: bool) -> None:
        self.rules = rules
        self.execute = execute
        self.server = server
        self.trouble = ""
        self._mounted: set[str] = set()
        if not rules.enforce:
            self.trouble = "STARTD_ENFORCE_DISK_LIMITS is false"
        elif not able:
            self.trouble = "this startd may not mount: that takes root"
        else:
            programs = ("mkfs.ext4", *(("lvcreate", "lvremove", "lvs") if rules.volume_group else ()))
            missing = [name for name in programs if shutil.which(name) is None]
            if missing:
                self.trouble = f"{', '.join(missing)} missing"
            elif not rules.volume_group and not os.path.exists("/dev/loop-control"):
                self.trouble = "there are no loop devices (/dev/loop-control)"

    @property
    def usable(self) -> bool:
        return not self.trouble

    # -- making

    async def mount_scratch(self, name: str, disk_kib: int) -> None:
        """Put a new file system over the scratch directory `name`. Raises RunFailed: this machine's trouble."""
        size = volume_size_kib(disk_kib) + SPARE_KIB
        try:
            if self.rules.volume_group:
                await _call(create_command(self.rules, name, size))
                device = volume_device(self.rules, name)
                try:
                    await _call(format_command(device))
                    await self._mount(device, name)
                except BaseException:
                    await _call(remove_command(self.rules, name))
                    raise
            else:
                await self._mount_loop(name, size)
            self._mounted.add(name)
            await asyncio.to_thread(self._clear, name)
        except OSError as error:
            message = f"this machine can not make a file system of {size} KB: {error}"
            raise Fault.NO_ISOLATION.failure(message, machine=True) from error

    async def _mount_loop(self, name: str, size_kib: int) -> None:
        path = Path(f"{self.rules.backing_file}.{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # All of it now: a job must not find its own disk full of others' files.
            await asyncio.to_thread(os.posix_fallocate, file, 0, size_kib * 1024)
            await _call(format_command(str(path)))
            device, loop = await asyncio.to_thread(_attach, file)
            try:
                await self._mount(device, name)
            finally:
                os.close(loop)  # it clears itself when it is unmounted
        finally:
            os.close(file)
            os.unlink(path)

    async def _mount(self, device: str, name: str) -> None:
        assert self.server is not None
        await self.server.mount(device, str(self.execute / name), "ext4", MOUNT_OPTIONS)

    def _clear(self, name: str) -> None:
        view = self.view(name)
        os.chmod(view, 0o700)
        with contextlib.suppress(OSError):
            os.rmdir(view / "lost+found")

    # -- looking

    def view(self, name: str) -> Path:
        """The path by which this process finds the scratch directory."""
        if name in self._mounted and self.server is not None:
            return Path(f"/proc/{self.server.pid}/root{self.execute}/{name}")
        return self.execute / name

    def has(self, name: str) -> bool:
        return name in self._mounted

    def room(self, name: str) -> FreeSpace | None:
        """None when it has no file system of its own."""
        if name not in self._mounted:
            return None
        try:
            found = os.statvfs(self.view(name))
        except OSError:
            return None  # the fork server was killed, and everything with it
        unit = found.f_frsize
        return FreeSpace(found.f_blocks * unit // 1024, found.f_bavail * unit // 1024, found.f_favail)

    # -- removing

    async def unmount_scratch(self, name: str) -> None:
        """Remove a file system with all that is in it; nothing happens where there is none. Raises OSError."""
        if name not in self._mounted:
            return
        self._mounted.discard(name)
        assert self.server is not None
        await self.server.unmount(str(self.execute / name))
        if self.rules.volume_group:
            await _call(remove_command(self.rules, name))

    async def adopt(self, prefix: str, keep: Collection[str]) -> None:
        """At the start: know what an earlier life mounted, and remove logical volumes that no run has. Raises
        OSError."""
        if self.server is not None and self.server.pid:
            self._mounted |= await asyncio.to_thread(_mounted_below, self.server.pid, self.execute, prefix)
        for name in sorted(self._mounted - set(keep)):
            await self.unmount_scratch(name)
        if self.usable and self.rules.volume_group:
            for name in (await _call(list_command(self.rules))).split():
                if name.startswith(prefix) and name not in self._mounted:
                    await _call(remove_command(self.rules, name))


def _mounted_below(pid: int, execute: Path, prefix: str) -> set[str]:
    try:
        lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    except OSError:
        return set()
    start = f"{execute}/{prefix}"
    paths = (line.split()[4].replace("\\040", " ") for line in lines)
    return {os.path.basename(path) for path in paths if path.startswith(start)}


def _attach(file: int) -> tuple[str, int]:
    """A loop device on this file, and a descriptor that keeps it until it is mounted. Raises OSError."""
    with open("/dev/loop-control", "rb", buffering=0) as control:
        for _ in range(_LOOP_TRIES):
            number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
            device = f"/dev/loop{number}"
            if not os.path.exists(device):
                os.mknod(device, 0o600 | 0o060000, os.makedev(7, number))  # in a container nobody else does
            loop = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            packed = _LOOP_CONFIG.pack(file, 0, _AUTOCLEAR).ljust(_LOOP_CONFIG_BYTES, b"\0")
            try:
                fcntl.ioctl(loop, _LOOP_CONFIGURE, packed)
            except OSError as error:
                os.close(loop)
                if error.errno != errno.EBUSY:
                    raise
            else:
                return device, loop
    raise OSError(errno.EBUSY, "no free loop device")


async def _call(command: list[str]) -> str:
    """What it prints. Raises OSError with what it says when it fails."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin", "LANG": "C.UTF-8"},
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), COMMAND_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        raise OSError(errno.ETIMEDOUT, f"{command[0]} took more than {COMMAND_S:.0f} s") from None
    if process.returncode:
        said = " ".join(err.decode(errors="replace").split())[-300:]
        raise OSError(errno.EIO, f"{command[0]} failed with {process.returncode}: {said}")
    return out.decode(errors="replace")
