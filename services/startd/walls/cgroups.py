"""The cgroups of slots: made for the first job of a slot, kept for the next, removed when there is none.

A cgroup holds one job at a time. Its limits are written when they are others than those it has, so that a job on a
reused claim costs no more than entering it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.startd.walls.cgroup_base import CONTROLLERS, Hierarchies
from services.startd.walls.limits import Limits, files_of_version_1, files_of_version_2

#: Names in /proc of the kernel's clock for processor time: ticks for each second.
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class _Group:
    limits: Limits | None = None  # as written
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

    def make(self, name: str, limits: Limits) -> dict[str, Any]:
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

    def use(self, name: str) -> Use | None:
        """None where there is nothing to read."""
        found, old = self.hierarchies, self.hierarchies.old
        try:
            if "memory" in old and "cpuacct" in old:
                memory = _fields(old["memory"] / name / "memory.stat")
                times = _fields(old["cpuacct"] / name / "cpuacct.stat")
                resident = memory.get("total_rss", memory.get("rss", 0)) + memory.get("total_shmem", 0)
                user, system = times.get("user", 0) / _TICKS, times.get("system", 0) / _TICKS
                procs = len((old["memory"] / name / "cgroup.procs").read_text().split())
            elif found.unified is not None and {"memory", "cpu"} <= found.controllers:
                memory = _fields(found.unified / name / "memory.stat")
                times = _fields(found.unified / name / "cpu.stat")
                resident = memory.get("anon", 0) + memory.get("shmem", 0)
                user, system = times.get("user_usec", 0) / 1e6, times.get("system_usec", 0) / 1e6
                procs = len((found.unified / name / "cgroup.procs").read_text().split())
            else:
                return None
        except OSError:
            return None
        return Use(user, system, resident // 1024, procs)

    # -- inside

    def _write(self, name: str, limits: Limits) -> list[str]:
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
