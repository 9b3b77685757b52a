"""File systems of scratch directories: sizes, names and the commands that make them. Pure (SCR-01, SCR-04, SCR-05)."""

from __future__ import annotations

from dataclasses import dataclass

from services.startd.starter.faults import Fault
from services.startd.walls.rules import DiskRules

#: The smallest volume (SCR-05).
LEAST_KIB = 4096
#: It never lives through a reboot: no journal, no reserve, and what can be done later is.
_FORMAT = ("mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard")
MOUNT_OPTIONS = "barrier=0,nodiscard"
#: Of a full file system, what may still be free: too little for one more file with something in it, KiB.
FULL_KIB = 8
#: HTCondor's hold code for a job that used more than it was given, and its subcode for disk.
HOLD_USE, OVER_DISK = Fault.OVER_DISK.code, Fault.OVER_DISK.subcode


@dataclass(frozen=True, slots=True)
class Verdict:
    """A run that is killed by us, and must be held for it."""

    code: int
    subcode: int
    message: str


@dataclass(frozen=True, slots=True)
class Room:
    """What is left in a file system."""

    size_kib: int
    free_kib: int
    free_files: int


def size_of(disk_kib: int) -> int:
    """KiB of the volume of a slot with this much Disk."""
    return max(LEAST_KIB, disk_kib)


def formatting(device: str) -> list[str]:
    return [*_FORMAT, device]


def creation(rules: DiskRules, name: str, size_kib: int) -> list[str]:
    """The command that makes a logical volume: thin, from the pool, where one is named (SCR-04)."""
    start = ["lvcreate", "--yes", "--quiet", "--wipesignatures", "y", "--name", name]
    if rules.thin_pool:
        return [*start, "--virtualsize", f"{size_kib}k", "--thinpool", rules.thin_pool, rules.volume_group]
    return [*start, "--size", f"{size_kib}k", rules.volume_group]


def removal(rules: DiskRules, name: str) -> list[str]:
    return ["lvremove", "--yes", "--quiet", f"{rules.volume_group}/{name}"]


def listing(rules: DiskRules) -> list[str]:
    """Prints the names of all logical volumes of the group, one a line."""
    return ["lvs", "--noheadings", "--options", "lv_name", rules.volume_group]


def device(rules: DiskRules, name: str) -> str:
    return f"/dev/{rules.volume_group}/{name}"


def over_volume(room: Room) -> Verdict | None:
    """Whether a job filled its file system (SCR-02)."""
    if room.free_kib > FULL_KIB and room.free_files > 0:
        return None
    what = "" if room.free_files else " (no more files can be made)"
    used = room.size_kib - room.free_kib
    return Verdict(
        HOLD_USE,
        OVER_DISK,
        f"Job has filled its scratch file system of {room.size_kib} KB: {used} KB are used, {room.free_kib} KB "
        f"free{what}.",
    )


def over_measure(used_kib: int, disk_kib: int) -> Verdict | None:
    """The same where the scratch directory has no file system of its own."""
    if used_kib <= size_of(disk_kib):
        return None
    return Verdict(
        HOLD_USE, OVER_DISK, f"Job has gone over disk limit of {size_of(disk_kib)} KB. Measured usage: {used_kib} KB."
    )
