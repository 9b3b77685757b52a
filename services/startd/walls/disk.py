"""File systems of their own for scratch directories (STARTD_ENFORCE_DISK_LIMITS): made, looked into, removed.

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
from pathlib import Path

from services.startd.launchers.api import LaunchFailed
from services.startd.starter.client import ForkServer
from services.startd.walls import volumes
from services.startd.walls.rules import DiskRules
from services.startd.walls.volumes import Room

_LOOP_CTL_GET_FREE, _LOOP_CONFIGURE, _AUTOCLEAR = 0x4C82, 0x4C0A, 4
#: struct loop_config as far as the flags: descriptor, block size, 5 words and 3 half words of nothing, flags.
_LOOP_CONFIG, _LOOP_CONFIG_BYTES = struct.Struct("=II40x12xI"), 304
#: So often is a free loop device asked for: others ask too.
_LOOP_TRIES = 16
#: The longest any of the commands may take, seconds.
COMMAND_S = 120.0


class Disks:
    """`trouble`: why scratch directories get no file systems here, though the knobs ask for them: they are measured
    then."""

    def __init__(self, rules: DiskRules, execute: Path, server: ForkServer | None, *, able: bool) -> None:
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

    async def make(self, name: str, disk_kib: int) -> None:
        """Put a new file system over the scratch directory `name`. Raises LaunchFailed: this machine's trouble."""
        size = volumes.size_of(disk_kib)
        try:
            if self.rules.volume_group:
                await _call(volumes.creation(self.rules, name, size))
                device = volumes.device(self.rules, name)
                try:
                    await _call(volumes.formatting(device))
                    await self._mount(device, name)
                except BaseException:
                    await _call(volumes.removal(self.rules, name))
                    raise
            else:
                await self._make_loop(name, size)
            self._mounted.add(name)
            await asyncio.to_thread(self._clear, name)
        except OSError as error:
            raise LaunchFailed("failed", f"this machine can not make a file system of {size} KB: {error}") from error

    async def _make_loop(self, name: str, size_kib: int) -> None:
        path = Path(f"{self.rules.backing_file}.{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # All of it now: a job must not find its own disk full of others' files.
            await asyncio.to_thread(os.posix_fallocate, file, 0, size_kib * 1024)
            await _call(volumes.formatting(str(path)))
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
        await self.server.mount(device, str(self.execute / name), "ext4", volumes.MOUNT_OPTIONS)

    def _clear(self, name: str) -> None:
        view = self.view(name)
        os.chmod(view, 0o700)
        with contextlib.suppress(OSError):
            os.rmdir(view / "lost+found")

    # -- looking

    def view(self, name: str) -> Path:
        """Where this process finds the scratch directory."""
        if name in self._mounted and self.server is not None:
            return Path(f"/proc/{self.server.pid}/root{self.execute}/{name}")
        return self.execute / name

    def has(self, name: str) -> bool:
        return name in self._mounted

    def room(self, name: str) -> Room | None:
        """None when it has no file system of its own."""
        if name not in self._mounted:
            return None
        try:
            found = os.statvfs(self.view(name))
        except OSError:
            return None  # the fork server was killed, and everything with it
        unit = found.f_frsize
        return Room(found.f_blocks * unit // 1024, found.f_bavail * unit // 1024, found.f_favail)

    # -- removing

    async def unmake(self, name: str) -> None:
        """Remove a file system with all that is in it; nothing happens where there is none. Raises OSError."""
        if name not in self._mounted:
            return
        self._mounted.discard(name)
        assert self.server is not None
        await self.server.unmount(str(self.execute / name))
        if self.rules.volume_group:
            await _call(volumes.removal(self.rules, name))

    async def adopt(self, prefix: str, keep: Collection[str]) -> None:
        """At the start: know what an earlier life mounted, and remove logical volumes that no run has. Raises
        OSError."""
        if self.server is not None and self.server.pid:
            self._mounted |= await asyncio.to_thread(_mounted_below, self.server.pid, self.execute, prefix)
        for name in sorted(self._mounted - set(keep)):
            await self.unmake(name)
        if self.usable and self.rules.volume_group:
            for name in (await _call(volumes.listing(self.rules))).split():
                if name.startswith(prefix) and name not in self._mounted:
                    await _call(volumes.removal(self.rules, name))


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
