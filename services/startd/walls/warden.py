"""Builds the walls of this startd's jobs: chooses accounts, gives scratch directories away, makes cgroups, and says
why a job whose processes were killed is held."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from services.startd.launchers.api import Account, Finished, Launch, LaunchFailed
from services.startd.sandbox import tree
from services.startd.starter.faults import Fault
from services.startd.walls import accounts, isolation
from services.startd.walls.cgroups import Cgroups, Use
from services.startd.walls.disk import Disks
from services.startd.walls.isolation import Ground
from services.startd.walls.limits import MIB, group_name, limits_of
from services.startd.walls.rules import WallRules
from services.startd.walls.volumes import Verdict, over_measure, over_volume
from shared.classad import ClassAd

#: HTCondor's hold code for a job that used more than it was given, and its subcode for memory.
HOLD_USE, OVER_MEMORY = Fault.OVER_MEMORY.code, Fault.OVER_MEMORY.subcode
#: A scratch directory with more entries is given away in a thread.
FEW = 32


@dataclass(slots=True)
class Ward:
    """A run behind walls."""

    group: str = ""  # its cgroup
    tracking_gid: int = 0
    memory_mib: int = 0
    scratch: Path | None = None
    disk_kib: int = 0  # of its slot
    leave: bool = False  # its slot is wanted no more: remove the cgroup after it


class Warden:
    """`execute`: EXECUTE as jobs see it. `hostname`: of this machine. `find`: accounts by name."""

    def __init__(
        self,
        rules: WallRules,
        ground: Ground,
        cgroups: Cgroups,
        disks: Disks,
        *,
        execute: Path,
        hostname: str,
        find: accounts.Lookup,
        warn: Callable[..., None],
    ) -> None:
        self.rules = rules
        self.ground = ground
        self.cgroups = cgroups
        self.disks = disks
        self.execute = execute
        self.hostname = hostname
        self.wards: dict[str, Ward] = {}
        self.verdicts: dict[str, Verdict] = {}
        self._find = find
        self._warn = warn
        self._warned: set[str] = set()

    def reread(self, rules: WallRules) -> None:
        """New knobs; those of disks and tracking groups wait for a restart (SCR-06, ISO-03)."""
        self.rules = replace(rules, disk=self.rules.disk, tracking_gids=self.rules.tracking_gids)

    # -- before the start

    def account(self, slot: str, job: ClassAd) -> Account | None:
        """The account of a run, for its processes, its hooks and its visitors; None: the startd's own. Raises
        LaunchFailed."""
        if not self.ground.root or self.rules.jobs_as_root:
            return None
        try:
            return accounts.choose(self.rules, slot, job, self._find)
        except accounts.NoAccount as error:
            raise LaunchFailed("failed", str(error)) from error

    async def prepare(self, launch: Launch) -> None:
        """Everything in the scratch directory becomes the account's. Raises LaunchFailed, OSError."""
        scratch = self.view(launch.scratch)
        if self.ground.mounts:
            for folder in isolation.private_directories(self.rules, launch):
                os.makedirs(scratch / isolation.private_name(folder), mode=0o700, exist_ok=True)
        account = launch.account
        if account is None or not self.ground.root:
            return
        self._must_enter(launch, account)
        if _is_small(scratch):
            tree.give(scratch, account.uid, account.gid)
        else:
            await asyncio.to_thread(tree.give, scratch, account.uid, account.gid)

    def view(self, scratch: Path) -> Path:
        """A scratch directory, as this process finds it."""
        return self.disks.view(scratch.name) if scratch.parent == self.execute else scratch

    def _must_enter(self, launch: Launch, account: Account) -> None:
        for folder in (launch.scratch.parent, *launch.scratch.parent.parents):
            status = os.stat(folder)
            mine = 0o010 if status.st_gid in (account.gid, *account.groups) else 0o001
            if not status.st_mode & (0o100 if status.st_uid == account.uid else mine):
                raise LaunchFailed(
                    "failed",
                    f"jobs run as {account.name}, which can not enter {folder}: give others the permission to "
                    f"(chmod o+x), or set EXECUTE to another directory",
                )

    def request(self, launch: Launch) -> dict[str, Any]:
        """What to add to a request to spawn. Raises LaunchFailed."""
        gid = 0
        if self.ground.root and self.rules.tracking_gids:
            used = {ward.tracking_gid for ward in self.wards.values()}
            found = accounts.free_gid(self.rules.tracking_gids, used)
            if found is None:
                gids = self.rules.tracking_gids
                raise LaunchFailed(
                    "failed",
                    f"there are no more tracking GIDs: MIN_TRACKING_GID {gids[0]} to MAX_TRACKING_GID {gids[-1]} are "
                    f"all in use; set aside one for each slot",
                )
            gid = found
        request = isolation.walls(self.rules, self.ground, launch, tracking_gid=gid)
        ward = Ward(tracking_gid=gid, memory_mib=launch.memory_mib, scratch=launch.scratch)
        ward.disk_kib = disk_of(launch.machine_ad)
        if self.cgroups:
            ward.group = group_name(str(self.execute), launch.slot, self.hostname)
            virtual = launch.machine_ad.eval("VirtualMemory")
            limits = limits_of(
                self.rules, launch.cpus, launch.memory_mib, virtual if isinstance(virtual, int) else None
            )
            try:
                request["cgroup"] = self.cgroups.make(ward.group, limits)
            except OSError as error:
                raise LaunchFailed("failed", f"this machine can not limit the job: {error}") from error
            request["group"] = ward.group
            self._tell(self.cgroups.trouble(ward.group))
        self.wards[launch.run] = ward
        return request

    def _tell(self, missing: list[str]) -> None:
        for one in missing:
            if one not in self._warned:
                self._warned.add(one)
                self._warn("limit_not_set", limit=one)

    # -- meanwhile

    def use(self, run: str) -> Use | None:
        """What a run uses, by its cgroup."""
        ward = self.wards.get(run)
        return self.cgroups.use(ward.group) if ward is not None and ward.group else None

    def adopt(self, run: str, group: str, tracking_gid: int) -> None:
        """A run of an earlier life that is still under way."""
        self.wards[run] = Ward(group, tracking_gid)

    def recall(self, run: str, scratch: Path, memory_mib: int, disk_kib: int) -> None:
        """What the journal knows of a run that was adopted."""
        ward = self.wards.get(run)
        if ward is not None and ward.scratch is None:
            ward.scratch, ward.memory_mib, ward.disk_kib = scratch, memory_mib, disk_kib

    async def look_at_disks(self) -> list[str]:
        """Runs that used more of the disk than they were given: they are condemned, and are to be killed."""
        found = []
        for run in list(self.wards):
            if run not in self.verdicts and await self.look_at_disk(run):
                found.append(run)
        return found

    async def look_at_disk(self, run: str) -> bool:
        """Whether the run is condemned for its use of the disk (SCR-02)."""
        ward = self.wards.get(run)
        if ward is None or ward.scratch is None or not self.rules.disk.enforce:
            return False
        if self.disks.has(ward.scratch.name):
            room = self.disks.room(ward.scratch.name)
            verdict = over_volume(room) if room is not None else None
        elif ward.disk_kib:
            used = await asyncio.to_thread(tree.size_kib, ward.scratch)
            verdict = over_measure(used, ward.disk_kib)
        else:
            verdict = None
        if verdict is not None:
            self.condemn(run, verdict)
        return verdict is not None

    def condemn(self, run: str, verdict: Verdict) -> None:
        """The run is about to be killed for this."""
        self.verdicts.setdefault(run, verdict)

    # -- after

    def judge(self, run: str, end: Finished, out_of_memory: Mapping[str, Any] | None) -> Finished:
        """The end of a run, with what its walls know of it: held for what it used (ISO-09), or lost because the
        machine had no memory left (ISO-10)."""
        verdict = self.verdicts.get(run)
        if verdict is not None:
            return replace(end, hold_code=verdict.code, hold_subcode=verdict.subcode, hold_message=verdict.message)
        if out_of_memory is None:
            return end
        ward = self.wards.get(run, Ward())
        peak = int(out_of_memory.get("peak_bytes", 0)) // MIB
        if not out_of_memory.get("own"):
            used = f" ({peak} MB used)" if peak else ""
            return replace(
                end,
                exit_code=None,
                exit_signal=None,
                trouble=f"this machine ran out of memory, below what the job was given{used}",
            )
        limit = ward.memory_mib
        if self.rules.memory_policy == "soft":
            limit = max(limit, self.rules.machine_memory_mib)
        return replace(
            end,
            hold_code=HOLD_USE,
            hold_subcode=OVER_MEMORY,
            hold_message=f"Job has gone over memory limit of {limit} megabytes. Peak usage: {max(peak, 1)} megabytes.",
        )

    def ended(self, run: str, *, used_up: bool) -> None:
        """None of its processes is left."""
        ward = self.wards.pop(run, None)
        if ward is not None and ward.group and (used_up or ward.leave):
            self.cgroups.drop(ward.group)

    def forget(self, run: str) -> None:
        self.verdicts.pop(run, None)
        self.ended(run, used_up=True)

    def leave(self, slot: str) -> None:
        """No further job comes to this slot for now."""
        if not self.cgroups:
            return
        group = group_name(str(self.execute), slot, self.hostname)
        busy = [ward for ward in self.wards.values() if ward.group == group]
        for ward in busy:
            ward.leave = True
        if not busy:
            self.cgroups.drop(group)

    def sweep(self) -> None:
        """Cgroups of an earlier life without runs."""
        if self.cgroups:
            resisted = self.cgroups.sweep({ward.group for ward in self.wards.values()})
            if resisted:
                self._warn("cgroups_not_removed", names=resisted)

    def close(self) -> None:
        """Leave nothing of what no run is in; the fork server removes the others at its own end."""
        if self.cgroups:
            self.cgroups.close({ward.group for ward in self.wards.values()})


def disk_of(machine: ClassAd) -> int:
    """KiB that a slot's ad promises; 0: it does not say."""
    value = machine.eval("Disk")
    return int(value) if isinstance(value, int | float) else 0


def _is_small(folder: Path) -> bool:
    with os.scandir(folder) as found:
        for count, entry in enumerate(found):
            if count >= FEW or (entry.is_dir(follow_symlinks=False) and entry.name != isolation.PRIVATE):
                return False
    return True
