"""What the knobs say of isolation: one frozen model, read with the startd's settings. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from shared.classad import ClassAd, Expr, evaluate
from shared.config.knobs import StartdSettings
from shared.errors import PermanentError

MemoryPolicy = Literal["hard", "soft", "none"]


class BadWall(PermanentError):
    """A knob of isolation that can not be carried out: its name and the mend."""


@dataclass(frozen=True, slots=True)
class DiskRules:
    """STARTD_ENFORCE_DISK_LIMITS and LVM_* (SCR-01, SCR-04). Taken at the start only (SCR-06)."""

    enforce: bool
    volume_group: str  # empty: none
    thin_pool: str  # empty: thick volumes
    backing_file: str  # where there is no volume group


@dataclass(frozen=True, slots=True)
class WallRules:
    uid_domain: str
    jobs_as_root: bool
    allow_owner: bool  # STARTER_ALLOW_RUNAS_OWNER
    slot_users: Mapping[str, str]  # by "1" of SLOT1_USER, or "1_2" of SLOT1_2_USER
    dedicated: re.Pattern[str] | None
    login_is_dedicated: bool
    pid_namespaces: bool
    tracking_gids: range  # empty: no tracking by group
    base_cgroup: str  # empty: no cgroups
    memory_policy: MemoryPolicy
    no_swap: bool
    most_processes: int  # 0: any number
    machine_memory_mib: int  # what "the whole machine" is for the policy `soft` (ISO-07)
    nice: Expr
    address_space_mib: Expr | None
    under_scratch: Expr
    private_shm: bool
    landlock: bool
    hidden: tuple[str, ...]
    disk_interval: float  # seconds
    disk: DiskRules


def read_walls(knobs: StartdSettings, *, uid_domain: str, machine_memory_mib: int) -> WallRules:
    """Raises BadWall."""
    pattern = knobs.dedicated_execute_account_regexp
    try:
        dedicated = re.compile(pattern) if pattern else None
    except re.error as error:
        raise BadWall(f"DEDICATED_EXECUTE_ACCOUNT_REGEXP = {pattern}: no regular expression: {error}") from error
    return WallRules(
        uid_domain=uid_domain,
        jobs_as_root=knobs.roost_jobs_as_root,
        allow_owner=knobs.starter_allow_runas_owner is not False,
        slot_users={number: name.strip() for number, name in knobs.slot_user_by_n.items() if name.strip()},
        dedicated=dedicated,
        login_is_dedicated=knobs.execute_login_is_dedicated,
        pid_namespaces=knobs.use_pid_namespaces,
        tracking_gids=_gids(knobs),
        base_cgroup=_base(knobs.base_cgroup),
        memory_policy=_policy(knobs.cgroup_memory_limit_policy),
        no_swap=knobs.disable_swap_for_job,
        most_processes=knobs.roost_job_max_processes,
        machine_memory_mib=machine_memory_mib,
        nice=knobs.job_renice_increment,
        address_space_mib=knobs.starter_rlimit_as,
        under_scratch=knobs.mount_under_scratch,
        private_shm=knobs.mount_private_dev_shm,
        landlock=knobs.roost_landlock,
        hidden=knobs.roost_hidden_from_jobs,
        disk_interval=knobs.roost_disk_check_interval,
        disk=DiskRules(
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


def _policy(text: str) -> MemoryPolicy:
    word = text.lower()
    return "hard" if word == "hard" else "soft" if word == "soft" else "none"


def _gids(knobs: StartdSettings) -> range:
    if not knobs.use_gid_process_tracking:
        return range(0)
    low, high = knobs.min_tracking_gid, knobs.max_tracking_gid
    if low <= 0 or high < low:
        raise BadWall(
            f"USE_GID_PROCESS_TRACKING needs a range of groups that nothing else uses: MIN_TRACKING_GID is {low}, "
            f"MAX_TRACKING_GID {high}; set them to 750 and 757, say, for eight slots"
        )
    return range(low, high + 1)


def _base(text: str) -> str:
    """Raises BadWall."""
    parts = [part for part in text.strip().split("/") if part]
    if any(part in (".", "..") or "\0" in part for part in parts):
        raise BadWall(f"BASE_CGROUP = {text}: give the name of a cgroup, without . and ..")
    return "/".join(parts)
