"""Isolates the jobs of this startd: chooses accounts, gives scratch directories away, makes cgroups, and says why a job
whose processes were killed is held.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from structlog.stdlib import BoundLogger

from services.startd.core import isolation
from services.startd.core.isolation import MIB, HostCapabilities, IsolationSettings, cgroup_limits, group_name
from services.startd.core.machine.devices import gpus_to_hide
from services.startd.core.run.failures import Fault
from services.startd.core.run.job_launch import Account, Finished, Launch
from services.startd.core.separation import Separation, find_separation, is_own, refusal
from services.startd.forkserver import kernel
from services.startd.forkserver.cgroup import Cgroup
from services.startd.forkserver.client import ForkServer
from services.startd.isolation import host_capabilities, job_view, scratch_dirs
from services.startd.isolation.cgroups import Cgroups, Hierarchies, Use, explain_trouble, prepare_hierarchies
from services.startd.isolation.scratch_volumes import ScratchVolumes, Violation, over_measure, over_volume
from shared.classad import ClassAd

#: A scratch directory with more entries is given away in a thread.
FEW = 32
#: How often to look whether what was killed has gone, and how long after each other.
LEAVING_ROUNDS, LEAVING_ROUND_S = 200, 0.01
#: How old may be what is known of the places that jobs may use, seconds.
LOOK_S = 10.0


@dataclass(slots=True)
class IsolatedRun:
    """What is known of a run whose processes are isolated."""

    group: str = ""  # its cgroup
    tracking_gid: int = 0
    memory_mib: int = 0
    scratch: Path | None = None
    disk_kib: int = 0  # of its slot
    last: bool = False  # no further job comes to its slot: remove the cgroup after it


class IsolationManager:
    """`execute`: EXECUTE as jobs see it. `hostname`: of this machine. `find`: accounts by name. `private`: what of the
    file system is the daemon's own (`job_view`)."""

    def __init__(
        self,
        rules: IsolationSettings,
        host: HostCapabilities,
        cgroups: Cgroups,
        volumes: ScratchVolumes,
        *,
        execute: Path,
        hostname: str,
        find: isolation.FindLogin,
        warn: Callable[..., None],
        private: tuple[str, ...] = (),
        find_gpus: Callable[[], Mapping[str, str]] = host_capabilities.find_gpus,
    ) -> None:
        self.rules = rules
        self._host = host
        self._private = private
        self._looked = self._compared = float("-inf")
        self._separation = Separation("")
        self.cgroups = cgroups
        self.volumes = volumes
        self.execute = execute
        self.hostname = hostname
        self.runs: dict[str, IsolatedRun] = {}
        self.violations: dict[str, Violation] = {}
        self._find = find
        self._find_gpus = find_gpus
        self._warn = warn
        self._warned: set[str] = set()

    def reread(self, rules: IsolationSettings) -> None:
        """New knobs; those of disks and tracking groups wait for a restart (SCR-06, ISO-03)."""
        self.rules = replace(rules, disk=self.rules.disk, tracking_gids=self.rules.tracking_gids)
        self._looked = float("-inf")

    @property
    def host(self) -> HostCapabilities:
        """With what of the file system is there to be granted, looked at anew now and then."""
        if not self._host.root and self._host.landlock and time.monotonic() - self._looked >= LOOK_S:
            self._looked = time.monotonic()
            private = (*self._private, *(os.path.realpath(path) for path in self.rules.hidden))
            grants = job_view.find_grants(self.rules.read_paths, self.rules.write_paths, private)
            self._host = replace(self._host, grants=grants)
        return self._host

    def troubles(self) -> list[str]:
        """What jobs lack that a startd which is root should give them, with the mend."""
        if not self._host.root:
            return []
        found = explain_trouble(self.cgroups.hierarchies, self.rules.base_cgroup)
        return [found] if found else []

    def separation(self) -> Separation:
        """What stands between this startd and its jobs, as it was a moment ago."""
        if time.monotonic() - self._compared >= LOOK_S:
            self._separation = self._find_separation()
            self._compared = time.monotonic()
        return self._separation

    def _find_separation(self) -> Separation:
        host, rules = self._host, self.rules
        return find_separation(
            root=host.root,
            # Root's own pool, as it is made. Elsewhere it is a mistake, which each job's refusal tells how to mend.
            closed_to_others=(
                host_capabilities.closed_to_others(self.execute) if host.root and rules.own_users else ""
            ),
            landlock=kernel.landlock_version(),
            landlock_wanted=rules.landlock,
            needed=kernel.LANDLOCK_SIGNALS,
            sockets=() if host.root else host_capabilities.find_sockets(rules.engine),
        )

    def check_process_job(self, launch: Launch) -> None:
        """Whether a job that is no container's may run here. Raises RunFailed."""
        why = refusal(self._find_separation(), self.rules.own_users, launch.job_ad.eval_string("User"))
        if why:
            raise Fault.NOT_SEPARATED.failure(why)
        closed = isolation.ungranted(self.rules, self.host, launch, os.path.realpath)
        if closed:
            raise Fault.NOT_SEPARATED.failure(
                f"jobs of this startd, which is not root, may not use {closed}: add its directory to "
                "ROOST_JOB_WRITE_PATHS or ROOST_JOB_READ_PATHS"
            )

    # -- before the start

    def account(self, slot: str, job: ClassAd) -> Account | None:
        """The account of a run, for its processes, its hooks and its visitors; None: the startd's own. Raises
        RunFailed."""
        if not self.host.root or is_own(self.rules.own_users, job.eval_string("User")):
            return None
        try:
            return isolation.choose_account(self.rules, slot, job, self._find)
        except isolation.NoAccount as error:
            raise Fault.NO_ISOLATION.failure(str(error)) from error

    async def prepare(self, launch: Launch) -> None:
        """Everything in the scratch directory becomes the account's. Raises RunFailed, OSError."""
        scratch = self.view(launch.scratch)
        if self.host.mounts:
            for folder in isolation.private_directories(self.rules, launch):
                _make_private(scratch, isolation.private_name(folder))
            if self.hidden_devices(launch):
                _make_no_device(scratch)
        account = launch.account
        if account is None or not self.host.root:
            return
        self._must_enter(launch, account)
        if _is_small(scratch):
            scratch_dirs.give_tree(scratch, account.uid, account.gid)
        else:
            await asyncio.to_thread(scratch_dirs.give_tree, scratch, account.uid, account.gid)

    async def mount_scratch(self, launch: Launch) -> None:
        """Give the scratch directory a file system of its own, where that is wanted. Raises RunFailed."""
        if self.volumes.usable and launch.scratch.parent == self.execute:
            await self.volumes.mount_scratch(launch.scratch.name, disk_of(launch.machine_ad))

    def view(self, scratch: Path) -> Path:
        """A scratch directory, as this process finds it."""
        return self.volumes.view(scratch.name) if scratch.parent == self.execute else scratch

    def _must_enter(self, launch: Launch, account: Account) -> None:
        for folder in (launch.scratch.parent, *launch.scratch.parent.parents):
            status = os.stat(folder)
            mine = 0o010 if status.st_gid in (account.gid, *account.groups) else 0o001
            if not status.st_mode & (0o100 if status.st_uid == account.uid else mine):
                raise Fault.NO_ISOLATION.failure(
                    f"jobs run as {account.name}, which can not enter {folder}: give others the permission to "
                    f"(chmod o+x), or set EXECUTE to another directory",
                    machine=True,
                )

    def request(self, launch: Launch) -> dict[str, Any]:
        """What to add to a request to spawn. Raises RunFailed."""
        gid = 0
        if self.host.root and self.rules.tracking_gids:
            used = {isolated.tracking_gid for isolated in self.runs.values()}
            found = isolation.free_gid(self.rules.tracking_gids, used)
            if found is None:
                gids = self.rules.tracking_gids
                raise Fault.NO_ISOLATION.failure(
                    f"there are no more tracking GIDs: MIN_TRACKING_GID {gids[0]} to MAX_TRACKING_GID {gids[-1]} are "
                    f"all in use; set aside one for each slot",
                )
            gid = found
        hidden = self.hidden_devices(launch)
        request = isolation.isolation_request(self.rules, self.host, launch, tracking_gid=gid, hidden=hidden)
        memory_mib = isolation.memory_limit_mib(self.rules, launch)
        isolated = IsolatedRun(tracking_gid=gid, memory_mib=memory_mib, scratch=launch.scratch)
        isolated.disk_kib = disk_of(launch.machine_ad)
        if self.cgroups:
            isolated.group = self._group_of(launch.slot)
            request["cgroup"] = self._make_cgroup(isolated.group, launch)
            request["group"] = isolated.group
        if "cgroup" not in request and self.rules.most_processes:
            # The kernel counts all of the account, so the job gets as many as there are now and its own number.
            request["limits"]["RLIMIT_NPROC"] = host_capabilities.threads() + self.rules.most_processes
        self.runs[launch.run] = isolated
        return request

    def hidden_devices(self, launch: Launch) -> list[str]:
        """Paths of the GPUs of other slots, which the job must not use (STARTER_HIDE_GPU_DEVICES)."""
        if not (self.host.mounts and self.rules.hide_gpus) or launch.account is None:
            return []
        return gpus_to_hide(launch.machine_ad, self._find_gpus())

    def _make_cgroup(self, group: str, launch: Launch) -> dict[str, Any]:
        """Raises RunFailed."""
        virtual = launch.machine_ad.eval("VirtualMemory")
        limits = cgroup_limits(
            self.rules,
            launch.cpus,
            isolation.memory_limit_mib(self.rules, launch),
            virtual if isinstance(virtual, int) else None,
            isolation.whole(self.rules.memory_low_mib, launch.machine_ad, launch.job_ad),
        )
        try:
            made = self.cgroups.make(group, limits)
        except OSError as error:
            message = f"this machine can not limit the job: {error}"
            raise Fault.NO_ISOLATION.failure(message, machine=True) from error
        self._tell(self.cgroups.trouble(group))
        return made | ({"with_files": True} if self.rules.files_count else {})

    # -- hooks

    def hook_cgroup(self, launch: Launch) -> tuple[str, ...]:
        """Directories of the cgroup that the hooks of a run enter, its job's; none where there are no cgroups. What a
        hook leaves running goes with the job. Raises RunFailed."""
        if not self.cgroups:
            return ()
        return tuple(sorted(Cgroup(self._make_cgroup(self._group_of(launch.slot), launch)).folders()))

    def renew_cgroup(self, slot: str) -> None:
        """A hook is over: where it left nothing running, the job gets a cgroup that has counted nothing yet."""
        group = self._group_of(slot)
        if self.cgroups and not self.cgroups.processes(group):
            self.cgroups.drop(group)

    async def end_hooks(self, slot: str) -> None:
        """End whatever hooks left running of a run whose job has ended, or never began."""
        group = self._group_of(slot)
        if not self.cgroups or not self.cgroups.processes(group):
            return
        await asyncio.to_thread(Cgroup(self.cgroups.describe(group)).kill)
        for _ in range(LEAVING_ROUNDS):
            if not self.cgroups.processes(group):
                break
            await asyncio.sleep(LEAVING_ROUND_S)
        self.cgroups.drop(group)  # one that was killed is not used again: the next job gets a new one

    def _group_of(self, slot: str) -> str:
        return group_name(str(self.execute), slot, self.hostname)

    def _tell(self, missing: list[str]) -> None:
        for one in missing:
            if one not in self._warned:
                self._warned.add(one)
                self._warn("limit_not_set", limit=one)

    # -- meanwhile

    def use(self, run: str) -> Use | None:
        """What a run uses, by its cgroup."""
        isolated = self.runs.get(run)
        if isolated is None or not isolated.group:
            return None
        return self.cgroups.use(isolated.group, with_files=self.rules.files_count)

    def adopt(self, run: str, group: str, tracking_gid: int) -> None:
        """A run of an earlier life that is still under way."""
        self.runs[run] = IsolatedRun(group, tracking_gid)

    def restore(self, run: str, scratch: Path, memory_mib: int, disk_kib: int) -> None:
        """What the journal knows of a run that was adopted."""
        isolated = self.runs.get(run)
        if isolated is not None and isolated.scratch is None:
            isolated.scratch, isolated.memory_mib, isolated.disk_kib = scratch, memory_mib, disk_kib

    async def check_disks(self) -> list[str]:
        """Runs that used more of the disk than they were given: they are condemned, and are to be killed."""
        found = []
        for run in list(self.runs):
            if run not in self.violations and await self.check_disk(run):
                found.append(run)
        return found

    async def check_disk(self, run: str) -> bool:
        """Whether the run is condemned for its use of the disk (SCR-02)."""
        isolated = self.runs.get(run)
        if isolated is None or isolated.scratch is None or not self.rules.disk.enforce:
            return False
        if self.volumes.has(isolated.scratch.name):
            room = self.volumes.room(isolated.scratch.name)
            violation = over_volume(room) if room is not None else None
        elif isolated.disk_kib:
            used = await asyncio.to_thread(scratch_dirs.size_kib, isolated.scratch)
            violation = over_measure(used, isolated.disk_kib)
        else:
            violation = None
        if violation is not None:
            self.note_violation(run, violation)
        return violation is not None

    def note_violation(self, run: str, violation: Violation) -> None:
        """The run is about to be killed for this."""
        self.violations.setdefault(run, violation)

    # -- after

    def explain_end(self, run: str, end: Finished, out_of_memory: Mapping[str, Any] | None) -> Finished:
        """The end of a run, with what its isolation tells of it: held for what it used (ISO-09), or lost because the
        machine had no memory left (ISO-10)."""
        violation = self.violations.get(run)
        if violation is not None:
            return end.held(violation.fault, violation.message)
        if out_of_memory is None:
            return end
        isolated = self.runs.get(run, IsolatedRun())
        peak = int(out_of_memory.get("peak_bytes", 0)) // MIB
        if not out_of_memory.get("own"):
            used = f" ({peak} MB used)" if peak else ""
            message = f"this machine ran out of memory, below what the job was given{used}"
            return end.lost(Fault.MEMORY_SHORT, message)
        limit = isolated.memory_mib
        if self.rules.memory_policy == "soft":
            limit = max(limit, self.rules.machine_memory_mib)
        return end.held(
            Fault.OVER_MEMORY,
            f"Job has gone over memory limit of {limit} megabytes. Peak usage: {max(peak, 1)} megabytes.",
        )

    def ended(self, run: str, *, used_up: bool) -> None:
        """None of its processes is left."""
        isolated = self.runs.pop(run, None)
        if isolated is not None and isolated.group and (used_up or isolated.last):
            self.cgroups.drop(isolated.group)

    def forget(self, run: str) -> None:
        self.violations.pop(run, None)
        self.ended(run, used_up=True)

    def release_slot(self, slot: str) -> None:
        """No further job comes to this slot for now."""
        if not self.cgroups:
            return
        group = self._group_of(slot)
        busy = [isolated for isolated in self.runs.values() if isolated.group == group]
        for isolated in busy:
            isolated.last = True
        if not busy:
            self.cgroups.drop(group)

    def sweep(self) -> None:
        """Cgroups of an earlier life without runs."""
        if self.cgroups:
            resisted = self.cgroups.sweep({isolated.group for isolated in self.runs.values()})
            if resisted:
                self._warn("cgroups_not_removed", names=resisted)

    def close(self) -> None:
        """Leave nothing of what no run is in; the fork server removes the others at its own end."""
        if self.cgroups:
            self.cgroups.close({isolated.group for isolated in self.runs.values()})


def _make_private(scratch: Path, name: str) -> None:
    """Make a directory in the scratch directory, parents too. Raises RunFailed where a link or file is in the way: by a
    link, another directory would be put over the machine's."""
    path = scratch
    for part in Path(name).parts:
        path /= part
        path.mkdir(mode=0o700, exist_ok=True) if not path.is_symlink() else None
        if not stat.S_ISDIR(path.lstat().st_mode):
            raise Fault.NO_ISOLATION.failure(f"{path.relative_to(scratch)} of the scratch directory is no directory")


def _make_no_device(scratch: Path) -> None:
    """Make the file that hides devices anew: an earlier run of the job may have put something else there."""
    _make_private(scratch, isolation.PRIVATE)
    path = scratch / isolation.NO_DEVICE
    if path.is_dir() and not path.is_symlink():
        raise Fault.NO_ISOLATION.failure(f"{isolation.NO_DEVICE} of the scratch directory is a directory")
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY | os.O_CLOEXEC, 0))


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


def make_isolation_manager(
    settings: IsolationSettings,
    fork_server: ForkServer,
    *,
    execute: Path,
    hostname: str,
    private: tuple[str, ...],
    log: BoundLogger,
) -> IsolationManager:
    """Look at the machine and make what it allows. Blocking, once. private: see `IsolationManager`."""
    host = host_capabilities.look_at_host()
    hierarchies = prepare_hierarchies(settings.base_cgroup if host.root else "", host_capabilities.mountinfo())
    if host.root and not hierarchies:
        log.warning("no_cgroups", reason=hierarchies.trouble)
    if not host.root:
        host_capabilities.close_to_own_account()
        if settings.tracking_gids or settings.pid_namespaces:
            log.warning("walls_need_root", knobs="USE_GID_PROCESS_TRACKING, USE_PID_NAMESPACES")
    volumes = ScratchVolumes(settings.disk, execute, fork_server, able=host.mounts)
    if settings.disk.enforce and not volumes.usable:
        log.warning("disk_limits_by_measuring", reason=volumes.trouble)
    return IsolationManager(
        settings,
        host,
        Cgroups(hierarchies, group_name(str(execute), "", hostname)),
        volumes,
        execute=execute,
        hostname=hostname,
        find=host_capabilities.find_login,
        warn=log.warning,
        private=private,
    )


def no_isolation(settings: IsolationSettings, *, execute: Path, hostname: str, log: BoundLogger) -> IsolationManager:
    """A manager for a startd whose launchers need no isolation, or that has not looked at its machine yet."""
    return IsolationManager(
        settings,
        HostCapabilities(root=False, mounts=False, pid_namespaces=False),
        Cgroups(Hierarchies(), ""),
        ScratchVolumes(settings.disk, execute, None, able=False),
        execute=execute,
        hostname=hostname,
        find=host_capabilities.find_login,
        warn=log.warning,
    )
