"""How a job is isolated: its system account, its limits, and what of the machine it sees. Pure.

The knobs are read into one frozen model. What comes out is part of the fork server's request to spawn
(`forkserver.server.Server`), so that it can be written to a socket and read in a log. The machine's accounts come as a
function.

A startd that is root chooses, as HTCondor does, the first of these accounts that is possible:

1. the job's owner, if STARTER_ALLOW_RUNAS_OWNER permits it, the job does not refuse (RunAsOwner), and it comes from
   this UID_DOMAIN;
2. the slot's user: SLOT<N>_USER (SLOT1_2_USER of a dynamic slot, else its parent's);
3. nobody.

Never root, whatever its name, but for the jobs of own users (`core.separation`), and for all where ROOST_JOBS_AS_ROOT
is set. A startd that is not root has one account for everything.

What Landlock lets a job of such a startd see is granted, place by place: a path that nobody thought of is closed.

Limits of cgroups (ISO-06 to ISO-13) are bytes, None is no limit; both versions of cgroups have files for them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from services.startd.core.run.job_launch import Account, Launch
from services.startd.core.separation import EVERYBODY, is_own
from shared.classad import ClassAd, Expr, evaluate
from shared.config.knobs import StartdSettings
from shared.errors import PermanentError
from shared.users import local_name

MemoryPolicy = Literal["hard", "soft", "custom", "none"]


class BadIsolationSetting(PermanentError):
    """A knob of isolation that can not be carried out: its name and the mend."""


#: Of a slot's name without its machine: the number, of a dynamic slot with its own.
_SLOT_NUMBER = re.compile(r"[0-9]+(?:_[0-9]+)?$")


@dataclass(frozen=True, slots=True)
class DiskSettings:
    """STARTD_ENFORCE_DISK_LIMITS and LVM_* (SCR-01, SCR-04). Taken at the start only (SCR-06)."""

    enforce: bool
    volume_group: str  # empty: none
    thin_pool: str  # empty: thick volumes
    backing_file: str  # where there is no volume group


@dataclass(frozen=True, slots=True)
class IsolationSettings:
    uid_domain: str
    allow_owner: bool  # STARTER_ALLOW_RUNAS_OWNER
    slot_users: Mapping[str, str]  # by "1" of SLOT1_USER, or "1_2" of SLOT1_2_USER
    dedicated: re.Pattern[str] | None
    login_is_dedicated: bool
    pid_namespaces: bool
    tracking_gids: range  # empty: no tracking by group
    base_cgroup: str  # empty: no cgroups
    memory_policy: MemoryPolicy
    memory_limit_mib: Expr | None  # where the policy is custom
    memory_low_mib: Expr | None
    no_swap: bool
    hide_gpus: bool  # those of other slots
    files_count: bool  # what the kernel keeps of a job's files counts as its memory
    most_processes: int  # 0: any number
    machine_memory_mib: int  # what "the whole machine" is for the policy `soft` (ISO-07)
    nice: Expr
    address_space_mib: Expr | None
    under_scratch: Expr | None
    private_shm: bool
    landlock: bool
    hidden: tuple[str, ...]
    own_users: tuple[str, ...]  # as name@domain, or `separation.EVERYBODY`
    read_paths: tuple[str, ...]  # of this machine, for jobs that have the startd's account
    write_paths: tuple[str, ...]
    seccomp: bool
    user_namespaces: bool  # jobs may make them
    engine: str  # ROOST_DOCKER_HOST
    disk_interval: float  # seconds
    disk: DiskSettings


def read_isolation_settings(knobs: StartdSettings, *, uid_domain: str, machine_memory_mib: int) -> IsolationSettings:
    """Raises BadWall."""
    pattern = knobs.dedicated_execute_account_regexp
    try:
        dedicated = re.compile(pattern) if pattern else None
    except re.error as error:
        raise BadIsolationSetting(
            f"DEDICATED_EXECUTE_ACCOUNT_REGEXP = {pattern}: no regular expression: {error}"
        ) from error
    return IsolationSettings(
        uid_domain=uid_domain,
        allow_owner=knobs.starter_allow_runas_owner is not False,
        slot_users={number: name.strip() for number, name in knobs.slot_user_by_n.items() if name.strip()},
        dedicated=dedicated,
        login_is_dedicated=knobs.execute_login_is_dedicated,
        pid_namespaces=knobs.use_pid_namespaces,
        tracking_gids=_gids(knobs),
        base_cgroup=_base(knobs.base_cgroup or ""),
        memory_policy=_policy(knobs),
        memory_limit_mib=knobs.cgroup_hard_memory_limit_expr,
        memory_low_mib=knobs.cgroup_low_memory_limit,
        no_swap=knobs.disable_swap_for_job,
        hide_gpus=knobs.starter_hide_gpu_devices,
        files_count=not knobs.cgroup_ignore_cache_memory,
        most_processes=knobs.roost_job_max_processes,
        machine_memory_mib=machine_memory_mib,
        nice=knobs.job_renice_increment,
        address_space_mib=knobs.starter_rlimit_as,
        under_scratch=knobs.mount_under_scratch,
        private_shm=knobs.mount_private_dev_shm,
        landlock=knobs.roost_landlock,
        hidden=knobs.roost_hidden_from_jobs,
        own_users=(EVERYBODY,) if knobs.roost_jobs_as_root else knobs.roost_own_users,
        read_paths=knobs.roost_job_read_paths,
        write_paths=knobs.roost_job_write_paths,
        seccomp=knobs.roost_seccomp,
        user_namespaces=knobs.roost_job_user_namespaces,
        engine=knobs.roost_docker_host or "",
        disk_interval=knobs.roost_disk_check_interval,
        disk=DiskSettings(
            enforce=knobs.startd_enforce_disk_limits,
            volume_group=knobs.lvm_volume_group_name or "",
            thin_pool=(knobs.lvm_thinpool_name or "") if knobs.lvm_use_thin_provisioning else "",
            backing_file=knobs.lvm_backing_file,
        ),
    )


def whole(expr: Expr | None, machine: ClassAd, job: ClassAd) -> int:
    """A number that a knob gives for this job on this machine (MY is the machine, TARGET the job); 0 if it is none."""
    if expr is None:
        return 0
    value = evaluate(expr, machine, job)
    return int(value) if isinstance(value, int | float) and abs(value) < 2**53 else 0


def _policy(knobs: StartdSettings) -> MemoryPolicy:
    """Raises BadIsolationSetting."""
    word = knobs.cgroup_memory_limit_policy.lower()
    if word == "custom" and knobs.cgroup_hard_memory_limit_expr is None:
        raise BadIsolationSetting(
            "CGROUP_MEMORY_LIMIT_POLICY = custom needs CGROUP_HARD_MEMORY_LIMIT_EXPR: write, say, 1.5 * Memory"
        )
    return "hard" if word == "hard" else "soft" if word == "soft" else "custom" if word == "custom" else "none"


def _gids(knobs: StartdSettings) -> range:
    if not knobs.use_gid_process_tracking:
        return range(0)
    low, high = knobs.min_tracking_gid, knobs.max_tracking_gid
    if low <= 0 or high < low:
        raise BadIsolationSetting(
            f"USE_GID_PROCESS_TRACKING needs a range of groups that nothing else uses: MIN_TRACKING_GID is {low}, "
            f"MAX_TRACKING_GID {high}; set them to 750 and 757, say, for eight slots"
        )
    return range(low, high + 1)


def _base(text: str) -> str:
    """Raises BadWall."""
    parts = [part for part in text.strip().split("/") if part]
    if any(part in (".", "..") or "\0" in part for part in parts):
        raise BadIsolationSetting(f"BASE_CGROUP = {text}: give the name of a cgroup, without . and ..")
    return "/".join(parts)


NOBODY = "nobody"
#: Where there is no account of that name.
NOBODY_ID = 65534


@dataclass(frozen=True, slots=True)
class Login:
    """An account of the machine."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


FindLogin = Callable[[str], Login | None]


class NoAccount(Exception):
    """The knobs name an account that is not there or may not be used: which knob, and the mend."""


def choose_account(rules: IsolationSettings, slot: str, job: ClassAd, find: FindLogin) -> Account:
    """The account of a run in a slot ("slot1_2@host"), where the startd is root and the job is no own user's. Raises
    NoAccount."""
    owner = _owner(rules, job, find)
    if owner is not None:
        return _account(owner, shared=False, dedicated=_is_dedicated(rules, owner.name))
    head = slot.partition("@")[0]
    number = matched[0] if (matched := _SLOT_NUMBER.search(head)) else head
    knob = next((one for one in (number, number.partition("_")[0]) if one in rules.slot_users), "")
    if knob:
        login = find(rules.slot_users[knob])
        if login is None or login.uid == 0:
            what = "is root" if login is not None else "is no account of this machine"
            raise NoAccount(f"SLOT{knob.upper()}_USER = {rules.slot_users[knob]} {what}: name an ordinary account")
        alone = knob == number and sum(name == login.name for name in rules.slot_users.values()) == 1
        dedicated = rules.login_is_dedicated or _is_dedicated(rules, login.name)
        return _account(login, shared=not alone, dedicated=dedicated)
    login = find(NOBODY) or Login(NOBODY, NOBODY_ID, NOBODY_ID, (), "/")
    return _account(login, shared=True, dedicated=rules.login_is_dedicated or _is_dedicated(rules, login.name))


def _owner(rules: IsolationSettings, job: ClassAd, find: FindLogin) -> Login | None:
    name = local_name(job.eval_string("User"), rules.uid_domain)
    if not rules.allow_owner or job.eval("RunAsOwner") is False or not name or name != job.eval_string("Owner"):
        return None
    login = find(name)
    return login if login is not None and login.uid != 0 else None


def _account(login: Login, *, shared: bool, dedicated: bool) -> Account:
    return Account(
        name=login.name,
        uid=login.uid,
        gid=login.gid,
        groups=tuple(group for group in login.groups if group != 0),
        home=login.home,
        dedicated=dedicated,
        shared=shared,
    )


def _is_dedicated(rules: IsolationSettings, name: str) -> bool:
    return rules.dedicated is not None and rules.dedicated.fullmatch(name) is not None


def free_gid(gids: range, used: Collection[int]) -> int | None:
    """A group to track a run by; None when all are used (ISO-03)."""
    return next((gid for gid in gids if gid not in used), None)


MIB = 1024 * 1024
#: cpu.shares, and cpu.weight, for each core.
SHARES_OF_A_CORE = 100
_LEAST_SHARES, _MOST_SHARES = 2, 262144
_LEAST_WEIGHT, _MOST_WEIGHT = 1, 10000


@dataclass(frozen=True, slots=True)
class CgroupLimits:
    memory_hard: int | None
    memory_soft: int | None
    swap: int | None  # beside the memory; None: as much as there is
    cpu_shares: int
    processes: int | None


def memory_limit_mib(rules: IsolationSettings, launch: Launch) -> int:
    """What a job may have of the memory: its slot's, or where the policy is custom what the administrator says."""
    if rules.memory_policy == "custom" and (wanted := whole(rules.memory_limit_mib, launch.machine_ad, launch.job_ad)):
        return max(1, wanted)
    return launch.memory_mib


def cgroup_limits(
    rules: IsolationSettings, cpus: float, memory_mib: int, virtual_kib: int | None, low_mib: int = 0
) -> CgroupLimits:
    """The limits of a job in a slot of this size. memory_mib: as `memory_limit_mib` has it. `virtual_kib`: the slot's
    VirtualMemory. low_mib: CGROUP_LOW_MEMORY_LIMIT; 0: as the policy has it.

    hard, custom: this memory, softly nine tenths of it (ISO-06); soft: the machine's, softly this (ISO-07);
    none: no limit (ISO-08). Swap is what VirtualMemory is more than Memory (ISO-12).
    """
    slot = memory_mib * MIB
    hard: int | None
    soft: int | None
    if not slot:  # a consumption policy may give none of a resource (CON-02), and still nothing runs without memory
        hard = soft = None
    elif rules.memory_policy in ("hard", "custom"):
        hard, soft = slot, slot * 9 // 10
    elif rules.memory_policy == "soft":
        hard, soft = max(slot, rules.machine_memory_mib * MIB), slot
    else:
        hard = soft = None
    if low_mib > 0:
        soft = low_mib * MIB
    swap: int | None = None
    if rules.no_swap:
        swap = 0
    elif hard is not None and virtual_kib is not None:
        swap = max(0, virtual_kib * 1024 - slot)
    shares = min(max(round(SHARES_OF_A_CORE * cpus), _LEAST_SHARES), _MOST_SHARES)
    return CgroupLimits(hard, soft, swap, shares, rules.most_processes or None)


def files_of_version_1(limits: CgroupLimits) -> list[tuple[str, str, str]]:
    """(controller, file, text), in the order in which they must be written. A limit on memory and swap together may
    not be below one on memory alone, so it is lifted first."""
    hard = limits.memory_hard
    found = [("memory", "memory.memsw.limit_in_bytes", "-1"), ("memory", "memory.limit_in_bytes", _or(hard, "-1"))]
    if hard is not None and limits.swap is not None:
        found.append(("memory", "memory.memsw.limit_in_bytes", str(hard + limits.swap)))
    if hard is None and limits.swap == 0:
        found.append(("memory", "memory.swappiness", "0"))
    found.append(("memory", "memory.soft_limit_in_bytes", _or(limits.memory_soft, "-1")))
    found.append(("cpu", "cpu.shares", str(limits.cpu_shares)))
    found.append(("pids", "pids.max", _or(limits.processes, "max")))
    return found


def files_of_version_2(limits: CgroupLimits) -> list[tuple[str, str, str]]:
    """The same files of version 2. memory.high throttles a job rather than to warn its machine, so what is soft is
    memory.low, the memory that is not taken from it while others have more than theirs: nine tenths of a hard
    limit, or the slot's memory. What dies, dies whole (memory.oom.group)."""
    return [
        ("memory", "memory.max", _or(limits.memory_hard, "max")),
        ("memory", "memory.low", _or(limits.memory_soft, "0")),
        ("memory", "memory.swap.max", _or(limits.swap, "max")),
        ("memory", "memory.oom.group", "1"),
        ("cpu", "cpu.weight", str(weight_of(limits.cpu_shares))),
        ("pids", "pids.max", _or(limits.processes, "max")),
    ]


def weight_of(shares: int) -> int:
    """cpu.weight of these cpu.shares: the same number as far as it goes. Only the relation between jobs counts, since
    none but them are in their parent."""
    return min(max(shares, _LEAST_WEIGHT), _MOST_WEIGHT)


def _or(number: int | None, otherwise: str) -> str:
    return otherwise if number is None else str(number)


def group_name(execute: str, slot: str, hostname: str) -> str:
    """The name of a slot's cgroup (ISO-05): `condor_var_lib_condor_execute_slot1`. The slot's machine is named where
    it is another than this one's, because several startds may share the directory."""
    name, _, machine = slot.partition("@")
    if machine and machine != hostname:
        name = f"{name}@{machine}"
    return f"condor{execute}_{name}".replace("/", "_").replace("\0", "_")


#: In the scratch directory: what lies over /tmp, /var/tmp and the like.
PRIVATE = ".private"
#: In the scratch directory: an empty file, which lies over devices that the job must not use.
NO_DEVICE = f"{PRIVATE}/no-device"
#: The most a job's priority is lowered by.
_WORST_NICE = 19


@dataclass(frozen=True, slots=True)
class HostCapabilities:
    """What this startd may do on this machine."""

    root: bool
    mounts: bool  # mount namespaces of its own
    pid_namespaces: bool
    landlock: bool = False  # of a version that keeps signals in
    #: What jobs that have the startd's account may use of this machine, each with "r" or "w" before it (`job_view`).
    grants: tuple[tuple[str, str], ...] = ()


def nice_of(rules: IsolationSettings, launch: Launch) -> int:
    """JOB_RENICE_INCREMENT: how much the job's priority is lowered, 0 to 19."""
    return min(max(whole(rules.nice, launch.machine_ad, launch.job_ad), 0), _WORST_NICE)


def limits_of_process(rules: IsolationSettings, launch: Launch) -> dict[str, int]:
    """RLIMIT_* of every process of the job: the launch's own and STARTER_RLIMIT_AS (MiB; 0: none)."""
    limits = dict(launch.limits)
    size = whole(rules.address_space_mib, launch.machine_ad, launch.job_ad)
    if size > 0:
        limits["RLIMIT_AS"] = size * MIB
    return limits


def private_directories(rules: IsolationSettings, launch: Launch) -> list[str]:
    """MOUNT_UNDER_SCRATCH: shared directories of which this job gets its own, outer ones first. One that the job
    names files in (its directory, program or streams, but for what is in its scratch directory) stays shared."""
    if launch.in_container:
        return []  # the container runtime makes them
    if launch.account is None:
        return []
    rule = rules.under_scratch
    value = None if rule is None else evaluate(rule, launch.machine_ad, launch.job_ad)
    words = [word.strip() for word in value.split(",")] if isinstance(value, str) else []
    wanted = sorted({posixpath.normpath(word) for word in words if word.startswith("/") and word.strip("/")})
    scratch = str(launch.scratch)
    used = [launch.cwd, launch.executable, launch.stdin, launch.stdout, launch.stderr]
    outside = [path for path in used if path and not _within(path, scratch)]
    return [
        folder
        for folder in wanted
        if not any(_within(path, folder) for path in outside) and not _within(folder, scratch)
    ]


def private_name(folder: str) -> str:
    """The place in the scratch directory of the job's own /var/tmp: `.private/var_tmp`."""
    return f"{PRIVATE}/{folder.strip('/').replace('/', '_')}"


def isolation_request(
    rules: IsolationSettings,
    host: HostCapabilities,
    launch: Launch,
    *,
    tracking_gid: int = 0,
    hidden: Sequence[str] = (),
) -> dict[str, Any]:
    """What the fork server is to isolate a job with, but for its cgroup. hidden: devices that it must not use. The
    private directories, and NO_DEVICE where something is hidden, must be there before it starts."""
    scratch = str(launch.scratch)
    found: dict[str, Any] = {"nice": nice_of(rules, launch), "limits": limits_of_process(rules, launch)}
    account = launch.account
    if host.root and (account is not None or tracking_gid):
        groups = account.groups if account is not None else ()
        found["account"] = {
            "uid": account.uid if account is not None else 0,
            "gid": account.gid if account is not None else 0,
            "groups": [*groups, *([tracking_gid] if tracking_gid else [])],
        }
        found["dedicated"] = account is not None and account.dedicated
        found["tracking_gid"] = tracking_gid
    if host.mounts and account is None and rules.pid_namespaces:
        # Nothing else keeps root in: there is no point in it.
        found |= {"mounts": {}, "pid_namespace": host.pid_namespaces}
    elif host.mounts and account is not None:
        found["mounts"] = {
            "scratch": scratch,
            "hide": posixpath.dirname(scratch) if _hides(launch) else "",
            "private": [
                *([private_name(one), one] for one in private_directories(rules, launch)),
                *([NO_DEVICE, path] for path in hidden),
            ],
            "shm": launch.memory_mib * MIB if rules.private_shm and not launch.in_container else 0,
            "ipc": account.shared,
        }
        # Two jobs of one account could signal each other, and look at each other's files by way of /proc.
        found["pid_namespace"] = host.pid_namespaces and (rules.pid_namespaces or account.shared)
    found |= _limits_of_rights(rules, host, launch)
    return found


#: What a root has whom a container engine lets in by default: jobs of root's own keep no more than that. CHOWN,
#: DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW, SYS_CHROOT, MKNOD,
#: AUDIT_WRITE, SETFCAP, by their numbers.
ROOTS_CAPABILITIES: Final = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31))


def _limits_of_rights(rules: IsolationSettings, host: HostCapabilities, launch: Launch) -> dict[str, Any]:
    """Landlock, capabilities and system calls. A container runtime makes walls of its own, for which it needs rights
    that jobs have not."""
    if launch.in_container:
        return {"landlock": {"grants": None}} if rules.landlock else {}
    as_root = host.root and launch.account is None
    found: dict[str, Any] = {"no_new_privileges": True, "capabilities": ROOTS_CAPABILITIES if as_root else 0}
    if rules.landlock and host.landlock:
        found["landlock"] = {"grants": granted(rules, host, launch)}
    if rules.seccomp:
        # Without a namespace of processes or Landlock a job of the same account could be looked into.
        apart = "landlock" in found or (host.root and host.pid_namespaces)
        found["seccomp"] = {"namespaces": rules.user_namespaces, "others": apart}
    return found


def granted(rules: IsolationSettings, host: HostCapabilities, launch: Launch) -> list[list[str]] | None:
    """What the job may use of the file system, its scratch directory first; None: all that its account may."""
    if host.root or is_own(rules.own_users, launch.job_ad.eval_string("User")):
        return None
    return [["w", str(launch.scratch)], *(list(one) for one in host.grants)]


def ungranted(
    rules: IsolationSettings, host: HostCapabilities, launch: Launch, real: Callable[[str], str] = posixpath.normpath
) -> str:
    """A path that the job names and may not use; empty: there is none. real: a path without links."""
    grants = granted(rules, host, launch) if rules.landlock and host.landlock and not launch.in_container else None
    if grants is None:
        return ""
    used = [launch.cwd, launch.executable, launch.stdin, launch.stdout, launch.stderr]
    asked = [path for path in used if path.startswith("/") and not _within(path, str(launch.scratch))]
    places = [real(place) for place in (*(place for _, place in grants), *launch.reads)]
    return next((path for path in asked if not any(_within(real(path), place) for place in places)), "")


def _hides(launch: Launch) -> bool:
    """Not where the job works in a directory beside its scratch directory."""
    execute, scratch = posixpath.dirname(str(launch.scratch)), str(launch.scratch)
    used = [launch.cwd, launch.executable, launch.stdin, launch.stdout, launch.stderr]
    return not any(path and _within(path, execute) and not _within(path, scratch) for path in used)


def _within(path: str, folder: str) -> bool:
    return (posixpath.normpath(path) + "/").startswith(posixpath.normpath(folder).rstrip("/") + "/")
