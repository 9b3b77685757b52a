"""The cgroups of slots: made for the first job of a slot, kept for the next, removed when there is none.

At the start it is found out where cgroups are on this machine, of which version, and whether this startd may make some.
A cgroup holds one job at a time. Its limits are written when they are others than those it has, so that a job on a
reused claim costs no more than entering it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.startd.core.isolation import CgroupLimits, files_of_version_1, files_of_version_2

#: What a job's cgroup is for, beside keeping its processes together.
CONTROLLERS = ("memory", "cpu", "pids")
#: Of version 1 only: freezing, which version 2 always can, and the time used.
_ONLY_1 = ("freezer", "cpuacct")
#: Where processes go that are in the way of handing controllers on to jobs.
LEAF = "roost.daemons"


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Directories under which this startd makes the cgroups of its jobs: BASE_CGROUP in each hierarchy.

    `unified`: of version 2, None if there is none that can be used; `controllers`: what is enabled for jobs there.
    `old`: of version 1, by controller. A machine may have both (hybrid).
    """

    unified: Path | None = None
    controllers: frozenset[str] = frozenset()
    old: Mapping[str, Path] = field(default_factory=dict)
    trouble: str = ""  # why there are none, or fewer than the machine has

    def __bool__(self) -> bool:
        return self.unified is not None or bool(self.old)


def explain_trouble(found: Hierarchies, base: str) -> str:
    """What jobs lack with these hierarchies, why, and the mend; empty: nothing. base: BASE_CGROUP; empty: nobody wants
    cgroups."""
    if not base:
        return ""
    delegate = (
        "the startd has to be given a part of the tree: Delegate=yes in its systemd unit, or in a container a writable "
        "/sys/fs/cgroup (docker: --cgroupns=private and --privileged, or compose's cgroup: private)"
    )
    if not found:
        return (
            f"jobs are held to no limits of memory and processes and may outlive their slot, as it has no cgroups "
            f"({found.trouble}): {delegate}; or set BASE_CGROUP to nothing to do without"
        )
    if found.unified is not None and not found.old:
        lacks = [name for name in CONTROLLERS if name not in found.controllers]
        if lacks:
            return (
                f"jobs are not held to their {' and '.join(lacks)}, as cgroup v2 at {found.unified} hands on only "
                f"{', '.join(sorted(found.controllers)) or 'nothing'}: {delegate}"
            )
        return ""
    lacks = [name for name in CONTROLLERS if name not in found.old and name not in found.controllers]
    if lacks:
        return (
            f"jobs are not held to their {' and '.join(lacks)}, as neither version of cgroups has them for us "
            f"({found.trouble or 'they are not mounted'}): mount them, or boot with "
            "systemd.unified_cgroup_hierarchy=1, which has all in version 2"
        )
    return ""


def mounted_hierarchies(mountinfo: str) -> tuple[Path | None, dict[str, Path]]:
    """Where cgroups are mounted, from the text of /proc/self/mountinfo: of version 2, and of version 1 by
    controller."""
    unified: Path | None = None
    old: dict[str, Path] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or not kind:
            continue
        where = Path(fields[4].replace("\\040", " "))
        if kind[0] == "cgroup2":
            unified = unified or where
        elif kind[0] == "cgroup":
            for word in kind[-1].split(","):
                if word in (*CONTROLLERS, *_ONLY_1):
                    old.setdefault(word, where)
    return unified, old


def prepare_hierarchies(base: str, mountinfo: str) -> Hierarchies:
    """Make BASE_CGROUP wherever it may be made. Blocking; done once."""
    if not base:
        return Hierarchies(trouble="BASE_CGROUP is empty")
    unified, old = mounted_hierarchies(mountinfo)
    troubles = []
    mine: dict[str, Path] = {}
    for controller, where in old.items():
        try:
            os.makedirs(where / base, exist_ok=True)
            if not os.access(where / base, os.W_OK):
                raise PermissionError(errno.EACCES, "not writable")
        except OSError as error:
            troubles.append(f"{where / base}: {error.strerror}")
        else:
            mine[controller] = where / base
    enabled: frozenset[str] = frozenset()
    if unified is not None:
        try:
            os.makedirs(unified / base, exist_ok=True)
            enabled = _hand_on(unified, base)
            if not os.access(unified / base / "cgroup.procs", os.W_OK):
                raise PermissionError(errno.EACCES, "not writable")
        except OSError as error:
            troubles.append(f"{unified / base}: {error.strerror}")
            unified = None
    if unified is None and not old:
        troubles.append("no cgroups are mounted")
    return Hierarchies(unified / base if unified else None, enabled, mine, "; ".join(troubles))


def _hand_on(root: Path, base: str) -> frozenset[str]:
    """Enable the controllers for what is below BASE_CGROUP; those that are. A cgroup with processes can not hand
    controllers on, but for the machine's root: in a container ours is such a one, and they go to a leaf of it."""
    parts = base.split("/")
    for depth in range(len(parts) + 1):
        folder = root.joinpath(*parts[:depth])
        for controller in CONTROLLERS:
            if controller not in _words(folder / "cgroup.controllers"):
                continue
            if controller in _words(folder / "cgroup.subtree_control"):
                continue
            try:
                _write(folder / "cgroup.subtree_control", f"+{controller}")
            except OSError as error:
                if error.errno != errno.EBUSY or depth or not (folder / "cgroup.type").exists():
                    continue
                _make_way(folder)
                with contextlib.suppress(OSError):
                    _write(folder / "cgroup.subtree_control", f"+{controller}")
    return frozenset(_words(root / base / "cgroup.subtree_control")) & set(CONTROLLERS)


def _make_way(folder: Path) -> None:
    leaf = folder / LEAF
    leaf.mkdir(exist_ok=True)
    for pid in _words(folder / "cgroup.procs"):
        with contextlib.suppress(OSError):  # ended meanwhile
            _write(leaf / "cgroup.procs", pid)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _write(path: Path, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


#: Names in /proc of the kernel's clock for processor time: ticks for each second.
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class _Group:
    limits: CgroupLimits | None = None  # as written
    missing: list[str] = field(default_factory=list)  # limits that this kernel has not


@dataclass(frozen=True, slots=True)
class Use:
    """What the processes of a cgroup use; cpu times are since it was made."""

    user_cpu_s: float
    sys_cpu_s: float
    resident_kib: int
    procs: int


class Cgroups:
    """`prefix`: how the names of this startd's cgroups begin (`limits.group_name`)."""

    def __init__(self, hierarchies: Hierarchies, prefix: str) -> None:
        self.hierarchies = hierarchies
        self.prefix = prefix
        self._groups: dict[str, _Group] = {}

    def __bool__(self) -> bool:
        return bool(self.hierarchies)

    def make(self, name: str, limits: CgroupLimits) -> dict[str, Any]:
        """The cgroup `name` with these limits, as the fork server wants it (`forkserver.cgroup`). Raises OSError."""
        group = self._groups.get(name)
        if group is None:
            self._remove(name)  # of an earlier life, in whatever state
            for folder in self._folders(name):
                os.makedirs(folder, exist_ok=True)
            group = self._groups[name] = _Group()
        if group.limits != limits:
            group.missing = self._write(name, limits)
            group.limits = limits
        return self.describe(name)

    def describe(self, name: str) -> dict[str, Any]:
        found, old = self.hierarchies, self.hierarchies.old
        join = list(dict.fromkeys(str(folder / name) for folder in old.values()))
        described: dict[str, Any] = {"join": join}
        if found.unified is not None:
            described["unified"] = str(found.unified / name)
        if "freezer" in old:
            described["freezer"] = str(old["freezer"] / name)
        if "memory" in old:
            described["memory"] = str(old["memory"] / name)
        return described

    def trouble(self, name: str) -> list[str]:
        """Limits that could not be set."""
        group = self._groups.get(name)
        return group.missing if group is not None else []

    def drop(self, name: str) -> bool:
        """Remove it; False when processes are in it still."""
        self._groups.pop(name, None)
        return self._remove(name)

    def sweep(self, keep: Iterable[str]) -> list[str]:
        """Remove those of this startd that no run is in (after a crash); names of those that resisted."""
        kept, resisted = set(keep), []
        names: set[str] = set()
        for base in self._bases():
            with contextlib.suppress(OSError):
                names.update(name for name in os.listdir(base) if name.startswith(self.prefix))
        for name in sorted(names - kept):
            if not self._remove(name):
                resisted.append(name)
        return resisted

    def close(self, keep: Iterable[str]) -> None:
        """Remove what is not in use, the base too if nobody else uses it."""
        for name in [name for name in self._groups if name not in keep]:
            self.drop(name)
        for base in self._bases():
            with contextlib.suppress(OSError):
                os.rmdir(base)

    def processes(self, name: str) -> list[int]:
        """Of which it consists now."""
        found: set[int] = set()
        for folder in self._folders(name):
            with contextlib.suppress(OSError):
                found.update(map(int, (folder / "cgroup.procs").read_text().split()))
        return sorted(found)

    def use(self, name: str, *, with_files: bool = False) -> Use | None:
        """None where there is nothing to read. with_files: memory counts with what the kernel keeps there of files."""
        found, old = self.hierarchies, self.hierarchies.old
        try:
            if "memory" in old and "cpuacct" in old:
                memory = _fields(old["memory"] / name / "memory.stat")
                times = _fields(old["cpuacct"] / name / "cpuacct.stat")
                resident = memory.get("total_rss", memory.get("rss", 0)) + memory.get("total_shmem", 0)
                # Shared memory is part of what is kept of files.
                files = memory.get("total_cache", memory.get("cache", 0)) - memory.get("total_shmem", 0)
                user, system = times.get("user", 0) / _TICKS, times.get("system", 0) / _TICKS
                procs = len((old["memory"] / name / "cgroup.procs").read_text().split())
            elif found.unified is not None and {"memory", "cpu"} <= found.controllers:
                memory = _fields(found.unified / name / "memory.stat")
                times = _fields(found.unified / name / "cpu.stat")
                resident = memory.get("anon", 0) + memory.get("shmem", 0)
                files = memory.get("file", 0) - memory.get("shmem", 0)
                user, system = times.get("user_usec", 0) / 1e6, times.get("system_usec", 0) / 1e6
                procs = len((found.unified / name / "cgroup.procs").read_text().split())
            else:
                return None
        except OSError:
            return None
        return Use(user, system, (resident + (max(0, files) if with_files else 0)) // 1024, procs)

    # -- inside

    def _write(self, name: str, limits: CgroupLimits) -> list[str]:
        """Limits that the kernel does not take, with its reason. Raises OSError when memory can not be limited."""
        missing = []
        found = self.hierarchies
        wanted = [
            (controller, found.old[controller] / name / file, text)
            for controller, file, text in files_of_version_1(limits)
            if controller in found.old
        ]
        if found.unified is not None:
            wanted += [
                (controller, found.unified / name / file, text)
                for controller, file, text in files_of_version_2(limits)
                if controller in found.controllers
            ]
        for _, path, text in wanted:
            try:
                _set(path, text)
            except OSError as error:
                if path.name in ("memory.limit_in_bytes", "memory.max"):
                    raise
                # Without swap accounting, say: what is not there can not be limited.
                missing.append(f"{path.name}: {error.strerror}")
        limited = {controller for controller, _, _ in wanted}
        return missing + [f"no {controller} controller" for controller in CONTROLLERS if controller not in limited]

    def _bases(self) -> list[Path]:
        found = self.hierarchies
        bases = [*found.old.values(), *([found.unified] if found.unified is not None else [])]
        return list(dict.fromkeys(bases))

    def _folders(self, name: str) -> list[Path]:
        return [base / name for base in self._bases()]

    def _remove(self, name: str) -> bool:
        gone = True
        for folder in self._folders(name):
            gone &= _remove_tree(folder)
        return gone


def _remove_tree(folder: Path) -> bool:
    """A cgroup with those below it, which a job with rights of its own may have made."""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        below = sorted((path for path, _, _ in os.walk(folder)), key=len, reverse=True)
        for path in below:
            with contextlib.suppress(OSError):
                os.rmdir(path)
        return not folder.exists()
    return True


def _set(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _fields(path: Path) -> Mapping[str, int]:
    pairs = (line.split() for line in path.read_text().splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}
